//! Minimal program that a node replicates, for tests of replication itself.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use raft_log::RealDisk;
use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::application::{Application, BatchRoom, ProposalBatch};
use crate::audit::StateDigest;
use crate::codec::BadBytes;
use crate::config::RaftNodeConfig;
use crate::messages::{Declined, ForwardedTrace, HeartbeatsTaken, NotLeader, SeenMoment, Touched};
use crate::node::{OpenedStorage, Program, RaftNode};
use crate::replicated_state::{AppliedPosition, LogPosition, ReplicatedState, SnapshotPart, SnapshotParts};
use crate::types::Proposal;

/// Program without a state: it only follows the log, and accepts no commands.
#[derive(Default)]
struct Idle {
    applied: AppliedPosition,
}

impl ReplicatedState for Idle {
    fn applied(&self) -> &AppliedPosition {
        &self.applied
    }

    fn zxid(&self) -> u64 {
        0
    }

    fn apply_blank(&self, at: LogPosition) {
        self.applied.advance(at);
    }

    fn apply_commands(&self, at: LogPosition, _: &Proposal) -> Result<(), BadBytes> {
        self.applied.advance(at);
        Ok(())
    }

    fn begin_snapshot(&self) -> u64 {
        0
    }

    fn next_snapshot_part(&self, _: u64, _: usize) -> Option<Option<SnapshotPart>> {
        Some(None)
    }

    fn abandon_snapshot(&self, _: u64) {}

    fn install(&self, at: LogPosition, _: SnapshotParts) -> io::Result<()> {
        self.applied.advance(at);
        Ok(())
    }

    fn digest_version(&self) -> u32 {
        1
    }

    fn digests(&self) -> Vec<StateDigest> {
        Vec::new()
    }

    fn end_waits(&self) {}
}

const REFUSED: NotLeader = NotLeader { leader: None };

impl Application for Idle {
    fn take_batch(&self, _: u64, _: BatchRoom) -> ProposalBatch {
        ProposalBatch::default()
    }

    fn led(&self, _: &[ForwardedTrace], _: Instant) {}

    fn settle(&self, _: u64, _: &[u64], _: &Declined) {}

    fn retry(&self, _: u64, _: &[u64]) {}

    fn retry_lost(&self) {}

    fn would_wait(&self, _: &Bytes, _: bool) -> bool {
        false
    }

    fn may_grow(&self, commands: &[Bytes]) -> Vec<bool> {
        vec![true; commands.len()]
    }

    fn touch(&self, _: Vec<(u64, Instant)>) -> BoxFuture<'_, Result<Vec<Touched>, NotLeader>> {
        std::future::ready(Err(REFUSED)).boxed()
    }

    fn take_heartbeats(
        &self,
        _: Option<SeenMoment>,
        _: Duration,
        _: Vec<(u64, u32)>,
    ) -> BoxFuture<'_, Result<HeartbeatsTaken, NotLeader>> {
        std::future::ready(Err(REFUSED)).boxed()
    }

    fn read_index(&self) -> BoxFuture<'_, Result<u64, NotLeader>> {
        std::future::ready(Err(REFUSED)).boxed()
    }

    fn awaits_entries(&self) -> bool {
        false
    }

    fn has_taken_over(&self) -> bool {
        true
    }

    fn prepare_hand_over(&self, _: Duration) -> BoxFuture<'static, ()> {
        std::future::ready(()).boxed()
    }
}

/// Starts a node that accepts no commands.
#[allow(
    clippy::useless_conversion,
    reason = "without the feature `simulation` the listener for peers is a TCP listener already"
)]
pub async fn start(config: RaftNodeConfig, listener: TcpListener) -> RaftNode {
    let opened = OpenedStorage::open(config, Arc::new(RealDisk), |_, _, _, _| Ok(None));
    let opened = opened.await.expect("the directory can be opened");
    let state = Arc::new(Idle::default());
    let program = Program {
        application: state.clone(),
        state,
        queued: Arc::default(),
        commands: 1,
    };
    let started = opened.start(listener.into(), program);
    started.await.expect("the node starts")
}

/// Stops a node.
pub async fn stop(node: &RaftNode) {
    node.end_tasks().await;
    node.shut_down().await;
    node.close().await;
}
