//! Read pacing: bounds the number of reads from busy connections before all other tasks of the thread have
//! run.
//!
//! On one thread with thousands of busy connections a woken task waits behind all of them. A commit is a
//! chain of woken tasks, so the node would spend seconds on reading requests that it cannot process in time.
//! Therefore a read takes a permit, of which there are a few per round. A connection without a permit waits
//! for one in order, and its handler can query the delay ([`ReadDelay`]). Writing needs no permit, so that
//! requests in progress finish.
//!
//! Accepting takes permits of its own, of which there are fewer, so that a client that connects again and again
//! delays new connections, and hardly the requests of others. TLS handshakes run on another thread
//! ([`Socket::handshake`]) and take no permits.

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

use crate::handshake_thread::{HandshakeThread, move_to_this_thread};

/// Reads per thread before all other tasks have run once: half a millisecond of work. A commit waits several
/// such rounds.
const READS_PER_ROUND: usize = 16;

/// Accepted connections per thread in a round: a tenth of a millisecond of work (docs/internals/decisions/0026-read-pacing.md).
pub(crate) const ACCEPTED_PER_ROUND: usize = 4;

/// Time for which a busy node runs before it yields to other threads of the machine: that of its log, and those of other nodes. Otherwise the
/// kernel lets them wait for a tick at each step of a commit: 4 ms with 250 Hz and without preemption.
const BUSY_TURN: Duration = Duration::from_millis(1);

/// Read pacer of one listener. Cheap to clone.
#[derive(Debug, Clone)]
pub struct ReadPacer(Arc<Pacer>);

#[derive(Debug)]
struct Pacer {
    shared: Arc<Shared>,
    handshakes: HandshakeThread,
    /// Task that replenishes the permits; aborted with the pacer.
    _replenisher: AbortOnDropHandle<()>,
}

#[derive(Debug)]
struct Shared {
    reads: Lane,
    accepting: Lane,
    /// True if reads took permits since the replenisher last looked, and few are left.
    is_low: AtomicBool,
    wake: Notify,
}

/// Permits for one kind of work.
#[derive(Debug)]
struct Lane {
    /// Permits that are left in this round.
    permits: Arc<Semaphore>,
    per_round: usize,
}

impl Lane {
    fn new(per_round: usize) -> Self {
        let permits = Arc::new(Semaphore::new(per_round));
        Self { permits, per_round }
    }

    fn has_most_permits(&self) -> bool {
        self.permits.available_permits() > self.per_round / 2
    }

    fn replenish(&self) {
        let spent = self.per_round.saturating_sub(self.permits.available_permits());
        self.permits.add_permits(spent);
    }
}

impl ReadPacer {
    /// Creates a pacer for connections on the current runtime.
    pub(crate) fn new() -> Self {
        let threads = Handle::current().metrics().num_workers().max(1);
        let shared = Arc::new(Shared {
            reads: Lane::new(READS_PER_ROUND * threads),
            accepting: Lane::new(ACCEPTED_PER_ROUND * threads),
            is_low: AtomicBool::new(false),
            wake: Notify::new(),
        });
        let replenisher = AbortOnDropHandle::new(tokio::spawn(replenish(shared.clone())));
        Self(Arc::new(Pacer {
            shared,
            handshakes: HandshakeThread::default(),
            _replenisher: replenisher,
        }))
    }

    /// Waits for a permit for work that is not a read: a request that stands for many takes one for each of
    /// them, like as many connections that send one each. Cancel safe.
    pub async fn permit(&self) {
        self.0.shared.take(&self.0.shared.reads).await;
    }

    /// Waits for a permit to accept a connection. Cancel safe.
    pub(crate) async fn permit_to_accept(&self) {
        self.0.shared.take(&self.0.shared.accepting).await;
    }

    fn paced_reads(&self) -> PacedReads {
        PacedReads {
            pacer: self.clone(),
            is_handshake: false,
            waiting: None,
            waited: ReadDelay::default(),
        }
    }
}

impl Shared {
    async fn take(&self, lane: &Lane) {
        // The semaphore is never closed; if it were, working without a permit would still be correct.
        if let Ok(permit) = lane.permits.acquire().await {
            permit.forget();
        }
        self.note(lane);
    }

    /// Notes that a permit was taken. While most permits are left no connection waits for one, and the replenisher sleeps:
    /// otherwise nearly every request would have to wake it.
    fn note(&self, lane: &Lane) {
        // After the permit was taken: a task that sees this flag sees the taken permit, too.
        if lane.has_most_permits() || self.is_low.swap(true, Ordering::AcqRel) {
            return;
        }
        self.wake.notify_one();
    }

    fn lanes(&self) -> [&Lane; 2] {
        [&self.reads, &self.accepting]
    }
}

/// Returns the permits of a round once all other runnable tasks have run. A runtime runs its tasks in queue
/// order, so every task that was woken before this one has run when this one resumes.
async fn replenish(shared: Arc<Shared>) {
    loop {
        shared.wake.notified().await;
        let mut began = Instant::now();
        loop {
            tokio::task::yield_now().await;
            if began.elapsed() >= BUSY_TURN {
                std::thread::yield_now();
                began = Instant::now();
            }
            shared.is_low.swap(false, Ordering::AcqRel);
            if shared.lanes().into_iter().all(Lane::has_most_permits) {
                break;
            }
            // Waiting connections get their permits before the next iteration counts again.
            shared.lanes().into_iter().for_each(Lane::replenish);
        }
    }
}

/// Time that a connection waited for its last read permit, for the handler that serves it.
#[derive(Debug, Clone, Default)]
pub struct ReadDelay(Arc<AtomicU64>);

impl ReadDelay {
    /// Returns the delay, to the microsecond.
    pub fn last(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::Relaxed))
    }

    fn set(&self, waited: Duration) {
        let waited = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        self.0.store(waited, Ordering::Relaxed);
    }
}

/// Read permits of one connection.
#[derive(Debug)]
struct PacedReads {
    pacer: ReadPacer,
    /// True during the TLS handshake, whose reads take no permits.
    is_handshake: bool,
    /// The current wait for a permit. Its memory is freed when it ends: most connections wait once, while they
    /// connect, and then are idle.
    waiting: Option<Box<WaitForPermit>>,
    waited: ReadDelay,
}

#[derive(Debug)]
struct WaitForPermit {
    since: Instant,
    permit: PollSemaphore,
}

impl PacedReads {
    /// Completes when the socket is readable and this connection has a permit.
    fn poll(&mut self, context: &mut Context<'_>, socket: &TcpStream) -> Poll<io::Result<()>> {
        if self.is_handshake {
            return Poll::Ready(Ok(()));
        }
        if self.waiting.is_none() {
            // A connection without data needs no permit.
            ready!(socket.poll_read_ready(context))?;
        }
        let waited = ready!(self.poll_permit(context));
        self.waited.set(waited);
        let shared = &self.pacer.0.shared;
        shared.note(&shared.reads);
        Poll::Ready(Ok(()))
    }

    /// Acquires a permit and returns the time that it took. Usually one is available, and then nothing has to
    /// be allocated to wait with. The order stays fair: permits that are added while a connection waits go to
    /// the waiter first.
    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<Duration> {
        let waiting = self.waiting.take();
        let permits = &self.pacer.0.shared.reads.permits;
        let mut waiting = match waiting {
            Some(waiting) => waiting,
            None => match permits.try_acquire() {
                Ok(permit) => {
                    permit.forget();
                    return Poll::Ready(Duration::ZERO);
                }
                Err(_) => Box::new(WaitForPermit {
                    since: Instant::now(),
                    permit: PollSemaphore::new(permits.clone()),
                }),
            },
        };
        match waiting.permit.poll_acquire(context) {
            Poll::Ready(permit) => {
                // The semaphore is never closed; if it were, reading without a permit would still be correct.
                if let Some(permit) = permit {
                    permit.forget();
                }
                Poll::Ready(waiting.since.elapsed())
            }
            Poll::Pending => {
                self.waiting = Some(waiting);
                Poll::Pending
            }
        }
    }
}

/// Client socket whose reads are paced.
#[derive(Debug)]
pub struct Socket {
    tcp: TcpStream,
    reads: PacedReads,
}

impl Socket {
    pub(crate) fn new(tcp: TcpStream, pacer: &ReadPacer) -> Self {
        Self {
            tcp,
            reads: pacer.paced_reads(),
        }
    }

    /// Returns the socket, to configure it.
    pub fn tcp(&self) -> &TcpStream {
        &self.tcp
    }

    /// Performs a TLS handshake on the listener's thread for handshakes, which has a low priority. Then moves the socket, which `socket_in` finds
    /// in the result, to the calling thread, and returns the result. If this future is dropped, the handshake is aborted.
    ///
    /// # Errors
    ///
    /// Those of the handshake, and one if the thread cannot be started or there is no free descriptor for the move.
    pub async fn handshake<T, E, F>(
        mut self,
        handshake: impl FnOnce(Self) -> F + Send + 'static,
        socket_in: impl FnOnce(&mut T) -> &mut Self,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
        F: Future<Output = Result<T, E>> + Send,
    {
        let pacer = self.reads.pacer.clone();
        self.reads.is_handshake = true;
        let handshake = async move {
            move_to_this_thread(&mut self.tcp)?;
            handshake(self).await
        };
        let mut done = pacer.0.handshakes.run(handshake).await?;
        let socket = socket_in(&mut done);
        socket.reads.is_handshake = false;
        move_to_this_thread(&mut socket.tcp)?;
        Ok(done)
    }

    /// Returns the pacer of this connection's listener.
    pub fn pacer(&self) -> &ReadPacer {
        &self.reads.pacer
    }

    /// Returns the handle that reports the read delay of this connection.
    pub fn read_delay(&self) -> ReadDelay {
        self.reads.waited.clone()
    }

    /// Splits the socket into its paced read half and its write half.
    pub fn split(&mut self) -> (PacedReadHalf<'_>, tcp::WriteHalf<'_>) {
        let (half, sender) = self.tcp.split();
        let reads = &mut self.reads;
        (PacedReadHalf { half, reads }, sender)
    }
}

/// Paced read half of a [`Socket`].
#[derive(Debug)]
pub struct PacedReadHalf<'a> {
    half: tcp::ReadHalf<'a>,
    reads: &'a mut PacedReads,
}

impl AsyncRead for PacedReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { half, reads } = self.get_mut();
        ready!(reads.poll(context, half.as_ref()))?;
        Pin::new(half).poll_read(context, buffer)
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { tcp, reads } = self.get_mut();
        ready!(reads.poll(context, tcp))?;
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

    /// Longer than anything here takes.
    const TIMEOUT: Duration = Duration::from_secs(30);

    /// More clients than a round has permits.
    const CLIENTS: usize = 3 * READS_PER_ROUND;

    async fn connected(listener: &TcpListener, pacer: &ReadPacer) -> (TcpStream, Socket) {
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        (client.unwrap(), Socket::new(accepted.unwrap().0, pacer))
    }

    #[tokio::test]
    async fn busy_connections_do_not_starve_other_tasks() {
        let pacer = ReadPacer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let (mut clients, mut served) = (Vec::new(), JoinSet::new());
        for _ in 0..CLIENTS {
            let (mut client, mut socket) = connected(&listener, &pacer).await;
            // More bytes than one read takes, so that all sockets stay readable.
            client.write_all(&[7; 512]).await.unwrap();
            let reads = reads.clone();
            served.spawn(async move {
                let mut byte = [0; 1];
                for _ in 0..512 {
                    socket.read_exact(&mut byte).await.unwrap();
                    reads.fetch_add(1, Ordering::Relaxed);
                }
                socket.read_delay()
            });
            clients.push(client);
        }
        while reads.load(Ordering::Relaxed) < CLIENTS {
            tokio::task::yield_now().await;
        }
        // A step of another task waits for one round at most, however much the clients send.
        let (mut last, mut most) = (reads.load(Ordering::Relaxed), 0);
        while last < 100 * CLIENTS {
            tokio::task::yield_now().await;
            let now = reads.load(Ordering::Relaxed);
            most = most.max(now - last);
            last = now;
        }
        assert!(
            (READS_PER_ROUND..=2 * READS_PER_ROUND).contains(&most),
            "{most} reads before one step of another task"
        );
        let mut longest = Duration::ZERO;
        while let Some(waited) = served.join_next().await {
            longest = longest.max(waited.unwrap().last());
        }
        assert!(
            longest > Duration::ZERO,
            "the delay of waiting connections is measured"
        );
    }

    #[tokio::test]
    async fn handshake_runs_on_a_thread_with_a_low_priority() {
        let pacer = ReadPacer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (mut client, socket) = connected(&listener, &pacer).await;
        client.write_all(b"hello").await.unwrap();
        let handshake = |mut socket: Socket| async move {
            let mut hello = [0; 5];
            socket.read_exact(&mut hello).await?;
            let thread = std::thread::current();
            let priority = rustix::process::getpriority_process(None)?;
            let thread = thread.name().map(str::to_owned);
            io::Result::Ok((socket, hello, thread, priority))
        };
        let own_priority = rustix::process::getpriority_process(None).unwrap();
        let shaken = socket.handshake(handshake, |(socket, ..)| socket).await;
        let (mut socket, hello, thread, priority) = shaken.unwrap();
        assert_eq!((&hello, thread.as_deref()), (b"hello", Some("handshakes")));
        assert!(
            priority > own_priority,
            "a greater number is a lower priority: {priority}"
        );

        // Afterwards the socket does not depend on that thread, which is blocked here, and takes permits.
        let (release, released) = std::sync::mpsc::channel::<()>();
        let (begun, has_begun) = tokio::sync::oneshot::channel();
        let of_thread = pacer.clone();
        let blocked = tokio::spawn(async move {
            let block = async move {
                begun.send(()).unwrap();
                released.recv().unwrap_err();
                io::Result::Ok(())
            };
            of_thread.0.handshakes.run(block).await
        });
        has_begun.await.unwrap();
        let left = || pacer.0.shared.reads.permits.available_permits();
        let before = left();
        let mut again = [0; 5];
        let mut read = Box::pin(socket.read_exact(&mut again));
        let poll = |context: &mut Context<'_>| Poll::Ready(read.as_mut().poll(context));
        assert!(
            std::future::poll_fn(poll).await.is_pending(),
            "nothing was sent yet"
        );
        client.write_all(b"again").await.unwrap();
        let read = tokio::time::timeout(TIMEOUT, read).await;
        read.expect("the socket is registered with this thread").unwrap();
        assert_eq!(&again, b"again");
        assert!(left() < before);
        drop(release);
        blocked.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn work_with_permits_does_not_starve_other_tasks() {
        let (pacer, done) = (ReadPacer::new(), Arc::new(AtomicUsize::new(0)));
        for _ in 0..CLIENTS {
            let (pacer, done) = (pacer.clone(), done.clone());
            tokio::spawn(async move {
                for _ in 0..100 {
                    pacer.permit().await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let (mut last, mut most) = (0, 0);
        while last < 100 * CLIENTS {
            tokio::task::yield_now().await;
            let now = done.load(Ordering::Relaxed);
            most = most.max(now - last);
            last = now;
        }
        assert!(
            most <= 2 * READS_PER_ROUND,
            "{most} permits before one step of another task"
        );
    }

    #[tokio::test]
    async fn cancelled_wait_takes_no_permit() {
        let pacer = ReadPacer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // All permits are taken, and the replenisher is not woken.
        let permits = pacer.0.shared.reads.permits.clone();
        permits
            .acquire_many(u32::try_from(READS_PER_ROUND).unwrap())
            .await
            .unwrap()
            .forget();
        let (mut first, mut gives_up) = connected(&listener, &pacer).await;
        let (mut second, mut stays) = connected(&listener, &pacer).await;
        first.write_all(b"a").await.unwrap();
        second.write_all(b"b").await.unwrap();
        let mut byte = [0; 1];
        for socket in [&mut gives_up, &mut stays] {
            let soon = tokio::time::timeout(Duration::from_millis(20), socket.read_exact(&mut byte));
            assert!(soon.await.is_err(), "no permit is left");
        }
        drop(gives_up);
        permits.add_permits(1);
        stays.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"b");
        assert!(stays.read_delay().last() >= Duration::from_millis(20));
    }

    #[tokio::test]
    async fn idle_connection_takes_no_permit() {
        let pacer = ReadPacer::new();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (_silent, mut socket) = connected(&listener, &pacer).await;
        let mut byte = [0; 1];
        // A new socket counts as readable until the first read that finds no data.
        let mut left = [READS_PER_ROUND - 1; 3];
        for left in &mut left {
            let soon = tokio::time::timeout(Duration::from_millis(5), socket.read_exact(&mut byte));
            assert!(soon.await.is_err(), "the client has sent nothing");
            *left = pacer.0.shared.reads.permits.available_permits();
        }
        assert_eq!(left, [READS_PER_ROUND - 1; 3]);
        assert_eq!(socket.read_delay().last(), Duration::ZERO);
    }
}
