//! Turns: however many callers have something to say, only so many of them are listened to before everything else on the thread
//! goes on.
//!
//! On one thread with thousands of busy connections a task that is woken waits behind all of them, and a commit is many tasks
//! woken one after the other: the node would spend seconds on listening to requests that it then cannot carry out in time. So
//! reading takes a turn, of which there are a few at a time; who has none waits for it, in order, and is told how long it has
//! waited. Answering takes none: what is begun is finished.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, tcp};
use tokio::runtime::Handle;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::PollSemaphore;
use tokio_util::task::AbortOnDropHandle;

/// So many reads there are before all other tasks have gone on, for each thread: half a millisecond of work, of which a commit waits
/// several times over.
const AT_A_TIME: usize = 16;

/// The turns of one door. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Turns {
    shared: Arc<Shared>,
    /// Hands the turns out; ends with the last clone.
    _pacemaker: Arc<AbortOnDropHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Those that are left until the others have gone on.
    left: Arc<Semaphore>,
    at_a_time: usize,
    /// Whether the pacemaker has to look at what was taken, most of it.
    taken: AtomicBool,
    wake: Notify,
}

impl Turns {
    /// Turns for the connections of a runtime, the one that this is called on.
    pub fn new() -> Self {
        let at_a_time = AT_A_TIME * Handle::current().metrics().num_workers().max(1);
        let shared = Arc::new(Shared {
            left: Arc::new(Semaphore::new(at_a_time)),
            at_a_time,
            taken: AtomicBool::new(false),
            wake: Notify::new(),
        });
        let pacemaker = AbortOnDropHandle::new(tokio::spawn(hand_out(shared.clone())));
        Self {
            shared,
            _pacemaker: Arc::new(pacemaker),
        }
    }

    fn gate(&self) -> Gate {
        Gate {
            turns: self.clone(),
            place: PollSemaphore::new(self.shared.left.clone()),
            waits_since: None,
            waited: Waited::default(),
        }
    }
}

impl Shared {
    /// A turn was taken. While most are left nobody has waited for one, and the pacemaker sleeps: it would have to be woken for nearly
    /// every request otherwise.
    fn note_taken(&self) {
        // After the turn was taken from those that are left, so whoever sees this sees that, too.
        if self.are_most_left() || self.taken.swap(true, Ordering::AcqRel) {
            return;
        }
        self.wake.notify_one();
    }

    fn are_most_left(&self) -> bool {
        self.left.available_permits() > self.at_a_time / 2
    }
}

/// As tasks take their places in the runtime's queue in order, whoever was woken before this one has gone on when it does.
async fn hand_out(shared: Arc<Shared>) {
    loop {
        shared.wake.notified().await;
        loop {
            tokio::task::yield_now().await;
            shared.taken.swap(false, Ordering::AcqRel);
            if shared.are_most_left() {
                break;
            }
            // Those who wait get theirs before this counts them again.
            let spent = shared.at_a_time.saturating_sub(shared.left.available_permits());
            shared.left.add_permits(spent);
        }
    }
}

/// How long a caller has waited for its last turn: for whoever serves it.
#[derive(Debug, Clone, Default)]
pub struct Waited(Arc<AtomicU64>);

impl Waited {
    /// The time, to the microsecond.
    pub fn last(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, waited: Duration) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.0.store(waited, Ordering::Relaxed);
    }
}

/// One caller's way to its turns.
#[derive(Debug)]
struct Gate {
    turns: Turns,
    place: PollSemaphore,
    waits_since: Option<Instant>,
    waited: Waited,
}

impl Gate {
    /// Ready when there is something to read, and it is this caller's turn to.
    fn poll(&mut self, context: &mut Context<'_>, socket: &TcpStream) -> Poll<io::Result<()>> {
        if self.waits_since.is_none() {
            // Who has nothing to say needs no turn.
            ready!(socket.poll_read_ready(context))?;
        }
        match self.poll_turn(context) {
            Poll::Ready(()) => {
                self.turns.shared.note_taken();
                let since = self.waits_since.take();
                if since.is_some() {
                    // What it has waited with is given back, and not kept for the next time: most wait while they connect, and
                    // then are silent.
                    self.place = PollSemaphore::new(self.turns.shared.left.clone());
                }
                self.waited
                    .set(since.map_or(Duration::ZERO, |since| since.elapsed()));
                Poll::Ready(Ok(()))
            }
            Poll::Pending => {
                self.waits_since.get_or_insert_with(Instant::now);
                Poll::Pending
            }
        }
    }

    /// Mostly one is left, and then nothing has to be made to wait with. Whoever waits comes first all the same: turns that are handed
    /// out while somebody waits are never left.
    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.waits_since.is_none()
            && let Ok(turn) = self.turns.shared.left.try_acquire()
        {
            turn.forget();
            return Poll::Ready(());
        }
        // Nobody closes it; without turns reading would still be right.
        if let Some(turn) = ready!(self.place.poll_acquire(context)) {
            turn.forget();
        }
        Poll::Ready(())
    }
}

/// A caller's socket, which is read from in turn.
#[derive(Debug)]
pub struct Socket {
    tcp: TcpStream,
    gate: Gate,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream, turns: &Turns) -> Self {
        Self {
            tcp,
            gate: turns.gate(),
        }
    }

    /// The socket itself, to be set up.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// How long this caller has waited for its turn, time and again.
    pub fn waited(&self) -> Waited {
        self.gate.waited.clone()
    }

    /// Its two directions.
    pub fn split(&mut self) -> (Receiver<'_>, tcp::WriteHalf<'_>) {
        let (half, sender) = self.tcp.split();
        let gate = &mut self.gate;
        (Receiver { half, gate }, sender)
    }
}

/// The direction in which the caller speaks.
#[derive(Debug)]
pub struct Receiver<'a> {
    half: tcp::ReadHalf<'a>,
    gate: &'a mut Gate,
}

impl AsyncRead for Receiver<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { half, gate } = self.get_mut();
        ready!(gate.poll(context, half.as_ref()))?;
        Pin::new(half).poll_read(context, buffer)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { tcp, gate } = self.get_mut();
        ready!(gate.poll(context, tcp))?;
        Pin::new(tcp).poll_read(context, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().tcp).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.tcp.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().tcp).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::task::JoinSet;

    use super::*;

    /// Twice as many as a round has turns, and some.
    const CALLERS: usize = 3 * AT_A_TIME;

    async fn connected(listener: &TcpListener, turns: &Turns) -> (TcpStream, Socket) {
        let address = listener.local_addr().unwrap();
        let (caller, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (caller.unwrap(), Socket::new(accepted.unwrap().0, turns))
    }

    #[tokio::test]
    async fn however_many_speak_others_get_their_turn() {
        let turns = Turns::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let heard = Arc::new(AtomicUsize::new(0));
        let (mut callers, mut served) = (Vec::new(), JoinSet::new());
        for _ in 0..CALLERS {
            let (mut caller, mut socket) = connected(&listener, &turns).await;
            // More than is read at a time, so that all have something to say all the time.
            caller.write_all(&[7; 512]).await.unwrap();
            let heard = heard.clone();
            served.spawn(async move {
                let mut byte = [0; 1];
                for _ in 0..512 {
                    socket.read_exact(&mut byte).await.unwrap();
                    heard.fetch_add(1, Ordering::Relaxed);
                }
                socket.waited()
            });
            callers.push(caller);
        }
        while heard.load(Ordering::Relaxed) < CALLERS {
            tokio::task::yield_now().await;
        }
        // A step of another task waits for one round at most, whatever the callers have to say.
        let (mut last, mut most) = (heard.load(Ordering::Relaxed), 0);
        while last < 100 * CALLERS {
            tokio::task::yield_now().await;
            let now = heard.load(Ordering::Relaxed);
            most = most.max(now - last);
            last = now;
        }
        assert!(
            most <= 2 * AT_A_TIME,
            "{most} reads before one step of another task"
        );
        let mut longest = Duration::ZERO;
        while let Some(waited) = served.join_next().await {
            longest = longest.max(waited.unwrap().last());
        }
        assert!(longest > Duration::ZERO, "those who wait are told so");
    }

    #[tokio::test]
    async fn who_gives_up_takes_no_turn_from_others() {
        let turns = Turns::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // All turns are taken, and nobody hands out new ones.
        let none = turns.shared.left.clone();
        none.acquire_many(u32::try_from(AT_A_TIME).unwrap())
            .await
            .unwrap()
            .forget();
        let (mut first, mut gives_up) = connected(&listener, &turns).await;
        let (mut second, mut stays) = connected(&listener, &turns).await;
        first.write_all(b"a").await.unwrap();
        second.write_all(b"b").await.unwrap();
        let mut byte = [0; 1];
        for socket in [&mut gives_up, &mut stays] {
            let soon = tokio::time::timeout(Duration::from_millis(20), socket.read_exact(&mut byte));
            assert!(soon.await.is_err(), "there is no turn");
        }
        drop(gives_up);
        none.add_permits(1);
        stays.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"b");
        assert!(stays.waited().last() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn who_has_nothing_to_say_needs_no_turn() {
        let turns = Turns::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_silent, mut socket) = connected(&listener, &turns).await;
        let mut byte = [0; 1];
        // A new socket counts as readable until it has been read from in vain once.
        let mut left = [AT_A_TIME - 1; 3];
        for left in &mut left {
            let soon = tokio::time::timeout(Duration::from_millis(5), socket.read_exact(&mut byte));
            assert!(soon.await.is_err(), "nothing was said");
            *left = turns.shared.left.available_permits();
        }
        assert_eq!(left, [AT_A_TIME - 1; 3]);
        assert_eq!(socket.waited().last(), Duration::ZERO);
    }
}
