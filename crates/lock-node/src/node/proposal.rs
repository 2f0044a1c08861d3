//! Proposal in flight, and the wait for its outcome.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use znode_store::{Applied, Request};

use super::Node;
use crate::admission::AdmissionPermit;
use crate::command_label::CommandLabel;
use crate::command_versions;
use crate::envelope::Envelope;
use crate::metrics::node_counters::Ended;
use crate::pending_proposals::{Answered, CallResult, Times};
use crate::request_error::ProposeError;
use crate::traces::Scope;
use raft_node::Unavailable;
use raft_node::codec::{self};

/// Pending proposal. It completes when this node has applied it, or when its timeout is over; see [`Node::propose`]. Dropping it cancels
/// the call: the command is then applied or not, and the caller does not learn it.
#[must_use = "dropping it cancels the call"]
pub struct Proposal {
    node: Node,
    number: u64,
    answer: oneshot::Receiver<Answered>,
    patience: Duration,
    /// Time at which it was submitted.
    asked: Instant,
    subject: CommandLabel,
    /// Part of what is traced; of nearly all nothing is.
    traced: Option<Scope>,
    /// The caller has the outcome.
    is_over: bool,
    /// Made when somebody waits: most are answered before they are asked twice.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Proposal {
    pub(super) fn submit(
        node: &Node,
        mut request: Request,
        place: AdmissionPermit,
    ) -> Result<Self, ProposeError> {
        let inner = &node.inner;
        let asked = Instant::now();
        let subject = CommandLabel::of(&request.command);
        command_versions::restrain(&mut request, || inner.raft.commands_of_all());
        #[cfg(feature = "planted")]
        let request = at_the_door(node, request);
        let (number, envelope, answer) = inner.replica.calls.enter(place, |call| {
            let known = || inner.raft.commands_of_all();
            codec::encode(&Envelope::by_rules(inner.replica.origin, call, request, known)).into()
        })?;
        let patience = inner.config.raft.propose_timeout;
        let proposal = Self {
            node: node.clone(),
            number,
            answer,
            patience,
            asked,
            subject,
            traced: Scope::current(),
            is_over: false,
            timer: None,
        };
        match inner.queue.send((number, envelope)) {
            Ok(()) => Ok(proposal),
            Err(_) => Err(Unavailable::new("this node is stopping").into()),
        }
    }

    /// Records the end of the proposal: counts it, logs it if it was slow, and traces it if it is traced.
    fn over(&mut self, answered: Answered) -> CallResult {
        self.is_over = true;
        let Answered { result, stamps } = answered;
        let how = match &result {
            Ok(Applied { outcome: Ok(_), .. }) => Ended::Done,
            Ok(Applied { outcome: Err(_), .. }) => Ended::Refused,
            Err(ProposeError::Unavailable(_)) => Ended::Unavailable,
            Err(ProposeError::OutcomeUnknown(_)) => Ended::Unknown,
        };
        let now = Instant::now();
        let times = stamps.map(|stamps| Times {
            asked: self.asked,
            stamps,
            answered: now,
        });
        let counters = &self.node.inner.replica.counters;
        counters.ended(how, times.as_ref());
        match &times {
            Some(times) => counters.slow.note(&self.subject, times, how.word()),
            None => {
                let took = now.saturating_duration_since(self.asked);
                counters.slow.note_unanswered(&self.subject, took, how.word());
            }
        }
        if let Some(scope) = self.traced.take() {
            scope.proposed(&self.subject, self.asked, now, times.as_ref(), how.word());
        }
        result
    }

    /// Takes the call out of the table. Says whether anything may have been done; `None` if it is answered already.
    fn give_up(&self) -> Option<bool> {
        self.node.inner.replica.calls.give_up(self.number)
    }
}

/// The bug [`AccessAtTheDoor`](znode_store::planted::Bug::AccessAtTheDoor): a caller that may write now may do so whenever the request is
/// applied.
#[cfg(feature = "planted")]
fn at_the_door(node: &Node, mut request: Request) -> Request {
    use znode_store::planted::{Bug, is};
    use znode_store::{Command, Identities, Identity, Op, Perms};

    if is(Bug::AccessAtTheDoor)
        && let Command::Write(Op::Set { path, .. }) = &request.command
    {
        let operator = Identities::new([Identity::Super]);
        let store = node.inner.replica.store.read();
        if let Ok((acl, _)) = store.seen_by(&operator).acl(path)
            && acl.allows(Perms::WRITE, &request.caller)
        {
            request.caller = operator;
        }
    }
    request
}

impl Future for Proposal {
    type Output = Result<Applied, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) {
            let answered = answer.unwrap_or_else(|_| {
                let why = "this node stopped before it knew".to_owned();
                CallResult::Err(ProposeError::OutcomeUnknown(why)).into()
            });
            return Poll::Ready(self.over(answered));
        }
        let deadline = self.asked + self.patience;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let patience = self.patience;
        let unanswered = match self.give_up() {
            Some(false) => {
                let reason = self.node.why_unavailable();
                Unavailable::new(format!("{reason}, for {patience:?}")).into()
            }
            Some(true) | None => ProposeError::OutcomeUnknown(format!("no answer within {patience:?}")),
        };
        Poll::Ready(self.over(CallResult::Err(unanswered).into()))
    }
}

impl Drop for Proposal {
    fn drop(&mut self) {
        if !self.is_over {
            self.give_up();
            self.node.inner.replica.counters.ended(Ended::Cancelled, None);
        }
    }
}
