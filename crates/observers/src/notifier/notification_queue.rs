//! Notices that wait for one client's connection, in order and bounded: a client that does not read loses its connection, never a single
//! notice.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use znode_watch::{Notice, TooManyWatches, units};

use raft_log::sync::{Mutex, MutexGuard};

/// Capacity that an empty queue may keep; the rest of a burst's memory is released.
const KEPT_CAPACITY: usize = 64;

/// Reason why the watches of a connection are gone. The client has to connect again, arm its watches with the position that it has seen
/// last, and read again what it watched persistently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchesLost {
    /// More notices wait for the client than the bound allows.
    #[error("more notices wait for the client than are kept for one")]
    TooSlow,
    /// This node caught up by a snapshot, and the events of a persistent watch are unknown.
    #[error("this node caught up by a snapshot and cannot tell what has happened")]
    StateReplaced,
    /// The client could not get all its watches again.
    #[error(transparent)]
    NotRearmed(#[from] TooManyWatches),
    /// The node stops.
    #[error("this node stops")]
    NodeStops,
    /// The session of the connection has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// The session of the connection has reconnected elsewhere.
    #[error("the session has moved to another connection")]
    SessionMoved,
}

/// Queue of notices.
#[derive(Debug, Default)]
pub struct NotificationQueue {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    notices: VecDeque<Notice>,
    /// Size of the notices: one of a long path counts as several.
    units: usize,
    lost: Option<WatchesLost>,
    /// Reason with which the queue ends when it is empty.
    ends: Option<WatchesLost>,
    /// Waker of the only task that waits. It reads the queue under the same lock, so that nothing else, such as tokio's `Notify` with its
    /// list of waiters, has to be locked for each notice.
    waits: Option<Waker>,
}

impl State {
    fn next(&mut self) -> Result<Option<Notice>, WatchesLost> {
        if let Some(lost) = self.lost {
            return Err(lost);
        }
        let next = self.notices.pop_front();
        self.units -= next.as_ref().map_or(0, |notice| units(&notice.path) as usize);
        if let (None, Some(ended)) = (&next, self.ends) {
            return Err(ended);
        }
        if self.notices.is_empty() {
            self.notices.shrink_to(KEPT_CAPACITY);
        }
        Ok(next)
    }
}

impl NotificationQueue {
    /// Adds a notice, unless `bound` is reached.
    pub(super) fn push(&self, notice: Notice, bound: usize) -> Result<(), WatchesLost> {
        let mut state = self.state.lock();
        if state.units >= bound {
            return Err(WatchesLost::TooSlow);
        }
        state.units += units(&notice.path) as usize;
        state.notices.push_back(notice);
        wake(state);
        Ok(())
    }

    /// Ends the queue and drops its notices: the client asks for all of them when it reconnects.
    pub(super) fn lose(&self, why: WatchesLost) {
        let mut state = self.state.lock();
        (state.notices, state.units) = (VecDeque::new(), 0);
        state.lost.get_or_insert(why);
        wake(state);
    }

    /// Ends the queue after its notices.
    pub(super) fn end(&self, why: WatchesLost) {
        let mut state = self.state.lock();
        state.ends.get_or_insert(why);
        wake(state);
    }

    /// Returns the reason why it has ended, if it has.
    pub(super) fn lost(&self) -> Option<WatchesLost> {
        let state = self.state.lock();
        state.lost.or(state.ends)
    }

    /// Returns the next notice, if there is one.
    pub fn try_next(&self) -> Result<Option<Notice>, WatchesLost> {
        self.state.lock().next()
    }

    /// Returns the next notice, or registers the task to be woken. One task at a time may wait: the last one that polled.
    pub fn poll_next(&self, cx: &mut Context<'_>) -> Poll<Result<Notice, WatchesLost>> {
        let mut state = self.state.lock();
        if let Some(next) = state.next().transpose() {
            return Poll::Ready(next);
        }
        match &state.waits {
            Some(waits) if waits.will_wake(cx.waker()) => {}
            _ => state.waits = Some(cx.waker().clone()),
        }
        Poll::Pending
    }

    /// Waits for the next notice. A cancelled wait takes none.
    pub async fn next(&self) -> Result<Notice, WatchesLost> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

/// Wakes the waiting task after the state is unlocked: it may run at once, on another thread.
fn wake(mut state: MutexGuard<'_, State>) {
    let waits = state.waits.take();
    drop(state);
    if let Some(waits) = waits {
        waits.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use znode_store::{ZPath, ZnodeEventKind, Zxid};

    use super::*;

    /// Counts its wake-ups.
    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Woken {
        fn times(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn notice(zxid: u64) -> Notice {
        Notice {
            kind: ZnodeEventKind::DataChanged,
            path: ZPath::parse("/a").unwrap(),
            zxid: Zxid(zxid),
        }
    }

    fn poll(backlog: &NotificationQueue, by: &Arc<Woken>) -> Poll<Result<Notice, WatchesLost>> {
        let waker = Waker::from(by.clone());
        backlog.poll_next(&mut Context::from_waker(&waker))
    }

    #[test]
    fn waiting_task_is_woken_once_and_finds_all_notices() {
        let (backlog, task) = (NotificationQueue::default(), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        backlog.push(notice(1), 8).unwrap();
        backlog.push(notice(2), 8).unwrap();
        assert_eq!(task.times(), 1);
        assert_eq!(poll(&backlog, &task), Poll::Ready(Ok(notice(1))));
        assert_eq!(poll(&backlog, &task), Poll::Ready(Ok(notice(2))));
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        backlog.push(notice(3), 8).unwrap();
        assert_eq!(task.times(), 2);
    }

    #[test]
    fn the_last_task_that_polled_is_woken() {
        let backlog = NotificationQueue::default();
        let (before, after) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &before), Poll::Pending);
        assert_eq!(poll(&backlog, &after), Poll::Pending);
        backlog.push(notice(1), 8).unwrap();
        assert_eq!((before.times(), after.times()), (0, 1));
    }

    #[test]
    fn the_end_wakes_the_task_and_comes_after_the_notices() {
        let (backlog, task) = (NotificationQueue::default(), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        backlog.push(notice(1), 8).unwrap();
        backlog.end(WatchesLost::SessionEnded);
        assert_eq!(task.times(), 1);
        assert_eq!(poll(&backlog, &task), Poll::Ready(Ok(notice(1))));
        assert_eq!(poll(&backlog, &task), Poll::Ready(Err(WatchesLost::SessionEnded)));
        let (backlog, task) = (NotificationQueue::default(), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        backlog.lose(WatchesLost::NodeStops);
        assert_eq!(task.times(), 1);
        assert_eq!(poll(&backlog, &task), Poll::Ready(Err(WatchesLost::NodeStops)));
    }
}
