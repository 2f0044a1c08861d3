//! Table of this node's proposals without an outcome.
//!
//! A proposal is bound to the term in which it was sent: in any other term its entry is void. Suppose that this node applies an entry of a later
//! term. Then a proposal of an earlier term that has not been applied never will be, and can be sent again without the risk of being applied
//! twice. So an outcome stays unknown in two cases only: the commit timeout passes first, or a snapshot hides what was applied.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use znode_store::Applied;

use crate::admission::AdmissionPermit;
use crate::request_error::ProposeError;
use crate::traces::{SpanId, TraceId};
use raft_log::sync::Mutex;
use raft_node::Unavailable;
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
    envelope: Bytes,
    /// Term in which it was last sent; `None` if it is to be sent.
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
    cancelled: BTreeMap<u64, Cancelled>,
    stopped: bool,
}

/// Table of all proposals of this node without an outcome, by their number.
#[derive(Debug, Default)]
pub struct PendingProposals {
    table: Mutex<Table>,
}

impl PendingProposals {
    /// Adds a proposal, which has a permit, and gives it a number. `traced` is its trace and span. `encode` makes its envelope from that number.
    /// Returns the number, the envelope and the receiver of the answer.
    pub fn enter(
        &self,
        permit: AdmissionPermit,
        traced: Option<Box<(TraceId, SpanId)>>,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<(u64, Bytes, oneshot::Receiver<Answered>), Unavailable> {
        let (tx, rx) = oneshot::channel();
        let number = {
            let mut table = self.table.lock();
            if table.stopped {
                return Err(Unavailable::new("this node is stopping"));
            }
            let number = table.next;
            table.next += 1;
            let proposal = PendingProposal {
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
        // Encoded without the lock. The envelope is needed only after the caller has queued the proposal.
        let envelope = encode(number);
        if let Some(proposal) = self.table.lock().pending.get_mut(&number) {
            proposal.envelope = envelope.clone();
        }
        Ok((number, envelope, rx))
    }

    /// Records that these proposals are about to be sent in `term`, and removes the cancelled ones from the list. Returns the traces of the traced
    /// ones.
    pub fn mark_sent(&self, term: u64, numbers: &mut Vec<(u64, Bytes)>) -> Vec<ForwardedTrace> {
        let now = Instant::now();
        let (mut place, mut traces) = (0, Vec::new());
        let mut table = self.table.lock();
        numbers.retain(|(number, _)| match table.pending.get_mut(number) {
            Some(proposal) => {
                proposal.sent_in = Some(term);
                proposal.sent_at = Some(now);
                if let Some((trace, span)) = proposal.traced.as_deref().copied() {
                    traces.push(ForwardedTrace { place, trace, span });
                }
                place += 1;
                true
            }
            None => false,
        });
        traces
    }

    /// Records that the node to which these proposals were sent rejected them, so that none is in the log. Returns those that are not cancelled, in
    /// order.
    pub fn mark_unsent(&self, numbers: &[u64]) -> Vec<(u64, Bytes)> {
        let mut table = self.table.lock();
        let mut again = Vec::new();
        for number in numbers {
            if let Some(proposal) = table.pending.get_mut(number) {
                proposal.sent_in = None;
                again.push((*number, proposal.envelope.clone()));
            } else {
                table.cancelled.remove(number);
            }
        }
        again
    }

    /// Answers the proposals of a batch that the leader declined and did not append. `numbers` are the proposals of the batch.
    pub fn decline(&self, numbers: &[u64], declined: &Declined) {
        for position in &declined.places {
            // A faulty leader may name positions beyond the batch; no proposal waits for those.
            let Some(number) = numbers.get(*position as usize) else {
                continue;
            };
            if let Some(proposal) = self.take(*number) {
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
        if let Some(proposal) = self.take(number) {
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

    /// Removes a proposal whose outcome is known, and returns it. If it was cancelled, returns its permit instead.
    fn take(&self, number: u64) -> Option<PendingProposal> {
        let mut table = self.table.lock();
        let proposal = table.pending.remove(&number);
        if proposal.is_none() {
            table.cancelled.remove(&number);
        }
        proposal
    }

    /// Records that an entry of `term` was applied, so that the pending proposals of earlier terms never will be. Returns those, in order, to be sent
    /// again.
    pub fn term_began(&self, term: u64) -> Vec<(u64, Bytes)> {
        let mut table = self.table.lock();
        table.cancelled.retain(|_, proposal| proposal.sent_in >= term);
        let mut again = Vec::new();
        for (number, proposal) in &mut table.pending {
            if proposal.sent_in.is_some_and(|sent| sent < term) {
                proposal.sent_in = None;
                again.push((*number, proposal.envelope.clone()));
            }
        }
        again
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

    use znode_store::{Command, Reply, Request, SessionId, Zxid};

    use super::*;
    use crate::admission::{Admission, AdmissionConfig};

    fn place(admission: &Arc<Admission>) -> AdmissionPermit {
        let session = SessionId(1);
        let request = Request::anonymous(Command::CloseSession { session });
        admission.permit(&request).unwrap()
    }

    fn enter(pending: &PendingProposals) -> (u64, oneshot::Receiver<Answered>) {
        let permit = place(&Arc::new(Admission::new(AdmissionConfig::default())));
        let (number, _, rx) = pending
            .enter(permit, None, |number| Bytes::from(number.to_string()))
            .unwrap();
        (number, rx)
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_call_keeps_its_permit_while_it_is_in_flight() {
        let admission = Arc::new(Admission::new(AdmissionConfig::default()));
        let pending = PendingProposals::default();
        let enter = || {
            let encode = |number: u64| Bytes::from(number.to_string());
            pending.enter(place(&admission), None, encode).unwrap().0
        };
        let numbers: Vec<u64> = (0..5).map(|_| enter()).collect();
        pending.mark_sent(
            1,
            &mut numbers[..4]
                .iter()
                .map(|number| (*number, Bytes::new()))
                .collect(),
        );
        for number in &numbers {
            pending.cancel(*number);
        }
        assert_eq!(admission.counts().kept, 4, "the last one was never sent");
        pending.complete(
            numbers[0],
            Applied {
                zxid: Zxid(1),
                outcome: Ok(Reply::SessionClosed),
            },
            Applying {
                began: Instant::now(),
                ended: Instant::now(),
            },
        );
        assert_eq!(admission.counts().kept, 3, "it was applied");
        assert!(pending.mark_unsent(&numbers[1..2]).is_empty());
        assert_eq!(admission.counts().kept, 2, "it was refused");
        tokio::time::advance(LINGER * 2).await;
        let last = enter();
        pending.mark_sent(1, &mut vec![(last, Bytes::new())]);
        pending.cancel(last);
        assert_eq!(admission.counts().kept, 1, "the outcome of the others is unknown");
        pending.term_began(2);
        assert_eq!(
            admission.counts().kept,
            0,
            "proposals of an earlier term are void"
        );
    }

    fn numbers(pending: Vec<(u64, Bytes)>) -> Vec<u64> {
        pending.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn calls_of_earlier_terms_alone_are_retried() {
        let pending = PendingProposals::default();
        let (a, _ra) = enter(&pending);
        let (b, _rb) = enter(&pending);
        let (c, _rc) = enter(&pending);
        pending.mark_sent(1, &mut vec![(a, Bytes::new())]);
        pending.mark_sent(2, &mut vec![(b, Bytes::new())]);
        assert_eq!(numbers(pending.term_began(2)), vec![a]);
        assert_eq!(
            numbers(pending.term_began(2)),
            Vec::<u64>::new(),
            "the proposal is in the queue again"
        );
        assert_eq!(pending.cancel(b), Some(true), "it may be in the log");
        assert_eq!(pending.cancel(c), Some(false), "it was never sent");
        assert_eq!(pending.cancel(c), None);
    }

    #[test]
    fn cancelled_proposal_is_not_sent() {
        let pending = PendingProposals::default();
        let (a, _ra) = enter(&pending);
        let (b, _rb) = enter(&pending);
        pending.cancel(a);
        let mut queue = vec![(a, Bytes::new()), (b, Bytes::new())];
        pending.mark_sent(1, &mut queue);
        assert_eq!(numbers(queue), vec![b]);
    }

    #[tokio::test]
    async fn stopping_node_answers_pending_proposals() {
        let pending = PendingProposals::default();
        let (a, ra) = enter(&pending);
        let (_b, rb) = enter(&pending);
        pending.mark_sent(1, &mut vec![(a, Bytes::new())]);
        pending.stop();
        let unknown = ra.await.unwrap().result;
        assert!(matches!(unknown, Err(ProposeError::OutcomeUnknown(_))));
        let unavailable = rb.await.unwrap().result;
        assert!(matches!(unavailable, Err(ProposeError::Unavailable(_))));
        let permit = place(&Arc::new(Admission::new(AdmissionConfig::default())));
        assert!(pending.enter(permit, None, |_| Bytes::new()).is_err());
    }
}
