//! Signal that wakes the writer: a thread, or a task in a simulated node. The work itself is in the queue.

use std::time::Duration;

use parking_lot::{Condvar, MutexGuard};

use super::Queue;

/// Signal that something was queued, or that the log is closing.
#[derive(Default)]
pub(super) struct WriterSignal {
    thread: Condvar,
    #[cfg(feature = "simulation")]
    task: tokio::sync::Notify,
}

impl WriterSignal {
    /// Wakes the writer.
    pub fn notify(&self) {
        self.thread.notify_all();
        #[cfg(feature = "simulation")]
        self.task.notify_one();
    }

    /// Waits for a signal.
    pub fn wait(&self, queue: &mut MutexGuard<'_, Queue>) {
        self.thread.wait(queue);
    }

    /// Waits for a signal up to a timeout. Returns whether the timeout elapsed.
    pub fn wait_for(&self, queue: &mut MutexGuard<'_, Queue>, timeout: Duration) -> bool {
        self.thread.wait_for(queue, timeout).timed_out()
    }
}

/// Maximum time between steps of a simulated node's preallocator.
#[cfg(feature = "simulation")]
const PREALLOCATOR_INTERVAL: Duration = Duration::from_millis(500);

/// Task in place of the writer's thread, with the delays of the simulated disk: operations that are queued
/// during a delay are written together, as on a real disk.
#[cfg(feature = "simulation")]
pub(super) async fn step_as_task(
    shared: std::sync::Arc<super::Shared>,
    writer: std::sync::Arc<parking_lot::Mutex<super::WalWriter>>,
) {
    use crate::simulation::{DiskWork, wait_for_disk};
    loop {
        let (idle, mark) = {
            let queue = shared.queue.lock();
            (queue.ops.is_empty() && !queue.closing, queue.committed.is_some())
        };
        let idle_flush = writer.lock().idle_flush();
        match idle_flush {
            Some(timeout) if idle && mark => {
                // A commit mark is written alone if nothing else is queued.
                let more = tokio::time::timeout(timeout, shared.work.task.notified()).await;
                if more.is_ok() {
                    continue;
                }
            }
            _ if idle => {
                // The preallocator of a full disk retries even though nothing is written.
                let more = tokio::time::timeout(PREALLOCATOR_INTERVAL, shared.work.task.notified()).await;
                if more.is_err() {
                    writer.lock().step_preallocator();
                }
                continue;
            }
            _ => {}
        }
        let working = shared.fsync_stats.start_write();
        let began = tokio::time::Instant::now();
        wait_for_disk(DiskWork::Log).await;
        drop(working);
        shared.fsync_stats.record(began.elapsed());
        let step = writer.lock().step(false);
        if step == super::Step::Closed {
            return;
        }
        writer.lock().step_preallocator();
    }
}
