//! Answers of this node to other members' requests about commands, sessions and reads.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::Instant;
use znode_store::SessionId;

use crate::leader::Leadership;
use crate::messages::{HeartbeatsTaken, NotLeader, SeenMoment, Touched};
use crate::peers::application::{Application, Forwarded};
use crate::proposer::Submissions;
use crate::replica::Replica;

/// This node, for requests of other members.
pub(super) struct PeerRequests {
    /// Queue of the leader's proposals.
    pub submissions: Submissions,
    /// Heartbeats of sessions and confirmations of reads.
    pub leadership: Arc<Leadership>,
    /// The state.
    pub replica: Arc<Replica>,
}

impl Application for PeerRequests {
    fn forward(&self, term: u64, envelopes: Vec<Bytes>) -> BoxFuture<'_, Forwarded> {
        self.submissions.submit(term, envelopes).boxed()
    }

    fn touch(&self, sessions: Vec<u64>) -> BoxFuture<'_, Result<Vec<Touched>, NotLeader>> {
        let arrived = Instant::now();
        let beats = sessions
            .into_iter()
            .map(|session| (SessionId(session), arrived))
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
}
