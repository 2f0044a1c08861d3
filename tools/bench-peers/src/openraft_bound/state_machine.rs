//! openraft's state machine: at the leader it applies committed requests and replies to their callers.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{Stream, TryStreamExt};
use openraft::StoredMembership;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use tokio::sync::Notify;

use super::locks::Locks;
use super::request::{Operation, Request, Submitted};
use super::{LogId, Payload, Types};

/// Waiting callers at the leader: for locks, and for entries in flight.
#[derive(Default)]
pub struct Waiting {
    pub state: Mutex<State>,
    /// Notified after an entry was applied.
    pub changed: Notify,
}

/// State of [`Waiting`], behind its mutex.
#[derive(Default)]
pub struct State {
    pub locks: Locks,
    /// The requests of each entry in flight, in order.
    pub in_flight: VecDeque<Vec<Submitted>>,
    /// Number of applied entries.
    pub applied: u64,
}

impl Waiting {
    /// Runs `look` with the state locked.
    pub fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The state machine. Clones share the waiting callers.
#[derive(Clone, Default)]
pub struct StateMachine {
    last: Option<LogId>,
    membership: StoredMembershipOf<Types>,
    waiting: Option<Arc<Waiting>>,
}

impl StateMachine {
    /// Creates the leader's state machine, which replies to callers.
    pub fn answering(waiting: Arc<Waiting>) -> Self {
        let waiting = Some(waiting);
        Self {
            waiting,
            ..Self::default()
        }
    }
}

impl RaftStateMachine<Types> for StateMachine {
    type SnapshotData = ();
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembershipOf<Types>), io::Error> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<Types>, io::Error>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            self.last = Some(entry.log_id);
            match entry.payload {
                Payload::Normal(_) => {
                    if let Some(waiting) = &self.waiting {
                        waiting.with(|state| {
                            let submitted = state.in_flight.pop_front().into_iter().flatten();
                            submitted.for_each(|one| apply(&mut state.locks, one));
                            state.applied += 1;
                        });
                        waiting.changed.notify_one();
                    }
                }
                Payload::Membership(membership) => {
                    self.membership = StoredMembership::new(Some(entry.log_id), membership);
                }
                Payload::Blank => {}
            }
            if let Some(responder) = responder {
                responder.send(());
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> Self {
        self.clone()
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMetaOf<Types>,
        (): Self::SnapshotData,
    ) -> Result<(), io::Error> {
        Err(no_snapshots())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<Types, ()>>, io::Error> {
        Ok(None)
    }
}

impl RaftSnapshotBuilder<Types> for StateMachine {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<Types, ()>, io::Error> {
        Err(no_snapshots())
    }
}

/// Applies a committed request.
fn apply(locks: &mut Locks, submitted: Submitted) {
    let Request {
        operation,
        permits,
        key,
    } = &submitted.request;
    match operation {
        Operation::Acquire => locks.acquire(key, *permits, submitted.reply_to),
        Operation::Release => locks.release(key, submitted.reply_to),
    }
}

fn no_snapshots() -> io::Error {
    io::Error::other("this server has no snapshots")
}
