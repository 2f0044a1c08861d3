//! A proposal that is on its way, for whoever waits for it.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep};
use znode_store::{Applied, Request};

use super::Node;
use crate::admission::Place;
use crate::calls::CallResult;
use crate::codec::{self, Envelope};
use crate::error::{ProposeError, Unavailable};

/// A proposal that is on its way. Ready when this node has applied it, or has given it up; see [`Node::propose`]. A caller
/// that drops it takes its call along: it is then carried out or not, and nobody is told.
#[must_use = "nobody is told of the outcome"]
pub struct Proposal {
    node: Node,
    number: u64,
    answer: oneshot::Receiver<CallResult>,
    patience: Duration,
    deadline: Instant,
    /// Made when somebody waits: most are answered before they are asked twice.
    timer: Option<Pin<Box<Sleep>>>,
}

impl Proposal {
    pub(super) fn submit(node: &Node, request: Request, place: Place) -> Result<Self, ProposeError> {
        let inner = &node.inner;
        #[cfg(feature = "planted")]
        let request = at_the_door(node, request);
        let (number, envelope, answer) = inner.replica.calls.enter(place, |call| {
            codec::encode(&Envelope::new(inner.replica.origin, call, request)).into()
        })?;
        let patience = inner.config.propose_timeout;
        let proposal = Self {
            node: node.clone(),
            number,
            answer,
            patience,
            deadline: Instant::now() + patience,
            timer: None,
        };
        match inner.queue.send((number, envelope)) {
            Ok(()) => Ok(proposal),
            Err(_) => Err(Unavailable::new("this node is stopping").into()),
        }
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
            return Poll::Ready(answer.unwrap_or_else(|_| {
                Err(ProposeError::OutcomeUnknown(
                    "this node stopped before it knew".into(),
                ))
            }));
        }
        let deadline = self.deadline;
        let timer = self
            .timer
            .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        let patience = self.patience;
        Poll::Ready(Err(match self.give_up() {
            Some(false) => {
                let reason = self.node.why_unavailable();
                Unavailable::new(format!("{reason}, for {patience:?}")).into()
            }
            Some(true) | None => ProposeError::OutcomeUnknown(format!("no answer within {patience:?}")),
        }))
    }
}

impl Drop for Proposal {
    fn drop(&mut self) {
        self.give_up();
    }
}
