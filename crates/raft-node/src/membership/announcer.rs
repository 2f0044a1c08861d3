//! Announcements of a node that no member connects to. It logs the event that it waits for, connects to the
//! members itself to learn whether they still know it, and reports its address to them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::change::MembershipLeader;
use super::{MembershipChange, MembershipOutcome};
use crate::ids::{MemberAddress, NodeId};
use crate::peers::peer_connection::connect;
use crate::peers::wire::{PeerRequest, PeerResponse};
use crate::peers::{Peers, Purpose};

/// Interval between two rounds. A node that was removed during an absence learns of it within about this
/// time.
const ANNOUNCE_INTERVAL: Duration = Duration::from_secs(1);

/// Interval at which a waiting node logs that it waits.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Maximum time for the leader to commit a new address.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Announces this node to the members.
pub struct Announcer {
    /// Connections to all peers.
    pub peers: Arc<Peers>,
    /// Membership changes of this node as the leader, which then needs no other node.
    pub leadership: Arc<MembershipLeader>,
    /// Address of this node by its own configuration.
    pub own_address: MemberAddress,
    /// Log line with the event that it waits for while no member has connected.
    pub waits_for: String,
}

impl Announcer {
    /// Runs announcements until `stop`. `up_to_date` returns whether a leader serves this node.
    pub async fn run(self, up_to_date: impl Fn() -> bool + Send, stop: CancellationToken) {
        let mut last_logged: Option<Instant> = None;
        let mut announced = false;
        loop {
            let round = async {
                let registry = self.peers.registry();
                if !registry.is_formed() && last_logged.is_none_or(|at| at.elapsed() >= LOG_INTERVAL) {
                    tracing::info!("{}", self.waits_for);
                    last_logged = Some(Instant::now());
                }
                if !announced {
                    announced = self.announce().await;
                }
                if !up_to_date() {
                    self.connect_and_announce().await;
                }
                tokio::time::sleep(ANNOUNCE_INTERVAL).await;
            };
            tokio::select! {
                () = round => {}
                () = stop.cancelled() => return,
            }
        }
    }

    fn others(&self) -> Vec<NodeId> {
        let registry = self.peers.registry();
        let ids = registry.addresses().into_keys();
        ids.filter(|id| *id != registry.node()).collect()
    }

    /// Connects to all members at once. The registry evaluates their replies to this node's hello: that it
    /// was removed, or that its data directory is not the one that they know.
    async fn connect_and_announce(&self) {
        let registry = self.peers.registry();
        let calls = self.others().into_iter().map(|id| async move {
            if let Err(error) = connect(registry, id, Purpose::Control).await {
                tracing::debug!(node = id, %error, "membership: announcement failed");
            }
        });
        futures_util::future::join_all(calls).await;
    }

    /// Reports this node's own address to the cluster if the membership has another one. Returns whether the
    /// membership is up to date.
    ///
    /// The leader cannot reach a node that has moved, so the node may not know the leader. Therefore it asks
    /// every member.
    async fn announce(&self) -> bool {
        let registry = self.peers.registry();
        let Some(known) = registry.member_address(registry.node()) else {
            return false;
        };
        if known == self.own_address {
            return true;
        }
        let change = MembershipChange::SetAddress {
            node_id: registry.node(),
            address: self.own_address.clone(),
        };
        if let Ok(MembershipOutcome::Done(_)) = self.leadership.change(&change).await {
            return true;
        }
        for id in self.others() {
            let request = PeerRequest::ChangeMembership(change.clone());
            let answer = self
                .peers
                .connection(id, Purpose::Traffic)
                .request(request, ANSWER_TIMEOUT)
                .await;
            match answer {
                Ok(PeerResponse::ChangeMembership(Ok(MembershipOutcome::Done(_)))) => {
                    let MemberAddress { peer, http } = &self.own_address;
                    tracing::info!(
                        peer,
                        http,
                        "membership: the cluster has this node's new addresses"
                    );
                    return true;
                }
                // The node is not the leader, or not ready, or unreachable: another one or the next round
                // succeeds.
                other => tracing::debug!(
                    node = id,
                    ?other,
                    "membership: the cluster does not have the new addresses yet"
                ),
            }
        }
        false
    }
}
