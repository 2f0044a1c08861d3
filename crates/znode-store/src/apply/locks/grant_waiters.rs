//! What follows when contenders go: those who wait are let in, callers learn how it ended, and what is remembered of
//! their requests is corrected.
//!
//! Waiters are let in once, at the end of each command. In between a lock may look free, to nobody: a session that
//! ends takes its holder away first and its waiter second, and that waiter must never have held the lock.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::apply::Context;
use crate::locks::contender::{Attempt, Record};
use crate::locks::queue::{Contender, Rank};
use crate::locks::state::Closed;
use crate::locks::table::KeptState;
use crate::model::damage::Damage;
use crate::model::data::Data;
use crate::model::event::{ContenderEnd, Event, Hold};
use crate::model::identity::{Identities, Identity};
use crate::model::ids::{RequestId, SessionId, Zxid};
use crate::model::lock::LockMode;
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Place, Reply};
use crate::planted;
use crate::planted::Bug;
use crate::sessions::request_cache::MemoryKey;
use crate::store::Store;

/// An ephemeral node below a lock's znode that is gone.
pub(crate) struct EndedContender {
    /// Below which lock.
    pub lock: LockName,
    /// Where it was.
    pub node: ZPath,
    /// What was in it.
    pub data: Data,
    /// When it was created.
    pub czxid: Zxid,
    /// Whose it was.
    pub session: SessionId,
    /// Why it is gone.
    pub how: ContenderEnd,
}

impl Store {
    /// Such a node is gone; its `Deleted` event is out already.
    pub(crate) fn contender_removed(&mut self, cx: &mut Context<'_>, ended: EndedContender) {
        let EndedContender {
            lock,
            node,
            data,
            czxid,
            session,
            how,
        } = ended;
        let holder = node.name();
        let Some(facts) = self.locks.facts(holder, &data) else {
            return;
        };
        let record = facts.record.as_deref();
        let held = self.locks.remove(&lock, (czxid, facts.number, holder));
        if record.is_some_and(|record| record.is_upgrading()) {
            self.locks.change_state(&lock, |state| state.upgrading = false);
        }
        let delay_ms = record.map_or(0, |record| record.lock_delay_ms);
        if held.is_some() && delay_ms > 0 && how == ContenderEnd::SessionExpired {
            self.close_lock(cx, &lock, delay_ms);
        }
        let holder = String::from(holder);
        // Whoever repeats a call that was still waiting learns that there is nothing to wait for. (One that had been
        // granted is answered the grant, as after a release.)
        let answer = match &how {
            ContenderEnd::Broken { by, reason } => Some(Refusal::Broken {
                lock: lock.clone(),
                holder: holder.clone(),
                by: by.clone(),
                reason: reason.clone(),
            }),
            ContenderEnd::NeverGrantable { limit } => Some(Refusal::ModeConflict {
                lock: lock.clone(),
                in_use: LockMode::Semaphore { limit: *limit },
            }),
            ContenderEnd::Deleted => {
                let (lock, holder) = (lock.clone(), holder.clone());
                Some(Refusal::NotHolder { lock, holder })
            }
            ContenderEnd::Forbidden => Some(Refusal::no_right_to_lock(&lock)),
            // The step that withdrew the call corrects the memory itself; a release leaves it as it is.
            ContenderEnd::Withdrawn | ContenderEnd::Released | ContenderEnd::Upgraded => None,
            // What was remembered of the session goes with it.
            ContenderEnd::SessionClosed | ContenderEnd::SessionExpired => None,
        };
        if let Some(refusal) = answer {
            for request_id in facts.record.iter().flat_map(|record| record.request_ids()) {
                self.correct_queued(session, request_id, &lock, &holder, Err(refusal.clone()));
            }
        }
        if let Some(contender) = held {
            #[cfg(feature = "planted")]
            if planted::is(Bug::LeakedPermits)
                && matches!(contender.claim.mode, LockMode::Semaphore { .. })
                && matches!(how, ContenderEnd::SessionExpired | ContenderEnd::SessionClosed)
            {
                self.locks.leak(&lock, contender.claim.permits);
            }
            let since_ms = facts.record.as_deref().and_then(|record| record.granted_ms);
            let hold = self.hold(&lock, &contender, facts.record.as_deref(), since_ms);
            let by = match &how {
                ContenderEnd::Broken { .. } | ContenderEnd::Deleted => shown(cx.caller),
                _ => None,
            };
            let how = how.clone();
            cx.events.push(Event::HoldEnded { hold, how, by });
        }
        cx.events.push(Event::ContenderEnded {
            session,
            lock,
            holder,
            how,
        });
    }

    /// Called once at the end of every command: waiters of the locks that it touched are let in.
    pub(crate) fn settle_locks(&mut self, cx: &mut Context<'_>) {
        loop {
            let mut touched = self.locks.take_touched();
            if touched.is_empty() {
                return self.locks.give_back(touched);
            }
            for lock in touched.drain(..) {
                self.settle_upgrade(cx, &lock);
                while self.remove_ungrantable(cx, &lock)
                    && let Some(contender) = self.locks.promote(&lock)
                {
                    self.let_in(cx, &lock, contender);
                }
                self.lower_floor(&lock);
            }
            self.locks.give_back(touched);
        }
    }

    /// Removes the next waiters from the queue while their sessions have ended, or the owners of their sessions have no right to lock here.
    /// Returns whether the one that is next then may be granted the lock. It may not if its session has ended and this entry has done its share
    /// of removals; the entry that removes the waiter settles the lock again.
    fn remove_ungrantable(&mut self, cx: &mut Context<'_>, lock: &LockName) -> bool {
        while (self.access.waits_end_with_rights() || self.sessions.are_ending())
            && let Some(next) = self.locks.next(lock)
        {
            let (name, czxid) = (next.name.clone(), next.czxid);
            let ended = self.sessions.get(next.session).and_then(|session| session.ending);
            let how = match ended {
                Some(_) if *cx.removals_left == 0 => return false,
                Some(ending) => {
                    *cx.removals_left -= 1;
                    ending.how()
                }
                // The rights of contenders that this very command created are checked before it is applied.
                None if czxid == cx.zxid => return true,
                None => ContenderEnd::Forbidden,
            };
            let found = self.contender(lock, &name).expect("it is in the queue");
            if how == ContenderEnd::Forbidden
                && !self.has_lost_right(found.session, lock, found.record.is_some(), cx.now_ms)
            {
                return true;
            }
            self.remove_contender(cx, &found, how);
        }
        true
    }

    /// Whoever came after the last grant out of order has a larger token anyway.
    fn lower_floor(&mut self, lock: &LockName) {
        let floor = self.locks.state(lock).map_or(Zxid(0), |state| state.floor);
        if floor == Zxid(0) {
            return;
        }
        let waiter = self.locks.queue(lock).and_then(|queue| queue.waiters().next());
        if waiter.is_none_or(|waiter| waiter.czxid > floor) {
            self.locks.change_state(lock, |state| state.floor = Zxid(0));
        }
    }

    /// Nobody is let in until the leader has counted the time.
    fn close_lock(&mut self, cx: &mut Context<'_>, lock: &LockName, delay_ms: u32) {
        let closed = self.locks.state(lock).and_then(|state| state.closed);
        let delay_ms = closed.map_or(0, |closed| closed.delay_ms).max(delay_ms);
        self.locks.change_state(lock, |state| {
            state.closed = Some(Closed {
                at: cx.zxid,
                at_ms: cx.now_ms,
                delay_ms,
                passed_ms: 0,
            });
        });
        let lock = lock.clone();
        cx.events.push(Event::LockClosed { lock, delay_ms });
    }

    /// Called once at the end of a restore, when all contenders were announced.
    pub(crate) fn locks_restored(&mut self, states: Vec<KeptState>) -> Result<(), Damage> {
        self.locks.restored(states, self.zxid)
    }

    /// Tells whoever has to know that a contender holds its lock now.
    fn let_in(&mut self, cx: &mut Context<'_>, lock: &LockName, mut contender: Contender) {
        let holder = &*contender.name.clone();
        let mut found = self.contender(lock, holder).expect("it was just let in");
        debug_assert_eq!(found.rank, Rank::Holds);
        let floor = self.locks.state(lock).map_or(Zxid(0), |state| state.floor);
        let is_late = found.czxid <= floor;
        if let Some(record) = found.record_mut() {
            record.granted_ms = Some(cx.now_ms);
            // Somebody who conflicts was granted the lock with a token that is larger than its position.
            if is_late {
                record.token = Some(cx.zxid);
                let token = cx.zxid;
                (found.token, contender.token) = (token, token);
                self.locks
                    .change(lock, found.position(), |contender| contender.token = token);
                self.locks.change_state(lock, |state| state.floor = token);
            }
            self.rewrite(cx, &mut found);
        }
        let grant = found.grant();
        for request_id in found.record.iter().flat_map(|record| record.request_ids()) {
            let answer = Ok(Reply::Granted(grant.clone()));
            self.correct_queued(found.session, request_id, lock, holder, answer);
        }
        let hold = self.hold(lock, &contender, found.record.as_deref(), Some(cx.now_ms));
        cx.events.push(Event::HoldBegan(hold));
        // A ZooKeeper client's contender that comes into a free lock has not waited.
        if found.czxid != cx.zxid {
            cx.events.push(Event::Granted {
                session: found.session,
                grant,
            });
        }
    }

    /// All that there is to say about a contender that holds its lock, or did until now. Its texts are shared with the
    /// record and not copied: this is done twice for every lock that is taken and given back.
    pub(crate) fn hold(
        &self,
        lock: &LockName,
        contender: &Contender,
        record: Option<&Record>,
        since_ms: Option<u64>,
    ) -> Arc<Hold> {
        let session_name = match self.sessions.get(contender.session) {
            Some(session) => session.name.clone(),
            None if planted::is(Bug::GrantToTheDead) => "".into(),
            None => panic!("a session outlives its contenders"),
        };
        let (owner, note, address) = match record {
            Some(record) => (record.owner.clone(), record.note.clone(), record.address.clone()),
            None => ("".into(), "".into(), "".into()),
        };
        Arc::new(Hold {
            lock: lock.clone(),
            holder: contender.name.clone(),
            session: contender.session,
            session_name,
            mode: contender.claim.mode,
            permits: contender.claim.permits,
            fencing_token: contender.token,
            owner,
            note,
            address,
            since_ms,
        })
    }

    /// Corrects what is remembered of a call that was answered "queued", or of the part of one that stands in several
    /// queues.
    pub(crate) fn correct_queued(
        &mut self,
        session: SessionId,
        id: &RequestId,
        lock: &LockName,
        holder: &str,
        answer: Outcome,
    ) {
        let id = &MemoryKey::from(id);
        let Some(memory) = self.memory_of(Some(session)) else {
            return;
        };
        let waits = |place: &Place| place.holder == holder && place.lock == *lock;
        let corrected = match memory.get(id).map(|record| &record.outcome) {
            Some(Ok(Reply::Queued(place))) if waits(place) => answer,
            Some(Ok(Reply::Multi(parts))) => {
                let waiting = |part: &Reply| matches!(part, Reply::Queued(place) if waits(place));
                match (parts.iter().position(waiting), answer) {
                    (Some(at), Ok(granted)) => {
                        let mut parts = parts.clone();
                        parts[at] = granted;
                        Ok(Reply::Multi(parts))
                    }
                    // Without one of its locks the call has failed.
                    (Some(_), refused @ Err(_)) => refused,
                    (None, _) => return,
                }
            }
            _ => return,
        };
        memory.update(id, corrected);
    }

    /// Corrects what is remembered of a call that was withdrawn: it is answered so, or, with `None`, forgotten.
    ///
    /// An id that fell out of the memory may stand for another request by now; that one is left alone.
    pub(crate) fn correct_memory(
        &mut self,
        session: SessionId,
        id: &RequestId,
        holder: &str,
        answer: Option<Outcome>,
    ) {
        let id = &MemoryKey::from(id);
        let Some(memory) = self.memory_of(Some(session)) else {
            return;
        };
        let is_its = |reply: &Reply| match reply {
            Reply::Queued(place) => place.holder == holder,
            Reply::Granted(grant) => grant.holder == holder,
            _ => false,
        };
        let remembered = match memory.get(id).map(|record| &record.outcome) {
            Some(Ok(Reply::Multi(parts))) => parts.iter().any(is_its),
            Some(Ok(reply)) => is_its(reply),
            _ => false,
        };
        if remembered {
            match answer {
                Some(answer) => memory.update(id, answer),
                None => memory.forget(id),
            }
        }
    }
}

/// Whatever a caller has proven to be, for people to read; `None` if that is nothing.
fn shown(caller: &Identities) -> Option<Arc<str>> {
    let mut shown = String::new();
    for identity in caller.iter() {
        if !shown.is_empty() {
            shown.push_str(", ");
        }
        match identity {
            Identity::Ip(address) => shown.push_str(&format!("ip:{address}")),
            // Without the hash of the password.
            Identity::Digest(id) => {
                shown.push_str("digest:");
                shown.push_str(id.split(':').next().unwrap_or_default());
            }
            Identity::X509(subject) => {
                shown.push_str("x509:");
                shown.push_str(subject);
            }
            Identity::Super => shown.push_str("super"),
            Identity::Token(id) => shown.push_str(&format!("token:{id}")),
            Identity::Internal => shown.push_str("the cluster"),
        }
    }
    (!shown.is_empty()).then(|| shown.into())
}

impl crate::locks::contender::Record {
    /// What the outcomes of its calls are remembered under.
    fn request_ids(&self) -> impl Iterator<Item = &RequestId> {
        self.attempts
            .iter()
            .filter_map(|Attempt { request_id, .. }| request_id.as_ref())
    }
}
