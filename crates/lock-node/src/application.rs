//! Interface of this node to replication: its proposals, and its answers to other members about commands, sessions and reads.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use raft_node::application::{Application, BatchRoom, ProposalBatch};
use raft_node::messages::{Declined, ForwardedTrace, HeartbeatsTaken, NotLeader, SeenMoment, Touched};
use tokio::time::Instant;
use znode_store::SessionId;

use crate::envelope::Envelope;
use crate::leader::{Leadership, Recorder};
use crate::replica::Replica;
use crate::traces;

/// This node, as replication calls it.
pub(crate) struct LockApplication {
    /// Handle for heartbeats of sessions and confirmations of reads.
    pub leadership: Arc<Leadership>,
    /// The state, and the pending proposals.
    pub replica: Arc<Replica>,
    /// Handle for records of the silence of sessions.
    pub recorder: Recorder,
}

impl Application for LockApplication {
    fn take_batch(&self, term: u64, room: BatchRoom) -> ProposalBatch {
        self.replica.calls.take_batch(term, room)
    }

    fn led(&self, traces: &[ForwardedTrace], received: Instant) {
        if let Some(spans) = &self.replica.spans {
            traces::led(&**spans, traces, received);
        }
    }

    fn settle(&self, term: u64, numbers: &[u64], declined: &Declined) {
        self.replica.calls.decline(term, numbers, declined);
    }

    fn retry(&self, term: u64, numbers: &[u64]) {
        self.replica.calls.mark_unsent(term, numbers);
    }

    fn retry_lost(&self) {
        self.replica.resubmit_lost();
    }

    /// Returns whether the command is an `acquire` that would wait in a queue. If entries are in flight, they may shorten the queue. Then it returns
    /// true only if at least one other contender waits before it, which is granted first.
    fn would_wait(&self, command: &Bytes, is_in_flight: bool) -> bool {
        match Envelope::decode(command) {
            Ok(envelope) => {
                let waiting = self.replica.store.read().would_wait_behind(&envelope.request);
                waiting.is_some_and(|waiting| !is_in_flight || waiting > 0)
            }
            // The state will refuse the command.
            Err(_) => false,
        }
    }

    fn may_grow(&self, commands: &[Bytes]) -> Vec<bool> {
        let store = self.replica.store.read();
        let commands = commands.iter();
        // The state will refuse a command that cannot be decoded.
        let may_grow = |command: &Bytes| {
            Envelope::decode(command).is_ok_and(|envelope| store.may_grow(&envelope.request))
        };
        commands.map(may_grow).collect()
    }

    fn touch(&self, beats: Vec<(u64, Instant)>) -> BoxFuture<'_, Result<Vec<Touched>, NotLeader>> {
        let beats = beats.into_iter();
        let beats = beats
            .map(|(session, heard)| (SessionId(session), heard))
            .collect();
        self.leadership.touch(beats).boxed()
    }

    fn take_heartbeats(
        &self,
        seen: Option<SeenMoment>,
        within: Duration,
        sessions: Vec<(u64, u32)>,
    ) -> BoxFuture<'_, Result<HeartbeatsTaken, NotLeader>> {
        let sessions = sessions.into_iter();
        let sessions = sessions
            .map(|(session, age_ms)| (SessionId(session), age_ms))
            .collect();
        self.leadership.take_heartbeats(seen, within, sessions).boxed()
    }

    fn read_index(&self) -> BoxFuture<'_, Result<u64, NotLeader>> {
        self.leadership.read_index().boxed()
    }

    fn awaits_entries(&self) -> bool {
        self.replica.is_awaited()
    }

    fn has_taken_over(&self) -> bool {
        self.replica.sessions.leading_term().is_some()
    }

    fn prepare_hand_over(&self, timeout: Duration) -> BoxFuture<'static, ()> {
        self.recorder.clone().record_all(timeout).boxed()
    }
}
