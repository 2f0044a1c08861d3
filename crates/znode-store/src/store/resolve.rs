//! A contender looked up by the name that its caller knows it by: everything about it in one value.

use alloc::string::String;
use alloc::sync::Arc;

use crate::locks::contender::Record;
use crate::locks::hold;
use crate::locks::queue::{Contender, Position, QueuePosition};
use crate::locks::table::Scope;
use crate::model::event::Hold;
use crate::model::ids::{SessionId, Zxid};
use crate::model::lock::LockRequest;
use crate::model::path::{LockName, ZPath};
use crate::model::reply::{Grant, Place, Reply};
use crate::store::Store;
use crate::tree::index::NodeIndex;

/// A contender that lives.
pub(crate) struct ResolvedContender {
    pub lock: LockName,
    /// Its znode.
    pub index: NodeIndex,
    pub path: ZPath,
    pub session: SessionId,
    pub czxid: Zxid,
    /// The fencing token of its grant.
    pub token: Zxid,
    /// Its sequence number.
    pub number: u64,
    pub request: LockRequest,
    pub holds: u32,
    /// `None` if it is another client's.
    pub record: Option<Arc<Record>>,
    pub queue_position: QueuePosition,
}

impl ResolvedContender {
    /// Returns the name that clients use for it.
    pub fn holder(&self) -> &str {
        self.path.name()
    }

    /// Its record, to be changed and then written.
    pub fn record_mut(&mut self) -> Option<&mut Record> {
        self.record.as_mut().map(Arc::make_mut)
    }

    /// Returns its position in the queue.
    pub fn position(&self) -> Position<'_> {
        (self.czxid, self.number, self.path.name())
    }

    /// Returns its scope in deadlock detection. `None` if it has no distinct owner.
    pub fn scope(&self) -> Option<Scope> {
        let party = self.record.as_ref()?.distinct_owner()?;
        Some((self.session, party.clone()))
    }

    /// Returns its grant.
    pub fn grant(&self) -> Grant {
        Grant {
            lock: self.lock.clone(),
            holder: String::from(self.holder()),
            mode: self.request.mode,
            fencing_token: self.token,
            holds: self.holds,
            permits: self.request.permits,
        }
    }

    /// Its place in the queue.
    pub fn place(&self, ahead: u32) -> Place {
        Place {
            lock: self.lock.clone(),
            holder: String::from(self.holder()),
            ahead,
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
    /// Returns the contender of a lock by its name; `None` if it does not exist, or no longer.
    pub(crate) fn contender(&self, lock: &LockName, holder: &str) -> Option<ResolvedContender> {
        let queue = self.locks.queue(lock)?;
        let index = self.tree.child(self.tree.find(lock.znode())?, holder)?;
        let node = self.tree.node(index);
        let session = node.session()?;
        let facts = self.locks.facts(holder, &node.data)?;
        let path = match self.locks.path(lock, holder, &node.data) {
            Some(path) => path.clone(),
            None => lock.znode().join_checked(holder).ok()?,
        };
        let queue_position = queue
            .queue_position((node.czxid, facts.number, holder))
            .expect("every contender is in its lock's queue");
        Some(ResolvedContender {
            lock: lock.clone(),
            index,
            path,
            session,
            czxid: node.czxid,
            token: facts
                .record
                .as_ref()
                .and_then(|record| record.token)
                .unwrap_or(node.czxid),
            number: facts.number,
            request: facts.request,
            holds: facts.holds(),
            record: facts.record,
            queue_position,
        })
    }

    /// Returns whether a session holds a lock by the contender with this token.
    pub(crate) fn holds(&self, session: SessionId, lock: &LockName, token: Zxid) -> bool {
        let Some(queue) = self.locks.queue(lock) else {
            return false;
        };
        let mut holders = queue.holders();
        let named = holders.find(|holder| holder.session == session && holder.token == token);
        // Earlier in the same transaction it may have been deleted, which the queue learns of at the end.
        named.is_some_and(|named| {
            let found = self.contender(lock, &named.name);
            found.is_some_and(|found| found.czxid == named.czxid)
        })
    }

    /// Describes a contender that holds its lock, or did until now.
    pub(crate) fn hold(
        &self,
        lock: &LockName,
        contender: &Contender,
        record: Option<&Record>,
        since_ms: Option<u64>,
    ) -> Arc<Hold> {
        let name = self.sessions.name_of(contender.session);
        hold::describe(lock, contender, record, since_ms, name)
    }
}
