//! The leader's side of a proposal: takes runs of commands from all nodes, packs what waits into one log
//! entry, and keeps a few entries in flight. It batches by taking what is there, never by waiting.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use openraft::errors::ClientWriteError;
use openraft::impls::OneshotResponder;
use openraft::raft::ClientWriteResult;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::codec::CommandBatch;
use crate::peers::wire::NotLeader;
use crate::types::{CommittedLeaderId, Proposal, Raft, TypeConfig};

/// How many entries may be in flight. With one, the disk idles while the next is packed; with more than a few,
/// the packs become small and every one costs a flush.
const MAX_IN_FLIGHT: usize = 4;

/// No entry is larger, unless a single run of commands is. A follower's disk and line are not blocked for
/// long by one entry.
pub const MAX_ENTRY_BYTES: usize = 1024 * 1024;

/// No entry carries more commands: they are applied in one go, and readers wait meanwhile.
pub const MAX_ENTRY_COMMANDS: usize = 1024;

/// Runs of commands that wait. Nodes wait when there are more: the leader does not keep up.
const QUEUE: usize = 1024;

/// What became of a run of commands: `Ok`, its entry is applied on the leader. `Err`, it was not appended, for
/// sure. A receiver whose sender is gone: nobody knows.
pub type Submitted = Result<(), NotLeader>;

struct Run {
    term: u64,
    envelopes: Vec<Bytes>,
    done: oneshot::Sender<Submitted>,
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

/// Proposes what comes, until `stop`.
pub async fn run(raft: Raft, mut queue: SubmissionQueue, stop: CancellationToken) {
    let mut in_flight = FuturesUnordered::new();
    let mut next: Option<Run> = None;
    loop {
        if next.is_none() {
            tokio::select! {
                run = queue.runs.recv(), if in_flight.len() < MAX_IN_FLIGHT => match run {
                    Some(run) => next = Some(run),
                    None => return,
                },
                Some(()) = in_flight.next() => {}
                () = stop.cancelled() => return,
            }
        }
        if in_flight.len() < MAX_IN_FLIGHT
            && let Some(first) = next.take()
        {
            let (term, envelopes, waiting, left) = pack(first, &mut queue);
            next = left;
            let (responder, outcome) =
                OneshotResponder::<TypeConfig, ClientWriteResult<TypeConfig>>::new_pair();
            let batch = CommandBatch {
                time_ms: wall_clock_ms(),
                envelopes,
            };
            let proposal = Proposal {
                term,
                commands: batch.encode(),
            };
            let leader = CommittedLeaderId::new(term);
            if raft
                .write(proposal)
                .with_leader(leader)
                .responder(responder)
                .await
                .is_err()
            {
                // Raft has stopped; so does the node, and what waits is told by its own stop.
                return;
            }
            in_flight.push(async move {
                match outcome.await {
                    Ok(Ok(_)) => tell(waiting, Ok(())),
                    Ok(Err(ClientWriteError::ForwardToLeader(forward))) => {
                        tell(
                            waiting,
                            Err(NotLeader {
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

type Packed = (u64, Vec<Bytes>, Vec<oneshot::Sender<Submitted>>, Option<Run>);

/// As many runs of the first one's term as fit into an entry, and the run that did not fit.
fn pack(first: Run, queue: &mut SubmissionQueue) -> Packed {
    let term = first.term;
    let mut envelopes = first.envelopes;
    let mut bytes = envelopes.iter().map(Bytes::len).sum::<usize>();
    let mut waiting = vec![first.done];
    while let Ok(run) = queue.runs.try_recv() {
        let more = run.envelopes.iter().map(Bytes::len).sum::<usize>();
        let full =
            bytes + more > MAX_ENTRY_BYTES || envelopes.len() + run.envelopes.len() > MAX_ENTRY_COMMANDS;
        if run.term != term || full {
            return (term, envelopes, waiting, Some(run));
        }
        bytes += more;
        envelopes.extend(run.envelopes);
        waiting.push(run.done);
    }
    (term, envelopes, waiting, None)
}

fn tell(waiting: Vec<oneshot::Sender<Submitted>>, outcome: Submitted) {
    for done in waiting {
        // A connection that broke meanwhile needs no answer.
        let _ = done.send(outcome.clone());
    }
}

/// This machine's clock, in milliseconds since 1970.
pub(crate) fn wall_clock_ms() -> u64 {
    // A clock before 1970 counts as 1970: the state takes the larger of this and its last time anyway.
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_millis().try_into().unwrap_or(u64::MAX)
}
