//! Waits for a lock's grant, and for the end of a contender. Each one is for one contender, and is decided once.

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

/// A wait for one contender's grant, or for its end. Dropping it ends the wait, not the contender.
#[derive(Debug)]
pub struct GrantWait {
    verdict: oneshot::Receiver<Verdict>,
    _registration: Option<Registration>,
}

impl GrantWait {
    /// A wait that is over before it begins.
    pub fn decided(verdict: Verdict) -> Self {
        let (tx, rx) = oneshot::channel();
        tx.send(verdict).expect("the receiver is in this function");
        Self {
            verdict: rx,
            _registration: None,
        }
    }

    /// Waits until what is waited for happens, or the contender is gone. Given up, it can be called again.
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

/// Which event decides a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Until {
    /// The grant, or the end of the contender.
    Granted,
    /// Only the end of the contender, whether it holds by then or not.
    Ended,
}

/// One wait.
#[derive(Debug)]
struct Waiter {
    until: Until,
    tell: oneshot::Sender<Verdict>,
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
        hub: &Arc<Hub>,
        lock: &LockName,
        holder: &HolderId,
        until: Until,
    ) -> GrantWait {
        let (tell, verdict) = oneshot::channel();
        let id = self.next_id;
        self.next_id += 1;
        let contender = (lock.clone(), holder.clone());
        let waiter = Waiter { until, tell };
        self.waits
            .entry(contender.clone())
            .or_default()
            .insert(id, waiter);
        GrantWait {
            verdict,
            _registration: Some(Registration {
                hub: hub.clone(),
                contender,
                id,
            }),
        }
    }

    /// Tells those who wait for a grant. The contender stays.
    pub(super) fn decide(&mut self, lock: &LockName, holder: &HolderId, verdict: &Verdict) {
        self.tell(lock, holder, verdict, |until| until == Until::Granted);
    }

    /// The contender is gone.
    pub(super) fn end(&mut self, lock: &LockName, holder: &HolderId, how: &ContenderEnd) {
        self.tell(lock, holder, &Verdict::Ended(how.clone()), |_| true);
    }

    fn tell(
        &mut self,
        lock: &LockName,
        holder: &HolderId,
        verdict: &Verdict,
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
                // A waiter that was dropped just now needs no verdict.
                let _ = waiter.tell.send(verdict.clone());
            } else {
                rest.insert(id, waiter);
            }
        }
        if !rest.is_empty() {
            self.waits.insert(contender, rest);
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
