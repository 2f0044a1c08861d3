//! Memory of this node's answers about leases, as an independent Redis would have it in its keys.
//!
//! A client of Redlock takes the nodes of one cluster for independent servers. It sets one key to one value at each of them and counts the
//! servers that answer `OK`; it deletes the key at each of them and counts those that did. An independent server answers so once. So does a
//! node: it confirms a lease that another node has granted, once, and the release of a lease that another node has released, once. A second
//! client with the same value at this node gets the answer of Redis. But two clients with the same value at two nodes would both hold the lock,
//! so a node confirms only where the configuration says that all values are unique.

use std::collections::HashMap;
use std::sync::OnceLock;
use std::time::Duration;

use lock_node::Node;
use parking_lot::Mutex;
use sha1::{Digest as _, Sha1};
use tokio::time::Instant;
use znode_store::{HoldingLease, LockName, SessionFate, SessionId, Zxid};

/// Minimum number of bytes of a value that is confirmed. Values of Redlock are random and longer; shorter ones may be constants or times, which
/// two clients at two nodes can have in common.
const MIN_CONFIRMED_BYTES: usize = 16;

/// Time after which a lease that the state does not know is not being granted any more.
const LONGEST_GRANT: Duration = Duration::from_secs(60);

/// Minimum number of remembered leases at which those that ended are forgotten. Later it is twice the number of those that were kept.
const MIN_PRUNED_AT: usize = 1_024;

/// Digest of a lock and a value.
type Digest = [u8; 20];

/// Leases that this node has granted or confirmed.
pub(crate) struct Answers {
    /// True if leases of other nodes are confirmed.
    confirms: bool,
    /// Position of the state when this process had caught up. Of earlier leases an earlier process may have answered.
    since: OnceLock<Zxid>,
    granted: Mutex<Granted>,
}

struct Granted {
    leases: HashMap<SessionId, Lease>,
    /// Filled only if leases are confirmed.
    by_value: HashMap<Digest, SessionId>,
    pruned_at: usize,
}

struct Lease {
    /// Digest of its lock and value, if leases are confirmed.
    value: Option<Digest>,
    /// Time before the last grant or renewal by this node was sent to the leader.
    renewed: Instant,
}

impl Answers {
    /// Creates an empty memory. Leases of other nodes are confirmed only if it `confirms`.
    pub fn new(confirms: bool) -> Self {
        Self {
            confirms,
            since: OnceLock::new(),
            granted: Mutex::new(Granted {
                leases: HashMap::new(),
                by_value: HashMap::new(),
                pruned_at: MIN_PRUNED_AT,
            }),
        }
    }

    /// Begins to confirm leases that are granted after this position.
    pub fn begin(&self, since: Zxid) {
        let _ = self.since.set(since);
    }

    /// Notes that this node grants a lock to a lease. The caller does so before it proposes the grant.
    pub fn granting(&self, node: &Node, lock: &LockName, value: &str, lease: SessionId) {
        self.insert(node, lock, value, lease);
    }

    /// Forgets a lease: this node has released it, or has not answered `OK` for it.
    pub fn forget(&self, lease: SessionId) {
        let mut granted = self.granted.lock();
        if let Some(Lease {
            value: Some(value), ..
        }) = granted.leases.remove(&lease)
            && granted.by_value.get(&value) == Some(&lease)
        {
            granted.by_value.remove(&value);
        }
    }

    /// Notes that this node confirms a lease to a client of Redlock. Returns whether it may: not a second time.
    pub fn confirm(&self, node: &Node, lock: &LockName, lease: &HoldingLease) -> bool {
        let is_later = self.since.get().is_some_and(|since| lease.fencing_token > *since);
        self.confirms
            && is_later
            && lease.note.len() >= MIN_CONFIRMED_BYTES
            && self.insert(node, lock, &lease.note, lease.session)
    }

    /// Notes a renewal that this node sent to the leader at this time.
    pub fn renewed(&self, lease: SessionId, sent: Instant) {
        if let Some(known) = self.granted.lock().leases.get_mut(&lease) {
            known.renewed = sent;
        }
    }

    /// Returns the time since the last renewal that this node knows, which is never less than the time since the last renewal.
    pub fn silence(&self, lease: SessionId) -> Option<Duration> {
        self.granted
            .lock()
            .leases
            .get(&lease)
            .map(|known| known.renewed.elapsed())
    }

    /// Forgets the lease of this lock and value that this node has granted or confirmed, and returns it; `None` unless leases are confirmed.
    pub fn take(&self, lock: &LockName, value: &[u8]) -> Option<SessionId> {
        if !self.confirms {
            return None;
        }
        let mut granted = self.granted.lock();
        let lease = granted.by_value.remove(&digest(lock, value))?;
        granted.leases.remove(&lease);
        Some(lease)
    }

    /// Inserts a lease. Returns whether it is new.
    fn insert(&self, node: &Node, lock: &LockName, value: &str, lease: SessionId) -> bool {
        let value = self.confirms.then(|| digest(lock, value.as_bytes()));
        let mut granted = self.granted.lock();
        if granted.leases.contains_key(&lease) {
            return false;
        }
        if granted.leases.len() >= granted.pruned_at {
            node.read_facts(|store| {
                granted.prune(|session, lease| match store.session_fate(session) {
                    SessionFate::Live => true,
                    SessionFate::Ended => self.confirms && store.lease_was_released(session),
                    SessionFate::Unknown => lease.renewed.elapsed() < LONGEST_GRANT,
                });
            });
        }
        let renewed = Instant::now();
        granted.leases.insert(lease, Lease { value, renewed });
        if let Some(value) = value {
            granted.by_value.insert(value, lease);
        }
        true
    }
}

impl Granted {
    fn prune(&mut self, is_kept: impl Fn(SessionId, &Lease) -> bool) {
        self.leases.retain(|session, lease| is_kept(*session, lease));
        let leases = &self.leases;
        self.by_value.retain(|_, lease| leases.contains_key(lease));
        self.pruned_at = MIN_PRUNED_AT.max(2 * self.leases.len());
    }
}

fn digest(lock: &LockName, value: &[u8]) -> Digest {
    // No name has a zero byte.
    let digest = Sha1::new().chain_update(lock.as_str()).chain_update([0]);
    digest.chain_update(value).finalize().into()
}
