//! Thread of a listener for TLS handshakes.
//!
//! A handshake costs as much as ten small requests, and anybody can begin one. On a thread of their own with a low
//! priority, the handshakes of a client that connects again and again take the processor from nobody else: the
//! kernel runs the node's other threads first. While those are busy, the handshakes still get about a tenth of a core.
//!
//! Nodes among themselves do not use it: their connections must not wait for a busy machine.

use std::io;
use std::os::fd::AsFd;
use std::panic::resume_unwind;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::task::AbortOnDropHandle;
use tracing::debug;

/// Priority of the thread as a `nice` value. By the kernel's weights it gets a tenth of a core beside one thread of ordinary priority, so that a
/// fleet that connects again to a busy node is served soon (docs/internals/decisions/0026-read-pacing.md). With 19 it would be a seventieth.
const PRIORITY: i32 = 10;

/// Thread of a listener for TLS handshakes. It starts with the first handshake and ends with this value.
#[derive(Debug, Default)]
pub(crate) struct HandshakeThread(Mutex<Option<Running>>);

/// A thread that runs.
#[derive(Debug)]
struct Running {
    tasks: Handle,
    /// Dropping it ends the thread.
    _end: oneshot::Sender<()>,
}

impl HandshakeThread {
    /// Performs a handshake on this thread, and returns its result. Its socket has to be moved to this thread, and back
    /// ([`move_to_this_thread`]). If this future is dropped, the handshake is aborted.
    ///
    /// # Errors
    ///
    /// Those of the handshake, and one if the thread cannot be started or has ended.
    pub async fn run<T, E>(
        &self,
        handshake: impl Future<Output = Result<T, E>> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<io::Error> + Send + 'static,
    {
        let task = AbortOnDropHandle::new(self.tasks()?.spawn(handshake));
        task.await.unwrap_or_else(|failed| match failed.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(ended) => Err(io::Error::other(ended).into()),
        })
    }

    /// Starts the thread unless it runs.
    fn tasks(&self) -> io::Result<Handle> {
        let mut running = self.0.lock();
        if let Some(running) = &*running {
            return Ok(running.tasks.clone());
        }
        let started = Running::start()?;
        let tasks = started.tasks.clone();
        *running = Some(started);
        Ok(tasks)
    }
}

impl Running {
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let tasks = runtime.handle().clone();
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("handshakes".to_owned());
        thread.spawn(move || {
            lower_priority();
            // The error says that the sender was dropped, which ends the thread.
            let _ = runtime.block_on(ended);
        })?;
        Ok(Self { tasks, _end: end })
    }
}

/// Lowers the priority of the calling thread. Elsewhere than on Linux the call would change the whole process.
fn lower_priority() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::process::setpriority_process(None, PRIORITY) {
        // The handshakes work all the same, and compete with requests.
        debug!(%error, "listener: cannot lower the priority of the thread for handshakes");
    }
}

/// Registers a socket with the runtime of the calling thread, whose tasks use it from now on.
pub(crate) fn move_to_this_thread(socket: &mut TcpStream) -> io::Result<()> {
    // The runtime keeps a registration as long as its descriptor is open, so the socket gets a new one.
    let descriptor = socket.as_fd().try_clone_to_owned()?;
    *socket = TcpStream::from_std(descriptor.into())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn handshakes_on_an_ended_thread_fail() {
        let thread = HandshakeThread::default();
        let (begun, has_begun) = oneshot::channel();
        let stalled = thread.run(async move {
            begun.send(()).unwrap();
            std::future::pending::<io::Result<()>>().await
        });
        let end = async {
            has_begun.await.unwrap();
            *thread.0.lock() = None;
        };
        let (stalled, ()) = tokio::join!(stalled, end);
        assert!(stalled.is_err());
        // The next one starts another thread.
        thread.run(async { io::Result::Ok(()) }).await.unwrap();
    }
}
