//! Forwards proposals of this node to the leader: takes the queued proposals in batches from the program, in
//! the order that it decides, and sends each batch bound to the leader's term. Few commands are in transit at
//! a time, because only those that are still queued can be overtaken. Proposals that were rejected, or lost
//! with a leader, return to the queue.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::application::{Application, BatchRoom, ProposalBatch};
use crate::batcher::{MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS, ProposalQueue};
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::messages::{Declined, ForwardedTrace};
use crate::peers::wire::{PeerRequest, PeerResponse, TRACES_SINCE};
use crate::peers::{PeerConnectionError, Peers, Purpose};
use fault_injection::fail_step;

/// Maximum number of commands in transit to the leader: sent, and not answered yet. A command waits for these, however
/// many are queued. Fewer would cost much of the rate of writes: decision 25 has the measurement.
const WINDOW_COMMANDS: usize = 256;

/// Maximum size of the commands in transit, unless the last one is larger. It has room for the largest command of one
/// caller and for those of others.
const WINDOW_BYTES: usize = 2 * 1024 * 1024;

const _: () = assert!(
    WINDOW_COMMANDS <= MAX_ENTRY_COMMANDS,
    "a batch fits into one entry"
);

/// Maximum number of batches in transit to a leader.
const MAX_IN_FLIGHT: usize = 16;

/// Pause before a rejected proposal is sent again. A rejection is quick, and the leader may have to regain its
/// quorum.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// Dependencies of the task.
pub struct Forwarder {
    /// Id of this node.
    pub node: NodeId,
    /// Program whose proposals are sent.
    pub application: Arc<dyn Application>,
    /// Connections to other leaders.
    pub peers: Arc<Peers>,
    /// Queue of the batcher on this node, used if this node leads.
    pub proposal_queue: ProposalQueue,
    /// Current leader.
    pub leader: watch::Receiver<LeaderView>,
    /// Notified when the program has queued proposals.
    pub queued: Arc<Notify>,
    /// Maximum time for a batch before the connection to the leader is closed. Longer than an entry takes on
    /// a busy disk.
    pub timeout: Duration,
}

impl Forwarder {
    /// Sends queued proposals until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let task = ForwarderTask {
            dependencies: self,
            has_queued: false,
            in_flight: FuturesUnordered::new(),
            in_transit: InTransit::default(),
            paused_until: None,
        };
        task.run(stop).await;
    }

    async fn send_to_own_batcher(
        &self,
        batch: SentBatch,
        envelopes: Vec<Bytes>,
    ) -> BoxFuture<'static, (SentBatch, ForwardOutcome)> {
        let outcome = self.proposal_queue.enqueue(batch.term, envelopes).await;
        async move {
            let outcome = match outcome.await {
                Ok(Ok(declined)) => ForwardOutcome::Settled(declined),
                Ok(Err(_)) => ForwardOutcome::Refused,
                Err(_) => ForwardOutcome::InDoubt,
            };
            (batch, outcome)
        }
        .boxed()
    }

    async fn send_to_peer(
        &self,
        leader: NodeId,
        batch: SentBatch,
        envelopes: Vec<Bytes>,
        traces: Vec<ForwardedTrace>,
    ) -> BoxFuture<'static, (SentBatch, ForwardOutcome)> {
        let connection = self.peers.connection(leader, Purpose::Traffic);
        let timeout = self.timeout;
        let term = batch.term;
        let version = self.peers.registry().wire_version_with(leader);
        let request = match traces.is_empty() || version.is_none_or(|version| version < TRACES_SINCE) {
            true => PeerRequest::Forward { term, envelopes },
            false => PeerRequest::ForwardTraced {
                term,
                envelopes,
                traces,
            },
        };
        let sent = connection.send(request).await;
        async move {
            let answer = match sent {
                Ok(answer) => connection.answer(answer, timeout).await,
                Err(error) => Err(error),
            };
            let outcome = match answer {
                Ok(PeerResponse::Forward(Ok(declined))) => ForwardOutcome::Settled(declined),
                Ok(PeerResponse::Forward(Err(_))) => ForwardOutcome::Refused,
                Err(PeerConnectionError::NotSent(_)) => ForwardOutcome::Refused,
                Ok(_) | Err(PeerConnectionError::NoAnswer(_)) => ForwardOutcome::InDoubt,
            };
            (batch, outcome)
        }
        .boxed()
    }
}

/// State of the forwarder: the step that it may take next. In every state but [`State::Sending`], which ends with
/// one batch, it also takes the outcomes of batches, and notices a new leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No leader is known, or as much as may be is in transit: new proposals stay queued.
    Blocked,
    /// A batch was not applied: new proposals stay queued until this time.
    Paused(Instant),
    /// All proposals are sent: the next one is sent when it comes.
    Idle,
    /// The next queued proposals are sent to the leader of a term.
    Sending {
        leader: NodeId,
        term: u64,
        room: BatchRoom,
    },
}

impl State {
    fn of(view: LeaderView, paused_until: Option<Instant>, in_transit: &InTransit, has_queued: bool) -> Self {
        match (view.leader, paused_until, in_transit.room(view.term)) {
            (_, Some(until), _) => Self::Paused(until),
            (None, None, _) | (_, None, None) => Self::Blocked,
            (Some(leader), None, Some(room)) if has_queued => Self::Sending {
                leader,
                term: view.term,
                room,
            },
            (Some(_), None, Some(_)) => Self::Idle,
        }
    }
}

/// Amount that is in transit to the leader of a term. Batches to an earlier leader may stay without an answer for long, and
/// do not count.
#[derive(Debug, Default)]
struct InTransit {
    term: u64,
    batches: usize,
    commands: usize,
    bytes: usize,
}

impl InTransit {
    /// Returns the room for the next batch in a term, or `None` if nothing may be sent.
    fn room(&self, term: u64) -> Option<BatchRoom> {
        let nothing = Self::default();
        let sent = if self.term == term { self } else { &nothing };
        let room = BatchRoom {
            commands: WINDOW_COMMANDS.saturating_sub(sent.commands),
            bytes: WINDOW_BYTES.saturating_sub(sent.bytes).min(MAX_ENTRY_BYTES),
        };
        let has_room = sent.batches < MAX_IN_FLIGHT && room.commands > 0 && room.bytes > 0;
        has_room.then_some(room)
    }

    fn sent(&mut self, batch: &SentBatch) {
        if self.term != batch.term {
            *self = Self {
                term: batch.term,
                ..Self::default()
            };
        }
        self.batches += 1;
        self.commands += batch.numbers.len();
        self.bytes += batch.bytes;
    }

    fn ended(&mut self, batch: &SentBatch) {
        if self.term == batch.term {
            self.batches -= 1;
            self.commands -= batch.numbers.len();
            self.bytes -= batch.bytes;
        }
    }
}

/// Batch in transit.
struct SentBatch {
    term: u64,
    numbers: Vec<u64>,
    bytes: usize,
    /// Tells the program when the batch has an outcome.
    _in_transit: Option<Box<dyn std::fmt::Debug + Send>>,
}

/// Outcome of a batch.
enum ForwardOutcome {
    /// Applied, except for the proposals that the leader declined. The apply loop reports the outcome of each
    /// of the others.
    Settled(Declined),
    /// Certainly not proposed.
    Refused,
    /// Possibly proposed.
    InDoubt,
}

struct ForwarderTask {
    dependencies: Forwarder,
    /// False if the last batch took all queued proposals, and no notice of another one has arrived.
    has_queued: bool,
    /// Batches in transit, also those to earlier leaders.
    in_flight: FuturesUnordered<BoxFuture<'static, (SentBatch, ForwardOutcome)>>,
    in_transit: InTransit,
    paused_until: Option<Instant>,
}

impl ForwarderTask {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let state = self.state();
            if let State::Sending { leader, term, room } = state {
                self.send_batch(leader, term, room).await;
                continue;
            }
            let Forwarder { leader, queued, .. } = &mut self.dependencies;
            tokio::select! {
                () = queued.notified(), if state == State::Idle => self.has_queued = true,
                () = pause(state) => self.paused_until = None,
                Some((batch, outcome)) = self.in_flight.next() => self.take_outcome(batch, outcome),
                changed = leader.changed() => match changed {
                    Ok(()) => {}
                    Err(_) => return,
                },
                () = stop.cancelled() => return,
            }
        }
    }

    fn state(&mut self) -> State {
        let view = *self.dependencies.leader.borrow_and_update();
        State::of(view, self.paused_until, &self.in_transit, self.has_queued)
    }

    /// Reports the outcome of a batch. Proposals that were not applied return to the queue.
    fn take_outcome(&mut self, batch: SentBatch, outcome: ForwardOutcome) {
        self.in_transit.ended(&batch);
        let SentBatch { term, numbers, .. } = batch;
        let application = &self.dependencies.application;
        match outcome {
            ForwardOutcome::Settled(declined) => {
                application.settle(term, &numbers, &declined);
                return;
            }
            ForwardOutcome::Refused => application.retry(term, &numbers),
            // If the term has already ended on this node, no later event returns these proposals to the queue.
            ForwardOutcome::InDoubt => application.retry_lost(),
        }
        self.paused_until = Some(Instant::now() + RETRY_PAUSE);
    }

    /// Sends the next queued proposals. The batch takes its place in the leader's queue here, in order; outcomes may
    /// arrive in any order.
    async fn send_batch(&mut self, leader: NodeId, term: u64, room: BatchRoom) {
        // Lets other tasks queue their proposals first: larger batches mean fewer messages, entries and syncs.
        tokio::task::yield_now().await;
        let forwarder = &self.dependencies;
        // The batch takes the proposals of this notice, too.
        let _ = forwarder.queued.notified().now_or_never();
        let ProposalBatch {
            numbers,
            envelopes,
            traces,
            has_more,
            in_transit,
        } = forwarder.application.take_batch(term, room);
        self.has_queued = has_more;
        if numbers.is_empty() {
            return;
        }
        fail_step!(async "submit::before_send");
        let batch = SentBatch {
            term,
            numbers,
            bytes: envelopes.iter().map(Bytes::len).sum(),
            _in_transit: in_transit,
        };
        self.in_transit.sent(&batch);
        let outcome = match leader == forwarder.node {
            true => forwarder.send_to_own_batcher(batch, envelopes).await,
            false => forwarder.send_to_peer(leader, batch, envelopes, traces).await,
        };
        self.in_flight.push(outcome);
    }
}

/// Waits until the pause of the state ends; never completes in another state.
async fn pause(state: State) {
    match state {
        State::Paused(until) => tokio::time::sleep_until(until).await,
        State::Blocked | State::Idle | State::Sending { .. } => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(term: u64, commands: usize, bytes: usize) -> SentBatch {
        SentBatch {
            term,
            numbers: vec![0; commands],
            bytes,
            _in_transit: None,
        }
    }

    fn in_transit(batches: &[SentBatch]) -> InTransit {
        let mut in_transit = InTransit::default();
        batches.iter().for_each(|batch| in_transit.sent(batch));
        in_transit
    }

    #[test]
    fn proposals_are_sent_to_a_known_leader_unless_paused_or_full() {
        let view = |leader| LeaderView { term: 7, leader };
        let until = Instant::now();
        let sending = |commands, bytes| State::Sending {
            leader: 2,
            term: 7,
            room: BatchRoom { commands, bytes },
        };
        let (commands, bytes) = (WINDOW_COMMANDS, MAX_ENTRY_BYTES);
        let one_by_one = |batches| std::iter::repeat_with(|| batch(7, 1, 1)).take(batches).collect();
        let cases: [(_, _, Vec<SentBatch>, _, _); 12] = [
            (Some(2), None, vec![], false, State::Idle),
            (Some(2), None, vec![], true, sending(commands, bytes)),
            (
                Some(2),
                None,
                vec![batch(7, 3, 5)],
                true,
                sending(commands - 3, bytes),
            ),
            (Some(2), None, vec![batch(7, commands, 1)], true, State::Blocked),
            (
                Some(2),
                None,
                vec![batch(7, 1, WINDOW_BYTES - 5)],
                true,
                sending(commands - 1, 5),
            ),
            (
                Some(2),
                None,
                vec![batch(7, 1, WINDOW_BYTES)],
                true,
                State::Blocked,
            ),
            (Some(2), None, one_by_one(MAX_IN_FLIGHT), true, State::Blocked),
            (Some(2), None, one_by_one(MAX_IN_FLIGHT), false, State::Blocked),
            // What was sent to an earlier leader takes no room.
            (
                Some(2),
                None,
                vec![batch(6, commands, bytes)],
                true,
                sending(commands, bytes),
            ),
            (Some(2), Some(until), vec![], true, State::Paused(until)),
            (None, Some(until), vec![], true, State::Paused(until)),
            (None, None, vec![], true, State::Blocked),
        ];
        for (leader, paused_until, batches, has_queued, expected) in cases {
            let in_transit = in_transit(&batches);
            let state = State::of(view(leader), paused_until, &in_transit, has_queued);
            assert_eq!(
                state, expected,
                "{leader:?} {paused_until:?} {in_transit:?} {has_queued}"
            );
        }
    }

    #[test]
    fn outcome_of_an_earlier_term_gives_no_room() {
        let (earlier, first, second) = (batch(6, 10, 10), batch(7, 20, 20), batch(7, 30, 30));
        let mut in_transit = in_transit(&[]);
        in_transit.sent(&earlier);
        in_transit.sent(&first);
        in_transit.sent(&second);
        in_transit.ended(&earlier);
        in_transit.ended(&first);
        assert_eq!(
            (in_transit.batches, in_transit.commands, in_transit.bytes),
            (1, 30, 30)
        );
    }
}
