//! Unanswered requests of one connection, in the order of their arrival.
//!
//! Writes are proposed one behind the other without waiting. A read waits until all earlier requests are
//! answered, and no request behind a waiting read is started before it. So a read sees all writes that its
//! client sent before it, and none that it sent after it. An auth request waits in the same way.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use lock_node::{ProposeError, SubmittedProposal, Unavailable};
use zk_wire::{ErrorCode, Outcome, Request};
use znode_store::Applied;

use crate::request_metrics::Received;
use crate::translate::Shape;

/// Request that was received and not started yet.
pub(crate) struct WaitingRequest {
    /// Xid of the request.
    pub xid: i32,
    /// Time and operation, for the metrics.
    pub received: Received,
    /// The request, or an error code if it could not be decoded.
    pub request: Result<Request, ErrorCode>,
    /// Size in bytes as received.
    pub bytes: u32,
    /// True once the pace of large writes has counted it.
    pub paced: bool,
}

/// Request that was started.
struct PendingRequest {
    xid: i32,
    received: Received,
    outcome: PendingOutcome,
}

/// Event that a reply waits for, beside the replies before it.
pub(crate) enum PendingOutcome {
    /// The outcome of the proposal.
    Write(SubmittedProposal, WriteReply),
    /// A read barrier: this node has applied everything that was committed when the request was started.
    Sync(String, Barrier),
    /// Nothing: the outcome is known.
    Known(Outcome),
}

/// Form of the reply to a write.
pub(crate) enum WriteReply {
    One(Shape),
    Multi(Vec<Shape>),
    /// The connection ends with this reply.
    CloseSession,
}

/// Read barrier, see [`PendingOutcome::Sync`].
pub(crate) type Barrier = Pin<Box<dyn Future<Output = Result<(), Unavailable>> + Send>>;

/// Outcome of the first request, which can be answered.
pub(crate) enum Completed {
    Write(Result<Applied, ProposeError>, WriteReply),
    Sync(Result<(), Unavailable>, String),
    Known(Outcome),
}

/// Queue of unanswered requests. See the module.
#[derive(Default)]
pub(crate) struct Outstanding {
    pending: VecDeque<PendingRequest>,
    waiting: VecDeque<WaitingRequest>,
    pending_writes: u32,
    waiting_bytes: u32,
}

impl Outstanding {
    /// Returns the total size in bytes of the requests that are not started.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes as usize
    }

    pub fn len(&self) -> usize {
        self.pending.len() + self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether any request is pending.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Returns whether any request waits to be started.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Returns the number of writes that are pending.
    pub fn pending_writes(&self) -> u64 {
        u64::from(self.pending_writes)
    }

    /// Appends a request that was started.
    pub fn add_pending(&mut self, xid: i32, received: Received, outcome: PendingOutcome) {
        self.pending_writes += u32::from(matches!(outcome, PendingOutcome::Write(..)));
        self.pending.push_back(PendingRequest {
            xid,
            received,
            outcome,
        });
    }

    /// Appends a request that is started later.
    pub fn wait(&mut self, request: WaitingRequest) {
        self.waiting_bytes += request.bytes;
        self.waiting.push_back(request);
    }

    /// Removes and returns the first request that waits to be started.
    pub fn take_waiting(&mut self) -> Option<WaitingRequest> {
        let request = self.waiting.pop_front()?;
        self.waiting_bytes -= request.bytes;
        Some(request)
    }

    /// Drops all requests that are not started: the connection ends before them.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Returns a request to the front of the queue.
    pub fn put_back(&mut self, request: WaitingRequest) {
        self.waiting_bytes += request.bytes;
        self.waiting.push_front(request);
    }

    /// Waits until the first pending request can be answered, and removes it. Cancel-safe. Never completes
    /// while none is pending.
    pub async fn next(&mut self) -> (i32, Received, Completed) {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(i32, Received, Completed)> {
        let Some(first) = self.pending.front_mut() else {
            return Poll::Pending;
        };
        // Writes complete in the order in which they are applied, so polling the first one suffices.
        let ready = match &mut first.outcome {
            PendingOutcome::Write(proposal, _) => match Pin::new(proposal).poll(cx) {
                Poll::Ready(outcome) => Ready::Write(outcome),
                Poll::Pending => return Poll::Pending,
            },
            PendingOutcome::Sync(_, barrier) => match barrier.as_mut().poll(cx) {
                Poll::Ready(passed) => Ready::Sync(passed),
                Poll::Pending => return Poll::Pending,
            },
            PendingOutcome::Known(_) => Ready::Itself,
        };
        let first = self.pending.pop_front();
        let PendingRequest {
            xid,
            received,
            outcome,
        } = first.expect("the first request exists");
        let completed = match (ready, outcome) {
            (Ready::Write(outcome), PendingOutcome::Write(_, reply)) => {
                self.pending_writes -= 1;
                Completed::Write(outcome, reply)
            }
            (Ready::Sync(passed), PendingOutcome::Sync(path, _)) => Completed::Sync(passed, path),
            (_, PendingOutcome::Known(outcome)) => Completed::Known(outcome),
            (_, PendingOutcome::Write(..) | PendingOutcome::Sync(..)) => {
                unreachable!("the result has the kind of its request")
            }
        };
        Poll::Ready((xid, received, completed))
    }
}

enum Ready {
    Write(Result<Applied, ProposeError>),
    Sync(Result<(), Unavailable>),
    Itself,
}
