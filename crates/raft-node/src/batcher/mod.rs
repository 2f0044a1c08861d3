//! Leader's side of a proposal: takes forwarded batches from all nodes, packs the waiting ones into one log
//! entry (`batcher/entry_batch.rs`), and keeps a few entries in flight. It does not wait for more batches,
//! with two exceptions: batches that arrived together with the first one are taken before the entry is
//! packed, and commands that would wait for a lock anyway are held back for the next entry.

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

/// Maximum number of entries in flight. With one, the disk idles while the next entry is packed. With more
/// than a few, the entries become small and each costs a flush.
const MAX_IN_FLIGHT: usize = 4;

/// Maximum size of an entry, unless a single forwarded batch is larger. Bounds the time for which one entry
/// occupies a follower's disk and connection.
pub const MAX_ENTRY_BYTES: usize = 1024 * 1024;

/// Maximum number of commands in an entry: they are applied in one go, and readers wait meanwhile.
pub const MAX_ENTRY_COMMANDS: usize = 1024;

/// Capacity of the queue of forwarded batches. Nodes wait while it is full: the leader does not keep up.
const QUEUE: usize = 1024;

/// Result of a forwarded batch. `Ok`: its entry is applied on the leader, without the declined commands.
/// `Err`: it was certainly not appended. If the sender is dropped, the outcome is unknown.
pub type BatchOutcome = Result<Declined, NotLeader>;

struct ForwardedBatch {
    term: u64,
    envelopes: Vec<Bytes>,
    done: oneshot::Sender<BatchOutcome>,
}

impl ForwardedBatch {
    /// Returns the size of its commands in bytes.
    fn bytes(&self) -> usize {
        self.envelopes.iter().map(Bytes::len).sum()
    }
}

/// Handle that queues batches for the leader.
#[derive(Clone)]
pub struct ProposalQueue {
    batches: mpsc::Sender<ForwardedBatch>,
}

impl ProposalQueue {
    /// Queues commands that may be proposed in `term` only. Batches are proposed in the order in which this
    /// returns, each within one entry.
    pub async fn enqueue(&self, term: u64, envelopes: Vec<Bytes>) -> oneshot::Receiver<BatchOutcome> {
        let (done, outcome) = oneshot::channel();
        // If the batcher has stopped, the sender is dropped with the batch, which signals an unknown outcome.
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

/// Queue of forwarded batches, before its task is started.
pub struct ProposalReceiver {
    batches: mpsc::Receiver<ForwardedBatch>,
}

/// Creates a queue and its handle.
pub fn proposal_queue() -> (ProposalQueue, ProposalReceiver) {
    let (tx, rx) = mpsc::channel(QUEUE);
    (ProposalQueue { batches: tx }, ProposalReceiver { batches: rx })
}

/// Dependencies of the task.
pub struct Batcher {
    /// Knows which commands all members can apply.
    pub registry: Arc<PeerRegistry>,
    /// Raft, which appends the entries.
    pub raft: Raft,
    /// Program above, which knows which commands would enlarge the state or would wait.
    pub application: Arc<dyn Application>,
    /// Position up to which the state is applied.
    pub applied: AppliedPosition,
    /// Clock for the time of entries.
    pub clock: Arc<ClusterClock>,
    /// Counters.
    pub counters: Arc<RaftCounters>,
    /// Disk health, which decides whether the state may grow.
    pub disks: Arc<DiskHealth>,
    /// Log of this node, which may have no room.
    pub wal: Wal,
    /// Maximum time to wait for the state by which commands are checked.
    pub timeout: Duration,
    /// Queue of forwarded batches.
    pub queue: ProposalReceiver,
}

impl Batcher {
    /// Proposes queued batches until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut in_flight = FuturesUnordered::new();
        let mut next: Option<ForwardedBatch> = None;
        loop {
            if next.is_none() {
                tokio::select! {
                    forwarded = self.queue.batches.recv(), if in_flight.len() < MAX_IN_FLIGHT => match forwarded {
                        Some(forwarded) => next = Some(forwarded),
                        None => return,
                    },
                    Some(()) = in_flight.next() => {}
                    () = stop.cancelled() => return,
                }
            }
            // While disk space is low, only one entry is in flight: a declined command is answered with
            // "nothing was done", but an earlier attempt of the same request could be in an entry that is
            // still in flight.
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
                let checked = tokio::select! {
                    checked = async {
                        if next.is_none() && read_only.is_none() {
                            let must_wait =
                                |command: &Bytes, among| self.application.would_wait(command, among);
                            next = batch.hold_back(&mut self.queue.batches, &mut in_flight, must_wait).await;
                        }
                        self.decline(&mut batch, read_only).await
                    } => checked,
                    () = stop.cancelled() => return,
                };
                let EntryBatch {
                    term,
                    envelopes,
                    waiting,
                    ..
                } = batch;
                if checked.is_err() || envelopes.is_empty() {
                    answer_callers(waiting, checked.err());
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
                    // Raft has stopped. The node stops too, which completes the pending proposals.
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
                        // The entry may be on some disks; its fate is known when the term ends.
                        Ok(Err(error)) => tracing::info!(%error, "batcher: a proposal was interrupted"),
                        Err(_) => tracing::info!("batcher: a proposal was dropped"),
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

    /// Removes the commands for which there is no room. Fails if that cannot be checked now; then nothing is
    /// proposed.
    async fn decline(&self, batch: &mut EntryBatch, read_only: Option<String>) -> Result<(), NotLeader> {
        if batch.newest() > OLDEST_COMMANDS_VERSION {
            batch.decline_newer_than(self.registry.commands_of_all());
        }
        if let Some(reason) = read_only {
            // The state must include all earlier terms; see the counterpart in `run`.
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
            batch.decline("the leader's log has no room", true, |_| true);
        }
        Ok(())
    }
}
