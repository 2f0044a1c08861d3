//! How a cluster comes to be: once, from the configured members, and safely repeated at every start.
//!
//! The founder, the member with the lowest id, draws the cluster's id when its data directory is made. It
//! calls on every other member, which takes the id over for ever (see `peers::gate`), and learns the name of
//! each one's data directory. When it knows them all it writes the first entry of the log: the membership,
//! directories included. So a cluster forms only when all its first members are up, and from then on nobody
//! can take part with a directory that the membership does not name.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{InitializeError, RaftError};
use tokio_util::sync::CancellationToken;

use crate::config::{MemberAddress, NodeId};
use crate::peers::link::connect;
use crate::peers::{Gate, Purpose};
use crate::types::{DiskId, Member, Raft};

/// Between two calls on a member that is not up yet.
const CALL_PAUSE: Duration = Duration::from_millis(100);

/// The member that forms the cluster.
pub fn founder(members: &BTreeMap<NodeId, MemberAddress>) -> Option<NodeId> {
    members.keys().next().copied()
}

/// Forms the cluster from `members`, of which this node is the founder, unless it is formed already.
pub async fn form(
    raft: Raft,
    gate: Arc<Gate>,
    own_disk: DiskId,
    members: BTreeMap<NodeId, MemberAddress>,
    stop: CancellationToken,
) {
    let formed = async {
        match raft.is_initialized().await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return gate.fail(format!("raft has stopped: {error}")),
        }
        let mut voters = BTreeMap::new();
        for (id, address) in members {
            let disk = if id == gate.node() {
                own_disk
            } else {
                learn_disk(&gate, id).await
            };
            voters.insert(id, Member { address, disk });
        }
        tracing::info!(
            members = voters.len(),
            "all members are up: the cluster is formed"
        );
        match raft.initialize(voters).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => gate.fail(format!("the cluster cannot be formed: {error}")),
        }
    };
    tokio::select! {
        () = formed => {}
        () = stop.cancelled() => {}
    }
}

async fn learn_disk(gate: &Gate, id: NodeId) -> DiskId {
    let mut told = false;
    loop {
        match connect(gate, id, Purpose::Control).await {
            Ok((_, _, disk)) => return disk,
            Err(error) if !told => {
                tracing::info!(node = id, %error, "waiting for a member, to form the cluster with it");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(CALL_PAUSE).await;
    }
}
