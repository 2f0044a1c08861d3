//! Questions to the leader, from any node: heartbeats of sessions and read barriers. Questions that arrive while
//! one is in progress go together in the next.

use std::sync::Arc;
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::application::Application;
use crate::disks::Disks;
use crate::disks::report::MemberNews;
use crate::error::Unavailable;
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::membership::change::MembershipLeader;
use crate::membership::{
    MembershipChange, MembershipChanged, MembershipError, MembershipOutcome, MembershipRefusal,
};
use crate::messages::{HeartbeatsTaken, Moment, NotLeader, SeenMoment, Touched};
use crate::peers::wire::{Answer, Ask, HEARTBEATS_SINCE};
use crate::peers::{LinkError, Peers, Purpose};
use crate::state_machine::Raft;
use raft_log::sync::Mutex;

/// Heartbeats in one frame, and callers that wait for the next.
const MAX_AT_ONCE: usize = 4_096;

/// Between two questions to a leader that could not answer the first: it has lost its quorum for a moment, or a new one
/// is only just known.
const PAUSE: Duration = Duration::from_millis(20);

/// Minimum allowance for heartbeats on their way to the leader. Peers are a fraction of a millisecond away, and a busy node
/// takes some milliseconds.
const LEAST_WAY: Duration = Duration::from_millis(50);

/// Maximum allowance: over a slower connection than this no leader is elected.
const LONGEST_WAY: Duration = Duration::from_secs(1);

/// Age at which a moment of the leader's clock proves nothing any more: clocks that differ by one percent in speed add ten milliseconds.
const MOMENT_KEPT: Duration = Duration::from_secs(1);

/// Maximum time to answer the condition of the members. Such a caller asks again soon, and prefers a quick refusal.
const MEMBERS_PATIENCE: Duration = Duration::from_secs(1);

/// Asks the leader, wherever it is.
pub struct Asker {
    /// This node.
    pub node: NodeId,
    /// This node as a leader.
    pub application: Arc<dyn Application>,
    /// The others.
    pub peers: Arc<Peers>,
    /// Current leader.
    pub leader: watch::Receiver<LeaderView>,
    /// This node as the leader that changes the membership.
    pub membership: Arc<MembershipLeader>,
    /// Maximum time to wait for a leader and for its answer, in all.
    pub patience: Duration,
    /// The same for a change of the membership, which has to be committed.
    pub change_patience: Duration,
    /// Distance to the leader.
    pub distance: Mutex<Distance>,
}

/// A caller of [`Questions::heartbeat`].
struct Heartbeat {
    session: u64,
    /// Time at which this node received the session's heartbeat.
    heard: Instant,
    answer: oneshot::Sender<Result<Touched, Unavailable>>,
}

/// The leader's clock as this node knows it, and the time that heartbeats may take to the leader.
///
/// The leader counts a heartbeat from its arrival, less its age. The time on the way makes a session end later, so the leader
/// counts only what was on its way for a bounded time, and asks for the rest again. No two clocks are compared: the leader
/// gets a moment of its own clock back, with the time for which this node has known it.
#[derive(Debug)]
pub struct Distance {
    seen: Option<(NodeId, Moment, Instant)>,
    within: Duration,
}

impl Default for Distance {
    fn default() -> Self {
        Self {
            seen: None,
            within: LEAST_WAY,
        }
    }
}

impl Distance {
    /// Returns the proof for this leader of the time that a question sent `now` is on its way, and the maximum of that time.
    fn proof(&self, leader: NodeId, now: Instant) -> (Option<SeenMoment>, Duration) {
        let seen = self.seen.filter(|(of, ..)| *of == leader);
        let seen = seen.and_then(|(_, moment, at)| {
            let known_for = now.saturating_duration_since(at);
            (known_for <= MOMENT_KEPT).then(|| SeenMoment {
                moment,
                known_for_us: known_for.as_micros().try_into().unwrap_or(u64::MAX),
            })
        });
        (seen, self.within)
    }

    /// Records an answer from this leader, `took` after its question was sent. `counted` is false if the heartbeats were
    /// on their way for too long.
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
            true => (took * 2).clamp(LEAST_WAY, LONGEST_WAY),
            // Without a proof nothing was learned about the way.
            false if !had_proof => self.within,
            false => (self.within * 2).min(LONGEST_WAY),
        };
    }
}
/// A caller of [`Questions::read_index`].
type Barrier = oneshot::Sender<Result<u64, Unavailable>>;

/// The way to the leader.
#[derive(Clone)]
pub struct Questions {
    heartbeats: mpsc::Sender<Heartbeat>,
    barriers: mpsc::Sender<Barrier>,
}

/// The questions, before their tasks are started.
pub struct QuestionQueues {
    heartbeats: mpsc::Receiver<Heartbeat>,
    barriers: mpsc::Receiver<Barrier>,
}

/// The queues of questions and the way into them.
pub fn questions() -> (Questions, QuestionQueues) {
    let (heartbeats, heartbeat_queue) = mpsc::channel(MAX_AT_ONCE);
    let (barriers, barrier_queue) = mpsc::channel(MAX_AT_ONCE);
    let queues = QuestionQueues {
        heartbeats: heartbeat_queue,
        barriers: barrier_queue,
    };
    (Questions { heartbeats, barriers }, queues)
}

impl Questions {
    /// Has the leader count a session's heartbeat from when it was `heard` at this node.
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

    /// The index up to which this node has to apply for a linearizable read.
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

/// Asks what is queued, until `stop`.
pub async fn run(asker: Arc<Asker>, queues: QuestionQueues, stop: CancellationToken) {
    let QuestionQueues { heartbeats, barriers } = queues;
    tokio::select! {
        () = pass_heartbeats(&asker, heartbeats) => {}
        () = pass_barriers(&asker, barriers) => {}
        () = stop.cancelled() => {}
    }
}

async fn pass_heartbeats(asker: &Asker, mut queue: mpsc::Receiver<Heartbeat>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, MAX_AT_ONCE).await > 0 {
        let touched = asker.touch(&waiting).await;
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

async fn pass_barriers(asker: &Asker, mut queue: mpsc::Receiver<Barrier>) {
    let mut waiting = Vec::new();
    while queue.recv_many(&mut waiting, MAX_AT_ONCE).await > 0 {
        let index = asker.read_index().await;
        for answer in waiting.drain(..) {
            // The caller may have been dropped.
            let _ = answer.send(index.clone());
        }
    }
}

impl Asker {
    /// Has the leader change the membership.
    ///
    /// It may be asked twice, and so may the next leader: what is so already is a success.
    pub async fn change(&self, change: MembershipChange) -> Result<MembershipChanged, MembershipError> {
        let mut views = self.leader.clone();
        let deadline = Instant::now() + self.change_patience;
        let mut problem = "no leader is known".to_owned();
        // Whether a leader may have begun with it, and nobody knows how far it came.
        let mut begun = false;
        loop {
            let view = *views.borrow_and_update();
            if let Some(leader) = view.leader {
                let left = deadline.saturating_duration_since(Instant::now());
                let answer = if leader == self.node {
                    self.membership.change(&change).await
                } else {
                    let link = self.peers.link(leader, Purpose::Traffic);
                    // Also when another leads: to move leadership is what was asked for, perhaps.
                    match link.ask(Ask::ChangeMembership(change.clone()), left).await {
                        Ok(Answer::ChangeMembership(answer)) => answer,
                        Ok(_) => Err(NotLeader { leader: None }),
                        Err(error) => {
                            begun |= matches!(error, LinkError::NoAnswer(_));
                            problem = format!("node {leader}, the leader, cannot be asked: {error}");
                            Err(NotLeader { leader: None })
                        }
                    }
                };
                match answer {
                    Ok(MembershipOutcome::Done(changed)) => return Ok(changed),
                    Ok(MembershipOutcome::Unknown(why)) => {
                        return Err(MembershipError::OutcomeUnknown(why));
                    }
                    // The first try may be what is in progress.
                    Ok(MembershipOutcome::Refused(MembershipRefusal::InProgress)) if begun => {
                        problem = MembershipRefusal::InProgress.to_string();
                    }
                    Ok(MembershipOutcome::Refused(refusal)) => return Err(refusal.into()),
                    Err(NotLeader { .. }) => {}
                }
            }
            let pause = Instant::now() + PAUSE;
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
        self.way().ask(here, there).await
    }

    /// Sends heartbeats to the leader at another node, within the time left.
    async fn touch_at(
        &self,
        leader: NodeId,
        beats: &[Heartbeat],
        patience: Duration,
    ) -> Result<Result<Vec<Touched>, NotLeader>, LinkError> {
        let link = self.peers.link(leader, Purpose::Traffic);
        let version = self.peers.gate().wire_version_with(leader);
        let end = Instant::now() + patience;
        loop {
            let waits = |beat: &&Heartbeat| !beat.answer.is_closed();
            let waiting = || beats.iter().filter(waits);
            let asked: Vec<bool> = beats.iter().map(|beat| waits(&beat)).collect();
            let now = Instant::now();
            let left = end.saturating_duration_since(now);
            if version.is_some_and(|version| version < HEARTBEATS_SINCE) {
                let sessions = waiting().map(|beat| beat.session).collect();
                return Ok(match link.ask(Ask::Touch { sessions }, left).await? {
                    Answer::Touch(touched) => touched.map(|touched| in_their_places(&asked, touched)),
                    _ => Err(NotLeader { leader: None }),
                });
            }
            if !asked.contains(&true) {
                return Ok(Ok(in_their_places(&asked, Vec::new())));
            }
            let (seen, within) = self.distance.lock().proof(leader, now);
            let age = |beat: &Heartbeat| now.saturating_duration_since(beat.heard).as_millis();
            let ask = Ask::Heartbeats {
                seen,
                within_ms: within.as_millis().try_into().unwrap_or(u32::MAX),
                sessions: waiting()
                    .map(|beat| (beat.session, age(beat).try_into().unwrap_or(u32::MAX)))
                    .collect(),
            };
            let HeartbeatsTaken { moment, touched } = match link.ask(ask, left).await? {
                Answer::Heartbeats(Ok(taken)) => taken,
                Answer::Heartbeats(Err(other)) => return Ok(Err(other)),
                _ => return Ok(Err(NotLeader { leader: None })),
            };
            let answered = Instant::now();
            let mut distance = self.distance.lock();
            let counted = touched.is_some();
            distance.answered(leader, moment, answered, answered - now, counted, seen.is_some());
            if let Some(touched) = touched {
                return Ok(Ok(in_their_places(&asked, touched)));
            }
        }
    }

    async fn read_index(&self) -> Result<u64, Unavailable> {
        let here = || self.application.read_index();
        let there = |leader, left| {
            let link = self.peers.link(leader, Purpose::Control);
            async move {
                match link.ask(Ask::ReadIndex, left).await? {
                    Answer::ReadIndex(index) => Ok(index),
                    _ => Ok(Err(NotLeader { leader: None })),
                }
            }
        };
        self.way().ask(here, there).await
    }

    /// Returns the condition of the members, as the leader knows it.
    pub async fn members(&self, disks: &Disks, raft: &Raft) -> Result<Vec<MemberNews>, Unavailable> {
        let here = async || disks.members(raft);
        let there = |leader, left: Duration| {
            let link = self.peers.link(leader, Purpose::Control);
            async move {
                match link.ask(Ask::Members, left).await? {
                    Answer::Members(members) => Ok(members),
                    _ => Ok(Err(NotLeader { leader: None })),
                }
            }
        };
        let patience = MEMBERS_PATIENCE;
        Way {
            patience,
            ..self.way()
        }
        .ask(here, there)
        .await
    }

    fn way(&self) -> Way {
        Way {
            node: self.node,
            leader: self.leader.clone(),
            patience: self.patience,
        }
    }
}

/// Returns the answers at the places of the heartbeats that were sent. No caller waits for the others.
fn in_their_places(asked: &[bool], touched: Vec<Touched>) -> Vec<Touched> {
    let mut touched = touched.into_iter();
    asked
        .iter()
        .map_while(|asked| match asked {
            true => touched.next(),
            false => Some(Touched::Unknown),
        })
        .collect()
}

/// Ends when this node knows that `leader` no longer leads, with the reason. A question to it may have no answer:
/// a leader that is stopped, or cut off, keeps its connections.
async fn another_leads(mut views: watch::Receiver<LeaderView>, leader: NodeId) -> String {
    match views.wait_for(|view| view.leader != Some(leader)).await {
        Ok(_) => format!("node {leader} leads no more"),
        Err(_) => "this node is stopping".to_owned(),
    }
}

/// A question's way from leader to leader.
struct Way {
    node: NodeId,
    leader: watch::Receiver<LeaderView>,
    /// Maximum time to wait for a leader and for its answer, in all.
    patience: Duration,
}

impl Way {
    /// Asks the leader, `here` or `there`, and the next one if that one does not lead any more, while patience lasts. A
    /// question may be asked twice: none of them changes anything that a second one would change again.
    async fn ask<T, Here, There>(
        &self,
        here: impl Fn() -> Here,
        there: impl Fn(NodeId, Duration) -> There,
    ) -> Result<T, Unavailable>
    where
        Here: Future<Output = Result<T, NotLeader>>,
        There: Future<Output = Result<Result<T, NotLeader>, LinkError>>,
    {
        let mut views = self.leader.clone();
        let deadline = Instant::now() + self.patience;
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
                            problem = format!("node {leader}, the leader, cannot be asked: {error}");
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
            // Wait for news of a leader; a leader that only lost its quorum for a moment makes none.
            let pause = Instant::now() + PAUSE;
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
    const PATIENCE: Duration = Duration::from_secs(3);

    fn way() -> (watch::Sender<LeaderView>, Way) {
        let (views, leader) = watch::channel(LeaderView::default());
        let way = Way {
            node: ME,
            leader,
            patience: PATIENCE,
        };
        (views, way)
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
    fn leader_moment_proves_something_to_that_leader_for_a_while() {
        let (mut distance, now) = (Distance::default(), Instant::now());
        assert_eq!(distance.proof(LEADER, now), (None, LEAST_WAY));
        distance.answered(LEADER, MOMENT, now, MS, true, false);
        let known_for_us = 30_000;
        let seen = SeenMoment {
            moment: MOMENT,
            known_for_us,
        };
        assert_eq!(distance.proof(LEADER, now + 30 * MS).0, Some(seen));
        assert_eq!(distance.proof(LEADER + 1, now + 30 * MS).0, None);
        assert!(distance.proof(LEADER, now + MOMENT_KEPT).0.is_some());
        assert_eq!(distance.proof(LEADER, now + MOMENT_KEPT + MS).0, None);
    }

    #[test]
    fn heartbeats_may_be_on_their_way_for_twice_the_round_trip_within_bounds() {
        let (mut distance, now) = (Distance::default(), Instant::now());
        let mut within = |took: Duration, counted, had_proof| {
            distance.answered(LEADER, MOMENT, now, took, counted, had_proof);
            distance.proof(LEADER, now).1
        };
        assert_eq!(within(MS, true, true), LEAST_WAY);
        assert_eq!(within(200 * MS, true, true), 400 * MS);
        assert_eq!(within(3_000 * MS, false, false), 400 * MS, "nothing was learned");
        assert_eq!(within(3_000 * MS, false, true), 800 * MS);
        assert_eq!(within(3_000 * MS, false, true), LONGEST_WAY);
        assert_eq!(within(3_000 * MS, true, true), LONGEST_WAY);
        assert_eq!(within(MS, true, true), LEAST_WAY, "the way is short again");
    }

    #[test]
    fn answers_stand_in_the_places_of_their_heartbeats() {
        let renewed = Touched::Renewed(9_000);
        assert_eq!(
            in_their_places(&[true, false, true], vec![renewed, Touched::Ended]),
            [renewed, Touched::Unknown, Touched::Ended]
        );
        assert_eq!(in_their_places(&[true, true], vec![renewed]), [renewed]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_leader_that_stalled_holds_nobody_up_when_another_leads() {
        for (next, by) in [(ME, "here"), (3, "there")] {
            let (views, way) = way();
            views.send_replace(led_by(1, 2));
            let begin = Instant::now();
            let there = |leader, _| async move {
                match leader {
                    // It keeps its connections, and answers nothing.
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
            let (answer, ()) = tokio::join!(way.ask(|| async { Ok("here") }, there), election);
            assert_eq!(answer.unwrap(), by);
            assert_eq!(begin.elapsed(), Duration::from_millis(900));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leader_without_proof_is_asked_again_until_the_timeout() {
        let (views, way) = way();
        views.send_replace(led_by(1, ME));
        let begin = Instant::now();
        let refused = way.ask(
            || async { Err::<(), _>(NotLeader { leader: None }) },
            |_, _| pending(),
        );
        let refused = refused.await.unwrap_err();
        assert!(refused.to_string().contains("cannot prove"), "{refused}");
        assert_eq!(begin.elapsed(), PATIENCE);
        drop(views);
    }
}
