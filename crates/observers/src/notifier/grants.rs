//! Pending waits for the grant or for the end of a contender. Each wait concerns one contender, and is decided once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;
use znode_store::{ContenderEnd, Grant, HolderId, LockName};

use super::Notifier;

/// Outcome of a wait in a lock's queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The contender holds the lock.
    Granted(Grant),
    /// The contender has ended.
    Ended(ContenderEnd),
    /// This node cannot know the outcome: it caught up by a snapshot, or stops. Read the state again.
    Lost,
}

/// Wait for the grant or for the end of one contender. Dropping it ends the wait, not the contender.
#[derive(Debug)]
pub struct GrantWait {
    outcome: oneshot::Receiver<WaitOutcome>,
    _registration: Option<Registration>,
}

impl GrantWait {
    /// Returns a wait that is decided already.
    pub fn decided(outcome: WaitOutcome) -> Self {
        let (tx, rx) = oneshot::channel();
        tx.send(outcome).expect("the receiver is in this function");
        Self {
            outcome: rx,
            _registration: None,
        }
    }

    /// Waits for the outcome. After a cancellation it can be called again.
    pub async fn outcome(&mut self) -> WaitOutcome {
        (&mut self.outcome).await.unwrap_or(WaitOutcome::Lost)
    }
}

/// Registration of a waiter. Dropping it removes the waiter.
#[derive(Debug)]
struct Registration {
    notifier: Arc<Notifier>,
    contender: (LockName, HolderId),
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tables = self.notifier.tables.lock();
        let waits = &mut tables.grants.waits;
        if let Some(waiters) = waits.get_mut(&self.contender) {
            waiters.remove(&self.id);
            if waiters.is_empty() {
                waits.remove(&self.contender);
            }
        }
    }
}

/// Event that decides a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The grant, or the end of the contender.
    Granted,
    /// Only the end of the contender, whether it holds by then or not.
    Ended,
}

/// Waiter.
#[derive(Debug)]
struct Waiter {
    until: Until,
    tell: oneshot::Sender<WaitOutcome>,
}

/// All waits for contenders.
#[derive(Debug, Default)]
pub(super) struct Grants {
    next_id: u64,
    waits: HashMap<(LockName, HolderId), BTreeMap<u64, Waiter>>,
}

impl Grants {
    pub(super) fn wait(
        &mut self,
        notifier: &Arc<Notifier>,
        lock: &LockName,
        holder: &HolderId,
        until: Until,
    ) -> GrantWait {
        let (tell, outcome) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let contender = (lock.clone(), holder.clone());
        let waiter = Waiter { until, tell };
        self.waits
            .entry(contender.clone())
            .or_default()
            .insert(id, waiter);
        GrantWait {
            outcome,
            _registration: Some(Registration {
                notifier: notifier.clone(),
                contender,
                id,
            }),
        }
    }

    /// Notifies the waiters for a grant. The contender stays.
    pub(super) fn decide(&mut self, lock: &LockName, holder: &HolderId, outcome: &WaitOutcome) {
        self.tell(lock, holder, outcome, |until| until == Until::Granted);
    }

    /// Notifies all waiters that the contender has ended.
    pub(super) fn end(&mut self, lock: &LockName, holder: &HolderId, how: &ContenderEnd) {
        self.tell(lock, holder, &WaitOutcome::Ended(how.clone()), |_| true);
    }

    fn tell(
        &mut self,
        lock: &LockName,
        holder: &HolderId,
        outcome: &WaitOutcome,
        concerns: impl Fn(Until) -> bool,
    ) {
        if self.waits.is_empty() {
            return;
        }
        let contender = (lock.clone(), holder.clone());
        let Some(waiters) = self.waits.remove(&contender) else {
            return;
        };
        let mut rest = BTreeMap::new();
        for (id, waiter) in waiters {
            if concerns(waiter.until) {
                // A waiter that was dropped just now needs no outcome.
                let _ = waiter.tell.send(outcome.clone());
            } else {
                rest.insert(id, waiter);
            }
        }
        if !rest.is_empty() {
            self.waits.insert(contender, rest);
        }
    }

    /// Ends all waits without an answer.
    pub(super) fn lose_all(&mut self) {
        self.waits.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }
}
