//! Client for requests to the leader from any node: heartbeats of sessions, read barriers and changes of the
//! membership. Requests that arrive while one is in progress are combined in the next one.

use std::sync::Arc;
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::application::Application;
use crate::disk_health::DiskHealth;
use crate::disk_health::report::MemberNews;
use crate::error::Unavailable;
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::membership::change::MembershipLeader;
use crate::membership::{
    MembershipChange, MembershipChanged, MembershipError, MembershipOutcome, MembershipRefusal,
};
use crate::messages::{HeartbeatsTaken, Moment, NotLeader, SeenMoment, Touched};
use crate::peers::wire::{HEARTBEATS_SINCE, PeerRequest, PeerResponse};
use crate::peers::{PeerConnectionError, Peers, Purpose};
use crate::state_machine::Raft;
use raft_log::sync::Mutex;

/// Maximum number of heartbeats in one frame, and of callers that wait for the next one.
const MAX_HEARTBEATS_IN_REQUEST: usize = 4_096;

/// Pause between two requests to a leader that could not answer the first: it may have lost its quorum for a
/// moment, or a new leader has only just become known.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Minimum bound of the transit time of heartbeats to the leader. Peers are a fraction of a millisecond away,
/// and a busy node takes some milliseconds.
const MIN_TRANSIT: Duration = Duration::from_millis(50);

/// Maximum bound of the transit time: no leader is elected over a slower connection.
const MAX_TRANSIT: Duration = Duration::from_secs(1);

/// Age at which a known moment of the leader's clock proves nothing any more: clocks that differ by one
/// percent in speed add ten milliseconds.
const MAX_MOMENT_AGE: Duration = Duration::from_secs(1);

/// Maximum time for a request for the members' condition. Its caller retries soon, and prefers a quick error.
const MEMBERS_TIMEOUT: Duration = Duration::from_secs(1);

/// Sends requests to the leader, on whichever node it is.
pub struct LeaderClient {
    /// Id of this node.
    pub node: NodeId,
    /// Program on this node, which answers if this node leads.
    pub application: Arc<dyn Application>,
    /// Connections to the peers.
    pub peers: Arc<Peers>,
    /// Current leader.
    pub leader: watch::Receiver<LeaderView>,
    /// Changes the membership if this node leads.
    pub membership: Arc<MembershipLeader>,
    /// Maximum time to wait for a leader and for its answer, in total.
    pub timeout: Duration,
    /// Maximum time for a change of the membership, which has to be committed.
    pub change_timeout: Duration,
    /// Known moment of the leader's clock, and bound of the transit time.
    pub transit: Mutex<TransitBound>,
}

/// Queued call of [`LeaderRequests::heartbeat`].
struct Heartbeat {
    session: u64,
    /// Time at which this node received the session's heartbeat.
    heard: Instant,
    answer: oneshot::Sender<Result<Touched, Unavailable>>,
}

/// Known moment of the leader's clock, and the bound of the transit time of heartbeats to the leader.
///
/// The leader counts a heartbeat from its arrival, less its age. Time in transit makes a session end later,
/// so the leader counts a heartbeat only if its transit time is bounded, and otherwise asks for it again. No
/// two clocks are compared: the leader gets a moment of its own clock back, with the time for which this node
/// has known it.
#[derive(Debug)]
pub struct TransitBound {
    seen: Option<(NodeId, Moment, Instant)>,
    within: Duration,
}

impl Default for TransitBound {
    fn default() -> Self {
        Self {
            seen: None,
            within: MIN_TRANSIT,
        }
    }
}

impl TransitBound {
    /// Returns the proof of the transit time of a request sent `now` to this leader, and the bound of that
    /// time.
    fn proof(&self, leader: NodeId, now: Instant) -> (Option<SeenMoment>, Duration) {
        let seen = self.seen.filter(|(of, ..)| *of == leader);
        let seen = seen.and_then(|(_, moment, at)| {
            let known_for = now.saturating_duration_since(at);
            (known_for <= MAX_MOMENT_AGE).then(|| SeenMoment {
                moment,
                known_for_us: known_for.as_micros().try_into().unwrap_or(u64::MAX),
            })
        });
        (seen, self.within)
    }

    /// Records an answer of this leader, which arrived `took` after the request was sent. `counted` is false
    /// if the heartbeats were in transit for too long.
    fn answered(
        &mut self,
        leader: NodeId,
        moment: Moment,
        now: Instant,
        took: Duration,
        counted: bool,
        had_proof: bool,
    ) {
        self.seen = Some((leader, moment, now));
        self.within = match counted {
            true => (took * 2).clamp(MIN_TRANSIT, MAX_TRANSIT),
            // Without a proof nothing was learned about the transit time.
            false if !had_proof => self.within,
            false => (self.within * 2).min(MAX_TRANSIT),
        };
    }
}
/// Queued call of [`LeaderRequests::read_index`].
type ReadBarrier = oneshot::Sender<Result<u64, Unavailable>>;

/// Handle that queues requests to the leader.
#[derive(Clone)]
pub struct LeaderRequests {
    heartbeats: mpsc::Sender<Heartbeat>,
    barriers: mpsc::Sender<ReadBarrier>,
}

/// Queues of requests, before their tasks are started.
pub struct LeaderRequestQueues {
    heartbeats: mpsc::Receiver<Heartbeat>,
    barriers: mpsc::Receiver<ReadBarrier>,
}

/// Creates the queues of requests and their handle.
pub fn leader_requests() -> (LeaderRequests, LeaderRequestQueues) {
    let (heartbeats, heartbeat_queue) = mpsc::channel(MAX_HEARTBEATS_IN_REQUEST);
    let (barriers, barrier_queue) = mpsc::channel(MAX_HEARTBEATS_IN_REQUEST);
    let queues = LeaderRequestQueues {
        heartbeats: heartbeat_queue,
        barriers: barrier_queue,
    };
    (LeaderRequests { heartbeats, barriers }, queues)
}

impl LeaderRequests {
    /// Sends a session's heartbeat to the leader, which counts it from the time `heard` at which this node
    /// received it.
    pub async fn heartbeat(&self, session: u64, heard: Instant) -> Result<Touched, Unavailable> {
        let (answer, rx) = oneshot::channel();
        let stopped = || Unavailable::new("this node is stopping");
        let heartbeat = Heartbeat {
            session,
            heard,
            answer,
        };
        self.heartbeats.send(heartbeat).await.map_err(|_| stopped())?;
        rx.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Returns the index up to which this node must apply the log for a linearizable read.
    pub async fn read_index(&self) -> Result<u64, Unavailable> {
        if planted::is(Bug::StaleRead) {
            return Ok(0);
        }
        let (tx, rx) = oneshot::channel();
        let stopped = || Unavailable::new("this node is stopping");
        self.barriers.send(tx).await.map_err(|_| stopped())?;
        rx.await.unwrap_or_else(|_| Err(stopped()))
    }
}

/// Sends queued requests until `stop`.
pub async fn run(leader_client: Arc<LeaderClient>, queues: LeaderRequestQueues, stop: CancellationToken) {
    let LeaderRequestQueues { heartbeats, barriers } = queues;
    tokio::select! {
        () = forward_heartbeats(&leader_client, heartbeats) => {}
        () = forward_read_barriers(&leader_client, barriers) => {}
        () = stop.cancelled() => {}
    }
}

async fn forward_heartbeats(leader_client: &LeaderClient, mut queue: mpsc::Receiver<Heartbeat>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, MAX_HEARTBEATS_IN_REQUEST).await > 0 {
        let touched = leader_client.touch(&waiting).await;
        for (place, Heartbeat { answer, .. }) in waiting.drain(..).enumerate() {
            let one = match &touched {
                Ok(touched) => match touched.get(place) {
                    Some(touched) => Ok(*touched),
                    None => Err(Unavailable::new("the leader's answer is too short")),
                },
                Err(error) => Err(error.clone()),
            };
            // The caller may have been dropped.
            let _ = answer.send(one);
        }
    }
}

async fn forward_read_barriers(leader_client: &LeaderClient, mut queue: mpsc::Receiver<ReadBarrier>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, MAX_HEARTBEATS_IN_REQUEST).await > 0 {
        let index = leader_client.read_index().await;
        for answer in waiting.drain(..) {
            // The caller may have been dropped.
            let _ = answer.send(index.clone());
        }
    }
}

impl LeaderClient {
    /// Sends a change of the membership to the leader.
    ///
    /// The leader, or the next one, may receive the request twice; a change that is already in effect
    /// succeeds.
    pub async fn change(&self, change: MembershipChange) -> Result<MembershipChanged, MembershipError> {
        let mut views = self.leader.clone();
        let deadline = Instant::now() + self.change_timeout;
        let mut problem = "no leader is known".to_owned();
        // Whether a leader may have begun the change, so that its outcome is unknown.
        let mut begun = false;
        loop {
            let view = *views.borrow_and_update();
            if let Some(leader) = view.leader {
                let left = deadline.saturating_duration_since(Instant::now());
                let answer = if leader == self.node {
                    self.membership.change(&change).await
                } else {
                    let connection = self.peers.connection(leader, Purpose::Traffic);
                    // Also sent if another node leads by now: moving leadership may be the requested change.
                    match connection
                        .request(PeerRequest::ChangeMembership(change.clone()), left)
                        .await
                    {
                        Ok(PeerResponse::ChangeMembership(answer)) => answer,
                        Ok(_) => Err(NotLeader { leader: None }),
                        Err(error) => {
                            begun |= matches!(error, PeerConnectionError::NoAnswer(_));
                            problem = format!("node {leader}, the leader, cannot be reached: {error}");
                            Err(NotLeader { leader: None })
                        }
                    }
                };
                match answer {
                    Ok(MembershipOutcome::Done(changed)) => return Ok(changed),
                    Ok(MembershipOutcome::Unknown(why)) => {
                        return Err(MembershipError::OutcomeUnknown(why));
                    }
                    // The change in progress may be the first attempt of this request.
                    Ok(MembershipOutcome::Refused(MembershipRefusal::InProgress)) if begun => {
                        problem = MembershipRefusal::InProgress.to_string();
                    }
                    Ok(MembershipOutcome::Refused(refusal)) => return Err(refusal.into()),
                    Err(NotLeader { .. }) => {}
                }
            }
            let pause = Instant::now() + RETRY_PAUSE;
            tokio::select! {
                changed = views.changed() => if changed.is_err() {
                    return Err(Unavailable::new("this node is stopping").into());
                },
                () = tokio::time::sleep_until(pause.min(deadline)), if view.leader.is_some() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
            if Instant::now() >= deadline {
                return Err(match begun {
                    true => MembershipError::OutcomeUnknown(problem),
                    false => Unavailable::new(problem).into(),
                });
            }
        }
    }

    /// Sends heartbeats to the leader. Heartbeats whose callers were dropped are skipped: no caller would learn that they count.
    async fn touch(&self, beats: &[Heartbeat]) -> Result<Vec<Touched>, Unavailable> {
        let here = || {
            let beats = beats.iter().map(|beat| (beat.session, beat.heard));
            self.application.touch(beats.collect())
        };
        let there = |leader, left| self.touch_at(leader, beats, left);
        self.route().request(here, there).await
    }

    /// Sends heartbeats to the leader at another node, within the time left.
    async fn touch_at(
        &self,
        leader: NodeId,
        beats: &[Heartbeat],
        timeout: Duration,
    ) -> Result<Result<Vec<Touched>, NotLeader>, PeerConnectionError> {
        let connection = self.peers.connection(leader, Purpose::Traffic);
        let version = self.peers.registry().wire_version_with(leader);
        let end = Instant::now() + timeout;
        loop {
            let waits = |beat: &&Heartbeat| !beat.answer.is_closed();
            let waiting = || beats.iter().filter(waits);
            let asked: Vec<bool> = beats.iter().map(|beat| waits(&beat)).collect();
            let now = Instant::now();
            let left = end.saturating_duration_since(now);
            if version.is_some_and(|version| version < HEARTBEATS_SINCE) {
                let sessions = waiting().map(|beat| beat.session).collect();
                return Ok(
                    match connection.request(PeerRequest::Touch { sessions }, left).await? {
                        PeerResponse::Touch(touched) => {
                            touched.map(|touched| in_request_order(&asked, touched))
                        }
                        _ => Err(NotLeader { leader: None }),
                    },
                );
            }
            if !asked.contains(&true) {
                return Ok(Ok(in_request_order(&asked, Vec::new())));
            }
            let (seen, within) = self.transit.lock().proof(leader, now);
            let age = |beat: &Heartbeat| now.saturating_duration_since(beat.heard).as_millis();
            let request = PeerRequest::Heartbeats {
                seen,
                within_ms: within.as_millis().try_into().unwrap_or(u32::MAX),
                sessions: waiting()
                    .map(|beat| (beat.session, age(beat).try_into().unwrap_or(u32::MAX)))
                    .collect(),
            };
            let HeartbeatsTaken { moment, touched } = match connection.request(request, left).await? {
                PeerResponse::Heartbeats(Ok(taken)) => taken,
                PeerResponse::Heartbeats(Err(other)) => return Ok(Err(other)),
                _ => return Ok(Err(NotLeader { leader: None })),
            };
            let answered = Instant::now();
            let mut transit = self.transit.lock();
            let counted = touched.is_some();
            transit.answered(leader, moment, answered, answered - now, counted, seen.is_some());
            if let Some(touched) = touched {
                return Ok(Ok(in_request_order(&asked, touched)));
            }
        }
    }

    async fn read_index(&self) -> Result<u64, Unavailable> {
        let here = || self.application.read_index();
        let there = |leader, left| {
            let connection = self.peers.connection(leader, Purpose::Control);
            async move {
                match connection.request(PeerRequest::ReadIndex, left).await? {
                    PeerResponse::ReadIndex(index) => Ok(index),
                    _ => Ok(Err(NotLeader { leader: None })),
                }
            }
        };
        self.route().request(here, there).await
    }

    /// Returns the condition of the members, as the leader knows it.
    pub async fn members(&self, disks: &DiskHealth, raft: &Raft) -> Result<Vec<MemberNews>, Unavailable> {
        let here = async || disks.members(raft);
        let there = |leader, left: Duration| {
            let connection = self.peers.connection(leader, Purpose::Control);
            async move {
                match connection.request(PeerRequest::Members, left).await? {
                    PeerResponse::Members(members) => Ok(members),
                    _ => Ok(Err(NotLeader { leader: None })),
                }
            }
        };
        let timeout = MEMBERS_TIMEOUT;
        LeaderRoute {
            timeout,
            ..self.route()
        }
        .request(here, there)
        .await
    }

    fn route(&self) -> LeaderRoute {
        LeaderRoute {
            node: self.node,
            leader: self.leader.clone(),
            timeout: self.timeout,
        }
    }
}

/// Returns the answers in the order of the requests. The callers of requests that were not sent are gone.
fn in_request_order(asked: &[bool], touched: Vec<Touched>) -> Vec<Touched> {
    let mut touched = touched.into_iter();
    asked
        .iter()
        .map_while(|asked| match asked {
            true => touched.next(),
            false => Some(Touched::Unknown),
        })
        .collect()
}

/// Completes with the reason once this node knows that `leader` no longer leads. A request to it may stay
/// unanswered: a stopped or partitioned leader keeps its connections.
async fn another_leads(mut views: watch::Receiver<LeaderView>, leader: NodeId) -> String {
    match views.wait_for(|view| view.leader != Some(leader)).await {
        Ok(_) => format!("node {leader} no longer leads"),
        Err(_) => "this node is stopping".to_owned(),
    }
}

/// Retry policy of a request: sends it to successive leaders.
struct LeaderRoute {
    node: NodeId,
    leader: watch::Receiver<LeaderView>,
    /// Maximum time to wait for a leader and for its answer, in total.
    timeout: Duration,
}

impl LeaderRoute {
    /// Sends the request to the leader, `here` or `there`, and to the next leader if that one no longer
    /// leads, until the timeout. A leader may receive it twice: none of these requests has an effect that a
    /// repetition would repeat.
    async fn request<T, Here, There>(
        &self,
        here: impl Fn() -> Here,
        there: impl Fn(NodeId, Duration) -> There,
    ) -> Result<T, Unavailable>
    where
        Here: Future<Output = Result<T, NotLeader>>,
        There: Future<Output = Result<Result<T, NotLeader>, PeerConnectionError>>,
    {
        let mut views = self.leader.clone();
        let deadline = Instant::now() + self.timeout;
        let mut problem = "no leader is known".to_owned();
        loop {
            let view = *views.borrow_and_update();
            if let Some(leader) = view.leader {
                let left = deadline.saturating_duration_since(Instant::now());
                let answer = tokio::select! {
                    answer = tokio::time::timeout(left, here()), if leader == self.node => answer.ok(),
                    answer = there(leader, left), if leader != self.node => match answer {
                        Ok(answer) => Some(answer),
                        Err(error) => {
                            problem = format!("node {leader}, the leader, cannot be reached: {error}");
                            None
                        }
                    },
                    why = another_leads(self.leader.clone(), leader) => {
                        problem = why;
                        None
                    }
                };
                match answer {
                    Some(Ok(answer)) => return Ok(answer),
                    Some(Err(_)) => problem = format!("node {leader} cannot prove that it leads"),
                    None => {}
                }
            }
            // Waits for a change of leader. A leader that lost its quorum for a moment only causes none,
            // hence the pause.
            let pause = Instant::now() + RETRY_PAUSE;
            tokio::select! {
                changed = views.changed() => if changed.is_err() {
                    return Err(Unavailable::new("this node is stopping"));
                },
                () = tokio::time::sleep_until(pause.min(deadline)), if view.leader.is_some() => {}
                () = tokio::time::sleep_until(deadline) => {}
            }
            if Instant::now() >= deadline {
                return Err(Unavailable::new(problem));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const ME: NodeId = 1;
    const TIMEOUT: Duration = Duration::from_secs(3);

    fn route() -> (watch::Sender<LeaderView>, LeaderRoute) {
        let (views, leader) = watch::channel(LeaderView::default());
        let route = LeaderRoute {
            node: ME,
            leader,
            timeout: TIMEOUT,
        };
        (views, route)
    }

    fn led_by(term: u64, leader: impl Into<Option<NodeId>>) -> LeaderView {
        LeaderView {
            term,
            leader: leader.into(),
        }
    }

    const LEADER: NodeId = 2;
    const MS: Duration = Duration::from_millis(1);
    const MOMENT: Moment = Moment {
        clock: 7,
        micros: 1_000,
    };

    #[test]
    fn leader_moment_is_a_proof_to_that_leader_until_it_ages() {
        let (mut transit, now) = (TransitBound::default(), Instant::now());
        assert_eq!(transit.proof(LEADER, now), (None, MIN_TRANSIT));
        transit.answered(LEADER, MOMENT, now, MS, true, false);
        let known_for_us = 30_000;
        let seen = SeenMoment {
            moment: MOMENT,
            known_for_us,
        };
        assert_eq!(transit.proof(LEADER, now + 30 * MS).0, Some(seen));
        assert_eq!(transit.proof(LEADER + 1, now + 30 * MS).0, None);
        assert!(transit.proof(LEADER, now + MAX_MOMENT_AGE).0.is_some());
        assert_eq!(transit.proof(LEADER, now + MAX_MOMENT_AGE + MS).0, None);
    }

    #[test]
    fn transit_bound_is_twice_the_round_trip_within_limits() {
        let (mut transit, now) = (TransitBound::default(), Instant::now());
        let mut within = |took: Duration, counted, had_proof| {
            transit.answered(LEADER, MOMENT, now, took, counted, had_proof);
            transit.proof(LEADER, now).1
        };
        assert_eq!(within(MS, true, true), MIN_TRANSIT);
        assert_eq!(within(200 * MS, true, true), 400 * MS);
        assert_eq!(within(3_000 * MS, false, false), 400 * MS, "nothing was learned");
        assert_eq!(within(3_000 * MS, false, true), 800 * MS);
        assert_eq!(within(3_000 * MS, false, true), MAX_TRANSIT);
        assert_eq!(within(3_000 * MS, true, true), MAX_TRANSIT);
        assert_eq!(
            within(MS, true, true),
            MIN_TRANSIT,
            "the transit time is short again"
        );
    }

    #[test]
    fn answers_are_in_the_order_of_their_heartbeats() {
        let renewed = Touched::Renewed(9_000);
        assert_eq!(
            in_request_order(&[true, false, true], vec![renewed, Touched::Ended]),
            [renewed, Touched::Unknown, Touched::Ended]
        );
        assert_eq!(in_request_order(&[true, true], vec![renewed]), [renewed]);
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_leader_delays_no_request_once_another_leads() {
        for (next, by) in [(ME, "here"), (3, "there")] {
            let (views, route) = route();
            views.send_replace(led_by(1, 2));
            let begin = Instant::now();
            let there = |leader, _| async move {
                match leader {
                    // The stalled leader keeps its connections and answers nothing.
                    2 => pending().await,
                    _ => Ok(Ok("there")),
                }
            };
            let election = async {
                tokio::time::sleep(Duration::from_millis(600)).await;
                views.send_replace(led_by(2, None));
                tokio::time::sleep(Duration::from_millis(300)).await;
                views.send_replace(led_by(2, next));
            };
            let (answer, ()) = tokio::join!(route.request(|| async { Ok("here") }, there), election);
            assert_eq!(answer.unwrap(), by);
            assert_eq!(begin.elapsed(), Duration::from_millis(900));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leader_without_proof_is_retried_until_the_timeout() {
        let (views, route) = route();
        views.send_replace(led_by(1, ME));
        let begin = Instant::now();
        let refused = route.request(
            || async { Err::<(), _>(NotLeader { leader: None }) },
            |_, _| pending(),
        );
        let refused = refused.await.unwrap_err();
        assert!(refused.to_string().contains("cannot prove"), "{refused}");
        assert_eq!(begin.elapsed(), TIMEOUT);
        drop(views);
    }
}
