//! Connections that take turns in a few tasks. See the crate for why they have none of their own.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

type Connection = BoxFuture<'static, ()>;

/// So many connections go on in one turn: some hundred microseconds of work. tokio looks for what has come from the network
/// only every so many turns of tasks (61, unless the runtime says otherwise), and for a node that counts as much as a turn does.
const IN_A_TURN: usize = 16;

/// The tasks of a door.
pub struct Turns {
    groups: Vec<Group>,
    next: usize,
}

struct Group {
    arrivals: mpsc::UnboundedSender<Connection>,
    /// How many of its connections have gone on in this turn.
    gone_on: Arc<AtomicUsize>,
    /// Ends with its door, if nobody waits for it.
    task: AbortOnDropHandle<()>,
}

impl Turns {
    /// A group for each thread of the runtime that this is called on.
    pub fn new() -> Self {
        let threads = Handle::current().metrics().num_workers();
        let groups = (0..threads.max(1)).map(|_| {
            // Bounded by the door's places.
            let (arrivals, arrived) = mpsc::unbounded_channel();
            let gone_on = Arc::<AtomicUsize>::default();
            let task = AbortOnDropHandle::new(tokio::spawn(take_turns(arrived, gone_on.clone())));
            Group {
                arrivals,
                gone_on,
                task,
            }
        });
        Self {
            groups: groups.collect(),
            next: 0,
        }
    }

    /// Has a connection served.
    pub fn serve(&mut self, connection: impl Future<Output = ()> + Send + 'static) {
        self.next = (self.next + 1) % self.groups.len();
        let group = &self.groups[self.next];
        // A panic is one connection's affair, as in a task of its own; what it said was logged where it arose.
        let connection = AssertUnwindSafe(connection).catch_unwind().map(drop);
        let connection = in_turn(connection, group.gone_on.clone()).boxed();
        // A group's task ends only when this is gone, or with the runtime.
        let _ = group.arrivals.send(connection);
    }

    /// Waits until all connections are over, for so long at the most, and then cuts those off that are not. Says whether it had to.
    pub async fn finish(self, patience: Duration) -> bool {
        let mut tasks: Vec<_> = self.groups.into_iter().map(|group| group.task).collect();
        let all_over = async {
            for task in &mut tasks {
                // Nobody else aborts it, and it catches what panics.
                let _ = task.await;
            }
        };
        if tokio::time::timeout(patience, all_over).await.is_ok() {
            return false;
        }
        for task in &tasks {
            task.abort();
        }
        for task in tasks.iter_mut().filter(|task| !task.is_finished()) {
            // Its connections are dropped by then.
            let _ = task.await;
        }
        true
    }
}

/// A connection that waits for the next turn when enough others have gone on in this one. (tokio alone would end it only after
/// 128 operations on sockets, channels and timers.)
async fn in_turn(connection: impl Future<Output = ()>, gone_on: Arc<AtomicUsize>) {
    let mut connection = pin!(connection);
    poll_fn(|context| {
        if gone_on.fetch_add(1, Ordering::Relaxed) >= IN_A_TURN {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        connection.as_mut().poll(context)
    })
    .await;
}

async fn take_turns(arrived: mpsc::UnboundedReceiver<Connection>, gone_on: Arc<AtomicUsize>) {
    let mut all = pin!(serve_all(arrived));
    poll_fn(|context| {
        gone_on.store(0, Ordering::Relaxed);
        all.as_mut().poll(context)
    })
    .await;
}

async fn serve_all(mut arrived: mpsc::UnboundedReceiver<Connection>) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            arrival = arrived.recv() => match arrival {
                Some(connection) => connections.push(connection),
                None => break,
            },
            Some(()) = connections.next() => {}
        }
    }
    while connections.next().await.is_some() {}
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use tokio::sync::Notify;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn however_many_are_busy_others_get_their_turn() {
        const BUSY: usize = 1_000;
        let mut turns = Turns::new();
        let (done, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for _ in 0..BUSY {
            let (done, stop) = (done.clone(), stop.clone());
            turns.serve(async move {
                let (tell, mut told) = mpsc::unbounded_channel();
                while !stop.load(Ordering::Relaxed) {
                    // As a connection at which there is always something to read.
                    tell.send(()).unwrap();
                    told.recv().await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        while done.load(Ordering::Relaxed) < 10 * BUSY {
            tokio::task::yield_now().await;
        }
        // A step of a task of its own waits for one turn of the group, which is a fraction of what the connections could do.
        let (before, mut most) = (done.load(Ordering::Relaxed), 0);
        let mut last = before;
        for _ in 0..100 {
            tokio::task::yield_now().await;
            let now = done.load(Ordering::Relaxed);
            most = most.max(now - last);
            last = now;
        }
        assert!(last > before, "the connections go on meanwhile");
        assert!(
            most <= BUSY / 2,
            "{most} steps of connections went before one of another task"
        );
        stop.store(true, Ordering::Relaxed);
        assert!(!turns.finish(PATIENCE).await);
    }

    #[tokio::test]
    async fn a_panic_ends_one_connection() {
        let mut turns = Turns::new();
        let (go, gone) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        turns.serve(async { panic!("on purpose") });
        let (wait, note) = (go.clone(), gone.clone());
        turns.serve(async move {
            wait.notified().await;
            note.store(true, Ordering::Relaxed);
        });
        tokio::task::yield_now().await;
        go.notify_one();
        assert!(!turns.finish(PATIENCE).await);
        assert!(gone.load(Ordering::Relaxed));
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_do_not_end_are_cut_off() {
        struct Note(Arc<AtomicBool>);
        impl Drop for Note {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let mut turns = Turns::new();
        let dropped = Arc::new(AtomicBool::new(false));
        let note = Note(dropped.clone());
        turns.serve(async move {
            let _note = note;
            std::future::pending::<()>().await;
        });
        assert!(turns.finish(PATIENCE).await);
        assert!(dropped.load(Ordering::Relaxed));
    }
}
