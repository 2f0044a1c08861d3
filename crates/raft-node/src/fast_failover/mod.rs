//! Fast failover: a follower takes over from a dead leader before the leader's lease expires.
//!
//! openraft's voters grant no vote while the lease of the last known leader is valid, and start an election
//! only after an additional election timeout: about a second without a leader. But a follower often knows
//! sooner. A leader whose process has ended leaves closed connections, and its address refuses new ones; a
//! stalled leader is silent to *all*. So a voter that suspects the leader asks the other voters
//! ([`PeerRequest::LeaderLost`]). If a majority has lost it too, by their own observations, the voter with
//! the longest log starts an election at once, in the same way in which a leader that hands over has its
//! successor elected (Raft dissertation, 3.10 and 4.2.3): the lease does not count.
//!
//! The length of a suspicious silence is measured ([`silence_timeout`]): on a busy machine leaders and
//! followers stall, and that is no reason for an election. openraft's own timers ignore stalls. Therefore
//! they are off while the leader's messages arrive; they are on when no leader is known, and after a
//! suspicion without a result. For the same reason a voter that received a message of the leader recently
//! grants no pre-vote.
//!
//! Only time depends on the lease: reads and heartbeats are confirmed by a quorum
//! ([`crate::leader_view::prove_leadership`]), so a wrong suspicion costs an election and never a promise.

mod silence_timeout;
mod quorum;
mod leader_evidence;
mod decision;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::raft::TransferLeaderRequest;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::decision::{Decision, Voter};
use self::leader_evidence::LeaderEvidence;
use self::quorum::QuorumWatch;
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::peers::stream::PeerStream;
use crate::peers::wire::{LeaderLoss, PeerRequest, PeerResponse, WireLogId, WireVote, WireVoteResponse};
use crate::peers::{Peers, Purpose};
use crate::raft_config::RaftTiming;
use crate::state_machine::Raft;
use crate::types::Vote;
use raft_log::Wal;
use raft_log::sync::Mutex;

/// Step of the wait for the end of a silence. A node that stalled finds a long silence when it continues; in
/// the next step it reads the messages that wait in its sockets.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum duration of an election whose majority can communicate, in longest election timeouts: one for the
/// agreement of the others, and one more if the first attempt fails.
const ELECTION_TIMEOUTS: u32 = 2;

/// Time that a started node may take to learn its first leader, since its whole cluster may be starting.
const START_GRACE: Duration = Duration::from_secs(10);

/// Number of probes of an address after the leader's connection has ended, with pauses of [`PROBE_PAUSE`]: an
/// ending process closes its sockets one after the other.
const PROBES: u32 = 4;
/// Pause between two probes.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// Failure detector of a follower, and its takeover from a lost leader.
pub struct FastFailover {
    node: NodeId,
    timing: RaftTiming,
    peers: Arc<Peers>,
    raft: Raft,
    wal: Wal,
    leader: watch::Receiver<LeaderView>,
    evidence: LeaderEvidence,
    /// Set if openraft's own timers may start an election. They are off while the leader's messages arrive.
    timers: AtomicBool,
    /// Set if this node leads and has reached no quorum for a long time.
    unreached: AtomicBool,
    /// Time since when no leader is known.
    leaderless: Mutex<Leaderless>,
}

/// Time since when a node knows no leader.
struct Leaderless {
    since: Option<Instant>,
    /// Set if this node has known a leader since its start.
    has_known: bool,
}

/// Reason why a follower suspects its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// The leader's addresses refuse connections.
    Refused,
    /// The leader is silent for longer than its recent pauses explain.
    Silent,
    /// Another voter suspects the leader, and this node has agreed.
    Agreed,
}

impl FastFailover {
    /// Creates the failure detector of a node, which works whenever the node follows a leader.
    pub fn new(
        node: NodeId,
        timing: RaftTiming,
        peers: Arc<Peers>,
        raft: Raft,
        wal: Wal,
        leader: watch::Receiver<LeaderView>,
    ) -> Self {
        Self {
            node,
            evidence: LeaderEvidence::new(timing.clone()),
            timing,
            peers,
            raft,
            wal,
            leader,
            // On at the start: the node may have to elect its first leader.
            timers: AtomicBool::new(true),
            unreached: AtomicBool::new(false),
            leaderless: Mutex::new(Leaderless {
                since: Some(Instant::now()),
                has_known: false,
            }),
        }
    }

    /// Returns whether this node has known no leader for longer than an election takes, or leads and reaches
    /// no quorum. A request accepted now would not be served. A started node gets more time, since its cluster
    /// may be starting.
    pub fn is_cut_off(&self) -> bool {
        if !self.timers.load(Ordering::Relaxed) {
            return false;
        }
        let leader = self.leader.borrow().leader;
        let (since, has_known) = {
            let leaderless = self.leaderless.lock();
            (leaderless.since, leaderless.has_known)
        };
        let election = match has_known {
            true => self.timing.election_max * ELECTION_TIMEOUTS,
            false => START_GRACE,
        };
        match leader {
            Some(leader) if leader == self.node => self.unreached.load(Ordering::Relaxed),
            Some(_) => {
                let (_, believed) = self.evidence.believed();
                Instant::now() > believed + election
            }
            None => since.is_some_and(|since| since.elapsed() > election),
        }
    }

    /// Records a leader's message on arrival: a current leader is thereby known to be alive. The processing
    /// of the message may wait for this node's disk.
    pub fn record_leader_message(&self, leader: &WireVote) {
        if self.evidence.record_message(leader.term) && self.timers.load(Ordering::Relaxed) {
            self.set_timers(false);
        }
    }

    /// Returns the rejection of a pre-vote, if this node received a message of its leader recently.
    /// (openraft's voters check the lease alone.)
    pub fn refuse_pre_vote(&self) -> Option<WireVoteResponse> {
        let view = *self.leader.borrow();
        let (_, believed) = self.evidence.believed();
        let hears = view.leader.is_some_and(|leader| leader != self.node) && Instant::now() < believed;
        let vote = self.raft.server_metrics().borrow_watched().vote;
        hears.then(|| WireVoteResponse {
            vote: (&vote).into(),
            granted: false,
            last: self.last(),
        })
    }

    fn set_timers(&self, on: bool) {
        if self.timers.swap(on, Ordering::Relaxed) != on {
            self.raft.runtime_config().elect(on);
        }
    }

    /// Handles the end of a connection that `from` had opened.
    pub fn connection_lost(&self, from: NodeId) {
        if self.leader.borrow().leader == Some(from) {
            self.evidence.suspect();
        }
    }

    /// Returns the opinion of this node for a voter that suspects `leader`, the leader of `term`: whether
    /// this node has lost it, too, by its own observations.
    pub async fn assess_leader(&self, term: u64, leader: NodeId) -> LeaderLoss {
        // The silence is checked first: a partitioned node gets no answer from the address either, and the
        // requesting voter does not wait for long.
        let lost = leader != self.node
            && self.leader.borrow().term <= term
            && (self.stays_silent().await || self.is_refused(leader).await);
        let asked = LeaderView {
            term,
            leader: Some(leader),
        };
        if lost && *self.leader.borrow() == asked {
            // This node may have the longer log, and need not wait for its own silence timeout.
            self.evidence.confirm_loss();
        }
        LeaderLoss {
            lost,
            last: self.last(),
        }
    }

    /// Starts an election whenever the leader is lost, until `stop`. On the leader, watches whether it
    /// reaches a quorum.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut views = self.leader.clone();
        // A new node may know its leader before it knows that it is a voter.
        let mut metrics = self.raft.server_metrics();
        loop {
            let view = *self.leader.borrow();
            self.evidence.term_began(view.term);
            let leads = view.leader == Some(self.node);
            self.peers.set_silent(false);
            self.unreached.store(false, Ordering::Relaxed);
            self.note_leader(view);
            if leads || view.leader.is_none() {
                self.set_timers(true);
            }
            let follows = self.follows();
            let watch = async {
                if let Some(view) = follows {
                    let suspicion = self.suspicion(view).await;
                    self.act(view, suspicion).await;
                }
            };
            tokio::select! {
                () = watch, if follows.is_some() => {}
                () = self.watch_quorum(), if leads => {}
                changed = views.changed() => if changed.is_err() { return },
                changed = metrics.changed(), if follows.is_none() => if changed.is_err() { return },
                () = stop.cancelled() => return,
            }
        }
    }

    fn note_leader(&self, view: LeaderView) {
        let mut leaderless = self.leaderless.lock();
        match view.leader {
            Some(_) => {
                *leaderless = Leaderless {
                    since: None,
                    has_known: true,
                }
            }
            None => {
                leaderless.since.get_or_insert_with(Instant::now);
            }
        }
    }

    /// Returns the leader that this node follows as a voter.
    fn follows(&self) -> Option<LeaderView> {
        let view = *self.leader.borrow();
        let another = view.leader.is_some_and(|leader| leader != self.node);
        let votes = || self.voters().iter().any(|voters| voters.contains(&self.node));
        (another && votes()).then_some(view)
    }

    /// Waits until there is a reason to suspect the leader.
    async fn suspicion(&self, view: LeaderView) -> Suspicion {
        let silence = falls_silent(&self.evidence);
        let refusal = async {
            loop {
                self.evidence.suspected().await;
                for probe in 0..PROBES {
                    if probe > 0 {
                        sleep(PROBE_PAUSE).await;
                    }
                    let Some(leader) = view.leader else { continue };
                    if self.is_refused(leader).await {
                        return;
                    }
                }
            }
        };
        tokio::select! {
            () = silence => Suspicion::Silent,
            () = refusal => Suspicion::Refused,
            () = self.evidence.loss_confirmed() => Suspicion::Agreed,
        }
    }

    /// Asks the other voters, and starts an election if a majority has lost the leader and no voter of it has
    /// precedence.
    async fn act(&self, view: LeaderView, suspicion: Suspicion) {
        let LeaderView {
            term,
            leader: Some(leader),
        } = view
        else {
            return;
        };
        let Some(vote) = self.vote_of(term) else { return };
        if self.peers.registry().has_wrong_state() {
            // Another voter that has lost the leader starts the election.
            sleep(self.timing.election_max).await;
            return;
        }
        let configs = self.voters();
        let others: BTreeSet<NodeId> = configs.iter().flatten().copied().collect();
        let others = others.into_iter().filter(|id| ![self.node, leader].contains(id));
        let timeout = self.timing.election_min;
        let answers = join_all(others.map(|id| async move {
            let request = PeerRequest::LeaderLost { term, leader };
            let answer = self
                .peers
                .connection(id, Purpose::Control)
                .request(request, timeout)
                .await;
            match answer {
                Ok(PeerResponse::LeaderLost(LeaderLoss { lost: true, last })) => Some(Voter { id, last }),
                // The voter has the leader, or runs an older version, or cannot be reached.
                _ => None,
            }
        }));
        let agreed: Vec<Voter> = answers.await.into_iter().flatten().collect();
        let me = Voter {
            id: self.node,
            last: self.last(),
        };
        let decision = Decision::of(&configs, me, &agreed);
        let Decision::StartElection { rank } = decision else {
            tracing::debug!(
                term,
                leader,
                ?suspicion,
                "failover: the leader seems to be lost, but not to a majority"
            );
            // Some voter receives messages of the leader, or too few voters are reachable.
            sleep(self.timing.election_min).await;
            self.leave_to_timers();
            return;
        };
        tracing::info!(
            term,
            leader,
            ?suspicion,
            rank,
            "failover: a majority has lost the leader"
        );
        // A voter of a lower rank has that much time to be elected; then `run` sees another leader. A voter
        // that starts too early is not elected, and takes the term from the right one.
        sleep(self.rank_delay().saturating_mul(rank)).await;
        let request = TransferLeaderRequest::new(vote, self.node, None);
        match self.raft.handle_transfer_leader(request).await {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => {
                tracing::info!(%refused, "failover: no election, the leader's vote is not this node's last")
            }
            Err(error) => tracing::debug!(%error, "failover: no election, Raft has stopped"),
        }
        // openraft's timers handle an election that fails.
        sleep(self.timing.election_max).await;
        self.leave_to_timers();
    }

    /// Turns openraft's election timers on while the leader is silent, whatever the suspicion. Without them,
    /// voters that agree on the loss of the leader and are too few to replace it at once would repeat their
    /// requests endlessly.
    fn leave_to_timers(&self) {
        let (_, believed) = self.evidence.believed();
        if Instant::now() >= believed {
            self.set_timers(true);
        }
    }

    /// Suppresses heartbeats in alternating phases while this leader reaches no quorum. Never returns.
    async fn watch_quorum(&self) {
        let mut quorum = QuorumWatch::default();
        let mut before = BTreeMap::default();
        loop {
            sleep(CHECK_INTERVAL).await;
            let configs = self.voters();
            // When each node was sent the last message that it has acknowledged. openraft forgets heartbeats that are answered late.
            let acknowledged = self
                .raft
                .data_metrics()
                .borrow_watched()
                .heartbeat
                .clone()
                .unwrap_or_default();
            let answered = acknowledged
                .iter()
                .filter(|(id, at)| before.get(*id) != Some(*at));
            let answered = answered.map(|(id, _)| *id);
            let sends = quorum.record_slice(CHECK_INTERVAL, self.node, &configs, answered, &self.timing);
            before = acknowledged;
            self.peers.set_silent(!sends);
            let unreached = quorum.is_lost(&self.timing);
            if self.unreached.swap(unreached, Ordering::Relaxed) != unreached {
                match unreached {
                    true => {
                        tracing::warn!("failover: this leader reaches no majority and rejects new requests")
                    }
                    false => tracing::info!("failover: this leader reaches a majority again"),
                }
            }
        }
    }

    /// Returns the maximum time until a voter that agreed on request has asked the others itself and is
    /// elected: each request may wait for a step of silence, and heartbeats are configured to twice the round
    /// trip or more.
    fn rank_delay(&self) -> Duration {
        2 * CHECK_INTERVAL + self.timing.heartbeat
    }

    /// Returns the vote of the leader of `term`, as this node has stored it.
    fn vote_of(&self, term: u64) -> Option<Vote> {
        let vote = self.raft.server_metrics().borrow_watched().vote;
        (vote.committed && vote.leader_id.term == term).then_some(vote)
    }

    /// Returns the voters: one set, or two during a change.
    fn voters(&self) -> Vec<BTreeSet<NodeId>> {
        let metrics = self.raft.server_metrics();
        let metrics = metrics.borrow_watched();
        metrics.membership_config.membership().get_joint_config().clone()
    }

    fn last(&self) -> Option<WireLogId> {
        self.wal.last().map(|at| WireLogId {
            term: at.term,
            index: at.index,
        })
    }

    /// Returns whether all addresses of `leader` refuse connections. An address without an answer proves
    /// nothing. Waits for less time than the requesting voter waits for the answer.
    async fn is_refused(&self, leader: NodeId) -> bool {
        let addresses = self.peers.registry().peer_addresses(leader);
        for address in &addresses {
            match timeout(self.timing.election_min / 2, PeerStream::connect(address)).await {
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return false,
            }
        }
        !addresses.is_empty()
    }

    /// Returns whether the leader was silent for long, and stays silent for the next step.
    async fn stays_silent(&self) -> bool {
        let (heard, believed) = self.evidence.believed();
        if Instant::now() < believed {
            return false;
        }
        sleep(CHECK_INTERVAL).await;
        self.evidence.last() == heard
    }
}

/// Waits until the leader has been silent for the [`silence_timeout`], and this node itself did not stall during
/// the last part of it.
async fn falls_silent(evidence: &LeaderEvidence) {
    let wait = evidence.final_part();
    let (mut heard, mut believed) = evidence.believed();
    let mut waited = Duration::ZERO;
    loop {
        if Instant::now() < believed {
            sleep_until(believed).await;
        } else if waited < wait {
            let slice = CHECK_INTERVAL.min(wait - waited);
            sleep(slice).await;
            waited += slice;
        } else {
            return;
        }
        if evidence.last() != heard {
            waited = Duration::ZERO;
            (heard, believed) = evidence.believed();
        }
    }
}

#[cfg(test)]
mod tests;
