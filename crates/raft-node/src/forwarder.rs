//! Forwards proposals of this node to the leader: pending proposals are sent in one batch, bound to the
//! leader's term. Proposals that were rejected, or lost with a leader, return to the queue and are sent to
//! the next leader before all later ones, so pipelined requests of one connection are applied in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::application::Application;
use crate::batcher::{MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS, ProposalQueue};
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::messages::{Declined, ForwardedTrace};
use crate::peers::wire::{PeerRequest, PeerResponse, TRACES_SINCE};
use crate::peers::{PeerConnectionError, Peers, Purpose};
use fault_injection::fail_step;

/// Maximum number of batches in transit to a leader.
const MAX_IN_FLIGHT: usize = 16;

/// Pause before a rejected proposal is sent again. A rejection is quick, and the leader may have to regain its
/// quorum.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

type NumberedCommand = (u64, Bytes);

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
    /// New proposals, and those that return.
    pub queue: mpsc::UnboundedReceiver<NumberedCommand>,
    /// Maximum time for a batch before the connection to the leader is closed. Longer than an entry takes on
    /// a busy disk.
    pub timeout: Duration,
}

impl Forwarder {
    /// Sends queued proposals until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let task = ForwarderTask {
            dependencies: self,
            waiting: BTreeMap::new(),
            in_flight: FuturesUnordered::new(),
            paused_until: None,
        };
        task.run(stop).await;
    }

    async fn send_to_own_batcher(
        &self,
        term: u64,
        numbers: Vec<u64>,
        envelopes: Vec<Bytes>,
    ) -> BoxFuture<'static, ForwardOutcome> {
        let outcome = self.proposal_queue.enqueue(term, envelopes).await;
        async move {
            match outcome.await {
                Ok(Ok(declined)) => ForwardOutcome::Settled(numbers, declined),
                Ok(Err(_)) => ForwardOutcome::Refused(numbers),
                Err(_) => ForwardOutcome::InDoubt,
            }
        }
        .boxed()
    }

    async fn send_to_peer(
        &self,
        leader: NodeId,
        term: u64,
        numbers: Vec<u64>,
        envelopes: Vec<Bytes>,
        traces: Vec<ForwardedTrace>,
    ) -> BoxFuture<'static, ForwardOutcome> {
        let connection = self.peers.connection(leader, Purpose::Traffic);
        let timeout = self.timeout;
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
            match answer {
                Ok(PeerResponse::Forward(Ok(declined))) => ForwardOutcome::Settled(numbers, declined),
                Ok(PeerResponse::Forward(Err(_))) => ForwardOutcome::Refused(numbers),
                Err(PeerConnectionError::NotSent(_)) => ForwardOutcome::Refused(numbers),
                Ok(_) | Err(PeerConnectionError::NoAnswer(_)) => ForwardOutcome::InDoubt,
            }
        }
        .boxed()
    }
}

/// State of the forwarder: the step that it may take next. In every state but [`State::Sending`], which ends with
/// one batch, it also takes the outcomes of batches, and notices a new leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// No leader is known, or as many batches as may be are in transit: new proposals stay queued.
    Blocked,
    /// A batch was not applied: new proposals stay queued until this time.
    Paused(Instant),
    /// All proposals are sent: the next one is sent when it comes.
    Idle,
    /// The first waiting proposals are sent to the leader of a term.
    Sending { leader: NodeId, term: u64 },
}

impl State {
    fn of(view: LeaderView, paused_until: Option<Instant>, in_flight: usize, has_waiting: bool) -> Self {
        match (view.leader, paused_until) {
            (_, Some(until)) => Self::Paused(until),
            (Some(_), None) if in_flight >= MAX_IN_FLIGHT => Self::Blocked,
            (Some(leader), None) if has_waiting => Self::Sending {
                leader,
                term: view.term,
            },
            (Some(_), None) => Self::Idle,
            (None, None) => Self::Blocked,
        }
    }
}

/// Outcome of a batch.
enum ForwardOutcome {
    /// Applied, except for the proposals that the leader declined. The apply loop reports the outcome of each
    /// of the others.
    Settled(Vec<u64>, Declined),
    /// Certainly not proposed.
    Refused(Vec<u64>),
    /// Possibly proposed.
    InDoubt,
}

struct ForwarderTask {
    dependencies: Forwarder,
    /// Proposals to send, the oldest first. Those that returned have smaller numbers than new ones.
    waiting: BTreeMap<u64, Bytes>,
    /// Batches in transit.
    in_flight: FuturesUnordered<BoxFuture<'static, ForwardOutcome>>,
    paused_until: Option<Instant>,
}

impl ForwarderTask {
    async fn run(mut self, stop: CancellationToken) {
        loop {
            let state = self.state();
            if let State::Sending { leader, term } = state {
                self.send_batch(leader, term).await;
                continue;
            }
            let Forwarder { leader, queue, .. } = &mut self.dependencies;
            tokio::select! {
                proposal = queue.recv(), if state == State::Idle => match proposal {
                    Some((number, envelope)) => drop(self.waiting.insert(number, envelope)),
                    None => return,
                },
                () = pause(state) => self.paused_until = None,
                Some(outcome) = self.in_flight.next() => self.take_outcome(outcome),
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
        State::of(
            view,
            self.paused_until,
            self.in_flight.len(),
            !self.waiting.is_empty(),
        )
    }

    /// Reports the outcome of a batch. Proposals that were not applied return to the queue.
    fn take_outcome(&mut self, outcome: ForwardOutcome) {
        let application = &self.dependencies.application;
        match outcome {
            ForwardOutcome::Settled(numbers, declined) => {
                application.settle(&numbers, &declined);
                return;
            }
            ForwardOutcome::Refused(numbers) => application.retry(&numbers),
            // If the term has already ended on this node, no later event returns these proposals to the queue.
            ForwardOutcome::InDoubt => application.retry_lost(),
        }
        self.paused_until = Some(Instant::now() + RETRY_PAUSE);
    }

    /// Sends the first proposals. The batch takes its place in the leader's queue here, in order; outcomes may
    /// arrive in any order.
    async fn send_batch(&mut self, leader: NodeId, term: u64) {
        // Lets other tasks queue their proposals first: larger batches mean fewer messages, entries and syncs.
        tokio::task::yield_now().await;
        while let Ok((number, envelope)) = self.dependencies.queue.try_recv() {
            self.waiting.insert(number, envelope);
        }
        let mut proposals = take_batch(&mut self.waiting);
        let traces = self.dependencies.application.mark_sent(term, &mut proposals);
        if proposals.is_empty() {
            return;
        }
        fail_step!(async "submit::before_send");
        let (numbers, envelopes) = proposals.into_iter().unzip();
        let forwarder = &self.dependencies;
        let outcome = match leader == forwarder.node {
            true => forwarder.send_to_own_batcher(term, numbers, envelopes).await,
            false => {
                forwarder
                    .send_to_peer(leader, term, numbers, envelopes, traces)
                    .await
            }
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

/// Takes the first pending proposals, as many as fit into one entry.
fn take_batch(waiting: &mut BTreeMap<u64, Bytes>) -> Vec<NumberedCommand> {
    let mut bytes = 0;
    let mut proposals = Vec::with_capacity(waiting.len().min(MAX_ENTRY_COMMANDS));
    while proposals.len() < MAX_ENTRY_COMMANDS
        && let Some(first) = waiting.first_entry()
        && (proposals.is_empty() || bytes + first.get().len() <= MAX_ENTRY_BYTES)
    {
        bytes += first.get().len();
        proposals.push(first.remove_entry());
    }
    proposals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposals_are_sent_to_a_known_leader_unless_paused_or_full() {
        let view = |leader| LeaderView { term: 7, leader };
        let until = Instant::now();
        for (leader, paused_until, in_flight, has_waiting, expected) in [
            (Some(2), None, 0, false, State::Idle),
            (
                Some(2),
                None,
                MAX_IN_FLIGHT - 1,
                true,
                State::Sending { leader: 2, term: 7 },
            ),
            (Some(2), None, MAX_IN_FLIGHT, true, State::Blocked),
            (Some(2), None, MAX_IN_FLIGHT, false, State::Blocked),
            (Some(2), Some(until), 0, true, State::Paused(until)),
            (None, Some(until), 0, true, State::Paused(until)),
            (None, None, 0, true, State::Blocked),
        ] {
            let state = State::of(view(leader), paused_until, in_flight, has_waiting);
            assert_eq!(
                state, expected,
                "{leader:?} {paused_until:?} {in_flight} {has_waiting}"
            );
        }
    }

    #[test]
    fn returned_calls_are_sent_before_later_ones() {
        let mut waiting = BTreeMap::new();
        for number in [3, 4, 1, 2] {
            waiting.insert(number, Bytes::from_static(b"x"));
        }
        let numbers = |proposals: Vec<NumberedCommand>| {
            proposals
                .into_iter()
                .map(|(number, _)| number)
                .collect::<Vec<_>>()
        };
        assert_eq!(numbers(take_batch(&mut waiting)), [1, 2, 3, 4]);
        assert_eq!(numbers(take_batch(&mut waiting)), [0; 0]);
    }

    #[test]
    fn batch_fits_into_an_entry_unless_a_single_proposal_does_not() {
        let half = Bytes::from(vec![0; MAX_ENTRY_BYTES / 2]);
        let large = Bytes::from(vec![0; MAX_ENTRY_BYTES + 1]);
        let mut waiting = BTreeMap::from([(1, half.clone()), (2, half.clone()), (3, half), (4, large)]);
        let sizes: Vec<usize> = (0..3).map(|_| take_batch(&mut waiting).len()).collect();
        assert_eq!(sizes, [2, 1, 1]);
        waiting.extend((0..=MAX_ENTRY_COMMANDS as u64).map(|number| (number, Bytes::new())));
        assert_eq!(take_batch(&mut waiting).len(), MAX_ENTRY_COMMANDS);
        assert_eq!(take_batch(&mut waiting).len(), 1);
    }
}
