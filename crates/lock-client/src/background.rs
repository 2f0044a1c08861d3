//! Runtime of a client, for its connections, heartbeats, and the last requests of dropped guards. It belongs to the client, so it
//! does not end with the caller's runtime, and does not wait while the caller's threads are blocked.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;

use parking_lot::Mutex;
use tokio::runtime::{self, Handle};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::BootTimer;

/// Name of the thread in debuggers and `top -H`. The kernel keeps 15 bytes.
const THREAD_NAME: &str = "lockgate-client";

/// Handle to the runtime of a client. Clones share it; a thread of the client ends with the last clone.
#[derive(Clone)]
pub(crate) struct Background(Arc<Source>);

enum Source {
    /// Runtime of the program.
    Given(Handle),
    /// Thread that starts with the first request. A client without requests needs none.
    Own(Mutex<Option<Thread>>),
}

/// Thread that drives a runtime until this is dropped.
struct Thread {
    runtime: Handle,
    /// Ends the thread when dropped.
    _stop: oneshot::Sender<()>,
}

impl fmt::Debug for Background {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &*self.0 {
            Source::Given(_) => "Background::Given",
            Source::Own(_) => "Background::Own",
        })
    }
}

impl Background {
    /// Runtime of the program, which has to outlive the sessions.
    pub(crate) fn given(runtime: Handle) -> Self {
        Self(Arc::new(Source::Given(runtime)))
    }

    /// Thread of the client.
    pub(crate) fn own() -> Self {
        Self(Arc::new(Source::Own(Mutex::new(None))))
    }

    /// Returns a handle to the runtime. Starts the thread if it does not run.
    pub(crate) fn runtime(&self) -> io::Result<Handle> {
        match &*self.0 {
            Source::Given(runtime) => Ok(runtime.clone()),
            Source::Own(thread) => {
                let mut thread = thread.lock();
                if let Some(thread) = &*thread {
                    return Ok(thread.runtime.clone());
                }
                let started = Thread::start()?;
                Ok(thread.insert(started).runtime.clone())
            }
        }
    }

    /// Runs a task, also after the caller has ended. The task keeps the client's runtime alive.
    pub(crate) fn spawn(
        &self,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<JoinHandle<()>> {
        let kept = self.clone();
        let task = async move {
            task.await;
            drop(kept);
        };
        Ok(self.runtime()?.spawn(task))
    }

    /// Returns a timer of this runtime.
    pub(crate) fn timer(&self) -> io::Result<BootTimer> {
        let runtime = self.runtime()?;
        let _entered = runtime.enter();
        BootTimer::new()
    }

    /// Returns a future that the caller polls. Everything that it starts (sockets, timers, tasks) runs on the client's runtime.
    pub(crate) fn within<F: Future>(&self, future: F) -> io::Result<Within<F>> {
        Ok(Within {
            runtime: self.runtime()?,
            future: Box::pin(future),
        })
    }
}

impl Thread {
    fn start() -> io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || {
                // An error means that the sender was dropped, which ends the thread.
                let _ = runtime.block_on(stopped);
                // Do not wait for a host name that is being resolved.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            _stop: stop,
        })
    }
}

/// Future of [`Background::within`].
pub(crate) struct Within<F> {
    runtime: Handle,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let Self { runtime, future } = &mut *self;
        let _entered = runtime.enter();
        future.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    /// Waits until this process has so many threads with the name. A thread gives itself its name, some time after it was started.
    fn wait_for_threads(count: usize) {
        let begin = Instant::now();
        loop {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            // A thread may end while the list is read.
            let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
            let found = names.filter(|name| name.trim_end() == THREAD_NAME).count();
            if found == count {
                return;
            }
            assert!(begin.elapsed() < TIMEOUT, "{found} threads in place of {count}");
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn own_thread_starts_when_needed_and_ends_with_the_last_clone_and_task() {
        let background = Background::own();
        wait_for_threads(0);
        let (done, waits) = mpsc::channel();
        let (go, gone) = oneshot::channel();
        let first_done = done.clone();
        let task = async move {
            let _ = gone.await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            first_done.send("first").unwrap();
        };
        background.spawn(task).unwrap();
        wait_for_threads(1);
        let task = async move { done.send("second").unwrap() };
        background.clone().spawn(task).unwrap();
        assert_eq!(waits.recv(), Ok("second"));
        wait_for_threads(1);
        // The first task has not ended, so the thread stays.
        drop(background);
        go.send(()).unwrap();
        assert_eq!(waits.recv(), Ok("first"));
        wait_for_threads(0);
    }
}
