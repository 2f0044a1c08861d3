//! Runtime of a client: where its connections, the heartbeats of its sessions, and the last requests of dropped guards run. It belongs
//! to the client, so none of them ends with the runtime of the caller, and none waits while the caller's threads are blocked.

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

/// Name of the thread, as debuggers and `top -H` show it: the kernel keeps 15 bytes.
const THREAD_NAME: &str = "lockgate-client";

/// Handle to the runtime of a client. Clones share it, and a thread of the client's own ends with the last clone.
#[derive(Clone)]
pub(crate) struct Background(Arc<Source>);

enum Source {
    /// The program's.
    Given(Handle),
    /// A thread that is started when it is first needed: most calls of a command line need one, a client that is only built does not.
    Own(Mutex<Option<Thread>>),
}

/// A thread that drives a runtime until this is dropped.
struct Thread {
    runtime: Handle,
    /// Dropped with this, which ends the thread.
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
    /// A runtime of the program, which has to outlive the sessions.
    pub(crate) fn given(runtime: Handle) -> Self {
        Self(Arc::new(Source::Given(runtime)))
    }

    /// A thread of the client's own.
    pub(crate) fn own() -> Self {
        Self(Arc::new(Source::Own(Mutex::new(None))))
    }

    /// Handle to the runtime; starts the thread if there is none yet.
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

    /// Runs a task, however long the caller lives. The task keeps the runtime of the client alive.
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

    /// A timer of this runtime.
    pub(crate) fn timer(&self) -> io::Result<BootTimer> {
        let runtime = self.runtime()?;
        let _entered = runtime.enter();
        BootTimer::new()
    }

    /// The future, polled by the caller, but with all that it starts (sockets, timers, tasks) on the runtime of the client.
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
                // An error says that the sender was dropped, which is how the thread ends.
                let _ = runtime.block_on(stopped);
                // A host name that is being resolved must not keep the thread.
                runtime.shutdown_background();
            })?;
        Ok(Self {
            runtime: handle,
            _stop: stop,
        })
    }
}

/// See [`Background::within`].
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
    use std::time::Duration;

    use super::*;

    /// How many threads of this process have the name.
    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).ok());
        names.filter(|name| name.trim_end() == THREAD_NAME).count()
    }

    #[test]
    fn own_thread_starts_when_needed_and_ends_with_the_last_clone_and_task() {
        let background = Background::own();
        assert_eq!(threads(), 0);
        let (done, waits) = mpsc::channel();
        let (go, gone) = oneshot::channel();
        let task = async move {
            let _ = gone.await;
            tokio::time::sleep(Duration::from_millis(1)).await;
            done.send(()).unwrap();
        };
        background.spawn(task).unwrap();
        assert_eq!(threads(), 1);
        background.clone().spawn(async {}).unwrap();
        assert_eq!(threads(), 1);
        // The task has not ended, so the thread stays.
        drop(background);
        go.send(()).unwrap();
        waits.recv().unwrap();
        while threads() > 0 {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
