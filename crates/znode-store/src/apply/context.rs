//! Context of one command: position, time, caller, and the effects so far.

use alloc::vec::Vec;

use crate::locks::contender::Contender;
use crate::model::acl::Acl;
use crate::model::entry::Rules;
use crate::model::event::{ContenderEnd, Event, ZnodeEvent, ZnodeEventKind};
use crate::model::identity::Identities;
use crate::model::ids::{SessionId, Zxid};
use crate::model::path::{LockName, MAX_LONG_PATHS_BYTES, ZPath};
use crate::model::refusal::{Limited, Refusal};

/// Maximum number of ephemeral znodes of ended sessions that the commands of one log entry remove. Their removal blocks the apply loop; this
/// number takes about 5 ms.
pub const MAX_REMOVED_AT_ONCE: usize = 500;

/// Maximum number of waiters to which the commands of one log entry grant locks, besides the first grant of each command. A release of
/// a lock with many shared waiters would block the apply loop; this number takes about 4 ms.
pub const MAX_GRANTED_AT_ONCE: usize = 500;

/// Maximum number of znodes that one command removes besides those that it names. Their removal blocks the apply loop, like a long log entry.
pub const MAX_DESCENDANTS: usize = 5_000;

/// Maximum number of operations of a transaction, for the same reason.
pub const MAX_OPERATIONS: usize = 5_000;

/// Budget of one log entry for work that its commands cause besides the operations that they name.
#[derive(Debug)]
pub struct EntryWork {
    pub(crate) removals: usize,
    pub(crate) grants: usize,
}

impl Default for EntryWork {
    /// Returns the budget of an entry before its first command.
    fn default() -> Self {
        Self {
            removals: MAX_REMOVED_AT_ONCE,
            grants: MAX_GRANTED_AT_ONCE,
        }
    }
}

impl EntryWork {
    /// Returns the budget of an entry that removes and grants other numbers. It must be the same on every replica, so only a simulation
    /// of all replicas may choose it.
    pub fn of(amount: usize) -> Self {
        Self {
            removals: amount,
            grants: amount,
        }
    }
}

/// Facts and effects of one command.
pub(crate) struct Context<'e> {
    /// Position of the command.
    pub(crate) zxid: Zxid,
    /// Time of the command.
    pub(crate) now_ms: u64,
    /// Term of its entry.
    pub(crate) term: u64,
    /// Rules by which it is applied.
    pub(crate) rules: Rules,
    /// Number of ephemeral znodes of ended sessions that its entry may still remove.
    pub(crate) removals_left: &'e mut usize,
    /// Number of waiters that its entry may still grant locks.
    pub(crate) grants_left: &'e mut usize,
    /// True once the command has granted a lock to a waiter, or removed a waiter in place of that.
    pub(crate) has_granted: bool,
    /// Identities of its caller.
    pub(crate) caller: &'e Identities,
    /// Events so far. They may begin with those of earlier commands, if the caller left them there.
    pub(crate) events: &'e mut Vec<Event>,
    /// Bytes of the long paths that the command creates or removes besides those that it names.
    pub(crate) long_paths_bytes: usize,
    /// Number of znodes that the command removes besides those that it names.
    pub(crate) descendants: usize,
    /// In a transaction, the changes for the queues, which are held back until no operation can fail any more.
    pub(crate) held_back: Option<Vec<ContenderChange>>,
    /// Sessions of leases whose contenders the command removed. They end with it.
    pub(crate) ended_leases: Vec<SessionId>,
}

impl Context<'_> {
    /// Returns whether the command may grant a lock to one more waiter. The first grant of each command is free, so that no handover of a
    /// lock has to wait for grants to the many waiters of another one.
    pub(crate) fn may_grant(&self) -> bool {
        !self.has_granted || *self.grants_left > 0
    }

    /// Counts a grant, or the removal of a waiter in place of it.
    pub(crate) fn count_grant(&mut self) {
        if self.has_granted {
            *self.grants_left = self.grants_left.saturating_sub(1);
        }
        self.has_granted = true;
    }

    /// Counts long paths at, above or below `path`, and refuses the command if it would create or remove too many.
    pub(crate) fn add_long_paths(&mut self, bytes: usize, path: &ZPath) -> Result<(), Refusal> {
        self.long_paths_bytes += bytes;
        match self.long_paths_bytes > MAX_LONG_PATHS_BYTES {
            true => Err(Refusal::LimitReached {
                what: Limited::LongPaths(path.clone()),
                limit: MAX_LONG_PATHS_BYTES as u32,
            }),
            false => Ok(()),
        }
    }

    /// Counts znodes below `path` that are to be removed, and refuses the command if they are too many.
    pub(crate) fn add_descendants(&mut self, count: usize, path: &ZPath) -> Result<(), Refusal> {
        self.descendants += count;
        match self.descendants > MAX_DESCENDANTS && self.rules == Rules::Current {
            true => Err(Refusal::LimitReached {
                what: Limited::Descendants(path.clone()),
                limit: MAX_DESCENDANTS as u32,
            }),
            false => Ok(()),
        }
    }

    /// Appends the event of a change of the node at `path`, which has (or had) the list `acl`.
    pub(crate) fn changed(&mut self, kind: ZnodeEventKind, path: &ZPath, acl: Acl) {
        self.events.push(Event::Znode(ZnodeEvent {
            kind,
            path: path.clone(),
            acl,
        }));
    }
}

/// Change of a contender that follows from a change of the tree, for its queue.
pub(crate) enum ContenderChange {
    Created(LockName, Contender),
    Removed(EndedContender),
}

/// End of a contender.
pub(crate) struct EndedContender {
    /// Lock.
    pub lock: LockName,
    /// Path of its znode.
    pub node: ZPath,
    /// Its sequence number.
    pub number: u64,
    /// Position of its creation.
    pub czxid: Zxid,
    /// Cause of its end.
    pub how: ContenderEnd,
}
