//! Requests of one connection that are not answered yet, in the order in which they came.
//!
//! Writes are sent on their way one behind the other without waiting. A read waits until all before it are answered, and
//! whatever comes behind a read that waits is not begun before it: so a read sees all writes that its client has sent before
//! it, and none that it has sent after it.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};

use raft_node::{Proposal, ProposeError, Unavailable};
use zk_wire::{ErrorCode, Outcome, Request};
use znode_store::Applied;

use crate::requests::Came;
use crate::translate::Shape;

/// A request that has come.
pub(crate) struct Asked {
    /// Its number.
    pub xid: i32,
    /// When it came, and what for.
    pub since: Came,
    /// What is asked; a code if it cannot even be read.
    pub what: Result<Request, ErrorCode>,
    /// How long it was when it came.
    pub bytes: usize,
}

/// A request that is on its way.
struct OnItsWay {
    xid: i32,
    since: Came,
    awaits: Awaits,
}

/// What the answer to a request waits for, beside the answers before it.
pub(crate) enum Awaits {
    /// Its outcome.
    Write(Proposal, Answer),
    /// That this node has all that was committed when its turn came.
    Sync(String, Barrier),
    /// Nothing.
    Known(Outcome),
    /// Nothing; the answer to auth has no position.
    Auth(ErrorCode),
}

/// What the outcome of a write is made into.
pub(crate) enum Answer {
    One(Shape),
    Multi(Vec<Shape>),
    /// The connection ends with it.
    CloseSession,
}

/// Waits until this node has all that was committed.
pub(crate) type Barrier = Pin<Box<dyn Future<Output = Result<(), Unavailable>> + Send>>;

/// The first request, which can be answered.
pub(crate) enum Done {
    Write(Result<Applied, ProposeError>, Answer),
    Sync(Result<(), Unavailable>, String),
    Known(Outcome),
    Auth(ErrorCode),
}

/// See the module.
#[derive(Default)]
pub(crate) struct Outstanding {
    on_their_way: VecDeque<OnItsWay>,
    waiting: VecDeque<Asked>,
    waiting_bytes: usize,
}

impl Outstanding {
    /// How many bytes those have that wait to be begun.
    pub fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    pub fn len(&self) -> usize {
        self.on_their_way.len() + self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether anything is on its way.
    pub fn is_under_way(&self) -> bool {
        !self.on_their_way.is_empty()
    }

    /// Whether anything waits to be begun.
    pub fn has_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Whether a write is on its way.
    pub fn has_writes(&self) -> bool {
        let is_write = |one: &OnItsWay| matches!(one.awaits, Awaits::Write(..));
        self.on_their_way.iter().any(is_write)
    }

    /// The request was begun.
    pub fn begin(&mut self, xid: i32, since: Came, awaits: Awaits) {
        self.on_their_way.push_back(OnItsWay { xid, since, awaits });
    }

    /// The request is begun later.
    pub fn wait(&mut self, asked: Asked) {
        self.waiting_bytes += asked.bytes;
        self.waiting.push_back(asked);
    }

    /// Takes the first one that waits to be begun.
    pub fn take_waiting(&mut self) -> Option<Asked> {
        let asked = self.waiting.pop_front()?;
        self.waiting_bytes -= asked.bytes;
        Some(asked)
    }

    /// Forgets what waits to be begun: the connection ends before it.
    pub fn forget_waiting(&mut self) {
        self.waiting.clear();
        self.waiting_bytes = 0;
    }

    /// Puts it back.
    pub fn put_back(&mut self, asked: Asked) {
        self.waiting_bytes += asked.bytes;
        self.waiting.push_front(asked);
    }

    /// Waits until the first request on its way can be answered, and takes it out. Given up, it has taken none. Pending for
    /// ever if there is none.
    pub async fn next(&mut self) -> (i32, Came, Done) {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(i32, Came, Done)> {
        let Some(first) = self.on_their_way.front_mut() else {
            return Poll::Pending;
        };
        // Writes are answered in the order in which they are carried out, so it is enough to ask for the first.
        let ready = match &mut first.awaits {
            Awaits::Write(proposal, _) => match Pin::new(proposal).poll(cx) {
                Poll::Ready(outcome) => Ready::Write(outcome),
                Poll::Pending => return Poll::Pending,
            },
            Awaits::Sync(_, barrier) => match barrier.as_mut().poll(cx) {
                Poll::Ready(passed) => Ready::Sync(passed),
                Poll::Pending => return Poll::Pending,
            },
            Awaits::Known(_) | Awaits::Auth(_) => Ready::Itself,
        };
        let first = self.on_their_way.pop_front();
        let OnItsWay { xid, since, awaits } = first.expect("it was there a moment ago");
        let done = match (ready, awaits) {
            (Ready::Write(outcome), Awaits::Write(_, answer)) => Done::Write(outcome, answer),
            (Ready::Sync(passed), Awaits::Sync(path, _)) => Done::Sync(passed, path),
            (_, Awaits::Known(outcome)) => Done::Known(outcome),
            (_, Awaits::Auth(code)) => Done::Auth(code),
            (_, Awaits::Write(..) | Awaits::Sync(..)) => unreachable!("it was asked as what it is"),
        };
        Poll::Ready((xid, since, done))
    }
}

enum Ready {
    Write(Result<Applied, ProposeError>),
    Sync(Result<(), Unavailable>),
    Itself,
}
