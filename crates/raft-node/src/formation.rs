//! Formation of a cluster: happens once, from the configured members, and is safely repeated at every start.
//!
//! The founder, the member with the lowest id, chooses the cluster's id when its data directory is created.
//! It connects to every other member, which adopts the id permanently (see `peers::peer_registry`), and
//! learns the id of each member's data directory. When it knows all of them, it writes the first entry of the
//! log: the membership including the directories. So a cluster forms only when all its first members are up,
//! and from then on no node can take part with a directory that the membership does not name.
//!
//! A cluster that starts with the state of a backup (see `lock_node::backup`) begins with a snapshot instead
//! of an entry. The snapshot covers the position of that entry, and has the same membership. The other
//! members are behind the beginning of the founder's log, and receive the snapshot.

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

/// Pause between two attempts to connect to a member that is not up yet.
const CALL_PAUSE: Duration = Duration::from_millis(100);

/// Id that no node has.
const NOBODY: NodeId = 0;

/// Initial state of a new cluster, in the data directory of its founder until the cluster is formed.
pub trait InitialState: Send + Sync {
    /// Returns the encoded parts of the state. Blocks.
    fn parts(&self) -> io::Result<SnapshotParts>;

    /// Removes the state from the directory. Blocks.
    fn discard(&self) -> Result<(), StorageError>;
}

/// Returns the member that forms the cluster.
pub fn founder(members: &BTreeMap<NodeId, MemberAddress>) -> Option<NodeId> {
    members.keys().next().copied()
}

/// Forms the cluster from `members`, of which this node is the founder, unless it is already formed.
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
            Err(error) => return registry.fail(format!("Raft has stopped: {error}")),
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
            "formation: all members are up, the cluster is formed"
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

/// Starts the cluster with the state in `seed`. After an interruption the next start either finds no snapshot
/// and repeats this, or finds one and continues from it.
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
        // The new cluster has not assigned any id before.
        snapshot_file::write(&snapshots, &described, RetiredIds::default(), || {
            Ok(parts()?.map(|part| part.to_vec()))
        })
    })
    .await?;
    // Installed as if from a leader before the first election. No node has its id, so it never sends anything
    // again.
    let nobody = Vote::new_committed(1, NOBODY);
    let snapshot = Snapshot { meta, snapshot };
    let answered = raft.install_full_snapshot(nobody, snapshot).await;
    answered.map_err(io::Error::other)?;
    blocking(move || Ok(seed.discard()?)).await?;
    tracing::info!("formation: the cluster starts with the state of a backup");
    Ok(())
}

async fn learn_disk(registry: &PeerRegistry, id: NodeId) -> DiskId {
    let mut told = false;
    loop {
        match connect(registry, id, Purpose::Control).await {
            Ok((_, _, disk)) => return disk,
            Err(error) if !told => {
                tracing::info!(node = id, %error, "formation: waiting for a member");
                told = true;
            }
            Err(_) => {}
        }
        tokio::time::sleep(CALL_PAUSE).await;
    }
}
