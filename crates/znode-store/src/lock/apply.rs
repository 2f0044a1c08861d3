//! The steps of the lock protocol: what `acquire`, `release`, `withdraw` and `break` do to the tree and answer.
//! Each step refuses before it changes anything. Nobody but `settle.rs` decides that somebody who waits holds.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::contender::{Attempt, Claim, Record};
use super::found::Found;
use super::name;
use super::queue::{Queue, Rank};
use crate::acl::{Acl, Perms};
use crate::apply::Context;
use crate::command::{AttemptId, HolderId, LockCommand, LockMode, LockWish, WithdrawCause};
use crate::event::{ContenderEnd, Event};
use crate::ids::{RequestId, SessionId};
use crate::path::LockName;
use crate::reply::{Outcome, Refusal, Reply};
use crate::stat::Kind;
use crate::store::Store;

/// How many contenders of its own making one lock may have. Each is a znode in memory, and every look at the queue
/// shows them all.
pub const MAX_CONTENDERS: usize = 10_000;

/// How often one owner may enter a lock. Each entry is some twenty bytes in the contender's data, which is written
/// anew each time.
pub const MAX_HOLDS: usize = 1_000;

/// The longest owner in bytes: it is a scope (a thread, a task), not a text.
pub const MAX_OWNER_BYTES: usize = 256;

/// The longest note in bytes: a line or two for people.
pub const MAX_NOTE_BYTES: usize = 1024;

/// The longest address in bytes: a host's name and a port.
pub const MAX_ADDRESS_BYTES: usize = 300;

/// How many holders a refusal names. A shared lock may have thousands, and each refused try would carry them all
/// into the memory of requests.
pub const MAX_NAMED_HOLDERS: usize = 16;

/// One call of `acquire`.
struct Call {
    session: SessionId,
    wish: LockWish,
    guid: u128,
    attempt: Attempt,
    wait: bool,
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
        match command {
            LockCommand::Acquire {
                wish,
                guid,
                attempt,
                wait,
            } => {
                let session = session.ok_or(Refusal::SessionRequired)?;
                let attempt = Attempt {
                    id: attempt,
                    request_id: request_id.cloned(),
                };
                self.acquire(
                    cx,
                    Call {
                        session,
                        wish,
                        guid,
                        attempt,
                        wait,
                    },
                )
            }
            LockCommand::Release { lock, holder } => {
                let session = session.ok_or(Refusal::SessionRequired)?;
                self.release(cx, session, lock, holder)
            }
            LockCommand::Withdraw {
                lock,
                holder,
                attempt,
                cause,
            } => {
                let session = session.ok_or(Refusal::SessionRequired)?;
                Ok(self.withdraw(cx, session, &lock, &holder, attempt, cause))
            }
            LockCommand::Break { lock, holder, reason } => self.break_contender(cx, lock, holder, reason),
        }
    }

    /// Stands in the queue, joins a contender of the same owner, or refuses.
    fn acquire(&mut self, cx: &mut Context<'_>, call: Call) -> Outcome {
        let Call { session, wish, .. } = &call;
        check_wish(wish)?;
        if let Some(queue) = self.locks.queue(&wish.lock) {
            // Permits cannot be counted against locks that know no permits, nor against another limit.
            if let Some(in_use) = queue.mode().filter(|&in_use| !go_together(in_use, wish.mode)) {
                return Err(Refusal::ModeConflict {
                    lock: wish.lock.clone(),
                    in_use,
                });
            }
            // The owner is here already, or waits already.
            if wish.may_reenter()
                && let Some(own) = queue.of_owner(*session, &wish.owner)
            {
                let own = Arc::clone(&own.name);
                return self.join(cx, &own, call);
            }
            // Others are, and the caller does not want to wait for them.
            if !call.wait && !queue.lets_in(claim_of(wish)) {
                return Err(busy(&wish.lock, queue));
            }
            if queue.len() >= MAX_CONTENDERS {
                return Err(Refusal::QueueFull(wish.lock.clone()));
            }
        }
        self.enqueue(cx, call)
    }

    /// Creates a contender, and the lock if need be.
    fn enqueue(&mut self, cx: &mut Context<'_>, call: Call) -> Outcome {
        let Call {
            session,
            wish,
            guid,
            attempt,
            ..
        } = call;
        let znode = wish.lock.znode();
        let sequence = self.next_sequence(self.tree.find(znode), znode)?;
        let prefix = name::prefix(guid, wish.mode);
        let path = znode
            .join(&format!("{prefix}{sequence:010}"))
            .map_err(|bad| Refusal::BadPath(bad.to_string()))?;
        let acl = Acl::open();
        let place = self.place_below(znode);
        self.may_create_at(cx, &place, &acl)?;
        self.may_have_children(&place)?;
        self.may_own_more(session)?;
        let mut record = Record::new(&wish, attempt, cx.now_ms);
        if self
            .locks
            .queue(&wish.lock)
            .is_none_or(|queue| queue.lets_in(record.claim))
        {
            record.granted_ms = Some(cx.now_ms);
        }
        let data = record.to_data();
        self.check_quotas_of_creation(&place, &path, &data)?;
        let parent = self.create_missing(cx, place, &acl);
        let index = self.add_node(cx, parent, &path, Kind::Ephemeral(session), data, &acl);
        // Whoever was in the queue before could not be let in, or would have been.
        if let Some(newcomer) = self.locks.promote(&wish.lock).first() {
            let hold = self.hold(&wish.lock, newcomer, Some(&record), Some(cx.now_ms));
            cx.events.push(Event::HoldBegan(hold));
        }
        let queue = self
            .locks
            .queue(&wish.lock)
            .expect("a contender of it was just created");
        let rank = queue
            .rank((cx.zxid, sequence, path.name()))
            .expect("it was just created");
        let found = Found {
            lock: wish.lock,
            index,
            path,
            session,
            czxid: cx.zxid,
            claim: record.claim,
            holds: record.holds(),
            record: Some(record),
            rank,
        };
        Ok(found.reply())
    }

    /// Enters once more where the owner is already, or waits already.
    fn join(&mut self, cx: &mut Context<'_>, own: &str, call: Call) -> Outcome {
        let Call {
            wish, attempt, wait, ..
        } = call;
        let mut found = self.contender(&wish.lock, own).expect("it is in the queue");
        match (found.claim.mode, wish.mode) {
            // A reader asks to write: it would stand behind itself. (A writer that asks to read has what it asks.)
            (LockMode::Shared, LockMode::Exclusive) => return Err(Refusal::WouldDeadlock(wish.lock)),
            _ if !wait && found.rank != Rank::Holds => {
                let queue = self.locks.queue(&wish.lock).expect("its contender was found");
                return Err(busy(&wish.lock, queue));
            }
            _ => {}
        }
        let record = found
            .record
            .as_mut()
            .expect("only contenders of our own making can be joined");
        if record.attempts.len() >= MAX_HOLDS {
            return Err(Refusal::TooManyHolds(wish.lock));
        }
        record.attempts.push(attempt);
        self.rewrite(cx, &mut found);
        Ok(found.reply())
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
            .record
            .as_mut()
            .is_some_and(|record| record.replace(request_id, attempt));
        if !replaced {
            // The hold was given back, those of other calls stay.
            return first;
        }
        self.rewrite(cx, &mut found);
        Ok(found.reply())
    }

    /// Gives one hold back.
    fn release(
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
        let Some(mut found) = found.filter(|found| found.session == session && found.rank == Rank::Holds)
        else {
            return Err(Refusal::NotHolder { lock, holder });
        };
        if found.holds == 1 {
            self.remove_node(cx, found.index, &found.path, ContenderEnd::Released);
            return Ok(Reply::Released { holds: 0 });
        }
        let record = found
            .record
            .as_mut()
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
        let known = |found: &Found| found.record.as_ref().is_some_and(|record| record.knows(attempt));
        let Some(mut found) = found.filter(known) else {
            // It was withdrawn before, its place was taken by a repeated call, or all is over.
            return Reply::Withdrawn;
        };
        let how = match (found.rank, cause) {
            // The grant came before the end of the caller's patience, if only just.
            (Rank::Holds, WithdrawCause::TimedOut) => return Reply::Granted(found.grant()),
            // Nobody will ever learn of the grant.
            (Rank::Holds, WithdrawCause::Abandoned) => ContenderEnd::Released,
            (Rank::Waits { .. }, _) => ContenderEnd::Withdrawn,
        };
        let record = found.record.as_mut().expect("it knows the call");
        let request_id = record.request_id_of(attempt);
        let answer = match cause {
            WithdrawCause::TimedOut => Some(Err(Refusal::LockTimeout(lock.clone()))),
            WithdrawCause::Abandoned => None,
        };
        if record.attempts.len() == 1 {
            self.remove_node(cx, found.index, &found.path, how);
        } else {
            record.take_back(attempt);
            self.rewrite(cx, &mut found);
        }
        if let Some(request_id) = request_id {
            self.correct_memory(session, &request_id, holder, answer);
        }
        Reply::Withdrawn
    }

    /// Takes the lock, or the place in its queue, from whoever has it.
    fn break_contender(
        &mut self,
        cx: &mut Context<'_>,
        lock: LockName,
        holder: HolderId,
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
        self.remove_node(cx, found.index, &found.path, ContenderEnd::Broken(reason));
        Ok(Reply::Broken)
    }

    /// Writes a record that was changed back to its znode.
    pub(super) fn rewrite(&mut self, cx: &mut Context<'_>, found: &mut Found) {
        let record = found
            .record
            .as_ref()
            .expect("only records of our own making are changed");
        found.holds = record.holds();
        let data = record.to_data();
        self.replace_data(cx, found.index, &found.path, data);
    }
}

/// Refuses what makes no sense, whoever asks: a front end may have checked, another one not.
fn check_wish(wish: &LockWish) -> Result<(), Refusal> {
    let bad = |what: String| Err(Refusal::BadWish(what.into()));
    match (wish.mode, wish.permits) {
        (LockMode::Exclusive | LockMode::Shared, 1) => {}
        (LockMode::Exclusive | LockMode::Shared, _) => return bad("only a semaphore has permits".into()),
        (LockMode::Semaphore { limit: 0 }, _) => return bad("the limit of a semaphore is at least 1".into()),
        (LockMode::Semaphore { .. }, 0) => return bad("at least 1 permit has to be asked for".into()),
        (LockMode::Semaphore { limit }, permits) if permits > limit => {
            return bad(format!(
                "{permits} permits are never free where there are {limit}"
            ));
        }
        (LockMode::Semaphore { .. }, _) => {}
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

fn claim_of(wish: &LockWish) -> Claim {
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
        (LockMode::Exclusive | LockMode::Shared, LockMode::Exclusive | LockMode::Shared) => true,
    }
}

fn busy(lock: &LockName, queue: &Queue) -> Refusal {
    let holders = queue.holders().take(MAX_NAMED_HOLDERS);
    let holders: Vec<HolderId> = holders.map(|holder| String::from(&*holder.name)).collect();
    Refusal::LockBusy {
        lock: lock.clone(),
        holders,
    }
}
