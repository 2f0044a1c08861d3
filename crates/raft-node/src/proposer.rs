//! The leader's side of a proposal: takes runs of commands from all nodes, packs what waits into one log
//! entry, and keeps a few entries in flight. It batches by taking what is there, never by waiting: but those whose runs
//! have come with the first one are heard before the entry is packed.

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

use crate::codec::{CommandBatch, Envelope};
use crate::disks::Disks;
use crate::fail_step;
use crate::peers::Gate;
use crate::peers::wire::{Declined, NotLeader};
use crate::replica::Replica;
use crate::storage::Wal;
use crate::types::{CommittedLeaderId, Proposal, Raft, TypeConfig};
use crate::versions::OLDEST_COMMANDS_VERSION;
use crate::wall_clock;

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

/// What became of a run of commands: `Ok`, its entry is applied on the leader, without those that were declined. `Err`,
/// it was not appended, for sure. A receiver whose sender is gone: nobody knows.
pub type Submitted = Result<Declined, NotLeader>;

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

/// What the task works on.
pub struct Proposer {
    /// Knows what all members can apply.
    pub gate: Arc<Gate>,
    /// Where entries go.
    pub raft: Raft,
    /// What would make the state larger is looked up here.
    pub replica: Arc<Replica>,
    /// Whether that is wanted.
    pub disks: Arc<Disks>,
    /// This node's log, which may have no room.
    pub wal: Wal,
    /// How long to wait for the state that commands are judged by.
    pub patience: Duration,
    /// What comes.
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
            // While there is little space, one entry at a time: what is declined is told that nothing was done, and
            // an earlier try of the same request could be in one that is still on its way.
            let read_only = self.disks.read_only();
            let most = match read_only {
                Some(_) => 1,
                None => MAX_IN_FLIGHT,
            };
            if in_flight.len() < most
                && let Some(first) = next.take()
            {
                tokio::task::yield_now().await;
                let (mut pack, left) = pack(first, &mut self.queue);
                next = left;
                let judged = tokio::select! {
                    judged = self.decline(&mut pack, read_only) => judged,
                    () = stop.cancelled() => return,
                };
                let Pack {
                    term,
                    envelopes,
                    waiting,
                } = pack;
                if judged.is_err() || envelopes.is_empty() {
                    tell(waiting, judged.err());
                    continue;
                }
                let (responder, outcome) =
                    OneshotResponder::<TypeConfig, ClientWriteResult<TypeConfig>>::new_pair();
                let commands = envelopes.len() as u64;
                let batch = CommandBatch {
                    time_ms: wall_clock::now_ms(),
                    envelopes,
                };
                let proposal = Proposal {
                    term,
                    commands: batch.encode(),
                };
                self.replica.meters.batches.count(commands);
                self.replica
                    .meters
                    .proposed_bytes
                    .add(proposal.commands.len() as u64);
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
                    // Raft has stopped; so does the node, and what waits is told by its own stop.
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
            let known = self.replica.wait_term(pack.term);
            if tokio::time::timeout(self.patience, known).await.is_err() {
                return Err(NotLeader { leader: None });
            }
            let store = self.replica.store.read();
            pack.decline(&reason, true, |envelope| {
                match Envelope::decode(envelope) {
                    Ok(envelope) => store.may_grow(&envelope.request),
                    // It is for the state to say what is wrong with it.
                    Err(_) => false,
                }
            });
        }
        let bytes = pack.envelopes.iter().map(Bytes::len).sum();
        if !pack.envelopes.is_empty() && !self.wal.takes([bytes]) {
            pack.decline("the leader's log has no room at all", true, |_| true);
        }
        Ok(())
    }
}

/// What goes into one entry.
struct Pack {
    term: u64,
    envelopes: Vec<Bytes>,
    waiting: Vec<Waiting>,
}

/// Who waits for one run of a pack.
struct Waiting {
    done: oneshot::Sender<Submitted>,
    /// How many commands it has.
    commands: u32,
    declined: Declined,
}

impl Pack {
    fn add(&mut self, run: Run) {
        self.waiting.push(Waiting {
            done: run.done,
            commands: run.envelopes.len() as u32,
            declined: Declined::default(),
        });
        self.envelopes.extend(run.envelopes);
    }

    /// The version of its newest command.
    fn newest(&self) -> u8 {
        let versions = self.envelopes.iter().filter_map(|envelope| envelope.first());
        versions.copied().max().unwrap_or(OLDEST_COMMANDS_VERSION)
    }

    /// Takes out the commands that some members cannot apply.
    fn decline_newer_than(&mut self, known: u8) {
        let reason = format!(
            "not every member of the cluster is known to be able to apply this, only commands up to version {known}: \
             upgrade all of them first"
        );
        self.decline(&reason, false, |envelope| {
            envelope.first().is_some_and(|version| *version > known)
        });
    }

    /// Takes out what `unwanted` says.
    fn decline(&mut self, reason: &str, read_only: bool, mut unwanted: impl FnMut(&Bytes) -> bool) {
        let mut left = std::mem::take(&mut self.envelopes).into_iter();
        for run in &mut self.waiting {
            let before = run.declined.places.clone();
            for place in (0..run.commands).filter(|place| !before.contains(place)) {
                let envelope = left
                    .next()
                    .expect("the pack has all commands that were not declined");
                if unwanted(&envelope) {
                    run.declined.places.push(place);
                    run.declined.reason = reason.to_owned();
                    run.declined.read_only = read_only;
                } else {
                    self.envelopes.push(envelope);
                }
            }
        }
    }
}

/// As many runs of the first one's term as fit into an entry, and the run that did not fit.
fn pack(first: Run, queue: &mut SubmissionQueue) -> (Pack, Option<Run>) {
    let mut bytes = first.envelopes.iter().map(Bytes::len).sum::<usize>();
    let mut pack = Pack {
        term: first.term,
        envelopes: Vec::new(),
        waiting: Vec::new(),
    };
    pack.add(first);
    while let Ok(run) = queue.runs.try_recv() {
        let more = run.envelopes.iter().map(Bytes::len).sum::<usize>();
        let full =
            bytes + more > MAX_ENTRY_BYTES || pack.envelopes.len() + run.envelopes.len() > MAX_ENTRY_COMMANDS;
        if run.term != pack.term || full {
            return (pack, Some(run));
        }
        bytes += more;
        pack.add(run);
    }
    (pack, None)
}

/// Answers all who wait: their runs were applied, or `refused` as a whole.
fn tell(waiting: Vec<Waiting>, refused: Option<NotLeader>) {
    for run in waiting {
        // A connection that broke meanwhile needs no answer.
        let _ = run.done.send(match &refused {
            Some(not_leader) => Err(not_leader.clone()),
            None => Ok(run.declined),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_learns_which_of_its_commands_were_declined() {
        let mut pack = Pack {
            term: 1,
            envelopes: Vec::new(),
            waiting: Vec::new(),
        };
        let mut outcomes = Vec::new();
        for run in [&b"aXb"[..], b"XX", b"c"] {
            let (done, outcome) = oneshot::channel();
            outcomes.push(outcome);
            let envelopes = run.iter().map(|byte| Bytes::from(vec![*byte])).collect();
            pack.add(Run {
                term: 1,
                envelopes,
                done,
            });
        }
        pack.decline("large", true, |envelope| envelope == "X");
        assert_eq!(pack.envelopes, ["a", "b", "c"]);
        pack.decline("full", true, |envelope| envelope == "b");
        assert_eq!(pack.envelopes, ["a", "c"]);
        tell(pack.waiting, None);
        let outcomes = outcomes
            .iter_mut()
            .map(|outcome| outcome.try_recv().unwrap().unwrap());
        let outcomes: Vec<_> = outcomes
            .map(|declined| (declined.places, declined.reason))
            .collect();
        let expected = [(vec![1, 2], "full"), (vec![0, 1], "large"), (vec![], "")];
        assert_eq!(
            outcomes,
            expected.map(|(places, reason)| (places, reason.to_owned()))
        );
    }

    #[test]
    fn a_command_that_a_member_may_not_know_is_declined() {
        let mut pack = Pack {
            term: 1,
            envelopes: Vec::new(),
            waiting: Vec::new(),
        };
        let (done, mut outcome) = oneshot::channel();
        let command = |version: u8| Bytes::from(vec![version, 0]);
        pack.add(Run {
            term: 1,
            envelopes: [1, 3, 2].map(command).into(),
            done,
        });
        assert_eq!(pack.newest(), 3);
        pack.decline_newer_than(2);
        assert_eq!(pack.envelopes, [1, 2].map(command));
        tell(pack.waiting, None);
        let declined = outcome.try_recv().unwrap().unwrap();
        assert_eq!(declined.places, [1]);
        assert!(
            declined.reason.contains("up to version 2") && !declined.read_only,
            "{declined:?}"
        );
    }
}
