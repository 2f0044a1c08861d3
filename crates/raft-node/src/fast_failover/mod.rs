//! Takeover by a follower from a leader that is gone, before the leader's lease runs out.
//!
//! openraft's voters grant no vote while the lease of the last leader they heard is valid, and stand for
//! election only after an election timeout on top: about a second without a leader. But a follower often knows sooner. A
//! leader whose process has ended leaves closed connections, and its address refuses new ones; a stalled one is
//! silent to *all*. So a voter that suspects the leader asks the other voters ([`PeerRequest::LeaderLost`]), and if a majority has lost it
//! too, by their own observations, the one with the longest log stands for election at once, in the way in which a
//! leader that hands over has its successor elected (Raft dissertation, 3.10 and 4.2.3): the lease does not count.
//!
//! The necessary silence is measured ([`timeout`]): on a busy machine leaders and followers stall, and that is no reason for
//! an election. openraft's own timers do not know stalls. So they are off while the leader is heard; they decide when
//! no leader is known, and when the questions had no result. For the same reason a voter that heard the leader recently
//! grants no pre-vote.
//!
//! Nothing but time depends on the lease: reads and heartbeats are confirmed by a quorum ([`crate::leader::confirm`]), so a
//! wrong suspicion costs an election and never a promise.

mod silence_timeout;
mod quorum;
mod leader_evidence;
mod decision;

use std::collections::BTreeSet;
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

/// Length of a step of the wait for the end of a silence. A node that stalled itself finds, when it continues, a long
/// silence; in the next step it reads what waits in its sockets.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum duration of an election where a majority can hear each other, in longest election timeouts: one for the others to
/// agree, and one more if the first try fails.
const ELECTION_TIMEOUTS: u32 = 2;

/// Time that a started node may take to learn of its first leader: its cluster may be starting with it.
const START_GRACE: Duration = Duration::from_secs(10);

/// Number of probes of an address after the leader's connection has ended, in pauses of [`PROBE_PAUSE`]: a process that ends
/// closes its sockets one after the other.
const PROBES: u32 = 4;
/// The pause between two of them.
const PROBE_PAUSE: Duration = Duration::from_millis(10);

/// The part of a follower that is ready to succeed its leader.
pub struct FastFailover {
    node: NodeId,
    timing: RaftTiming,
    peers: Arc<Peers>,
    raft: Raft,
    wal: Wal,
    leader: watch::Receiver<LeaderView>,
    evidence: LeaderEvidence,
    /// Set if openraft's own timers may begin an election. They may not while the leader is heard.
    timers: AtomicBool,
    /// This node leads, and has reached no quorum for long.
    unreached: AtomicBool,
    /// Since when no leader is known.
    leaderless: Mutex<Leaderless>,
}

/// Since when a node knows of no leader.
struct Leaderless {
    since: Option<Instant>,
    /// Set once this node has known a leader since its start.
    has_known: bool,
}

/// Reason why a follower suspects its leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suspicion {
    /// Nobody listens where the leader listened.
    Refused,
    /// Nothing was heard of it for longer than its pauses of late explain.
    Silent,
    /// Another voter asked, and was agreed with.
    Agreed,
}

impl FastFailover {
    /// For a node that follows, whenever it does.
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
            // As a node is started: it may have to elect its first leader.
            timers: AtomicBool::new(true),
            unreached: AtomicBool::new(false),
            leaderless: Mutex::new(Leaderless {
                since: Some(Instant::now()),
                has_known: false,
            }),
        }
    }

    /// Returns whether this node has known no leader for longer than an election takes: it hears none, or leads and reaches no quorum.
    /// A request accepted now would wait for nothing. A node that was just started gets more time: its cluster may be starting.
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

    /// Notes a message of a leader when it arrives: one that still leads has shown that it lives. What becomes of the message may
    /// depend on this node's disk.
    pub fn record_leader_message(&self, leader: &WireVote) {
        if self.evidence.record_message(leader.term) && self.timers.load(Ordering::Relaxed) {
            self.set_timers(false);
        }
    }

    /// Returns the refusal of a pre-vote, if this node heard its leader recently. (openraft's voters check the lease alone.)
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

    /// A connection that `from` had made has ended.
    pub fn connection_lost(&self, from: NodeId) {
        if self.leader.borrow().leader == Some(from) {
            self.evidence.suspect();
        }
    }

    /// Answers another voter that suspects `leader`, the leader of `term`: returns whether this node has lost it, too, by its own
    /// observations.
    pub async fn assess_leader(&self, term: u64, leader: NodeId) -> LeaderLoss {
        // The silence first: a node that is cut off gets no answer from the address either, and the asking voter does not wait for long.
        let lost = leader != self.node
            && self.leader.borrow().term <= term
            && (self.stays_silent().await || self.is_refused(leader).await);
        let asked = LeaderView {
            term,
            leader: Some(leader),
        };
        if lost && *self.leader.borrow() == asked {
            // It may be the one with the longer log, and need not wait until its own patience is over.
            self.evidence.confirm_loss();
        }
        LeaderLoss {
            lost,
            last: self.last(),
        }
    }

    /// Stands for election whenever the leader is gone, until `stop`; as the leader it sees to it that it reaches a quorum.
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

    /// The leader that this node follows as a voter.
    fn follows(&self) -> Option<LeaderView> {
        let view = *self.leader.borrow();
        let another = view.leader.is_some_and(|leader| leader != self.node);
        let votes = || self.voters().iter().any(|voters| voters.contains(&self.node));
        (another && votes()).then_some(view)
    }

    /// Waits until there is reason to believe that the leader is gone.
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

    /// Asks the other voters, and stands for election if a majority has lost the leader and no other one of it should.
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
            // Another one of those that have lost the leader stands.
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
                // It sees the leader, or is of an older version, or cannot be reached itself.
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
                "the leader seems to be gone, but not to a majority"
            );
            // Somebody hears the leader, or too few are here.
            sleep(self.timing.election_min).await;
            self.leave_to_timers();
            return;
        };
        tracing::info!(term, leader, ?suspicion, rank, "a majority has lost the leader");
        // A voter of a lower rank has that much time to be elected; then `run` sees another leader. A voter that stands too early
        // is not elected, and takes the term away from the right one.
        sleep(self.rank_delay().saturating_mul(rank)).await;
        let request = TransferLeaderRequest::new(vote, self.node, None);
        match self.raft.handle_transfer_leader(request).await {
            Ok(Ok(())) => {}
            Ok(Err(refused)) => {
                tracing::info!(%refused, "no election: the leader's vote is not this node's last")
            }
            Err(error) => tracing::debug!(%error, "no election: Raft has stopped"),
        }
        // An election that fails is the business of openraft's timers.
        sleep(self.timing.election_max).await;
        self.leave_to_timers();
    }

    /// Turns openraft's election timers on while the leader is silent, whatever caused the suspicion. Without them, voters that agree that
    /// the leader is gone and are too few to replace it at once would ask each other again and again without end.
    fn leave_to_timers(&self) {
        let (_, believed) = self.evidence.believed();
        if Instant::now() >= believed {
            self.set_timers(true);
        }
    }

    /// Sends no heartbeats, in turns, while this leader reaches no quorum. Never returns.
    async fn watch_quorum(&self) {
        let mut quorum = QuorumWatch::default();
        let mut since = Instant::now();
        loop {
            sleep(CHECK_INTERVAL).await;
            let configs = self.voters();
            let others: BTreeSet<NodeId> = configs.iter().flatten().copied().collect();
            let control = |id: NodeId| self.peers.connection(id, Purpose::Control);
            let answered = others.into_iter().filter(|id| *id != self.node);
            let answered = answered.filter(|id| control(*id).last_answer() > Some(since));
            let sends = quorum.record_slice(CHECK_INTERVAL, self.node, &configs, answered, &self.timing);
            since = Instant::now();
            self.peers.set_silent(!sends);
            let unreached = quorum.is_lost(&self.timing);
            if self.unreached.swap(unreached, Ordering::Relaxed) != unreached {
                match unreached {
                    true => tracing::warn!("this leader reaches no majority: it refuses what is new"),
                    false => tracing::info!("this leader reaches a majority again"),
                }
            }
        }
    }

    /// Returns the maximum time until a voter that was asked, and agreed, has asked in its turn, and is elected: each question may
    /// wait for a slice of silence, and heartbeats are set to twice the round trip or more.
    fn rank_delay(&self) -> Duration {
        2 * CHECK_INTERVAL + self.timing.heartbeat
    }

    /// The vote of the leader of `term`, as this node holds it.
    fn vote_of(&self, term: u64) -> Option<Vote> {
        let vote = self.raft.server_metrics().borrow_watched().vote;
        (vote.committed && vote.leader_id.term == term).then_some(vote)
    }

    /// The voters: one set, or two while they change.
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

    /// Returns whether all addresses of `leader` refuse connections. An address without an answer proves nothing. This waits for
    /// less time than the asking voter waits for the answer.
    async fn is_refused(&self, leader: NodeId) -> bool {
        let places = self.peers.registry().peer_addresses(leader);
        for place in &places {
            match timeout(self.timing.election_min / 2, PeerStream::connect(place)).await {
                Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                _ => return false,
            }
        }
        !places.is_empty()
    }

    /// Returns whether the leader was silent for long, and stays silent for the next moment.
    async fn stays_silent(&self) -> bool {
        let (heard, believed) = self.evidence.believed();
        if Instant::now() < believed {
            return false;
        }
        sleep(CHECK_INTERVAL).await;
        self.evidence.last() == heard
    }
}

/// Waits until nothing was heard of the leader for as long as [`timeout`] says, in whose last part this node did not stand
/// still itself.
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
