//! Duties of the leader besides ordering the log. It keeps the deadlines of sessions and expires silent ones. It confirms heartbeats and reads
//! with proof that it still leads. It proposes its configured limits.

use std::sync::Arc;
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use futures_util::future::join_all;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use znode_store::{AccessCommand, Command, Limits, LockCommand, Request, SessionId, ZPath, Zxid};

use crate::command_versions::{LEASES, RECORDS_SINCE, WAITS_END_WITH_RIGHTS};
use crate::lock_delay_timer::{LockDelayTimer, Passed};
use crate::replica::Replica;
use crate::runtime_config::SharedRuntimeConfig;
use crate::sessions::{Counted, Due, KnownSession};
use crate::stall_log::StallLog;
use fault_injection::fail_step;
use raft_node::RaftNode;
#[cfg(feature = "planted")]
use raft_node::leader_view::LeaderView;
use raft_node::messages::{HeartbeatsTaken, Moment, NotLeader, SeenMoment, Touched};
use raft_node::replicated_state::ReplicatedState;

/// Interval at which the leader checks deadlines, which delays an expiry by at most as much. A check without a due session costs nothing.
const TICK: Duration = Duration::from_millis(50);

/// Delay of a tick beyond which the process or the machine was paused, and the tick was not just scheduled late. Clients' heartbeats may then be
/// waiting in the socket buffers.
const STALL: Duration = Duration::from_millis(200);

/// Maximum number of sessions that one command ends. Each may own many ephemeral znodes, and an entry is applied without interruption.
const MAX_EXPIRED_AT_ONCE: usize = 64;

/// Maximum number of containers that one command removes.
const MAX_SWEPT_AT_ONCE: usize = 1_000;

/// Maximum number of requests that share one proof of leadership.
const MAX_CONFIRMED_AT_ONCE: usize = 4_096;

/// Request that only a proven leader can answer.
enum LeaderRequest {
    Touch {
        beats: Vec<(SessionId, Instant)>,
        answer: oneshot::Sender<Result<Vec<Touched>, NotLeader>>,
    },
    ReadIndex {
        answer: oneshot::Sender<Result<u64, NotLeader>>,
    },
}

/// Handle through which this node is asked as the leader.
pub struct Leadership {
    requests: mpsc::Sender<LeaderRequest>,
    clock: Clock,
}

/// Monotonic clock of this process, whose readings other nodes can send back.
struct Clock {
    id: u64,
    began: Instant,
}

impl Clock {
    fn moment(&self, at: Instant) -> Moment {
        let micros = at.saturating_duration_since(self.began).as_micros();
        Moment {
            clock: self.id,
            micros: micros.try_into().unwrap_or(u64::MAX),
        }
    }

    /// Returns the maximum transit time of a message with the proof `seen` that has `arrived`. Returns `None` if the proof is a reading of
    /// another process's clock, which proves nothing.
    fn max_transit(&self, seen: SeenMoment, arrived: Instant) -> Option<Duration> {
        let now = self.moment(arrived);
        // When the node sent the message, it had known the moment for `known_for_us`. So it sent the message at least that much later.
        let sent = seen.moment.micros.saturating_add(seen.known_for_us);
        (seen.moment.clock == now.clock && seen.moment.micros <= now.micros)
            .then(|| Duration::from_micros(now.micros.saturating_sub(sent)))
    }
}

/// Receiver of the requests to the leader, for the task that answers them ([`confirm`]).
pub struct LeaderRequests {
    queue: mpsc::Receiver<LeaderRequest>,
}

/// Creates the queue of requests to the leader: the handle and the receiver. `process` is a random number that identifies this process.
pub fn leadership(process: u64) -> (Arc<Leadership>, LeaderRequests) {
    let (requests, queue) = mpsc::channel(MAX_CONFIRMED_AT_ONCE);
    let clock = Clock {
        id: process,
        began: Instant::now(),
    };
    (Arc::new(Leadership { requests, clock }), LeaderRequests { queue })
}

impl Leadership {
    /// Counts heartbeats of sessions, each from the time beside it, if this node leads and can prove it.
    pub async fn touch(&self, beats: Vec<(SessionId, Instant)>) -> Result<Vec<Touched>, NotLeader> {
        let (answer, outcome) = oneshot::channel();
        self.ask(LeaderRequest::Touch { beats, answer }, outcome).await
    }

    /// Counts heartbeats that another node has forwarded with their ages. Each counts from its age before the arrival of the message. That is
    /// never before the client sent it, and is later than that by the transit time. So messages with a transit time above `within` are not
    /// counted.
    pub async fn take_heartbeats(
        &self,
        seen: Option<SeenMoment>,
        within: Duration,
        sessions: Vec<(SessionId, u32)>,
    ) -> Result<HeartbeatsTaken, NotLeader> {
        let arrived = Instant::now();
        let transit = seen.and_then(|seen| self.clock.max_transit(seen, arrived));
        let in_time = transit.is_some_and(|transit| transit <= within) || planted::is(Bug::HeartbeatAge);
        let touched = match in_time {
            true => {
                let age = |ms: u32| Duration::from_millis(u64::from(ms));
                let sessions = sessions.into_iter();
                let beats = sessions.map(|(session, age_ms)| (session, sent_at(arrived, age(age_ms))));
                Some(self.touch(beats.collect()).await?)
            }
            false => None,
        };
        let moment = self.clock.moment(Instant::now());
        Ok(HeartbeatsTaken { moment, touched })
    }

    /// Returns the index up to which a node has to apply for a linearizable read, if this node leads and can prove it.
    pub async fn read_index(&self) -> Result<u64, NotLeader> {
        let (answer, outcome) = oneshot::channel();
        self.ask(LeaderRequest::ReadIndex { answer }, outcome).await
    }

    async fn ask<T>(
        &self,
        request: LeaderRequest,
        outcome: oneshot::Receiver<Result<T, NotLeader>>,
    ) -> Result<T, NotLeader> {
        let unknown = NotLeader { leader: None };
        if self.requests.send(request).await.is_err() {
            return Err(unknown);
        }
        outcome.await.unwrap_or(Err(unknown))
    }
}

/// Returns the time from which a heartbeat of this age counts.
fn sent_at(arrived: Instant, age: Duration) -> Instant {
    match planted::is(Bug::HeartbeatAge) {
        true => arrived,
        // If the clock has not run for that long, the arrival is the only known time.
        false => arrived.checked_sub(age).unwrap_or(arrived),
    }
}

/// Answers requests to the leader, until `stop`. All waiting requests share one proof of leadership, which begins after the last of them has
/// arrived. A heartbeat of a session on record is confirmed only after an entry of the log contains it; `propose` proposes that entry.
pub async fn confirm<P, F>(
    raft: RaftNode,
    replica: Arc<Replica>,
    mut requests: LeaderRequests,
    propose: P,
    stop: CancellationToken,
) where
    P: Fn(Request) -> F,
    F: Future<Output = bool> + Send + 'static,
{
    let mut waiting = Vec::new();
    loop {
        tokio::select! {
            count = requests.queue.recv_many(&mut waiting, MAX_CONFIRMED_AT_ONCE) => {
                if count == 0 {
                    return;
                }
            }
            () = stop.cancelled() => return,
        }
        fail_step!(async "confirm::before_proof");
        let unproven = planted::is(Bug::UnprovenLeader)
            && waiting
                .iter()
                .all(|request| matches!(request, LeaderRequest::Touch { .. }));
        let proof = match replica.sessions.leading_term() {
            Some(term) if unproven => Ok((term, 0)),
            _ => raft.prove_leadership().await,
        };
        fail_step!(async "confirm::after_proof");
        for request in waiting.drain(..) {
            // Each send fails if the caller has cancelled, which is no error.
            match request {
                LeaderRequest::ReadIndex { answer } => {
                    let _ = answer.send(proof.clone().map(|(_, index)| index));
                }
                LeaderRequest::Touch { beats, answer } => {
                    let counted = proof.clone().and_then(|(term, _)| {
                        let counted = replica.sessions.touch(term, &beats);
                        Ok((term, counted.ok_or(NotLeader { leader: None })?))
                    });
                    match counted {
                        Err(not_leader) => {
                            let _ = answer.send(Err(not_leader));
                        }
                        Ok((_, Counted { touched, to_note }))
                            if to_note.is_empty() || planted::is(Bug::SilenceKept) =>
                        {
                            let _ = answer.send(Ok(touched));
                        }
                        Ok((term, Counted { touched, to_note })) => {
                            let noted = propose(Request::internal(Command::NoteHeartbeats {
                                sessions: to_note,
                                term,
                            }));
                            tokio::spawn(async move {
                                let confirmed = match noted.await {
                                    true => Ok(touched),
                                    false => Err(NotLeader { leader: None }),
                                };
                                let _ = answer.send(confirmed);
                            });
                        }
                    }
                }
            }
        }
    }
}

/// Starts the deadlines of sessions when this node begins to lead, and stops them when it ceases to, until `stop`. No session ends before its
/// client had the time of an `election` to reach the new leader.
pub async fn follow(
    replica: Arc<Replica>,
    mut own_terms: watch::Receiver<Option<u64>>,
    election: Duration,
    stop: CancellationToken,
) {
    loop {
        let own_term = *own_terms.borrow_and_update();
        let tracked_term = replica.sessions.leading_term();
        match own_term {
            None if tracked_term.is_some() => replica.sessions.resign(),
            // Deadlines begin when an entry of this term is applied. Then every end that an earlier leader committed is applied here, too.
            Some(term) if tracked_term != Some(term) => {
                tokio::select! {
                    () = replica.applied().wait_for_term(term) => {
                        fail_step!("session::before_take_up");
                        take_up(&replica, term, election);
                        fail_step!("session::after_take_up");
                    }
                    changed = own_terms.changed() => if changed.is_err() { return },
                    () = stop.cancelled() => return,
                }
                continue;
            }
            _ => {}
        }
        tokio::select! {
            changed = own_terms.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Plants the bug [`LostWatches`](fault_injection::planted::Bug::LostWatches): forgets all watches when another node leads.
#[cfg(feature = "planted")]
pub async fn lose_watches(
    replica: Arc<Replica>,
    mut leader: watch::Receiver<LeaderView>,
    stop: CancellationToken,
) {
    let mut known = None;
    loop {
        let now = leader.borrow_and_update().leader;
        if known != now {
            known = now;
            if planted::is(Bug::LostWatches) {
                replica.observers.notifier.forget_watches();
            }
        }
        tokio::select! {
            changed = leader.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
    }
}

/// Starts the deadlines of all sessions of the state, as the leader in `term`.
fn take_up(replica: &Replica, term: u64, grace: Duration) {
    // The lock of the state is held, so a session that is opened now is either in the list, or `SessionTracker::opened` adds it later.
    let store = replica.store.read();
    let timeout = |ms: u32| Duration::from_millis(u64::from(ms));
    let sessions = store.sessions().into_iter().map(|view| KnownSession {
        session: view.session,
        timeout: timeout(view.timeout_ms),
        silence: view.silence,
    });
    replica.observers.metrics.begin_term();
    replica.sessions.lead(term, Instant::now(), grace, sessions);
}

/// Returns the result of `take`, with the position of the state before it.
fn take_as_of<T>(replica: &Replica, take: impl FnOnce() -> T) -> (Zxid, T) {
    // The position is read first. So a command of a session that is applied in between has either moved the deadline already, or has a later
    // position than this, and spares the session.
    let as_of = replica.store.read().zxid();
    (as_of, take())
}

/// Proposes a record of silences. Returns whether it was applied.
async fn record<P, F>(replica: Arc<Replica>, propose: P, due: Due, as_of: Zxid) -> bool
where
    P: Fn(Request) -> F,
    F: Future<Output = bool>,
{
    let Due { term, silent, .. } = due;
    let command = Command::RecordSilence {
        sessions: silent.clone(),
        term,
        as_of,
    };
    fail_step!(async "session::before_record");
    let recorded = propose(Request::internal(command)).await;
    fail_step!(async "session::after_record");
    if !recorded {
        replica.sessions.not_recorded(term, &silent, Instant::now());
    }
    recorded
}

/// Handle for a request to the leader's task to record the silence of all sessions, before another node leads.
#[derive(Clone)]
pub struct Recorder {
    requests: mpsc::Sender<oneshot::Sender<()>>,
}

/// Receiver of the requests of a [`Recorder`].
pub struct RecorderRequests {
    queue: mpsc::Receiver<oneshot::Sender<()>>,
}

/// Creates a recorder and the receiver of its requests.
pub fn recorder() -> (Recorder, RecorderRequests) {
    let (requests, queue) = mpsc::channel(1);
    (Recorder { requests }, RecorderRequests { queue })
}

impl Recorder {
    /// Requests the record, and waits until it is applied, but no longer than `timeout`. If it times out, the next leader gives some sessions more
    /// time than necessary.
    pub async fn record_all(self, timeout: Duration) {
        let (done, recorded) = oneshot::channel();
        let recording = async {
            if self.requests.send(done).await.is_ok() {
                let _ = recorded.await;
            }
        };
        if tokio::time::timeout(timeout, recording).await.is_err() {
            tracing::warn!("the silence of sessions could not be recorded before the transfer of leadership");
        }
    }
}

/// Ends silent sessions, puts silences on record, opens locks that were closed for a while, sweeps empty containers and TTL nodes whose time is
/// over, and sees to it that the configured limits hold, while this node leads, until `stop`.
///
/// `propose` proposes a command from this node like that of a client. The state refuses an end of sessions that reaches the log in another term
/// than its own. `commands` returns the newest version of commands that all members can apply.
pub async fn tend<P, F>(
    replica: Arc<Replica>,
    runtime_config: Arc<SharedRuntimeConfig>,
    propose: P,
    commands: impl Fn() -> u8,
    mut recorder: RecorderRequests,
    stop: CancellationToken,
) where
    P: Fn(Request) -> F + Clone + Send + 'static,
    F: Future<Output = bool> + Send + 'static,
{
    let mut last = Instant::now();
    let mut swept = Instant::now();
    let mut setting: Option<JoinHandle<()>> = None;
    let mut finishing: Option<JoinHandle<()>> = None;
    let mut delays = LockDelayTimer::default();
    let mut stalls = StallLog::default();
    loop {
        let records = || commands() >= RECORDS_SINCE;
        tokio::select! {
            () = tokio::time::sleep_until(last + TICK) => {}
            Some(done) = recorder.queue.recv() => {
                let (as_of, parts) = take_as_of(&replica, || match records() {
                    true => replica.sessions.take_all_silent(Instant::now()),
                    false => Vec::new(),
                });
                let parts = parts.into_iter();
                let recording = parts.map(|due| record(replica.clone(), propose.clone(), due, as_of));
                let recording = join_all(recording);
                tokio::spawn(async move {
                    recording.await;
                    // The send fails if the caller has timed out, which is no error.
                    let _ = done.send(());
                });
                continue;
            }
            () = stop.cancelled() => return,
        }
        let runtime_config = runtime_config.get();
        let (sweeps, limits) = (&runtime_config.sweeps, runtime_config.limits);
        // Reads the clock regularly: after a long pause between two readings it could not tell a jump from the time that has passed. The reading
        // also logs that the clocks of the other members overrule this one.
        replica.clock.now_ms();
        let now = Instant::now();
        let late = (now - last).saturating_sub(TICK);
        last = now;
        // Only the delay beyond `STALL` counts: otherwise a leader that is always late, because it is overloaded, would never end a session.
        let stall = late.saturating_sub(STALL);
        if !stall.is_zero() {
            stalls.note(late);
            replica.sessions.stalled(stall);
        }
        while let (as_of, Some(due)) = take_as_of(&replica, || {
            replica.sessions.take_due(now, MAX_EXPIRED_AT_ONCE, records())
        }) {
            if !due.over.is_empty() {
                let ending = end(
                    replica.clone(),
                    propose.clone(),
                    due.term,
                    due.over.clone(),
                    as_of,
                );
                let stop = stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(ending).await });
            }
            if !due.silent.is_empty() {
                tokio::spawn(record(replica.clone(), propose.clone(), due, as_of));
            }
        }
        // Continues the ends of large sessions and the grants to many waiters, including those that an earlier leader has begun.
        if finishing.as_ref().is_none_or(JoinHandle::is_finished)
            && let Some(term) = replica.sessions.leading_term()
            && replica.store.try_read().is_some_and(|store| {
                !store.ending_sessions(1).is_empty() || store.unfinished_grants().next().is_some()
            })
        {
            let continuing = finish_ends_and_grants(replica.clone(), propose.clone(), term);
            let stop = stop.clone();
            finishing = Some(tokio::spawn(async move {
                stop.run_until_cancelled(continuing).await;
            }));
        }
        // An earlier leader may have had other settings. If it lost leadership with a proposal in flight, that proposal may even be applied after
        // this leader's. And this leader's proposal may fail. So the settings are checked in each tick.
        if setting.as_ref().is_none_or(JoinHandle::is_finished)
            && let Some(command) = missing_setting(&replica, limits, &commands)
        {
            let propose = propose.clone();
            setting = Some(tokio::spawn(async move {
                tracing::info!(%command, "proposing a setting that the state lacks");
                propose(Request::internal(command)).await;
            }));
        }
        if let Some((term, locks)) = delays_to_count(&replica, &mut delays, now) {
            let propose = propose.clone();
            let command = Command::Lock(LockCommand::CountDelays { locks, term });
            tokio::spawn(async move {
                fail_step!(async "delay::before_count");
                // If the proposal fails, the timer returns the progress again.
                propose(Request::internal(command)).await;
                fail_step!(async "delay::after_count");
            });
        }
        let due = match replica.sessions.leading_term() {
            Some(term) if commands() >= LEASES => {
                Some((term, replica.holds.take_due(now, replica.read().time_ms())))
            }
            _ => None,
        };
        if let Some((term, holders)) = due.filter(|(_, holders)| !holders.is_empty()) {
            tracing::info!(?holders, "holds have lasted as long as they may");
            let propose = propose.clone();
            let command = Command::Lock(LockCommand::EndHolds { holders, term });
            tokio::spawn(async move {
                // What is not ended now is proposed again.
                propose(Request::internal(command)).await;
            });
        }
        if now - swept >= sweeps.every {
            swept = now;
            let due = to_sweep(&replica, sweeps.empty_for);
            if !due.is_empty() {
                let propose = propose.clone();
                let command = Command::Sweep(due);
                tokio::spawn(async move {
                    // If the proposal fails, the next sweep includes these znodes.
                    propose(Request::internal(command)).await;
                });
            }
        }
    }
}

/// Proposes the end of these sessions, until a proposal is applied, commands of the sessions spare them, or this node stops leading in `term`.
async fn end<P, F>(replica: Arc<Replica>, propose: P, term: u64, sessions: Vec<SessionId>, as_of: Zxid)
where
    P: Fn(Request) -> F,
    F: Future<Output = bool>,
{
    tracing::info!(?sessions, "sessions expire: no heartbeat within their timeout");
    // Nearly always there is one piece.
    let pieces = replica.store.read().ending_together(&sessions).into_iter();
    let pieces: Vec<Vec<SessionId>> = pieces.map(<[_]>::to_vec).collect();
    for mut sessions in pieces {
        loop {
            sessions = replica.sessions.still_ending(term, sessions);
            if sessions.is_empty() {
                break;
            }
            let command = Command::ExpireSessions {
                sessions: sessions.clone(),
                term,
                as_of,
            };
            fail_step!(async "session::before_expire");
            let proposed = propose(Request::internal(command)).await;
            fail_step!(async "session::after_expire");
            if proposed {
                break;
            }
            tokio::time::sleep(TICK).await;
        }
    }
}

/// Removes the remaining znodes of ended sessions, and makes the remaining grants, one entry after the other. Stops when none is left, when this
/// node ceases to lead in `term`, or when a proposal fails; after a failure the next tick starts again.
async fn finish_ends_and_grants<P, F>(replica: Arc<Replica>, propose: P, term: u64)
where
    P: Fn(Request) -> F,
    F: Future<Output = bool>,
{
    while replica.sessions.leading_term() == Some(term) {
        let (sessions, as_of) = {
            let store = replica.store.read();
            let sessions = store.ending_sessions(MAX_EXPIRED_AT_ONCE);
            if sessions.is_empty() && store.unfinished_grants().next().is_none() {
                return;
            }
            (sessions, store.zxid())
        };
        // Any command makes grants, also one that ends no session.
        let command = Command::ExpireSessions {
            sessions,
            term,
            as_of,
        };
        let proposed = propose(Request::internal(command)).await;
        if !proposed {
            return;
        }
    }
}

/// Returns a command that the state lacks: one that sets these limits, or one that introduces a rule which all members know by now. Returns
/// `None` on a follower, and while a long entry is being applied: the deadlines of sessions cannot wait for it, and the next tick asks again.
fn missing_setting(replica: &Replica, limits: Limits, commands: impl Fn() -> u8) -> Option<Command> {
    replica.sessions.leading_term()?;
    let store = replica.store.try_read()?;
    if store.limits() != limits {
        return Some(Command::SetLimits(limits));
    }
    let is_due = store.lets_waits_outlive_rights() && commands() >= WAITS_END_WITH_RIGHTS;
    is_due.then_some(Command::Access(AccessCommand::EndWaitsWithRights))
}

/// Returns the elapsed lock delays that are due to be proposed, if this node leads. Returns `None` if the state is locked; the next tick checks
/// again.
fn delays_to_count(
    replica: &Replica,
    delays: &mut LockDelayTimer,
    now: Instant,
) -> Option<(u64, Vec<Passed>)> {
    let term = replica.sessions.leading_term();
    let closed = match term {
        Some(_) => replica.store.try_read()?.closed_locks(),
        None => Vec::new(),
    };
    delays.take_due(term, closed, now)
}

/// Returns the znodes to remove by the next sweep, if this node leads: containers that were empty for `empty_for`, and expired znodes.
fn to_sweep(replica: &Replica, empty_for: Duration) -> Vec<ZPath> {
    if replica.sessions.leading_term().is_none() {
        return Vec::new();
    }
    let store = replica.store.read();
    // The clock is used as well, because the time of the state does not advance while nothing is proposed.
    let now_ms = store.time_ms().max(replica.clock.now_ms());
    let empty_for_ms = u64::try_from(empty_for.as_millis()).unwrap_or(u64::MAX);
    let mut due = store.to_sweep(now_ms.saturating_sub(empty_for_ms), now_ms);
    due.truncate(MAX_SWEPT_AT_ONCE);
    due
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use znode_store::{
        AttemptId, EntryContext, LockMode, LockName, LockWish, MAX_GRANTED_AT_ONCE, Password, Reply,
    };

    use super::*;
    use crate::command_versions::COMMANDS_VERSION;
    use crate::config::NodeConfig;
    use crate::envelope::Origin;
    use crate::runtime_config::RuntimeConfig;
    use observers::{Observers, ObserversConfig};

    const FEW: Limits = Limits {
        data_bytes: 10,
        children: 20,
        ephemerals: 30,
        sessions: 40,
    };

    fn replica() -> Arc<Replica> {
        let origin = Origin { node: 1, boot: 7 };
        let observers = Observers::new(&ObserversConfig::default(), 1);
        Arc::new(Replica::new(origin, observers))
    }

    #[tokio::test(start_paused = true)]
    async fn forwarded_heartbeats_count_from_their_age_if_they_were_on_their_way_for_a_bounded_time() {
        const WITHIN: Duration = Duration::from_millis(100);
        let (leadership, mut requests) = leadership(7);
        let moment = leadership.clock.moment(Instant::now());
        // Returns the age that the leader counts for a heartbeat of the given age, sent some time after the moment that its node knows, and
        // has known for some time.
        let mut take = async |clock: u64, passed_ms: u64, known_for_ms: u64, age_ms: u32| {
            tokio::time::sleep(Duration::from_millis(passed_ms)).await;
            let now = leadership.clock.moment(Instant::now());
            let seen = SeenMoment {
                moment: Moment {
                    clock,
                    micros: now.micros - passed_ms * 1_000,
                },
                known_for_us: known_for_ms * 1_000,
            };
            let session = (SessionId(1), age_ms);
            let taking = leadership.take_heartbeats(Some(seen), WITHIN, vec![session]);
            let arrived = Instant::now();
            let answering = async {
                let Some(LeaderRequest::Touch { beats, answer }) = requests.queue.recv().await else {
                    panic!("a touch is expected");
                };
                answer.send(Ok(vec![Touched::Renewed(9_000)])).expect("it waits");
                arrived - beats[0].1
            };
            tokio::select! {
                biased;
                taken = taking => {
                    assert_eq!(taken.map(|taken| taken.touched), Ok(None));
                    None
                }
                age = answering => Some(age),
            }
        };
        assert_eq!(moment.clock, 7);
        // The message was sent at most 200 ms ago, or at most 30 ms ago if its node had known the moment for 170 ms when it sent the message.
        assert_eq!(take(7, 200, 0, 40).await, None);
        assert_eq!(take(7, 200, 170, 40).await, Some(Duration::from_millis(40)));
        assert_eq!(take(7, 200, 100, 0).await, Some(Duration::ZERO), "at the bound");
        assert_eq!(take(7, 200, 99, 0).await, None, "beyond the bound");
        assert_eq!(
            take(8, 200, 200, 0).await,
            None,
            "a reading of another process's clock"
        );
        assert_eq!(
            leadership
                .take_heartbeats(None, WITHIN, vec![])
                .await
                .map(|taken| taken.touched),
            Ok(None),
            "no proof"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn limits_are_proposed_by_a_leader_until_they_hold() {
        let (replica, stop) = (replica(), CancellationToken::new());
        let proposed = Arc::new(AtomicUsize::new(0));
        let propose = {
            let (replica, proposed) = (replica.clone(), proposed.clone());
            move |request: Request| {
                assert_eq!(request.command, Command::SetLimits(FEW));
                // The first two are lost.
                let done = proposed.fetch_add(1, Ordering::SeqCst) >= 2;
                if done {
                    let entry = EntryContext { time_ms: 1, term: 1 };
                    let applied = replica.store.write().apply(&entry, request, &mut Vec::new());
                    assert!(applied.outcome.is_ok());
                }
                async move { done }
            }
        };
        let config = NodeConfig::new(1, "test", BTreeMap::new(), "unused");
        let few = RuntimeConfig {
            limits: FEW,
            ..RuntimeConfig::of(&config)
        };
        let runtime_config = Arc::new(SharedRuntimeConfig::new(few));
        let (_recorder, requests) = recorder();
        let tending = tend(
            replica.clone(),
            runtime_config.clone(),
            propose,
            || COMMANDS_VERSION,
            requests,
            stop.clone(),
        );
        let tending = tokio::spawn(tending);

        tokio::time::sleep(TICK * 10).await;
        assert_eq!(proposed.load(Ordering::SeqCst), 0, "a follower proposes nothing");
        take_up(&replica, 1, TICK);
        while replica.store.read().limits() != FEW {
            tokio::time::sleep(TICK).await;
        }
        tokio::time::sleep(TICK * 10).await;
        assert_eq!(proposed.load(Ordering::SeqCst), 3);

        // The proposal of a deposed leader is applied late.
        let late = Request::internal(Command::SetLimits(Limits::default()));
        let entry = EntryContext { time_ms: 2, term: 1 };
        replica
            .store
            .write()
            .apply(&entry, late, &mut Vec::new())
            .outcome
            .unwrap();
        while replica.store.read().limits() != FEW {
            tokio::time::sleep(TICK).await;
        }
        stop.cancel();
        tending.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn grants_to_many_waiters_are_continued_by_a_leader() {
        const WAITERS: u64 = 3 * MAX_GRANTED_AT_ONCE as u64;
        let (replica, stop) = (replica(), CancellationToken::new());
        let apply = |request: Request| {
            let entry = EntryContext { time_ms: 1, term: 1 };
            let applied = replica.store.write().apply(&entry, request, &mut Vec::new());
            applied.outcome.unwrap()
        };
        let lock = LockName::parse("many").unwrap();
        let by = |session, command| Request {
            session: Some(session),
            ..Request::anonymous(Command::Lock(command))
        };
        let acquire = |session, number: u64, mode| {
            let wish = LockWish {
                lock: lock.clone(),
                mode,
                permits: 1,
                owner: "".into(),
                reentrant: false,
                note: "".into(),
                address: "".into(),
                lock_delay_ms: 0,
                names: Default::default(),
            };
            let attempt = AttemptId(number);
            by(
                session,
                LockCommand::Acquire {
                    wish,
                    guid: number.into(),
                    attempt,
                    wait: true,
                },
            )
        };
        let [holder, waiter] = [SessionId(1), SessionId(2)];
        for session in [holder, waiter] {
            apply(Request::anonymous(Command::OpenSession {
                session,
                password: Password([0; 16]),
                timeout_ms: 10_000,
                name: "".into(),
                address: "".into(),
            }));
        }
        let Reply::Granted(held) = apply(acquire(holder, 0, LockMode::Exclusive)) else {
            panic!("the lock is free");
        };
        for number in 1..=WAITERS {
            apply(acquire(waiter, number, LockMode::Shared));
        }
        apply(by(
            holder,
            LockCommand::Release {
                lock: held.lock,
                holder: held.holder,
            },
        ));
        let holders = || replica.store.read().lock_counts().holders as u64;
        assert!(holders() < WAITERS / 2);

        let propose = {
            let replica = replica.clone();
            move |request: Request| {
                let entry = EntryContext { time_ms: 1, term: 1 };
                let applied = replica.store.write().apply(&entry, request, &mut Vec::new());
                async move { applied.outcome.is_ok() }
            }
        };
        let config = RuntimeConfig::of(&NodeConfig::new(1, "test", BTreeMap::new(), "unused"));
        replica.store.write().apply(
            &EntryContext { time_ms: 1, term: 1 },
            Request::internal(Command::SetLimits(config.limits)),
            &mut Vec::new(),
        );
        take_up(&replica, 1, Duration::from_secs(60));
        let (_recorder, requests) = recorder();
        let tending = tokio::spawn(tend(
            replica.clone(),
            Arc::new(SharedRuntimeConfig::new(config)),
            propose,
            || COMMANDS_VERSION,
            requests,
            stop.clone(),
        ));
        tokio::time::sleep(TICK * 3).await;
        assert_eq!(holders(), WAITERS);
        stop.cancel();
        tending.await.unwrap();
    }
}
