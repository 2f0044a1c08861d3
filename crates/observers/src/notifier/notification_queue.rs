//! The notices that wait for one client's connection, in order and bounded: a client that does not read loses its
//! connection, never a notice.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Context, Poll, Waker};

use znode_watch::{Notice, TooManyWatches, units};

use raft_log::sync::{Mutex, MutexGuard};

/// How many places an empty queue may keep; what a burst needed beyond that is given back.
const KEPT_CAPACITY: usize = 64;

/// Why the watches of a connection are gone. The client has to connect again, arm them again by the position that it
/// has seen last, and read again what it watched persistently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WatchesLost {
    /// More notices wait for the client than may.
    #[error("more notices wait for the client than are kept for one")]
    TooSlow,
    /// This node caught up by a snapshot, and what a persistent watch would have told is not known.
    #[error("this node caught up by a snapshot and cannot tell what has happened")]
    StateReplaced,
    /// The client could not be given back all watches that it had.
    #[error(transparent)]
    NotRearmed(#[from] TooManyWatches),
    /// The node stops.
    #[error("this node stops")]
    NodeStops,
    /// The session that the connection is for has ended.
    #[error("the session has ended")]
    SessionEnded,
    /// The session that the connection is for goes on on another one.
    #[error("the session has moved to another connection")]
    SessionMoved,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Backlog {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    notices: VecDeque<Notice>,
    /// As how many they count: those of long paths as several.
    units: usize,
    lost: Option<WatchesLost>,
    /// It is lost when what waits is taken.
    ends: Option<WatchesLost>,
    /// Who waits for something to come. That is one task, and it looks at what is here under the same lock, so that nothing else, such
    /// as tokio's `Notify` with its list of who waits, has to be locked for each notice.
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

impl Backlog {
    /// Adds a notice, unless so many wait already.
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

    /// Ends it. What still waits goes, too: the client asks for all of it when it comes back.
    pub(super) fn lose(&self, why: WatchesLost) {
        let mut state = self.state.lock();
        (state.notices, state.units) = (VecDeque::new(), 0);
        state.lost.get_or_insert(why);
        wake(state);
    }

    /// Ends it after what still waits: nothing more will come.
    pub(super) fn end(&self, why: WatchesLost) {
        let mut state = self.state.lock();
        state.ends.get_or_insert(why);
        wake(state);
    }

    /// Why it has ended, if it has.
    pub(super) fn lost(&self) -> Option<WatchesLost> {
        let state = self.state.lock();
        state.lost.or(state.ends)
    }

    /// The next notice, if one waits.
    pub fn try_next(&self) -> Result<Option<Notice>, WatchesLost> {
        self.state.lock().next()
    }

    /// The same, or has the task woken when something has come. One task at a time may wait: the last one that asked.
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

    /// Waits for the next notice. Given up, it has taken none.
    pub async fn next(&self) -> Result<Notice, WatchesLost> {
        poll_fn(|cx| self.poll_next(cx)).await
    }
}

/// Wakes who waits, when the state is no longer locked: it may begin at once, on another thread.
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

    /// Counts how often it was woken.
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

    fn poll(backlog: &Backlog, by: &Arc<Woken>) -> Poll<Result<Notice, WatchesLost>> {
        let waker = Waker::from(by.clone());
        backlog.poll_next(&mut Context::from_waker(&waker))
    }

    #[test]
    fn who_waits_is_woken_once_and_finds_all_that_has_come() {
        let (backlog, task) = (Backlog::default(), Arc::new(Woken::default()));
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
    fn the_last_one_that_asked_is_woken() {
        let backlog = Backlog::default();
        let (before, after) = (Arc::new(Woken::default()), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &before), Poll::Pending);
        assert_eq!(poll(&backlog, &after), Poll::Pending);
        backlog.push(notice(1), 8).unwrap();
        assert_eq!((before.times(), after.times()), (0, 1));
    }

    #[test]
    fn the_end_wakes_too_and_is_heard_after_what_still_waits() {
        let (backlog, task) = (Backlog::default(), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        backlog.push(notice(1), 8).unwrap();
        backlog.end(WatchesLost::SessionEnded);
        assert_eq!(task.times(), 1);
        assert_eq!(poll(&backlog, &task), Poll::Ready(Ok(notice(1))));
        assert_eq!(poll(&backlog, &task), Poll::Ready(Err(WatchesLost::SessionEnded)));
        let (backlog, task) = (Backlog::default(), Arc::new(Woken::default()));
        assert_eq!(poll(&backlog, &task), Poll::Pending);
        backlog.lose(WatchesLost::NodeStops);
        assert_eq!(task.times(), 1);
        assert_eq!(poll(&backlog, &task), Poll::Ready(Err(WatchesLost::NodeStops)));
    }
}
