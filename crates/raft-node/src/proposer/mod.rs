//! The leader's side of a proposal: takes runs of commands from all nodes, packs what waits into one log
//! entry (`proposer/pack.rs`), and keeps a few entries in flight. It batches the runs that are there, without waiting for more: but runs that arrived
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

use self::pack::{Pack, tell};
use crate::application::Application;
use crate::cluster_clock::ClusterClock;
use crate::command_batch::CommandBatch;
use crate::counters::RaftCounters;
use crate::disks::Disks;
use crate::messages::{Declined, NotLeader};
use crate::peers::Gate;
use crate::replicated_state::AppliedPosition;
use crate::state_machine::Raft;
use crate::types::{CommittedLeaderId, Proposal, TypeConfig};
use crate::versions::OLDEST_COMMANDS_VERSION;
use fault_injection::fail_step;
use raft_log::Wal;

mod pack;

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
pub type Submitted = Result<Declined, NotLeader>;

struct Run {
    term: u64,
    envelopes: Vec<Bytes>,
    done: oneshot::Sender<Submitted>,
}

impl Run {
    /// The size of its commands.
    fn bytes(&self) -> usize {
        self.envelopes.iter().map(Bytes::len).sum()
    }
}

/// The way into the leader's queue.
#[derive(Clone)]
pub struct Submissions {
    runs: mpsc::Sender<Run>,
}

impl Submissions {
    /// Queues commands that may be proposed in `term` only. Runs are proposed in the order in which this
    /// returns, each within one entry.
    pub async fn submit(&self, term: u64, envelopes: Vec<Bytes>) -> oneshot::Receiver<Submitted> {
        let (done, outcome) = oneshot::channel();
        // If the proposer has stopped, the sender is dropped with the run, which says so.
        let _ = self
            .runs
            .send(Run {
                term,
                envelopes,
                done,
            })
            .await;
        outcome
    }
}

/// The queue, before its task is started.
pub struct SubmissionQueue {
    runs: mpsc::Receiver<Run>,
}

/// A queue and the way into it.
pub fn submissions() -> (Submissions, SubmissionQueue) {
    let (tx, rx) = mpsc::channel(QUEUE);
    (Submissions { runs: tx }, SubmissionQueue { runs: rx })
}

/// Dependencies of the task.
pub struct Proposer {
    /// Knows what all members can apply.
    pub gate: Arc<Gate>,
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
    pub disks: Arc<Disks>,
    /// This node's log, which may have no room.
    pub wal: Wal,
    /// Maximum time to wait for the state that commands are judged by.
    pub patience: Duration,
    /// Incoming runs of commands.
    pub queue: SubmissionQueue,
}

impl Proposer {
    /// Proposes what comes, until `stop`.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut in_flight = FuturesUnordered::new();
        let mut next: Option<Run> = None;
        loop {
            if next.is_none() {
                tokio::select! {
                    run = self.queue.runs.recv(), if in_flight.len() < MAX_IN_FLIGHT => match run {
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
                let mut pack = Pack::of(first);
                next = pack.fill(&mut self.queue.runs);
                let judged = tokio::select! {
                    judged = async {
                        if next.is_none() && read_only.is_none() {
                            let has_to_wait =
                                |command: &Bytes, among| self.application.would_wait(command, among);
                            next = pack.keep(&mut self.queue.runs, &mut in_flight, has_to_wait).await;
                        }
                        self.decline(&mut pack, read_only).await
                    } => judged,
                    () = stop.cancelled() => return,
                };
                let Pack {
                    term,
                    envelopes,
                    waiting,
                    ..
                } = pack;
                if judged.is_err() || envelopes.is_empty() {
                    tell(waiting, judged.err());
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
                        Ok(Ok(_)) => tell(waiting, None),
                        Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
                            tell(
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
    async fn decline(&self, pack: &mut Pack, read_only: Option<String>) -> Result<(), NotLeader> {
        if pack.newest() > OLDEST_COMMANDS_VERSION {
            pack.decline_newer_than(self.gate.commands_of_all());
        }
        if let Some(reason) = read_only {
            // All of earlier terms must be in the state: see the other half of this in `run`.
            let known = self.applied.wait_for_term(pack.term);
            if tokio::time::timeout(self.patience, known).await.is_err() {
                return Err(NotLeader { leader: None });
            }
            let mut may_grow = self.application.may_grow(&pack.envelopes).into_iter();
            pack.decline(&reason, true, |_| {
                may_grow.next().expect("there is an answer for each")
            });
        }
        let bytes = pack.envelopes.iter().map(Bytes::len).sum();
        if !pack.envelopes.is_empty() && !self.wal.has_room_for([bytes]) {
            pack.decline("the leader's log has no room at all", true, |_| true);
        }
        Ok(())
    }
}
