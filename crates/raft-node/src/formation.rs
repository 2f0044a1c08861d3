//! How a cluster comes to be: once, from the configured members, and safely repeated at every start.
//!
//! The founder, the member with the lowest id, draws the cluster's id when its data directory is made. It
//! calls on every other member, which takes the id over for ever (see `peers::peer_registry`), and learns the name of
//! each one's data directory. When it knows them all it writes the first entry of the log: the membership,
//! directories included. So a cluster forms only when all its first members are up, and from then on nobody
//! can take part with a directory that the membership does not name.
//!
//! A cluster that begins with the state of a backup (see `lock_node::backup`) begins with a snapshot instead of an entry: it
//! covers the place where that entry would be, and holds the same membership. The others find that the founder's log
//! begins behind it, and get it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use openraft::errors::{InitializeError, RaftError};
use tokio_util::sync::CancellationToken;

use crate::ids::{DiskId, Member};
use crate::ids::{MemberAddress, NodeId};
use crate::membership::RetiredIds;
use crate::peers::peer_connection::connect;
use crate::peers::{PeerRegistry, Purpose};
use crate::replicated_state::SnapshotParts;
use crate::snapshot_file::{self, Snapshot, blocking};
use crate::state_machine::Raft;
use crate::types::{Membership, SnapshotMeta, StoredMembership, Vote, log_id};
use raft_log::{SnapshotStore, StorageError};

/// Between two calls on a member that is not up yet.
const CALL_PAUSE: Duration = Duration::from_millis(100);

/// No node has this id.
const NOBODY: NodeId = 0;

/// State with which a new cluster begins, in the data directory of its founder until the cluster is formed.
pub trait InitialState: Send + Sync {
    /// Returns the encoded parts of the state. Blocks.
    fn parts(&self) -> io::Result<SnapshotParts>;

    /// Removes the state from the directory. Blocks.
    fn discard(&self) -> Result<(), StorageError>;
}

/// The member that forms the cluster.
pub fn founder(members: &BTreeMap<NodeId, MemberAddress>) -> Option<NodeId> {
    members.keys().next().copied()
}

/// Forms the cluster from `members`, of which this node is the founder, unless it is formed already.
pub async fn form(
    raft: Raft,
    registry: Arc<PeerRegistry>,
    own_disk: DiskId,
    members: BTreeMap<NodeId, MemberAddress>,
    seed: Option<(Arc<dyn InitialState>, SnapshotStore)>,
    stop: CancellationToken,
) {
    let formed = async {
        match raft.is_initialized().await {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => return registry.fail(format!("raft has stopped: {error}")),
        }
        let mut voters = BTreeMap::new();
        for (id, address) in members {
            let disk = if id == registry.node() {
                own_disk
            } else {
                learn_disk(&registry, id).await
            };
            voters.insert(id, Member { address, disk });
        }
        tracing::info!(
            members = voters.len(),
            "all members are up: the cluster is formed"
        );
        let begun = match seed {
            None => match raft.initialize(voters).await {
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => Ok(()),
                Err(error) => Err(error.to_string()),
            },
            Some((seed, snapshots)) => begin_with(seed, snapshots, &raft, voters)
                .await
                .map_err(|error| error.to_string()),
        };
        if let Err(error) = begun {
            registry.fail(format!("the cluster cannot be formed: {error}"));
        }
    };
    tokio::select! {
        () = formed => {}
        () = stop.cancelled() => {}
    }
}

/// Lets the cluster begin with the state in `seed`. If this ends in the middle, the next start either finds no snapshot
/// and does it again, or finds one and goes on from it.
async fn begin_with(
    seed: Arc<dyn InitialState>,
    snapshots: SnapshotStore,
    raft: &Raft,
    voters: BTreeMap<NodeId, Member>,
) -> io::Result<()> {
    let sets = vec![voters.keys().copied().collect()];
    let membership = Membership::new(sets, voters).map_err(io::Error::other)?;
    let meta = SnapshotMeta {
        last_log_id: Some(log_id(0, 0)),
        last_membership: StoredMembership::new(Some(log_id(0, 0)), membership),
    };
    let (sown, described) = (seed.clone(), meta.clone());
    let snapshot = blocking(move || {
        let mut parts = sown.parts()?;
        // The new cluster has given no id before.
        snapshot_file::write(&snapshots, &described, RetiredIds::default(), || {
            Ok(parts()?.map(|part| part.to_vec()))
        })
    })
    .await?;
    // As from a leader that was before the first election. It is nobody, and so will not be heard of again.
    let nobody = Vote::new_committed(1, NOBODY);
    let snapshot = Snapshot { meta, snapshot };
    let answered = raft.install_full_snapshot(nobody, snapshot).await;
    answered.map_err(io::Error::other)?;
    blocking(move || Ok(seed.discard()?)).await?;
    tracing::info!("the cluster begins with the state of a backup");
    Ok(())
}

async fn learn_disk(registry: &PeerRegistry, id: NodeId) -> DiskId {
    let mut told = false;
    loop {
        match connect(registry, id, Purpose::Control).await {
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
