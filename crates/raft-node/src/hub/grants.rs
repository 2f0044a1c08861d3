//! Waits for a lock's grant. Each one is for one contender, and is decided once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use tokio::sync::oneshot;
use znode_store::{ContenderEnd, Grant, HolderId, LockName};

use super::Hub;

/// How a wait in a lock's queue ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The contender holds the lock.
    Granted(Grant),
    /// The contender is gone.
    Ended(ContenderEnd),
    /// This node cannot tell any more what became of the contender: it caught up by a snapshot, or stops.
    /// Look at the state again.
    Lost,
}

/// A wait for one contender's grant. Dropping it ends the wait, not the contender.
#[derive(Debug)]
pub struct GrantWait {
    verdict: oneshot::Receiver<Verdict>,
    _registration: Option<Registration>,
}

impl GrantWait {
    /// A wait that is over before it begins.
    pub(crate) fn decided(verdict: Verdict) -> Self {
        let (tx, rx) = oneshot::channel();
        tx.send(verdict).expect("the receiver is in this function");
        Self {
            verdict: rx,
            _registration: None,
        }
    }

    /// Waits until the contender holds its lock or is gone. Given up, it can be called again.
    pub async fn verdict(&mut self) -> Verdict {
        (&mut self.verdict).await.unwrap_or(Verdict::Lost)
    }
}

/// Takes a waiter off the hub when it is dropped.
#[derive(Debug)]
struct Registration {
    hub: Arc<Hub>,
    contender: (LockName, HolderId),
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut tables = self.hub.tables.lock();
        let waits = &mut tables.grants.waits;
        if let Some(waiters) = waits.get_mut(&self.contender) {
            waiters.remove(&self.id);
            if waiters.is_empty() {
                waits.remove(&self.contender);
            }
        }
    }
}

/// All waits for grants.
#[derive(Debug, Default)]
pub(super) struct Grants {
    next_id: u64,
    waits: HashMap<(LockName, HolderId), BTreeMap<u64, oneshot::Sender<Verdict>>>,
}

impl Grants {
    pub(super) fn wait(&mut self, hub: &Arc<Hub>, lock: &LockName, holder: &HolderId) -> GrantWait {
        let (tx, verdict) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let contender = (lock.clone(), holder.clone());
        self.waits.entry(contender.clone()).or_default().insert(id, tx);
        GrantWait {
            verdict,
            _registration: Some(Registration {
                hub: hub.clone(),
                contender,
                id,
            }),
        }
    }

    pub(super) fn decide(&mut self, lock: &LockName, holder: &HolderId, verdict: Verdict) {
        if self.waits.is_empty() {
            return;
        }
        let waiters = self.waits.remove(&(lock.clone(), holder.clone()));
        for sender in waiters.into_iter().flat_map(BTreeMap::into_values) {
            // A waiter that was dropped just now needs no verdict.
            let _ = sender.send(verdict.clone());
        }
    }

    /// Lets every waiter go without an answer.
    pub(super) fn lose_all(&mut self) {
        self.waits.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waits.is_empty()
    }
}
