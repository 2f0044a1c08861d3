//! Runs openraft's own suite for log stores on a real disk, and tests behaviour that it does not cover.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use openraft::storage::{EntryResponder, RaftLogStorageExt, RaftSnapshotBuilder, RaftStateMachine};
use openraft::testing::log::{StoreBuilder, Suite};
use openraft::type_config::alias::{SnapshotMetaOf, SnapshotOf};
use openraft::{StorageError as RaftStorageError, vote::RaftVote};
use tempfile::TempDir;

use super::*;
use crate::ids::MemberAddress;
use crate::ids::{DiskId, Member};
use crate::types::{Membership, Payload, Proposal, StoredMembership, log_id};
use raft_log::disk::RealDisk;
use raft_log::wal::{WalIdentity, WalOptions};

impl Default for Member {
    fn default() -> Self {
        let address = MemberAddress {
            peer: String::new(),
            http: String::new(),
        };
        Self {
            address,
            disk: DiskId([0; 16]),
        }
    }
}

/// Smallest state machine that the suite accepts. Its snapshot is its state.
#[derive(Clone, Default)]
struct Nothing {
    last: Option<LogId>,
    membership: StoredMembership,
    snapshot: Option<SnapshotMetaOf<TypeConfig>>,
    built: Arc<raft_log::sync::Mutex<Option<SnapshotMetaOf<TypeConfig>>>>,
}

impl RaftStateMachine<TypeConfig> for Nothing {
    type SnapshotData = ();
    type SnapshotBuilder = Self;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last, self.membership.clone()))
    }

    async fn apply<S>(&mut self, mut entries: S) -> Result<(), io::Error>
    where
        S: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + Send,
    {
        while let Some((entry, responder)) = entries.try_next().await? {
            self.last = Some(entry.log_id);
            if let Payload::Membership(membership) = entry.payload {
                self.membership = StoredMembership::new(Some(entry.log_id), membership);
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
        meta: &SnapshotMetaOf<TypeConfig>,
        (): Self::SnapshotData,
    ) -> Result<(), io::Error> {
        self.last = meta.last_log_id;
        self.membership = meta.last_membership.clone();
        self.snapshot = Some(meta.clone());
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf<TypeConfig, ()>>, io::Error> {
        let built = self.built.lock().clone();
        Ok(built
            .or(self.snapshot.clone())
            .map(|meta| SnapshotOf::<TypeConfig, ()> { meta, snapshot: () }))
    }
}

impl RaftSnapshotBuilder<TypeConfig> for Nothing {
    type SnapshotData = ();

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, ()>, io::Error> {
        let meta = SnapshotMetaOf::<TypeConfig> {
            last_log_id: self.last,
            last_membership: self.membership.clone(),
        };
        *self.built.lock() = Some(meta.clone());
        Ok(SnapshotOf::<TypeConfig, ()> { meta, snapshot: () })
    }
}

fn open(dir: &TempDir, cached_bytes: usize) -> LogStore {
    let identity = WalIdentity {
        cluster_id: [0; 16],
        disk_id: [1; 16],
        node_id: 1,
    };
    let options = WalOptions {
        segment_bytes: 4096,
        cached_bytes,
        ..WalOptions::default()
    };
    LogStore::new(Wal::start(Arc::new(RealDisk), dir.path(), identity, options).unwrap())
}

struct Builder {
    cached_bytes: usize,
}

impl StoreBuilder<TypeConfig, LogStore, Nothing, TempDir> for Builder {
    async fn build(&self) -> Result<(TempDir, LogStore, Nothing), RaftStorageError<TypeConfig>> {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir, self.cached_bytes);
        Ok((dir, store, Nothing::default()))
    }
}

#[tokio::test]
async fn openraft_suite_passes_with_all_entries_cached() {
    Suite::test_all(Builder {
        cached_bytes: usize::MAX,
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn openraft_suite_passes_with_no_entries_cached() {
    Suite::test_all(Builder { cached_bytes: 0 }).await.unwrap();
}

fn proposal(term: u64, index: u64, bytes: usize) -> Entry {
    let commands = Bytes::from(vec![index as u8; bytes]);
    Entry {
        log_id: log_id(term, index),
        payload: Payload::Normal(Proposal { term, commands }),
    }
}

fn vote(term: u64, node_id: u64, committed: bool) -> Vote {
    let leader_id = LeaderIdOf::<TypeConfig> {
        term,
        voted_for: node_id,
    };
    Vote::from_leader_id(leader_id, committed)
}

#[tokio::test]
async fn restart_restores_log_and_vote() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir, usize::MAX);
    let membership = Membership::new_with_defaults(vec![[1, 2, 3].into()], []);
    let mut entries = vec![
        Entry {
            log_id: log_id(1, 1),
            payload: Payload::Membership(membership),
        },
        Entry {
            log_id: log_id(1, 2),
            payload: Payload::Blank,
        },
    ];
    entries.extend((3..300).map(|index| proposal(1 + index / 100, index, index as usize)));
    store.blocking_append(entries.clone()).await.unwrap();
    store.save_vote(&vote(4, 2, true)).await.unwrap();
    store.save_committed(Some(log_id(3, 280))).await.unwrap();
    store.wal().close().unwrap();
    drop(store);

    let mut store = open(&dir, 10_000);
    assert_eq!(store.read_vote().await.unwrap(), Some(vote(4, 2, true)));
    assert_eq!(store.read_committed().await.unwrap(), Some(log_id(3, 280)));
    assert_eq!(store.try_get_log_entries(..).await.unwrap(), entries);
    let streamed: Vec<Entry> = store.entries_stream(..=299).await.try_collect().await.unwrap();
    assert_eq!(streamed, entries);
}

#[tokio::test]
async fn reads_are_bounded_by_bytes_and_never_empty() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir, usize::MAX);
    let entries: Vec<Entry> = (1..6)
        .map(|index| proposal(1, index, MAX_READ_BYTES / 2))
        .collect();
    store.blocking_append(entries.clone()).await.unwrap();
    assert_eq!(store.limited_get_log_entries(1, 6).await.unwrap(), entries[..2]);
    assert_eq!(store.limited_get_log_entries(5, 6).await.unwrap(), entries[4..]);
    let large = proposal(1, 6, 3 * MAX_READ_BYTES);
    store.blocking_append([large.clone()]).await.unwrap();
    assert_eq!(store.limited_get_log_entries(6, 7).await.unwrap(), [large]);
}

#[tokio::test]
async fn entry_stream_ends_when_the_leader_changes() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir, usize::MAX);
    let entries: Vec<Entry> = (1..6).map(|index| proposal(1, index, MAX_READ_BYTES)).collect();
    store.blocking_append(entries.clone()).await.unwrap();
    store.save_vote(&vote(1, 2, true)).await.unwrap();
    let mut reader = store.get_log_reader().await;
    let stream = reader
        .leader_bounded_stream(vote(1, 2, true).leader_id, 1..6)
        .await;
    let mut stream = std::pin::pin!(stream);
    assert_eq!(stream.next().await.unwrap().unwrap(), entries[0]);
    store.save_vote(&vote(2, 3, false)).await.unwrap();
    let next = stream.next().await.unwrap();
    assert!(
        matches!(next, Err(LeaderBoundedStreamError::LeaderChanged(_))),
        "{next:?}"
    );
    assert!(stream.next().await.is_none());
}

#[tokio::test]
async fn gap_and_older_vote_are_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = open(&dir, usize::MAX);
    store.blocking_append([proposal(2, 1, 1)]).await.unwrap();
    for strange in [proposal(2, 3, 1), proposal(2, 1, 1), proposal(1, 2, 1)] {
        let refused = store.append([strange], IOFlushed::noop()).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
    store.save_vote(&vote(5, 1, false)).await.unwrap();
    assert!(store.save_vote(&vote(4, 1, false)).await.is_err());
    store.wal().close().unwrap();
    let closed = store.save_vote(&vote(6, 1, false)).await.unwrap_err();
    assert!(closed.to_string().contains("closed"), "{closed}");
}
