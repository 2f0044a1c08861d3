//! The lock rule and the lock protocol. (In the making: the hooks that the rest of the store calls.)

use alloc::vec::Vec;

use crate::apply::Context;
use crate::command::{AttemptId, LockCommand, LockWish};
use crate::event::{ContenderEnd, Event};
use crate::ids::{Data, RequestId, SessionId, Zxid};
use crate::path::LockName;
use crate::reply::{Outcome, Refusal};
use crate::store::Store;

/// What is known of all locks, derived from the tree: rebuilt by a restore from the contenders' data.
#[derive(Default)]
pub(crate) struct LockTable {}

/// What to do with an `acquire` whose request id is remembered.
pub(crate) enum Repeated {
    /// This is its answer.
    Answer(Outcome),
    /// It was given up and left nothing: carry it out as if it were new.
    RunAnew,
}

impl LockTable {
    /// An ephemeral node came to be below a lock's znode: by a lock command, by a ZooKeeper client, or by a
    /// restore (then with the node's own czxid, in the order of czxid and name, and `now_ms` is its ctime).
    pub(crate) fn contender_created(
        &mut self,
        lock: &LockName,
        name: &str,
        data: &Data,
        session: SessionId,
        czxid: Zxid,
        now_ms: u64,
    ) {
        let _ = (lock, name, data, session, czxid, now_ms);
    }

    /// The data of such a node was replaced.
    pub(crate) fn contender_changed(&mut self, lock: &LockName, name: &str, data: &Data) {
        let _ = (lock, name, data);
    }

    /// Such a node is gone (its `Deleted` event is already in `events`).
    pub(crate) fn contender_removed(
        &mut self,
        lock: &LockName,
        name: &str,
        session: SessionId,
        how: ContenderEnd,
        events: &mut Vec<Event>,
    ) {
        let _ = (lock, name, session, how, events);
    }
}

impl Store {
    /// Carries out a step of the lock protocol. What it answers is remembered under `request_id` by the
    /// caller; keep the id with the attempt if the memory has to change later ([`Store::memory_of`] gives
    /// `update` and `forget`). Refuse before you change anything: there is no roll-back here.
    pub(crate) fn lock_command(
        &mut self,
        cx: &mut Context<'_>,
        session: Option<SessionId>,
        request_id: Option<&RequestId>,
        command: LockCommand,
    ) -> Outcome {
        let _ = (cx, session, request_id, command);
        Err(Refusal::SessionRequired)
    }

    /// An `acquire` was sent again under its request id; `first` is what it was answered then, or what the
    /// memory was updated to since.
    pub(crate) fn repeat_acquire(
        &mut self,
        cx: &mut Context<'_>,
        session: SessionId,
        request_id: &RequestId,
        wish: &LockWish,
        attempt: AttemptId,
        first: Outcome,
    ) -> Repeated {
        let _ = (cx, session, request_id, wish, attempt);
        let _ = Repeated::RunAnew;
        Repeated::Answer(first)
    }

    /// Called once at the end of every command: waiters of the locks that it touched are let in.
    pub(crate) fn settle_locks(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Called once at the end of a restore, when all contenders were announced: nothing may be promoted
    /// here that was not promoted before the snapshot was taken.
    pub(crate) fn locks_restored(&mut self) {}
}
