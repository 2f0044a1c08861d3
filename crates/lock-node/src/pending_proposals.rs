//! Table of this node's proposals without an outcome.
//!
//! A proposal is bound to the term in which it was sent: in any other term its entry is void. Suppose that this node applies an entry of a later
//! term. Then a proposal of an earlier term that has not been applied never will be, and can be sent again without the risk of being applied
//! twice. So an outcome stays unknown in two cases only: the commit timeout passes first, or a snapshot hides what was applied.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use znode_store::Applied;

use crate::admission::{AdmissionPermit, Caller};
use crate::fair_queue::FairQueue;
use crate::in_transit::{BatchInTransit, InTransit};
use crate::request_error::ProposeError;
use crate::traces::{SpanId, TraceId};
use raft_log::sync::Mutex;
use raft_node::Unavailable;
use raft_node::application::{BatchRoom, ProposalBatch};
use raft_node::messages::{Declined, ForwardedTrace};

/// Result of a proposal for its caller.
pub type ProposalResult = Result<Applied, ProposeError>;

/// Result of a proposal, with the times of its steps.
#[derive(Debug)]
pub struct Answered {
    /// Result of the proposal.
    pub result: ProposalResult,
    /// Times of the steps, or `None` if the proposal was not applied here.
    pub stamps: Option<Stamps>,
}

impl From<ProposalResult> for Answered {
    fn from(result: ProposalResult) -> Self {
        Self { result, stamps: None }
    }
}

/// Times of applying the entry of a proposal on this node.
#[derive(Debug, Clone, Copy)]
pub struct Applying {
    /// Time at which the apply loop came to the first command of the entry.
    pub began: Instant,
    /// Time at which the last command of the entry was applied and its watchers were notified.
    pub ended: Instant,
}

/// Times of the replication of a proposal that was applied.
#[derive(Debug, Clone, Copy)]
pub struct Stamps {
    /// Time at which it was sent to the leader, in the last attempt.
    pub sent: Instant,
    /// Times of applying its entry.
    pub applying: Applying,
}

/// Times of a proposal, from its submission until its caller had the answer.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Time of its submission.
    pub submitted: Instant,
    /// Times of its replication.
    pub stamps: Stamps,
    /// Time at which the caller had the answer.
    pub answered: Instant,
}

impl Times {
    /// Returns the time from the submission until the last send to the leader, which includes all failed attempts.
    pub fn queued(&self) -> Duration {
        self.stamps.sent.saturating_duration_since(self.submitted)
    }

    /// Returns the time from the last send until the entry was committed and this node began to apply it.
    pub fn committing(&self) -> Duration {
        self.stamps
            .applying
            .began
            .saturating_duration_since(self.stamps.sent)
    }

    /// Returns the time of applying the entry.
    pub fn applying(&self) -> Duration {
        let Applying { began, ended } = self.stamps.applying;
        ended.saturating_duration_since(began)
    }

    /// Returns the time from the end of applying until the caller had the answer.
    pub fn replying(&self) -> Duration {
        self.answered
            .saturating_duration_since(self.stamps.applying.ended)
    }

    /// Returns the total time from the submission until the caller had the answer.
    pub fn total(&self) -> Duration {
        self.answered.saturating_duration_since(self.submitted)
    }
}

/// Time for which a cancelled proposal keeps its permit if its outcome never becomes known. It is longer than the timeout of a batch of proposals.
const LINGER: Duration = Duration::from_secs(30);

/// Proposal without an outcome, whose caller waits.
#[derive(Debug)]
struct PendingProposal {
    /// Caller under which it is queued, or `None` for the cluster itself.
    caller: Option<Caller>,
    envelope: Bytes,
    /// Term in which it was last sent; `None` if it is queued.
    sent_in: Option<u64>,
    /// Time of the last attempt.
    sent_at: Option<Instant>,
    /// Trace and span of the proposal, if it is traced.
    traced: Option<Box<(TraceId, SpanId)>>,
    answer: oneshot::Sender<Answered>,
    permit: AdmissionPermit,
}

/// Cancelled proposal that may still be in the log. It keeps its permit until its outcome is known: otherwise a client that disconnects after each
/// request could have any number of requests in flight.
#[derive(Debug)]
struct Cancelled {
    sent_in: u64,
    at: Instant,
    _permit: AdmissionPermit,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    pending: BTreeMap<u64, PendingProposal>,
    /// Those that are to be sent.
    queue: FairQueue<Caller>,
    cancelled: BTreeMap<u64, Cancelled>,
    stopped: bool,
}

/// Table of all proposals of this node without an outcome, by their number. Those that are not in transit to the leader are queued, and the
/// forwarder takes them from here.
#[derive(Debug, Default)]
pub struct PendingProposals {
    table: Mutex<Table>,
    in_transit: Arc<Mutex<InTransit>>,
    queued: Arc<Notify>,
}

impl PendingProposals {
    /// Returns the signal that proposals were queued, or that a caller has room again.
    pub fn queued(&self) -> &Arc<Notify> {
        &self.queued
    }

    /// Returns whether callers other than this one have proposed something lately.
    pub fn has_others_than(&self, caller: &Caller) -> bool {
        self.in_transit.lock().has_others_than(caller, Instant::now())
    }

    /// Queues a proposal of `caller`, which has a permit, and gives it a number. `traced` is its trace and span. `encode` makes its envelope from
    /// that number. Returns the number and the receiver of the answer.
    pub fn enter(
        &self,
        caller: Option<Caller>,
        permit: AdmissionPermit,
        traced: Option<Box<(TraceId, SpanId)>>,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<(u64, oneshot::Receiver<Answered>), Unavailable> {
        let (tx, rx) = oneshot::channel();
        if let Some(caller) = &caller {
            self.in_transit.lock().note_caller(caller, Instant::now());
        }
        let number = {
            let mut table = self.table.lock();
            if table.stopped {
                return Err(Unavailable::new("this node is stopping"));
            }
            let number = table.next;
            table.next += 1;
            let proposal = PendingProposal {
                caller,
                envelope: Bytes::new(),
                sent_in: None,
                sent_at: None,
                traced,
                answer: tx,
                permit,
            };
            table.pending.insert(number, proposal);
            number
        };
        // Encoded without the lock, and queued after that.
        let envelope = encode(number);
        let mut table = self.table.lock();
        let Table { pending, queue, .. } = &mut *table;
        // It is answered already if the node has stopped meanwhile.
        if let Some(proposal) = pending.get_mut(&number) {
            proposal.envelope = envelope;
            queue.insert(proposal.caller.as_ref(), number);
        }
        drop(table);
        self.queued.notify_one();
        Ok((number, rx))
    }

    /// Takes the next queued proposals, as many as there is room for, and records that they are about to be sent in `term`.
    pub fn take_batch(&self, term: u64, room: BatchRoom) -> ProposalBatch {
        let now = Instant::now();
        let (mut batch, mut bytes) = (ProposalBatch::default(), 0);
        let mut in_transit = BatchInTransit::new(self.in_transit.clone(), self.queued.clone(), term);
        let mut table = self.table.lock();
        let Table { pending, queue, .. } = &mut *table;
        while batch.numbers.len() < room.commands
            && let Some(number) = queue.first(|caller| in_transit.has_room(caller, now))
        {
            let proposal = pending
                .get_mut(&number)
                .expect("a proposal leaves the queue when it leaves the table");
            bytes += proposal.envelope.len();
            if bytes > room.bytes && !batch.numbers.is_empty() {
                break;
            }
            queue.take(|caller| in_transit.has_room(caller, now));
            if let Some(caller) = &proposal.caller {
                in_transit.add(caller, proposal.envelope.len());
            }
            proposal.sent_in = Some(term);
            proposal.sent_at = Some(now);
            if let Some((trace, span)) = proposal.traced.as_deref().copied() {
                let place = batch.numbers.len() as u32;
                batch.traces.push(ForwardedTrace { place, trace, span });
            }
            batch.numbers.push(number);
            batch.envelopes.push(proposal.envelope.clone());
        }
        batch.has_more = queue.first(|caller| in_transit.has_room(caller, now)).is_some();
        batch.in_transit = Some(Box::new(in_transit));
        batch
    }

    /// Records that the node to which these proposals were sent in `term` rejected them, so that none is in the log. Queues those again that are
    /// not cancelled. A proposal that was sent in a later term meanwhile stays in transit.
    pub fn mark_unsent(&self, term: u64, numbers: &[u64]) {
        let mut table = self.table.lock();
        let Table {
            pending,
            queue,
            cancelled,
            ..
        } = &mut *table;
        for number in numbers {
            if let Some(proposal) = pending.get_mut(number) {
                if proposal.sent_in == Some(term) {
                    proposal.sent_in = None;
                    queue.insert(proposal.caller.as_ref(), *number);
                }
            } else if cancelled
                .get(number)
                .is_some_and(|proposal| proposal.sent_in == term)
            {
                cancelled.remove(number);
            }
        }
        drop(table);
        self.queued.notify_one();
    }

    /// Answers the proposals of a batch that the leader of `term` declined and did not append. `numbers` are the proposals of the batch.
    pub fn decline(&self, term: u64, numbers: &[u64], declined: &Declined) {
        for position in &declined.places {
            // A faulty leader may name positions beyond the batch; no proposal waits for those.
            let Some(number) = numbers.get(*position as usize) else {
                continue;
            };
            if let Some(proposal) = self.take(*number, Some(term)) {
                // The send fails if the caller is gone, which is no error.
                let unavailable = match declined.read_only {
                    true => Unavailable::read_only(&declined.reason),
                    false => Unavailable::new(&declined.reason),
                };
                let _ = proposal
                    .answer
                    .send(ProposalResult::Err(unavailable.into()).into());
            }
        }
    }

    /// Answers a proposal that was applied.
    pub fn complete(&self, number: u64, applied: Applied, applying: Applying) {
        if let Some(proposal) = self.take(number, None) {
            proposal.permit.record_applied();
            let stamps = Stamps {
                sent: proposal.sent_at.unwrap_or(applying.began),
                applying,
            };
            // The send fails if the caller is gone. The command is applied all the same.
            let _ = proposal.answer.send(Answered {
                result: Ok(applied),
                stamps: Some(stamps),
            });
        }
    }

    /// Removes a proposal whose outcome is known, and returns it. If it was cancelled, returns its permit instead. An outcome in `term` does
    /// not count for a proposal that was sent in a later term meanwhile.
    fn take(&self, number: u64, term: Option<u64>) -> Option<PendingProposal> {
        let mut table = self.table.lock();
        let Some(proposal) = table.pending.get(&number) else {
            let is_of_term = |proposal: &Cancelled| term.is_none_or(|term| proposal.sent_in == term);
            if table.cancelled.get(&number).is_some_and(is_of_term) {
                table.cancelled.remove(&number);
            }
            return None;
        };
        if term.is_some() && proposal.sent_in != term {
            return None;
        }
        let proposal = table.pending.remove(&number)?;
        if proposal.sent_in.is_none() {
            table.queue.remove(proposal.caller.as_ref(), number);
        }
        Some(proposal)
    }

    /// Records that an entry of `term` was applied, so that the pending proposals of earlier terms never will be. Queues those again.
    pub fn term_began(&self, term: u64) {
        let mut table = self.table.lock();
        table.cancelled.retain(|_, proposal| proposal.sent_in >= term);
        let Table { pending, queue, .. } = &mut *table;
        for (number, proposal) in pending {
            if proposal.sent_in.is_some_and(|sent| sent < term) {
                proposal.sent_in = None;
                queue.insert(proposal.caller.as_ref(), *number);
            }
        }
        drop(table);
        self.queued.notify_one();
    }

    /// Answers all sent proposals with an unknown outcome, because a snapshot has replaced the state, and may or may not contain them.
    pub fn lose_sent(&self) {
        let lost = {
            let mut table = self.table.lock();
            table.cancelled.clear();
            let sent: Vec<u64> = table
                .pending
                .iter()
                .filter(|(_, proposal)| proposal.sent_in.is_some())
                .map(|(n, _)| *n)
                .collect();
            sent.into_iter()
                .filter_map(|number| table.pending.remove(&number))
                .collect::<Vec<_>>()
        };
        for proposal in lost {
            let why = "this node fell behind and caught up by a snapshot".to_owned();
            let _ = proposal
                .answer
                .send(ProposalResult::Err(ProposeError::OutcomeUnknown(why)).into());
        }
    }

    /// Cancels a proposal. Returns whether it may be in the log, or `None` if it is answered already.
    pub fn cancel(&self, number: u64) -> Option<bool> {
        let mut table = self.table.lock();
        let proposal = table.pending.remove(&number)?;
        let Some(sent_in) = proposal.sent_in else {
            table.queue.remove(proposal.caller.as_ref(), number);
            return Some(false);
        };
        let at = Instant::now();
        while let Some(first) = table.cancelled.first_entry()
            && at.saturating_duration_since(first.get().at) > LINGER
        {
            first.remove();
        }
        let _permit = proposal.permit;
        table.cancelled.insert(number, Cancelled { sent_in, at, _permit });
        Some(true)
    }

    /// Returns whether no proposal is pending.
    pub fn is_empty(&self) -> bool {
        self.table.lock().pending.is_empty()
    }

    /// Answers all proposals, because the node stops: sent ones with an unknown outcome, others as unavailable. No proposal is added any more.
    pub fn stop(&self) {
        let pending = {
            let mut table = self.table.lock();
            table.stopped = true;
            table.cancelled.clear();
            table.queue = FairQueue::default();
            std::mem::take(&mut table.pending)
        };
        for proposal in pending.into_values() {
            let error = match proposal.sent_in {
                Some(_) => {
                    ProposeError::OutcomeUnknown("this node stopped before the outcome was known".to_owned())
                }
                None => Unavailable::new("this node is stopping").into(),
            };
            let _ = proposal.answer.send(ProposalResult::Err(error).into());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::FutureExt;
    use znode_store::{Command, Principal, Reply, Request, SessionId, TokenId, Zxid};

    use super::*;
    use crate::admission::{Admission, AdmissionConfig};

    const ROOM: BatchRoom = BatchRoom {
        commands: 100,
        bytes: 1000,
    };

    fn place(admission: &Arc<Admission>) -> AdmissionPermit {
        let session = SessionId(1);
        let request = Request::anonymous(Command::CloseSession { session });
        admission.permit(&request).unwrap()
    }

    fn enter(pending: &PendingProposals) -> (u64, oneshot::Receiver<Answered>) {
        enter_of(pending, 1, 1)
    }

    /// Queues a proposal of the token with this number, of this size.
    fn enter_of(pending: &PendingProposals, caller: u8, bytes: usize) -> (u64, oneshot::Receiver<Answered>) {
        let permit = place(&Arc::new(Admission::new(AdmissionConfig::default())));
        let caller = Some(Caller::Principal(Principal::Token(TokenId([caller; 16]))));
        let encode = |_| Bytes::from(vec![0; bytes]);
        pending.enter(caller, permit, None, encode).unwrap()
    }

    fn take(pending: &PendingProposals, term: u64, commands: usize) -> Vec<u64> {
        pending.take_batch(term, BatchRoom { commands, ..ROOM }).numbers
    }

    fn applied() -> (Applied, Applying) {
        let applied = Applied {
            zxid: Zxid(1),
            outcome: Ok(Reply::SessionClosed),
        };
        let (began, ended) = (Instant::now(), Instant::now());
        (applied, Applying { began, ended })
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_call_keeps_its_permit_while_it_is_in_flight() {
        let admission = Arc::new(Admission::new(AdmissionConfig::default()));
        let pending = PendingProposals::default();
        let enter = || {
            let (number, _) = pending
                .enter(None, place(&admission), None, |_| Bytes::new())
                .unwrap();
            number
        };
        let numbers: Vec<u64> = (0..5).map(|_| enter()).collect();
        assert_eq!(take(&pending, 1, 4), numbers[..4]);
        for number in &numbers {
            pending.cancel(*number);
        }
        assert_eq!(admission.counts().kept, 4, "the last one was never sent");
        let (outcome, applying) = applied();
        pending.complete(numbers[0], outcome, applying);
        assert_eq!(admission.counts().kept, 3, "it was applied");
        pending.mark_unsent(1, &numbers[1..2]);
        assert_eq!(take(&pending, 1, 1), [0; 0]);
        assert_eq!(admission.counts().kept, 2, "it was refused");
        tokio::time::advance(LINGER * 2).await;
        let last = enter();
        assert_eq!(take(&pending, 1, 1), [last]);
        pending.cancel(last);
        assert_eq!(admission.counts().kept, 1, "the outcome of the others is unknown");
        pending.term_began(2);
        assert_eq!(
            admission.counts().kept,
            0,
            "proposals of an earlier term are void"
        );
    }

    #[test]
    fn calls_of_earlier_terms_alone_are_retried() {
        let pending = PendingProposals::default();
        let (a, _ra) = enter(&pending);
        let (b, _rb) = enter(&pending);
        assert_eq!(take(&pending, 1, 1), [a]);
        assert_eq!(take(&pending, 2, 1), [b]);
        pending.term_began(2);
        assert_eq!(take(&pending, 2, 9), [a]);
        pending.term_began(2);
        assert_eq!(take(&pending, 2, 9), [0; 0], "it is in transit again");
        let (c, _rc) = enter(&pending);
        assert_eq!(pending.cancel(b), Some(true), "it may be in the log");
        assert_eq!(pending.cancel(c), Some(false), "it was never sent");
        assert_eq!(pending.cancel(c), None);
    }

    #[test]
    fn retried_proposals_of_a_caller_go_before_its_later_ones() {
        let pending = PendingProposals::default();
        let numbers: Vec<u64> = (0..4).map(|_| enter(&pending).0).collect();
        assert_eq!(take(&pending, 1, 3), numbers[..3]);
        pending.term_began(2);
        assert_eq!(take(&pending, 2, 2), numbers[..2]);
        pending.mark_unsent(2, &numbers[..2]);
        assert_eq!(take(&pending, 2, 9), numbers);
    }

    #[test]
    fn late_outcome_of_an_earlier_term_is_ignored() {
        let pending = PendingProposals::default();
        let (a, mut ra) = enter(&pending);
        assert_eq!(take(&pending, 1, 1), [a]);
        pending.term_began(2);
        assert_eq!(take(&pending, 2, 1), [a]);
        pending.mark_unsent(1, &[a]);
        assert_eq!(take(&pending, 2, 1), [0; 0], "it may be in the log of term 2");
        let declined = Declined {
            places: vec![0],
            ..Declined::default()
        };
        pending.decline(1, &[a], &declined);
        assert!(ra.try_recv().is_err());
        pending.decline(2, &[a], &declined);
        let unavailable = ra.try_recv().unwrap().result;
        assert!(matches!(unavailable, Err(ProposeError::Unavailable(_))));
    }

    #[test]
    fn cancelled_proposal_is_not_sent() {
        let pending = PendingProposals::default();
        let (a, _ra) = enter(&pending);
        let (b, _rb) = enter(&pending);
        pending.cancel(a);
        assert_eq!(take(&pending, 1, 9), [b]);
    }

    #[test]
    fn batch_fits_into_the_room_unless_a_single_proposal_does_not() {
        let pending = PendingProposals::default();
        for bytes in [400, 600, 1, 2000, 1] {
            drop(enter_of(&pending, 1, bytes));
        }
        let lengths: Vec<(usize, bool)> = (0..4)
            .map(|_| pending.take_batch(1, ROOM))
            .map(|batch| (batch.numbers.len(), batch.has_more))
            .collect();
        assert_eq!(lengths, [(2, true), (1, true), (1, true), (1, false)]);
    }

    #[test]
    fn batch_has_one_proposal_of_each_caller_in_turn() {
        let pending = PendingProposals::default();
        let numbers = |caller| -> Vec<u64> { (0..3).map(|_| enter_of(&pending, caller, 1).0).collect() };
        let (a, b) = (numbers(1), numbers(2));
        assert_eq!(take(&pending, 1, 4), [a[0], b[0], a[1], b[1]]);
    }

    #[test]
    fn caller_with_its_share_in_transit_waits_for_an_outcome_and_others_do_not() {
        let pending = PendingProposals::default();
        let room = BatchRoom {
            commands: 1_000,
            bytes: usize::MAX,
        };
        let numbers = |caller, count| -> Vec<u64> {
            std::iter::repeat_with(|| enter_of(&pending, caller, 1).0)
                .take(count)
                .collect()
        };
        let flood = numbers(1, 100);
        let alone = pending.take_batch(1, room);
        assert_eq!(alone.numbers, flood, "without others it has all the room");
        let (more, other) = (numbers(1, 2), numbers(2, 1));
        let beside = pending.take_batch(1, room);
        assert_eq!((&beside.numbers, beside.has_more), (&other, false));
        drop(alone);
        assert!(pending.queued.notified().now_or_never().is_some());
        let rest = pending.take_batch(1, room);
        assert_eq!(rest.numbers, more);
    }

    #[tokio::test]
    async fn stopping_node_answers_pending_proposals() {
        let pending = PendingProposals::default();
        let (a, ra) = enter(&pending);
        let (_b, rb) = enter(&pending);
        assert_eq!(take(&pending, 1, 1), [a]);
        pending.stop();
        let unknown = ra.await.unwrap().result;
        assert!(matches!(unknown, Err(ProposeError::OutcomeUnknown(_))));
        let unavailable = rb.await.unwrap().result;
        assert!(matches!(unavailable, Err(ProposeError::Unavailable(_))));
        assert_eq!(take(&pending, 1, 1), [0; 0]);
        let permit = place(&Arc::new(Admission::new(AdmissionConfig::default())));
        assert!(pending.enter(None, permit, None, |_| Bytes::new()).is_err());
    }
}
