//! Watch over callers with open requests: their credentials may be revoked or expire while they wait.

use std::time::Duration;

use lock_node::Node;
use tokio::sync::watch;
use tokio::time::Instant;
use znode_store::{Identities, Refusal, Unproven, View};

use super::super::peer::Peer;

/// Maximum sleep until a token expires. The clock may be set meanwhile, so it is read again at this interval.
const RECHECK_INTERVAL: Duration = Duration::from_secs(60);

/// Watch over the credentials of one caller.
pub struct RevocationWatch {
    node: Node,
    caller: Identities,
    expires_at_ms: Option<u64>,
    access: watch::Receiver<u64>,
}

impl RevocationWatch {
    /// Starts the watch. It notices every later change, so start it before the caller's permission is checked.
    pub fn begin(node: &Node, peer: &Peer) -> Self {
        Self {
            node: node.clone(),
            caller: peer.identities(),
            expires_at_ms: peer.expires_at_ms(),
            access: node.access_changes(),
        }
    }

    /// Waits until the caller loses the permission that `still` checks, and returns the reason. Cancel safe: the future
    /// may be dropped, and `revoked` called again.
    pub async fn revoked(&mut self, still: impl Fn(View<'_>) -> Result<(), Refusal>) -> Refusal {
        loop {
            if let Some(expired) = self.expired() {
                return expired;
            }
            let is_so = self.node.read_facts(|store| still(store.seen_by(&self.caller)));
            if let Err(refusal) = is_so {
                return refusal;
            }
            let look_again = Instant::now()
                + self
                    .until_expiry()
                    .unwrap_or(RECHECK_INTERVAL)
                    .min(RECHECK_INTERVAL);
            tokio::select! {
                changed = self.access.changed() => {
                    if changed.is_err() {
                        // The node is gone, so its access rules cannot change any more.
                        return std::future::pending().await;
                    }
                }
                () = tokio::time::sleep_until(look_again), if self.expires_at_ms.is_some() => {}
            }
        }
    }

    fn expired(&self) -> Option<Refusal> {
        let is_over = self.expires_at_ms.is_some_and(|end| end <= self.node.now_ms());
        is_over.then(|| Unproven::Expired.into())
    }

    fn until_expiry(&self) -> Option<Duration> {
        let end = self.expires_at_ms?;
        // Never zero, or the loop would spin until the clock has reached it.
        Some(Duration::from_millis(
            end.saturating_sub(self.node.now_ms()).max(1),
        ))
    }
}

/// Runs a wait as long as its caller is authorized. Dropping the wait cleans up as if the caller had disconnected.
pub async fn while_allowed<T, E: From<Refusal>>(
    node: &Node,
    peer: &Peer,
    still: impl Fn(View<'_>) -> Result<(), Refusal>,
    wait: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut revocation = RevocationWatch::begin(node, peer);
    tokio::select! {
        biased;
        outcome = wait => outcome,
        refusal = revocation.revoked(still) => Err(refusal.into()),
    }
}
