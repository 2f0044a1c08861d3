//! Forwards proposals of this node to the leader: pending proposals are sent in one batch, bound to the
//! leader's term. Proposals that were rejected, or lost with a leader, return to the queue and are sent to
//! the next leader before all later ones, so pipelined requests of one connection are applied in order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::application::Application;
use crate::batcher::{MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS, ProposalQueue};
use crate::ids::NodeId;
use crate::leader_view::LeaderView;
use crate::messages::Declined;
use crate::peers::wire::{PeerRequest, PeerResponse};
use crate::peers::{PeerConnectionError, Peers, Purpose};
use fault_injection::fail_step;

/// Maximum number of batches in transit to a leader.
const MAX_IN_FLIGHT: usize = 16;

/// Pause before a rejected proposal is sent again, unless a new leader is known earlier. A rejection is
/// quick, and the leader may have to regain its quorum.
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

enum ForwardOutcome {
    /// Applied, except for the proposals that the leader declined. The apply loop reports the outcome of each
    /// of the others.
    Settled(Vec<u64>, Declined),
    /// Certainly not proposed.
    Refused(Vec<u64>),
    /// Possibly proposed.
    InDoubt,
}

impl Forwarder {
    /// Sends queued proposals until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut in_flight = FuturesUnordered::new();
        let mut waiting = BTreeMap::new();
        let mut backoff = Box::pin(tokio::time::sleep(Duration::ZERO));
        loop {
            let view = *self.leader.borrow_and_update();
            let ready = view.leader.is_some() && backoff.is_elapsed() && in_flight.len() < MAX_IN_FLIGHT;
            tokio::select! {
                () = std::future::ready(()), if ready && !waiting.is_empty() => {}
                proposal = self.queue.recv(), if ready && waiting.is_empty() => match proposal {
                    Some((number, envelope)) => {
                        waiting.insert(number, envelope);
                    }
                    None => return,
                },
                Some(outcome) = in_flight.next() => {
                    match outcome {
                        ForwardOutcome::Settled(numbers, declined) => self.application.settle(&numbers, &declined),
                        ForwardOutcome::Refused(numbers) => {
                            self.application.retry(&numbers);
                            backoff.as_mut().reset(tokio::time::Instant::now() + RETRY_PAUSE);
                        }
                        // If the term has already ended on this node, no later event returns these proposals
                        // to the queue.
                        ForwardOutcome::InDoubt => {
                            self.application.retry_lost();
                            backoff.as_mut().reset(tokio::time::Instant::now() + RETRY_PAUSE);
                        }
                    }
                    continue;
                }
                () = &mut backoff, if !backoff.is_elapsed() => continue,
                changed = self.leader.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = stop.cancelled() => return,
            }
            let Some(leader) = view.leader else {
                continue;
            };
            // Lets other tasks queue their proposals first: larger batches mean fewer messages, entries and
            // syncs.
            tokio::task::yield_now().await;
            while let Ok((number, envelope)) = self.queue.try_recv() {
                waiting.insert(number, envelope);
            }
            let mut proposals = take_batch(&mut waiting);
            self.application.mark_sent(view.term, &mut proposals);
            if proposals.is_empty() {
                continue;
            }
            fail_step!(async "submit::before_send");
            let (numbers, envelopes): (Vec<u64>, Vec<Bytes>) = proposals.into_iter().unzip();
            // The batch takes its place in the leader's queue here, in order; outcomes may arrive in any
            // order.
            if leader == self.node {
                let outcome = self.proposal_queue.enqueue(view.term, envelopes).await;
                in_flight.push(futures_util::future::Either::Left(async move {
                    match outcome.await {
                        Ok(Ok(declined)) => ForwardOutcome::Settled(numbers, declined),
                        Ok(Err(_)) => ForwardOutcome::Refused(numbers),
                        Err(_) => ForwardOutcome::InDoubt,
                    }
                }));
            } else {
                let connection = self.peers.connection(leader, Purpose::Traffic);
                let timeout = self.timeout;
                let request = PeerRequest::Forward {
                    term: view.term,
                    envelopes,
                };
                let sent = connection.send(request).await;
                in_flight.push(futures_util::future::Either::Right(async move {
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
                }));
            }
        }
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
