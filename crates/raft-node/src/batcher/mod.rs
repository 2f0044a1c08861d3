//! The leader's side of a proposal: takes runs of commands from all nodes, packs what waits into one log
//! entry (`batcher/batch.rs`), and keeps a few entries in flight. It batches the runs that are there, without waiting for more: but runs that arrived
//! together with the first one are taken before the entry is packed, and calls that have to wait for other holders anyway
//! are kept for the next entry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::errors::ClientWriteError;
use openraft::impls::OneshotResponder;
use openraft::raft::ClientWriteResult;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::entry_batch::{EntryBatch, answer_callers};
use crate::application::Application;
use crate::cluster_clock::ClusterClock;
use crate::command_batch::CommandBatch;
use crate::counters::RaftCounters;
use crate::disk_health::DiskHealth;
use crate::messages::{Declined, NotLeader};
use crate::peers::PeerRegistry;
use crate::replicated_state::AppliedPosition;
use crate::state_machine::Raft;
use crate::types::{CommittedLeaderId, Proposal, TypeConfig};
use crate::versions::OLDEST_COMMANDS_VERSION;
use fault_injection::fail_step;
use raft_log::Wal;

mod entry_batch;

/// Maximum number of entries in flight. With one, the disk idles while the next is packed; with more than a few,
/// the packs become small and each costs a flush.
const MAX_IN_FLIGHT: usize = 4;

/// No entry is larger, unless a single run of commands is. A follower's disk and line are not blocked for
/// long by one entry.
pub const MAX_ENTRY_BYTES: usize = 1024 * 1024;

/// No entry carries more commands: they are applied in one go, and readers wait meanwhile.
pub const MAX_ENTRY_COMMANDS: usize = 1024;

/// Runs of commands that wait. Nodes wait when there are more: the leader does not keep up.
const QUEUE: usize = 1024;

/// Result of a run of commands: `Ok`, its entry is applied on the leader, without those that were declined. `Err`,
/// it was certainly not appended. If the sender is dropped, the outcome is unknown.
pub type BatchOutcome = Result<Declined, NotLeader>;

struct ForwardedBatch {
    term: u64,
    envelopes: Vec<Bytes>,
    done: oneshot::Sender<BatchOutcome>,
}

impl ForwardedBatch {
    /// The size of its commands.
    fn bytes(&self) -> usize {
        self.envelopes.iter().map(Bytes::len).sum()
    }
}

/// The way into the leader's queue.
#[derive(Clone)]
pub struct ProposalQueue {
    batches: mpsc::Sender<ForwardedBatch>,
}

impl ProposalQueue {
    /// Queues commands that may be proposed in `term` only. Runs are proposed in the order in which this
    /// returns, each within one entry.
    pub async fn enqueue(&self, term: u64, envelopes: Vec<Bytes>) -> oneshot::Receiver<BatchOutcome> {
        let (done, outcome) = oneshot::channel();
        // If the proposer has stopped, the sender is dropped with the run, which says so.
        let _ = self
            .batches
            .send(ForwardedBatch {
                term,
                envelopes,
                done,
            })
            .await;
        outcome
    }
}

/// The queue, before its task is started.
pub struct ProposalReceiver {
    batches: mpsc::Receiver<ForwardedBatch>,
}

/// A queue and the way into it.
pub fn proposal_queue() -> (ProposalQueue, ProposalReceiver) {
    let (tx, rx) = mpsc::channel(QUEUE);
    (ProposalQueue { batches: tx }, ProposalReceiver { batches: rx })
}

/// Dependencies of the task.
pub struct Batcher {
    /// Knows what all members can apply.
    pub registry: Arc<PeerRegistry>,
    /// Raft, which takes the entries.
    pub raft: Raft,
    /// Program above, which knows which commands would make the state larger, or would wait.
    pub application: Arc<dyn Application>,
    /// Position of the state.
    pub applied: AppliedPosition,
    /// Clock that entries are stamped with.
    pub clock: Arc<ClusterClock>,
    /// Counters.
    pub counters: Arc<RaftCounters>,
    /// Disks, which decide whether the state may become larger.
    pub disks: Arc<DiskHealth>,
    /// This node's log, which may have no room.
    pub wal: Wal,
    /// Maximum time to wait for the state that commands are judged by.
    pub timeout: Duration,
    /// Incoming runs of commands.
    pub queue: ProposalReceiver,
}

impl Batcher {
    /// Proposes what comes, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut in_flight = FuturesUnordered::new();
        let mut next: Option<ForwardedBatch> = None;
        loop {
            if next.is_none() {
                tokio::select! {
                    run = self.queue.batches.recv(), if in_flight.len() < MAX_IN_FLIGHT => match run {
                        Some(run) => next = Some(run),
                        None => return,
                    },
                    Some(()) = in_flight.next() => {}
                    () = stop.cancelled() => return,
                }
            }
            // While there is little space, one entry at a time: a declined command is answered with "nothing was done", but
            // an earlier try of the same request could be in an entry that is still in flight.
            let read_only = self.disks.read_only();
            let most = match read_only {
                Some(_) => 1,
                None => MAX_IN_FLIGHT,
            };
            if in_flight.len() < most
                && let Some(first) = next.take()
            {
                tokio::task::yield_now().await;
                let mut batch = EntryBatch::of(first);
                next = batch.fill(&mut self.queue.batches);
                let judged = tokio::select! {
                    judged = async {
                        if next.is_none() && read_only.is_none() {
                            let must_wait =
                                |command: &Bytes, among| self.application.would_wait(command, among);
                            next = batch.hold_back(&mut self.queue.batches, &mut in_flight, must_wait).await;
                        }
                        self.decline(&mut batch, read_only).await
                    } => judged,
                    () = stop.cancelled() => return,
                };
                let EntryBatch {
                    term,
                    envelopes,
                    waiting,
                    ..
                } = batch;
                if judged.is_err() || envelopes.is_empty() {
                    answer_callers(waiting, judged.err());
                    continue;
                }
                let (responder, outcome) =
                    OneshotResponder::<TypeConfig, ClientWriteResult<TypeConfig>>::new_pair();
                let commands = envelopes.len() as u64;
                let batch = CommandBatch {
                    time_ms: self.clock.now_ms(),
                    envelopes,
                };
                let proposal = Proposal {
                    term,
                    commands: batch.encode(),
                };
                self.counters.entry_commands.count(commands);
                self.counters.proposed_bytes.add(proposal.commands.len() as u64);
                let leader = CommittedLeaderId::new(term);
                fail_step!(async "propose::before_write");
                if self
                    .raft
                    .write(proposal)
                    .with_leader(leader)
                    .responder(responder)
                    .await
                    .is_err()
                {
                    // Raft has stopped; so does the node, and its stop ends the waiting calls.
                    return;
                }
                fail_step!(async "propose::after_write");
                in_flight.push(async move {
                    match outcome.await {
                        Ok(Ok(_)) => answer_callers(waiting, None),
                        Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
                            answer_callers(
                                waiting,
                                Some(NotLeader {
                                    leader: forward.leader_id,
                                }),
                            );
                        }
                        // The entry may be on some disks: it is for its term's end to say.
                        Ok(Err(error)) => tracing::info!(%error, "a proposal was cut off"),
                        Err(_) => tracing::info!("a proposal was dropped"),
                    }
                });
            } else if next.is_some() {
                tokio::select! {
                    _ = in_flight.next() => {}
                    () = stop.cancelled() => return,
                }
            }
        }
    }

    /// Takes out what there is no room for. An error: that cannot be judged now, and nothing is proposed.
    async fn decline(&self, batch: &mut EntryBatch, read_only: Option<String>) -> Result<(), NotLeader> {
        if batch.newest() > OLDEST_COMMANDS_VERSION {
            batch.decline_newer_than(self.registry.commands_of_all());
        }
        if let Some(reason) = read_only {
            // All of earlier terms must be in the state: see the other half of this in `run`.
            let known = self.applied.wait_for_term(batch.term);
            if tokio::time::timeout(self.timeout, known).await.is_err() {
                return Err(NotLeader { leader: None });
            }
            let mut may_grow = self.application.may_grow(&batch.envelopes).into_iter();
            batch.decline(&reason, true, |_| {
                may_grow.next().expect("there is an answer for each")
            });
        }
        let bytes = batch.envelopes.iter().map(Bytes::len).sum();
        if !batch.envelopes.is_empty() && !self.wal.has_room_for([bytes]) {
            batch.decline("the leader's log has no room at all", true, |_| true);
        }
        Ok(())
    }
}
