//! Handle of a pending proposal, which waits for its outcome.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use znode_store::{Applied, Request};

use super::Node;
use crate::admission::{AdmissionPermit, Caller};
use crate::command_label::CommandLabel;
use crate::command_versions;
use crate::envelope::Envelope;
use crate::hold_spans;
use crate::metrics::node_counters::Ended;
use crate::pending_proposals::{Answered, ProposalResult, Times};
use crate::request_error::ProposeError;
use crate::traces::{Scope, SpanId, new_span_id};
use raft_node::Unavailable;
use raft_node::codec;

/// Pending proposal. It completes when this node has applied it, or when its timeout is over; see [`Node::propose`]. Dropping it cancels the
/// proposal: the command may still be applied, but the caller does not learn the outcome.
#[must_use = "dropping it cancels the proposal"]
pub struct SubmittedProposal {
    node: Node,
    number: u64,
    answer: oneshot::Receiver<Answered>,
    timeout: Duration,
    /// Time at which it was submitted.
    submitted: Instant,
    subject: CommandLabel,
    /// Scope of the traced request, and the span of this proposal in it; nearly all requests are not traced.
    traced: Option<(Scope, SpanId)>,
    /// True if the caller has the outcome.
    is_over: bool,
    /// Timer of the timeout. It is created in the first poll that finds no answer, because `submit` alone needs none.
    timer: Option<Pin<Box<Sleep>>>,
}

impl SubmittedProposal {
    pub(super) fn submit(
        node: &Node,
        mut request: Request,
        permit: AdmissionPermit,
    ) -> Result<Self, ProposeError> {
        let inner = &node.inner;
        let submitted = Instant::now();
        let subject = CommandLabel::of(&request.command);
        let traced = Scope::current().map(|scope| (scope, new_span_id()));
        if let Some((scope, _)) = &traced {
            hold_spans::mark(&mut request.command, scope);
        }
        command_versions::restrain(&mut request, || inner.raft.commands_of_all());
        #[cfg(feature = "planted")]
        let request = at_submission(node, request);
        let span = traced
            .as_ref()
            .map(|(scope, span)| Box::new((scope.trace, *span)));
        let owner_of = |session| node.read_facts(|store| Some(store.session(session)?.owner));
        let caller = Caller::in_queue(&request, owner_of);
        let (number, answer) = inner.replica.calls.enter(caller, permit, span, |call| {
            let known = || inner.raft.commands_of_all();
            codec::encode(&Envelope::by_rules(inner.replica.origin, call, request, known)).into()
        })?;
        let timeout = inner.config.raft.propose_timeout;
        Ok(Self {
            node: node.clone(),
            number,
            answer,
            timeout,
            submitted,
            subject,
            traced,
            is_over: false,
            timer: None,
        })
    }

    /// Records the end of the proposal: counts it, logs it if it was slow, and traces it if it is traced.
    fn over(&mut self, answered: Answered) -> ProposalResult {
        self.is_over = true;
        let Answered { result, stamps } = answered;
        if let Ok(Applied {
            outcome: Err(refusal),
            ..
        }) = &result
        {
            self.node.inner.admission.namespaces().note(refusal);
        }
        let how = match &result {
            Ok(Applied { outcome: Ok(_), .. }) => Ended::Done,
            Ok(Applied { outcome: Err(_), .. }) => Ended::Refused,
            Err(ProposeError::Unavailable(_)) => Ended::Unavailable,
            Err(ProposeError::OutcomeUnknown(_)) => Ended::Unknown,
        };
        let now = Instant::now();
        let times = stamps.map(|stamps| Times {
            submitted: self.submitted,
            stamps,
            answered: now,
        });
        let counters = &self.node.inner.replica.counters;
        counters.ended(how, times.as_ref());
        match &times {
            Some(times) => counters.slow.note(&self.subject, times, how.word()),
            None => {
                let took = now.saturating_duration_since(self.submitted);
                counters.slow.note_unanswered(&self.subject, took, how.word());
            }
        }
        if let Some((scope, id)) = self.traced.take() {
            scope.proposed(id, &self.subject, self.submitted, now, times.as_ref(), how.word());
        }
        result
    }

    /// Removes the proposal from the table. Returns whether it may be in the log, or `None` if it is answered already.
    fn cancel(&self) -> Option<bool> {
        self.node.inner.replica.calls.cancel(self.number)
    }
}

/// Plants the bug [`AccessAtTheDoor`](znode_store::planted::Bug::AccessAtTheDoor): checks the right to write when the request is submitted, and
/// not when it is applied.
#[cfg(feature = "planted")]
fn at_submission(node: &Node, mut request: Request) -> Request {
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

impl Future for SubmittedProposal {
    type Output = Result<Applied, ProposeError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(answer) = Pin::new(&mut self.answer).poll(cx) {
            let answered = answer.unwrap_or_else(|_| {
                let why = "this node stopped before the outcome was known".to_owned();
                ProposalResult::Err(ProposeError::OutcomeUnknown(why)).into()
            });
            return Poll::Ready(self.over(answered));
        }
        let deadline = self.submitted + self.timeout;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let timeout = self.timeout;
        let unanswered = match self.cancel() {
            Some(false) => {
                let reason = self.node.why_unavailable();
                Unavailable::new(format!("{reason}, for {timeout:?}")).into()
            }
            Some(true) | None => ProposeError::OutcomeUnknown(format!("no answer within {timeout:?}")),
        };
        Poll::Ready(self.over(ProposalResult::Err(unanswered).into()))
    }
}

impl Drop for SubmittedProposal {
    fn drop(&mut self) {
        if !self.is_over {
            self.cancel();
            self.node.inner.replica.counters.ended(Ended::Cancelled, None);
        }
    }
}
