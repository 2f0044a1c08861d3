//! The proposals of this node that nobody has answered yet, and what can be said about each.
//!
//! A proposal is bound to the term in which it was sent: in any other term its entry is void. So as soon as
//! this node applies an entry of a later term, whatever was sent in an earlier one and has not been applied
//! never will be, and can be sent again without any risk of being done twice. Only a deadline that passes
//! first, or a snapshot that hides what was applied, leaves an outcome unknown.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::oneshot;
use tokio::time::Instant;
use znode_store::Applied;

use crate::admission::AdmissionPermit;
use crate::request_error::ProposeError;
use raft_log::sync::Mutex;
use raft_node::Unavailable;
use raft_node::messages::Declined;

/// Result of a proposal for its caller.
pub type CallResult = Result<Applied, ProposeError>;

/// The same, with when what happened to it.
#[derive(Debug)]
pub struct Answered {
    /// Result.
    pub result: CallResult,
    /// `None`: it was not applied here.
    pub stamps: Option<Stamps>,
}

impl From<CallResult> for Answered {
    fn from(result: CallResult) -> Self {
        Self { result, stamps: None }
    }
}

/// Times at which the entry of a call was applied here.
#[derive(Debug, Clone, Copy)]
pub struct Applying {
    /// Its first command's turn came.
    pub began: Instant,
    /// Its last command was applied, and its watchers were notified.
    pub ended: Instant,
}

/// Times of a call that was applied.
#[derive(Debug, Clone, Copy)]
pub struct Stamps {
    /// It was sent to the leader, for the last time.
    pub sent: Instant,
    /// Its entry was applied.
    pub applying: Applying,
}

/// Times of a call, from its submission until its caller had the answer.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// Time of its submission.
    pub asked: Instant,
    /// Times of its replication.
    pub stamps: Stamps,
    /// Time at which the caller had the answer.
    pub answered: Instant,
}

impl Times {
    /// Returns the time until it was sent to the leader, with all failed attempts.
    pub fn queued(&self) -> Duration {
        self.stamps.sent.saturating_duration_since(self.asked)
    }

    /// Until its entry was committed and this node had come to it.
    pub fn committing(&self) -> Duration {
        self.stamps
            .applying
            .began
            .saturating_duration_since(self.stamps.sent)
    }

    /// While its entry was applied.
    pub fn applying(&self) -> Duration {
        let Applying { began, ended } = self.stamps.applying;
        ended.saturating_duration_since(began)
    }

    /// Returns the time until the caller was running.
    pub fn replying(&self) -> Duration {
        self.answered
            .saturating_duration_since(self.stamps.applying.ended)
    }

    /// All of it.
    pub fn in_all(&self) -> Duration {
        self.answered.saturating_duration_since(self.asked)
    }
}

/// Time for which a cancelled call keeps its permit if its outcome never becomes known: longer than the timeout of a batch of calls.
const LINGER: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct Call {
    envelope: Bytes,
    /// The term in which it was last sent; `None` while it has not been.
    sent_in: Option<u64>,
    /// Time of the last attempt.
    sent_at: Option<Instant>,
    answer: oneshot::Sender<Answered>,
    place: AdmissionPermit,
}

/// Cancelled proposal that may still be in the log. It keeps its permit until its outcome is known; otherwise a client could have any
/// number of requests in flight by hanging up.
#[derive(Debug)]
struct Cancelled {
    sent_in: u64,
    at: Instant,
    _place: AdmissionPermit,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    calls: BTreeMap<u64, Call>,
    given_up: BTreeMap<u64, Cancelled>,
    stopped: bool,
}

/// All unanswered proposals of this node, by their number.
#[derive(Debug, Default)]
pub struct PendingProposals {
    table: Mutex<Table>,
}

impl PendingProposals {
    /// Enters a new call, which has a place. `encode` makes its envelope from the number that it gets.
    pub fn enter(
        &self,
        place: AdmissionPermit,
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
            let call = Call {
                envelope: Bytes::new(),
                sent_in: None,
                sent_at: None,
                answer: tx,
                place,
            };
            table.calls.insert(number, call);
            number
        };
        // Encoded outside of the lock; nobody looks for the envelope before it is in the queue.
        let envelope = encode(number);
        if let Some(call) = self.table.lock().calls.get_mut(&number) {
            call.envelope = envelope.clone();
        }
        Ok((number, envelope, rx))
    }

    /// Notes that the calls are about to be sent in `term`. Those that were given up are left out.
    pub fn mark_sent(&self, term: u64, numbers: &mut Vec<(u64, Bytes)>) {
        let now = Instant::now();
        let mut table = self.table.lock();
        numbers.retain(|(number, _)| match table.calls.get_mut(number) {
            Some(call) => {
                call.sent_in = Some(term);
                call.sent_at = Some(now);
                true
            }
            None => false,
        });
    }

    /// Notes that the calls were refused by the node that they were sent to, so that nothing was done.
    /// Returns those that are still wanted, in order.
    pub fn mark_unsent(&self, numbers: &[u64]) -> Vec<(u64, Bytes)> {
        let mut table = self.table.lock();
        let mut again = Vec::new();
        for number in numbers {
            if let Some(call) = table.calls.get_mut(number) {
                call.sent_in = None;
                again.push((*number, call.envelope.clone()));
            } else {
                table.given_up.remove(number);
            }
        }
        again
    }

    /// Answers those calls of a run that the leader declined: nothing was done about them.
    pub fn decline(&self, numbers: &[u64], declined: &Declined) {
        for place in &declined.places {
            // A leader of another mind names places that are not there; nobody waits for those.
            let Some(number) = numbers.get(*place as usize) else {
                continue;
            };
            if let Some(call) = self.take(*number) {
                // The caller may be gone.
                let unavailable = match declined.read_only {
                    true => Unavailable::read_only(&declined.reason),
                    false => Unavailable::new(&declined.reason),
                };
                let _ = call.answer.send(CallResult::Err(unavailable.into()).into());
            }
        }
    }

    /// Answers a call with what was applied.
    pub fn complete(&self, number: u64, applied: Applied, applying: Applying) {
        if let Some(call) = self.take(number) {
            call.place.carried_out();
            let stamps = Stamps {
                sent: call.sent_at.unwrap_or(applying.began),
                applying,
            };
            // The caller may be gone; what was done is done.
            let _ = call.answer.send(Answered {
                result: Ok(applied),
                stamps: Some(stamps),
            });
        }
    }

    /// Takes a call out that is over, or frees its place if nobody waits for it.
    fn take(&self, number: u64) -> Option<Call> {
        let mut table = self.table.lock();
        let call = table.calls.remove(&number);
        if call.is_none() {
            table.given_up.remove(&number);
        }
        call
    }

    /// An entry of `term` was applied: what was sent in an earlier one and is not answered was not done.
    /// Returns those calls, in order, for another try.
    pub fn term_began(&self, term: u64) -> Vec<(u64, Bytes)> {
        let mut table = self.table.lock();
        table.given_up.retain(|_, call| call.sent_in >= term);
        let mut again = Vec::new();
        for (number, call) in &mut table.calls {
            if call.sent_in.is_some_and(|sent| sent < term) {
                call.sent_in = None;
                again.push((*number, call.envelope.clone()));
            }
        }
        again
    }

    /// The state was replaced by a snapshot: what was sent before may be in it or not.
    pub fn lose_sent(&self) {
        let lost = {
            let mut table = self.table.lock();
            table.given_up.clear();
            let sent: Vec<u64> = table
                .calls
                .iter()
                .filter(|(_, call)| call.sent_in.is_some())
                .map(|(n, _)| *n)
                .collect();
            sent.into_iter()
                .filter_map(|number| table.calls.remove(&number))
                .collect::<Vec<_>>()
        };
        for call in lost {
            let why = "this node fell behind and caught up by a snapshot".to_owned();
            let _ = call
                .answer
                .send(CallResult::Err(ProposeError::OutcomeUnknown(why)).into());
        }
    }

    /// The caller gives up. Says whether anything may have been done; `None` if it is answered already.
    pub fn give_up(&self, number: u64) -> Option<bool> {
        let mut table = self.table.lock();
        let call = table.calls.remove(&number)?;
        let Some(sent_in) = call.sent_in else {
            return Some(false);
        };
        let at = Instant::now();
        while let Some(first) = table.given_up.first_entry()
            && at.saturating_duration_since(first.get().at) > LINGER
        {
            first.remove();
        }
        let _place = call.place;
        table.given_up.insert(number, Cancelled { sent_in, at, _place });
        Some(true)
    }

    /// Returns whether no call is pending.
    pub fn is_empty(&self) -> bool {
        self.table.lock().calls.is_empty()
    }

    /// Answers all calls that nothing was done, or that it is unknown; no call is entered any more.
    pub fn stop(&self) {
        let calls = {
            let mut table = self.table.lock();
            table.stopped = true;
            table.given_up.clear();
            std::mem::take(&mut table.calls)
        };
        for call in calls.into_values() {
            let error = match call.sent_in {
                Some(_) => ProposeError::OutcomeUnknown("this node stopped before it knew".to_owned()),
                None => Unavailable::new("this node is stopping").into(),
            };
            let _ = call.answer.send(CallResult::Err(error).into());
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
        admission.place(&request).unwrap()
    }

    fn enter(calls: &PendingProposals) -> (u64, oneshot::Receiver<Answered>) {
        let place = place(&Arc::new(Admission::new(AdmissionConfig::default())));
        let (number, _, rx) = calls
            .enter(place, |number| Bytes::from(number.to_string()))
            .unwrap();
        (number, rx)
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_call_keeps_its_permit_while_it_is_in_flight() {
        let admission = Arc::new(Admission::new(AdmissionConfig::default()));
        let calls = PendingProposals::default();
        let enter = || {
            let encode = |number: u64| Bytes::from(number.to_string());
            calls.enter(place(&admission), encode).unwrap().0
        };
        let numbers: Vec<u64> = (0..5).map(|_| enter()).collect();
        calls.mark_sent(
            1,
            &mut numbers[..4]
                .iter()
                .map(|number| (*number, Bytes::new()))
                .collect(),
        );
        for number in &numbers {
            calls.give_up(*number);
        }
        assert_eq!(admission.counts().kept, 4, "the last one was never sent");
        calls.complete(
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
        assert!(calls.mark_unsent(&numbers[1..2]).is_empty());
        assert_eq!(admission.counts().kept, 2, "it was refused");
        tokio::time::advance(LINGER * 2).await;
        let last = enter();
        calls.mark_sent(1, &mut vec![(last, Bytes::new())]);
        calls.give_up(last);
        assert_eq!(admission.counts().kept, 1, "the outcome of the others is unknown");
        calls.term_began(2);
        assert_eq!(admission.counts().kept, 0, "what is of an earlier term is void");
    }

    fn numbers(calls: Vec<(u64, Bytes)>) -> Vec<u64> {
        calls.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn calls_of_earlier_terms_alone_are_retried() {
        let calls = PendingProposals::default();
        let (a, _ra) = enter(&calls);
        let (b, _rb) = enter(&calls);
        let (c, _rc) = enter(&calls);
        calls.mark_sent(1, &mut vec![(a, Bytes::new())]);
        calls.mark_sent(2, &mut vec![(b, Bytes::new())]);
        assert_eq!(numbers(calls.term_began(2)), vec![a]);
        assert_eq!(
            numbers(calls.term_began(2)),
            Vec::<u64>::new(),
            "it is in the queue again"
        );
        assert_eq!(calls.give_up(b), Some(true), "it may have been done");
        assert_eq!(calls.give_up(c), Some(false), "it was never sent");
        assert_eq!(calls.give_up(c), None);
    }

    #[test]
    fn cancelled_proposal_is_not_sent() {
        let calls = PendingProposals::default();
        let (a, _ra) = enter(&calls);
        let (b, _rb) = enter(&calls);
        calls.give_up(a);
        let mut queue = vec![(a, Bytes::new()), (b, Bytes::new())];
        calls.mark_sent(1, &mut queue);
        assert_eq!(numbers(queue), vec![b]);
    }

    #[tokio::test]
    async fn stopping_node_answers_pending_proposals() {
        let calls = PendingProposals::default();
        let (a, ra) = enter(&calls);
        let (_b, rb) = enter(&calls);
        calls.mark_sent(1, &mut vec![(a, Bytes::new())]);
        calls.stop();
        let unknown = ra.await.unwrap().result;
        assert!(matches!(unknown, Err(ProposeError::OutcomeUnknown(_))));
        let unavailable = rb.await.unwrap().result;
        assert!(matches!(unavailable, Err(ProposeError::Unavailable(_))));
        let place = place(&Arc::new(Admission::new(AdmissionConfig::default())));
        assert!(calls.enter(place, |_| Bytes::new()).is_err());
    }
}
