//! Proposal in flight, and the wait for its outcome.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use znode_store::{Applied, Request};

use super::Node;
use crate::admission::Place;
use crate::calls::{Answered, CallResult, Times};
use crate::command_versions;
use crate::envelope::Envelope;
use crate::metrics::meters::Ended;
use crate::request_error::ProposeError;
use crate::subject::Subject;
use crate::traces::Scope;
use raft_node::Unavailable;
use raft_node::codec::{self};

/// A proposal that is on its way. Ready when this node has applied it, or has given it up; see [`Node::propose`]. A caller
/// that drops it takes its call along: it is then carried out or not, and nobody is told.
#[must_use = "nobody is told of the outcome"]
pub struct Proposal {
    node: Node,
    number: u64,
    answer: oneshot::Receiver<Answered>,
    patience: Duration,
    /// When it was asked for.
    asked: Instant,
    subject: Subject,
    /// Part of what is traced; of nearly all nothing is.
    traced: Option<Scope>,
    /// Whoever waits has the answer.
    is_over: bool,
    /// Made when somebody waits: most are answered before they are asked twice.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Proposal {
    pub(super) fn submit(node: &Node, mut request: Request, place: Place) -> Result<Self, ProposeError> {
        let inner = &node.inner;
        let asked = Instant::now();
        let subject = Subject::of(&request.command);
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

    /// Whoever waits has the answer: it is counted, told of if it took long, and traced if that is wanted.
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
        let meters = &self.node.inner.replica.meters;
        meters.ended(how, times.as_ref());
        match &times {
            Some(times) => meters.slow.note(&self.subject, times, how.word()),
            None => {
                let took = now.saturating_duration_since(self.asked);
                meters.slow.note_unanswered(&self.subject, took, how.word());
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

/// The bug [`AccessAtTheDoor`](znode_store::planted::Bug::AccessAtTheDoor): whoever may write now may do so whenever the
/// request's turn comes.
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
            self.node.inner.replica.meters.ended(Ended::GivenUp, None);
        }
    }
}
