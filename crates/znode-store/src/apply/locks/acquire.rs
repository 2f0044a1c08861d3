//! The steps of the lock protocol: what `acquire`, `release`, `withdraw` and `break` do to the tree and answer.
//! Each step refuses before it changes anything. Nobody but `settle.rs` decides that somebody who waits holds.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::apply::Context;
use crate::apply::locks::modes::waits_for_itself;
use crate::apply::locks::resolve::Found;
use crate::locks::contender::{Attempt, Record};
use crate::locks::deadlock::Ask;
use crate::locks::name;
use crate::locks::queue::{Contender, Queue, Rank};
use crate::locks::state::MAX_LOCK_DELAY_MS;
use crate::model::acl::{Acl, Perms};
use crate::model::event::{ContenderEnd, Event};
use crate::model::ids::{RequestId, SessionId};
use crate::model::lock::Claim;
use crate::model::lock::{AttemptId, HolderId, LockCommand, LockMode, LockWish, WithdrawCause};
use crate::model::path::{LockName, ZPath};
use crate::model::refusal::Refusal;
use crate::model::reply::{Outcome, Reply};
use crate::model::stat::Kind;
use crate::planted;
use crate::planted::Bug;
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// How many contenders of its own making one lock may have: ten thousand that wait, and as many that hold. Each is a
/// znode in memory, and every look at the queue shows them all.
pub const MAX_CONTENDERS: usize = 20_000;

/// How often one owner may enter a lock. Each entry is some twenty bytes in the contender's data, which is written
/// anew each time.
pub const MAX_HOLDS: usize = 1_000;

/// The longest owner in bytes: it is a scope (a thread, a task), not a text.
pub const MAX_OWNER_BYTES: usize = 256;

/// The longest note in bytes: a line or two for people.
pub const MAX_NOTE_BYTES: usize = 1024;

/// The longest address in bytes: a host's name and a port.
pub const MAX_ADDRESS_BYTES: usize = 300;

/// The longest reason of a break or a request to give up, and the longest answer to that: a line or two for people.
pub const MAX_REASON_BYTES: usize = 1024;

/// How many holders a refusal names. A shared lock may have thousands, and each refused try would carry them all
/// into the memory of requests.
pub const MAX_NAMED_HOLDERS: usize = 16;

/// One call of `acquire`.
pub(crate) struct Call {
    pub session: SessionId,
    pub wish: LockWish,
    pub guid: u128,
    pub attempt: Attempt,
    pub wait: bool,
}

/// What a call comes to that is not refused.
pub(crate) enum Plan {
    /// It enters by the contender of this name, once more.
    Join(Arc<str>),
    /// It gets a contender of its own.
    Enter,
}

/// What a call came to.
pub(crate) enum Entry {
    Joined(Found),
    Created(Created),
}

/// A contender that was just created and stands in no queue yet.
pub(crate) struct Created {
    lock: LockName,
    index: NodeIndex,
    path: ZPath,
    session: SessionId,
    number: u64,
    record: Arc<Record>,
}

impl Store {
    /// Carries out a step of the lock protocol. Its outcome is remembered under `request_id` by the caller, the
    /// attempt keeps the id to correct the memory later.
    pub(crate) fn lock_command(
        &mut self,
        cx: &mut Context<'_>,
        session: Option<SessionId>,
        request_id: Option<&RequestId>,
        command: LockCommand,
    ) -> Outcome {
        let required = session.ok_or(Refusal::SessionRequired);
        let called = |id| Attempt {
            id,
            request_id: request_id.cloned(),
        };
        match command {
            LockCommand::Acquire {
                wish,
                guid,
                attempt,
                wait,
            } => {
                let call = Call {
                    session: required?,
                    wish,
                    guid,
                    attempt: called(attempt),
                    wait,
                };
                self.acquire(cx, call)
            }
            LockCommand::AcquireMany {
                wishes,
                guid,
                attempt,
                wait,
            } => self.acquire_many(cx, required?, wishes, guid, &called(attempt), wait),
            LockCommand::Release { lock, holder } => self.release(cx, required?, lock, holder),
            LockCommand::ReleaseMany { holders } => self.release_many(cx, required?, holders),
            LockCommand::Downgrade { lock, holder, to } => self.downgrade(cx, required?, lock, holder, to),
            LockCommand::Upgrade {
                lock,
                holder,
                attempt,
                wait,
            } => self.upgrade(cx, required?, lock, holder, &called(attempt), wait),
            LockCommand::Withdraw {
                lock,
                holder,
                attempt,
                cause,
            } => Ok(self.withdraw(cx, required?, &lock, &holder, attempt, cause)),
            LockCommand::WithdrawMany {
                holders,
                attempt,
                cause,
            } => self.withdraw_many(cx, required?, &holders, attempt, cause),
            LockCommand::AnswerRevoke { lock, holder, answer } => {
                self.answer_revoke(cx, required?, lock, holder, answer)
            }
            LockCommand::Break {
                lock,
                holder,
                by,
                reason,
            } => self.break_contender(cx, lock, holder, by, reason),
            LockCommand::Revoke {
                lock,
                holder,
                by,
                reason,
            } => self.revoke(cx, lock, holder, by, reason),
            LockCommand::Configure {
                lock,
                limit,
                draining,
            } => self.configure(cx, lock, limit, draining),
            LockCommand::CountDelays { locks, term } => self.count_delays(cx, locks, term),
        }
    }

    /// Stands in the queue, joins a contender of the same owner, or refuses.
    fn acquire(&mut self, cx: &mut Context<'_>, mut call: Call) -> Outcome {
        match self.plan(&mut call)? {
            Plan::Join(own) => self.join(cx, &own, call).map(|found| found.reply()),
            Plan::Enter => {
                let created = self.create_contender(cx, call)?;
                Ok(self.stand(cx, created).reply())
            }
        }
    }

    /// Decides what a call comes to, and refuses what the queue refuses. Whoever names no limit gets to know the one that
    /// is in force.
    pub(crate) fn plan(&self, call: &mut Call) -> Result<Plan, Refusal> {
        let Call { session, wish, .. } = call;
        check_wish(wish)?;
        let terms = self.locks.terms(&wish.lock);
        let in_use = self.mode_in_force(&wish.lock, terms);
        match (wish.mode, in_use) {
            (LockMode::Semaphore { limit: 0 }, None) => {
                return Err(Refusal::BadWish(
                    "the semaphore is not in use, so its limit has to be named".into(),
                ));
            }
            (LockMode::Semaphore { limit: 0 }, Some(in_use @ LockMode::Semaphore { .. })) => {
                wish.mode = in_use;
                check_permits(wish)?;
            }
            // Permits cannot be counted against locks that know no permits, nor against another limit.
            (wanted, Some(in_use)) if !go_together(in_use, wanted) => {
                return Err(Refusal::ModeConflict {
                    lock: wish.lock.clone(),
                    in_use,
                });
            }
            _ => {}
        }
        let queue = self.locks.queue(&wish.lock);
        // The owner is here already, or waits already.
        if wish.may_reenter()
            && let Some(own) = queue.and_then(|queue| queue.of_owner(*session, &wish.owner))
        {
            return Ok(Plan::Join(Arc::clone(&own.name)));
        }
        if terms.draining {
            return Err(Refusal::Draining(wish.lock.clone()));
        }
        let claim = claim_of(wish);
        let is_free = queue.map_or(!terms.is_shut(), |queue| queue.lets_in(claim, terms));
        // Others are, and the caller does not want to wait for them.
        if !call.wait && !is_free {
            return Err(Refusal::LockBusy {
                lock: wish.lock.clone(),
                holders: queue.map(named_holders).unwrap_or_default(),
            });
        }
        if queue.is_some_and(|queue| queue.len() >= MAX_CONTENDERS) {
            return Err(Refusal::QueueFull(wish.lock.clone()));
        }
        if !is_free && let Some(party) = wish.party() {
            self.refuse_deadlock((*session, party.clone()), &Ask::Enter(&wish.lock, claim))?;
        }
        Ok(Plan::Enter)
    }

    /// Creates a contender, and the lock if need be. It stands in the queue only after [`Store::stand`].
    pub(crate) fn create_contender(&mut self, cx: &mut Context<'_>, call: Call) -> Result<Created, Refusal> {
        let Call {
            session,
            wish,
            guid,
            attempt,
            ..
        } = call;
        let znode = wish.lock.znode();
        let place = self.tree.place_below(znode);
        let parent = place.has_parent().then_some(place.ancestor);
        let number = self.tree.next_sequence(parent, znode)?;
        let path = wish
            .lock
            .contender(&name::make(guid, wish.mode, wish.names, number))
            .map_err(|bad| Refusal::BadPath(bad.to_string()))?;
        let acl = Acl::open();
        self.tree.may_create_at(&place, &acl, cx.caller)?;
        self.tree.may_have_children(&place, self.limits.children)?;
        self.may_own_more(session, &path)?;
        let mut record = Record::new(&wish, attempt, cx.now_ms);
        let terms = self.locks.terms(&wish.lock);
        let queue = self.locks.queue(&wish.lock);
        if queue.map_or(!terms.is_shut(), |queue| queue.lets_in(record.claim, terms)) {
            record.granted_ms = Some(cx.now_ms);
        }
        let record = Arc::new(record);
        let data = self.locks.write(&path, number, &record);
        self.tree.check_quotas_of_creation(&place, &path, &data)?;
        let parent = self.create_missing(cx, place, &acl);
        let index = self.add_child(cx, parent, znode, &path, Kind::Ephemeral(session), data, &acl);
        Ok(Created {
            lock: wish.lock,
            index,
            path,
            session,
            number,
            record,
        })
    }

    /// Sees what a new contender's place in the queue is, once the lock table knows of it.
    pub(crate) fn stand(&mut self, cx: &mut Context<'_>, created: Created) -> Found {
        let Created {
            lock,
            index,
            path,
            session,
            number,
            record,
        } = created;
        // Whoever was in the queue before could not be let in, or would have been.
        if let Some(newcomer) = self.locks.promote(&lock) {
            let hold = self.hold(&lock, &newcomer, Some(&record), Some(cx.now_ms));
            cx.events.push(Event::HoldBegan(hold));
        }
        let queue = self
            .locks
            .queue(&lock)
            .expect("a contender of it was just created");
        let rank = queue
            .rank((cx.zxid, number, path.name()))
            .expect("it was just created");
        let found = Found {
            lock,
            index,
            path,
            session,
            czxid: cx.zxid,
            token: cx.zxid,
            number,
            claim: record.claim,
            holds: record.holds(),
            record: Some(record),
            rank,
        };
        if let (Rank::Waits { .. }, Some(scope)) = (rank, found.scope()) {
            self.locks.waits(scope, &found.lock, found.position());
        }
        found
    }

    /// Enters once more where the owner is already, or waits already.
    pub(crate) fn join(&mut self, cx: &mut Context<'_>, own: &str, call: Call) -> Result<Found, Refusal> {
        let Call {
            wish, attempt, wait, ..
        } = call;
        let mut found = self.contender(&wish.lock, own).expect("it is in the queue");
        // Who shares the lock asks for more: it would stand behind itself. (A writer that asks to read has what it asks.)
        if reach(found.claim.mode) < reach(wish.mode) {
            return Err(waits_for_itself(&found));
        }
        if !wait && found.rank != Rank::Holds {
            let queue = self.locks.queue(&wish.lock).expect("its contender was found");
            return Err(Refusal::LockBusy {
                holders: named_holders(queue),
                lock: wish.lock,
            });
        }
        let record = found
            .record_mut()
            .expect("only contenders of our own making can be joined");
        if record.attempts.len() >= MAX_HOLDS {
            return Err(Refusal::TooManyHolds(wish.lock));
        }
        record.attempts.push(attempt);
        record.lock_delay_ms = record.lock_delay_ms.max(wish.lock_delay_ms);
        self.rewrite(cx, &mut found);
        Ok(found)
    }

    /// An `acquire` was sent again under its request id; `first` is what it was answered then, or what the memory
    /// was corrected to since. (A call that its caller abandoned is forgotten, and so never gets here.)
    pub(crate) fn repeat_acquire(
        &mut self,
        cx: &mut Context<'_>,
        session: SessionId,
        request_id: &RequestId,
        wish: &LockWish,
        attempt: AttemptId,
        first: Outcome,
    ) -> Outcome {
        let holder = match &first {
            Ok(Reply::Queued(place)) => &place.holder,
            Ok(Reply::Granted(grant)) => &grant.holder,
            // It was refused, or was not granted in time: once and for all.
            _ => return first,
        };
        let found = self
            .contender(&wish.lock, holder)
            .filter(|found| found.session == session);
        let Some(mut found) = found else {
            return first;
        };
        // From now on the call that was sent last stands there, and what the nodes of the others may still do about
        // them (give them up, because their caller went away) concerns nobody.
        let replaced = found
            .record_mut()
            .is_some_and(|record| record.replace(request_id, attempt));
        if !replaced {
            // The hold was given back, those of other calls stay.
            return first;
        }
        self.rewrite(cx, &mut found);
        Ok(found.reply())
    }

    /// Gives one hold back.
    pub(crate) fn release(
        &mut self,
        cx: &mut Context<'_>,
        session: SessionId,
        lock: LockName,
        holder: HolderId,
    ) -> Outcome {
        if self.tree.find(lock.znode()).is_none() {
            return Err(Refusal::NoLock(lock));
        }
        let found = self.contender(&lock, &holder);
        let mut found = found.filter(|found| found.session == session && found.rank == Rank::Holds);
        if found.is_none() && planted::is(Bug::ReleaseByName) {
            let held = |queue: &Queue| {
                let mut own = queue.holders().filter(|holder| holder.session == session);
                own.next().map(|holder| holder.name.clone())
            };
            let name = self.locks.queue(&lock).and_then(held);
            found = name.and_then(|name| self.contender(&lock, &name));
        }
        let Some(mut found) = found else {
            return Err(Refusal::NotHolder { lock, holder });
        };
        if found.holds == 1 {
            self.remove_contender(cx, &found, ContenderEnd::Released);
            return Ok(Reply::Released { holds: 0 });
        }
        let record = found
            .record_mut()
            .expect("other clients' contenders stand for one call");
        record.release_one();
        self.rewrite(cx, &mut found);
        Ok(Reply::Released { holds: found.holds })
    }

    /// Ends one call: takes it out of the queue, or back what it was granted.
    fn withdraw(
        &mut self,
        cx: &mut Context<'_>,
        session: SessionId,
        lock: &LockName,
        holder: &str,
        attempt: AttemptId,
        cause: WithdrawCause,
    ) -> Reply {
        let found = self
            .contender(lock, holder)
            .filter(|found| found.session == session);
        let record = found.as_ref().and_then(|found| found.record.as_ref());
        let knows = record.is_some_and(|record| record.knows(attempt));
        let upgrades = record.is_some_and(|record| record.upgrades_by(attempt));
        let found = match found {
            Some(found) if upgrades => return self.withdraw_upgrade(cx, found, cause),
            Some(found) if knows => found,
            // It was withdrawn before, its place was taken by a repeated call, or all is over.
            _ => return Reply::Withdrawn,
        };
        let how = match (found.rank, cause) {
            // The grant came before the end of the caller's patience, if only just.
            (Rank::Holds, WithdrawCause::TimedOut) => return Reply::Granted(found.grant()),
            // Nobody will ever learn of the grant.
            (Rank::Holds, WithdrawCause::Abandoned) => ContenderEnd::Released,
            (Rank::Waits { .. }, _) => ContenderEnd::Withdrawn,
        };
        let answer = match cause {
            WithdrawCause::TimedOut => Some(Err(Refusal::LockTimeout(lock.clone()))),
            WithdrawCause::Abandoned => None,
        };
        self.take_back(cx, found, attempt, how, answer);
        Reply::Withdrawn
    }

    /// Takes a call that a contender knows back, and the contender with the last of them. Repeated, the call is from now
    /// on answered so, or carried out anew.
    pub(crate) fn take_back(
        &mut self,
        cx: &mut Context<'_>,
        mut found: Found,
        attempt: AttemptId,
        how: ContenderEnd,
        answer: Option<Outcome>,
    ) {
        let record = found.record_mut().expect("it knows the call");
        let request_id = record.request_id_of(attempt);
        if record.attempts.len() == 1 {
            self.remove_contender(cx, &found, how);
        } else {
            record.take_back(attempt);
            self.rewrite(cx, &mut found);
        }
        if let Some(request_id) = request_id {
            self.correct_memory(found.session, &request_id, found.holder(), answer);
        }
    }

    /// Takes the lock, or the place in its queue, from whoever has it.
    fn break_contender(
        &mut self,
        cx: &mut Context<'_>,
        lock: LockName,
        holder: HolderId,
        by: Arc<str>,
        reason: Arc<str>,
    ) -> Outcome {
        let Some(znode) = self.tree.find(lock.znode()) else {
            return Err(Refusal::NoLock(lock));
        };
        self.tree
            .acl(znode)
            .require(Perms::DELETE, cx.caller, lock.znode())?;
        let Some(found) = self.contender(&lock, &holder) else {
            return Err(Refusal::NotHolder { lock, holder });
        };
        self.remove_contender(cx, &found, ContenderEnd::Broken { by, reason });
        Ok(Reply::Broken)
    }

    /// Removes the znode of a contender, and with it the contender.
    pub(crate) fn remove_contender(&mut self, cx: &mut Context<'_>, found: &Found, how: ContenderEnd) {
        self.remove_child(cx, found.index, found.lock.znode(), &found.path, how);
    }

    /// Writes a record that was changed back to its znode.
    pub(crate) fn rewrite(&mut self, cx: &mut Context<'_>, found: &mut Found) {
        let record = found
            .record
            .as_ref()
            .expect("only records of our own making are changed");
        found.holds = record.holds();
        let data = self.locks.write(&found.path, found.number, record);
        self.replace_data(cx, found.index, &found.path, data);
    }
}

/// Refuses what makes no sense, whoever asks: a front end may have checked, another one not.
fn check_wish(wish: &LockWish) -> Result<(), Refusal> {
    let bad = |what: String| Err(Refusal::BadWish(what.into()));
    check_permits(wish)?;
    if wish.lock_delay_ms > MAX_LOCK_DELAY_MS {
        return bad(format!(
            "a lock-delay of {} ms is more than the {MAX_LOCK_DELAY_MS} allowed",
            wish.lock_delay_ms
        ));
    }
    for (what, text, limit) in [
        ("owner", &wish.owner, MAX_OWNER_BYTES),
        ("note", &wish.note, MAX_NOTE_BYTES),
        ("address", &wish.address, MAX_ADDRESS_BYTES),
    ] {
        if text.len() > limit {
            return bad(format!(
                "{} bytes of {what} are more than the {limit} allowed",
                text.len()
            ));
        }
    }
    Ok(())
}

fn check_permits(wish: &LockWish) -> Result<(), Refusal> {
    let bad = |what: String| Err(Refusal::BadWish(what.into()));
    match (wish.mode, wish.permits) {
        (LockMode::Semaphore { .. }, 0) => bad("at least 1 permit has to be asked for".into()),
        // Whoever names no limit is checked when it is known.
        (LockMode::Semaphore { limit: 0 }, _) => Ok(()),
        (LockMode::Semaphore { limit }, permits) if permits > limit => bad(format!(
            "{permits} permits are never free where there are {limit}"
        )),
        (LockMode::Semaphore { .. }, _) | (_, 1) => Ok(()),
        (LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable, _) => {
            bad("only a semaphore has permits".into())
        }
    }
}

/// How much a mode gives of a lock that is shared or not: whoever has more has less as well.
fn reach(mode: LockMode) -> u8 {
    match mode {
        LockMode::Semaphore { .. } | LockMode::Shared => 0,
        LockMode::Upgradeable => 1,
        LockMode::Exclusive => 2,
    }
}

pub(crate) fn claim_of(wish: &LockWish) -> Claim {
    Claim {
        mode: wish.mode,
        permits: wish.permits,
    }
}

/// Whether a lock that is in use in one mode can be asked for in the other.
fn go_together(in_use: LockMode, wanted: LockMode) -> bool {
    match (in_use, wanted) {
        (LockMode::Semaphore { limit: in_use }, LockMode::Semaphore { limit: wanted }) => in_use == wanted,
        (LockMode::Semaphore { .. }, _) | (_, LockMode::Semaphore { .. }) => false,
        _ => true,
    }
}

fn named_holders(queue: &Queue) -> Vec<HolderId> {
    names(queue.holders())
}

/// Some of these by name.
pub(crate) fn names<'q>(holders: impl Iterator<Item = &'q Contender>) -> Vec<HolderId> {
    let some = holders.take(MAX_NAMED_HOLDERS);
    some.map(|holder| String::from(&*holder.name)).collect()
}
