//! A proposal's way from this node to the leader, wherever that is: what waits goes out in one run, bound to
//! the leader's term. What is refused, or lost with a leader, comes back here and goes to the next one.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::config::NodeId;
use crate::fail_step;
use crate::leader::LeaderView;
use crate::peers::wire::{Answer, Ask, Declined};
use crate::peers::{LinkError, Peers, Purpose};
use crate::proposer::{MAX_ENTRY_BYTES, MAX_ENTRY_COMMANDS, Submissions};
use crate::replica::Replica;

/// How many runs may be on their way to a leader.
const MAX_IN_FLIGHT: usize = 16;

/// Before a proposal that was refused is tried again, unless a new leader shows up earlier. A refusal is quick,
/// and the leader may have to regain its quorum.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

type Call = (u64, Bytes);

/// What the task works on.
pub struct Submitter {
    /// This node.
    pub node: NodeId,
    /// Whose calls are sent.
    pub replica: Arc<Replica>,
    /// To other leaders.
    pub peers: Arc<Peers>,
    /// To this node, if it leads.
    pub submissions: Submissions,
    /// Who leads.
    pub leader: watch::Receiver<LeaderView>,
    /// New calls, and those that come back.
    pub queue: mpsc::UnboundedReceiver<Call>,
    /// How long a run may be on its way before the line to the leader is given up. Longer than an entry takes
    /// on a busy disk.
    pub patience: Duration,
}

enum Fate {
    /// It was applied, but for the calls that the leader declined; what became of each of the others the apply says.
    Settled(Vec<u64>, Declined),
    /// It was not done, for sure.
    Refused(Vec<u64>),
    /// It may have been done.
    InDoubt,
}

impl Submitter {
    /// Sends what comes, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut in_flight = FuturesUnordered::new();
        let mut next: Option<Call> = None;
        let mut calm = Box::pin(tokio::time::sleep(Duration::ZERO));
        loop {
            let view = *self.leader.borrow_and_update();
            let ready = view.leader.is_some() && calm.is_elapsed() && in_flight.len() < MAX_IN_FLIGHT;
            tokio::select! {
                () = std::future::ready(()), if ready && next.is_some() => {}
                call = self.queue.recv(), if ready && next.is_none() => match call {
                    Some(call) => next = Some(call),
                    None => return,
                },
                Some(fate) = in_flight.next() => {
                    match fate {
                        Fate::Settled(numbers, declined) => self.replica.calls.decline(&numbers, &declined),
                        Fate::Refused(numbers) => {
                            self.replica.resubmit(self.replica.calls.mark_unsent(&numbers));
                            calm.as_mut().reset(tokio::time::Instant::now() + RETRY_PAUSE);
                        }
                        // If the term is over here already, nothing else will bring these calls back.
                        Fate::InDoubt => {
                            self.replica.resubmit_lost();
                            calm.as_mut().reset(tokio::time::Instant::now() + RETRY_PAUSE);
                        }
                    }
                    continue;
                }
                () = &mut calm, if !calm.is_elapsed() => continue,
                changed = self.leader.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => return,
                },
                () = stop.cancelled() => return,
            }
            let (Some(first), Some(leader)) = (next.take(), view.leader) else {
                continue;
            };
            let (mut calls, left) = self.collect(first);
            next = left;
            self.replica.calls.mark_sent(view.term, &mut calls);
            if calls.is_empty() {
                continue;
            }
            fail_step!(async "submit::before_send");
            let (numbers, envelopes): (Vec<u64>, Vec<Bytes>) = calls.into_iter().unzip();
            // The place in the leader's queue is taken here, in order; the outcome may come in any order.
            if leader == self.node {
                let outcome = self.submissions.submit(view.term, envelopes).await;
                in_flight.push(futures_util::future::Either::Left(async move {
                    match outcome.await {
                        Ok(Ok(declined)) => Fate::Settled(numbers, declined),
                        Ok(Err(_)) => Fate::Refused(numbers),
                        Err(_) => Fate::InDoubt,
                    }
                }));
            } else {
                let link = self.peers.link(leader, Purpose::Traffic);
                let patience = self.patience;
                let ask = Ask::Forward {
                    term: view.term,
                    envelopes,
                };
                let sent = link.send(ask).await;
                in_flight.push(futures_util::future::Either::Right(async move {
                    let answer = match sent {
                        Ok(answer) => link.answer(answer, patience).await,
                        Err(error) => Err(error),
                    };
                    match answer {
                        Ok(Answer::Forward(Ok(declined))) => Fate::Settled(numbers, declined),
                        Ok(Answer::Forward(Err(_))) => Fate::Refused(numbers),
                        Err(LinkError::NotSent(_)) => Fate::Refused(numbers),
                        Ok(_) | Err(LinkError::NoAnswer(_)) => Fate::InDoubt,
                    }
                }));
            }
        }
    }

    /// What waits, as far as it fits into one entry, and the call that did not.
    fn collect(&mut self, first: Call) -> (Vec<Call>, Option<Call>) {
        let mut bytes = first.1.len();
        let mut calls = vec![first];
        while calls.len() < MAX_ENTRY_COMMANDS {
            let Ok(call) = self.queue.try_recv() else { break };
            if bytes + call.1.len() > MAX_ENTRY_BYTES {
                return (calls, Some(call));
            }
            bytes += call.1.len();
            calls.push(call);
        }
        (calls, None)
    }
}
