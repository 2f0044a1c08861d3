//! Lookup of a contender by the name that its caller sent, with all its facts in one value.

use alloc::string::String;
use alloc::sync::Arc;
use core::ops::Deref;

use crate::locks::contender::Contender;
use crate::locks::queue::QueuePosition;
use crate::locks::view::ContenderState;
use crate::model::contender::Record;
use crate::model::digits::sequence_number;
use crate::model::event::Hold;
use crate::model::ids::{LeaseKey, RequestId, SessionId, Zxid};
use crate::model::lock::AttemptId;
use crate::model::path::LockName;
use crate::model::reply::{Grant, Place, Reply};
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// Existing contender.
pub(crate) struct ResolvedContender {
    pub lock: LockName,
    /// Index of its znode.
    pub index: NodeIndex,
    /// Contender as in its queue.
    pub contender: Contender,
    pub queue_position: QueuePosition,
}

impl Deref for ResolvedContender {
    type Target = Contender;

    fn deref(&self) -> &Contender {
        &self.contender
    }
}

impl ResolvedContender {
    /// Returns a copy of its record, to be changed and then written. `None` if another client made the contender.
    pub fn draft(&self) -> Option<Record> {
        let record = self.record.as_deref()?;
        Some(Record::clone(record))
    }

    /// Returns the draft in which a call is replaced by its repetition; `None` if there is no such call.
    pub fn draft_with_retry(&self, request_id: &RequestId, attempt: AttemptId) -> Option<Record> {
        let mut record = self.draft()?;
        record.replace(request_id, attempt).then_some(record)
    }

    /// Returns its grant.
    pub fn grant(&self) -> Grant {
        Grant {
            lock: self.lock.clone(),
            holder: String::from(self.name()),
            mode: self.request.mode,
            fencing_token: self.token(),
            holds: self.holds(),
            permits: self.request.permits,
        }
    }

    /// Returns its place in the queue.
    pub fn place(&self, ahead: u32) -> Place {
        Place {
            lock: self.lock.clone(),
            holder: String::from(self.name()),
            ahead,
        }
    }

    /// Returns its state.
    pub fn state(&self) -> ContenderState {
        match self.queue_position {
            QueuePosition::Holds if self.is_upgrading() => ContenderState::Upgrades(self.grant()),
            QueuePosition::Holds => ContenderState::Holds(self.grant()),
            QueuePosition::Waits { ahead } => ContenderState::Waits(self.place(ahead)),
        }
    }

    /// Returns the reply to a call of `acquire` that it stands for.
    pub fn reply(&self) -> Reply {
        match self.queue_position {
            QueuePosition::Holds => Reply::Granted(self.grant()),
            QueuePosition::Waits { ahead } => Reply::Queued(self.place(ahead)),
        }
    }
}

impl Store {
    /// Returns the contender of a lock by its name; `None` if it does not exist (any more).
    pub(crate) fn contender(&self, lock: &LockName, holder: &str) -> Option<ResolvedContender> {
        self.contender_below(self.tree.find(lock.znode())?, lock, holder)
    }

    /// Returns the contender of a lock by its name, for callers that have the index of the lock's znode.
    pub(crate) fn contender_below(
        &self,
        znode: NodeIndex,
        lock: &LockName,
        holder: &str,
    ) -> Option<ResolvedContender> {
        let index = self.tree.child(znode, holder)?;
        let node = self.tree.node(index);
        node.session()?;
        // A contender that this transaction created is in no queue yet.
        let (contender, queue_position) =
            self.locks
                .queue(lock)?
                .look_up((node.czxid, sequence_number(holder)?, holder))?;
        Some(ResolvedContender {
            lock: lock.clone(),
            index,
            contender: contender.clone(),
            queue_position,
        })
    }

    /// Returns the contender of the live lease with this key.
    pub(crate) fn leased(&self, lease: &LeaseKey) -> Option<ResolvedContender> {
        let &(_, index) = self.sessions.lease(lease)?.ephemerals.first()?;
        let path = self.tree.path(index);
        self.contender(&LockName::of_contender(&path)?, path.name())
    }

    /// Returns the contender of this lease if it holds the lock.
    pub(crate) fn held_by_lease(&self, lock: &LockName, lease: SessionId) -> Option<ResolvedContender> {
        let state = self.sessions.get(lease).filter(|state| state.is_lease)?;
        let &(_, index) = state.ephemerals.first()?;
        let found = self.contender(lock, self.tree.name(index))?;
        let holds = found.session == lease && found.queue_position == QueuePosition::Holds;
        holds.then_some(found)
    }

    /// Returns whether a session holds a lock with this token.
    pub(crate) fn holds(&self, session: SessionId, lock: &LockName, token: Zxid) -> bool {
        let Some(queue) = self.locks.queue(lock) else {
            return false;
        };
        let mut holders = queue.holders();
        let named = holders.find(|holder| holder.session == session && holder.token() == token);
        // An earlier operation of this transaction may have deleted it, which changes the queue only at the end.
        named.is_some_and(|named| {
            let found = self.contender(lock, named.name());
            found.is_some_and(|found| found.czxid == named.czxid)
        })
    }

    /// Describes the hold of a contender that holds its lock, or has just ended. The time of a ZooKeeper client's grant is not recorded.
    pub(crate) fn hold(&self, lock: &LockName, contender: &Contender) -> Arc<Hold> {
        contender.hold.clone().unwrap_or_else(|| {
            let since_ms = contender.record.as_ref().and_then(|record| record.granted_ms);
            contender.describe_hold(lock, self.sessions.name_of(contender.session), since_ms)
        })
    }
}
