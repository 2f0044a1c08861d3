//! Notification of the writer: a thread waits for it, or, in a simulated node, a task. The work itself is in the queue.

use std::time::Duration;

use parking_lot::{Condvar, MutexGuard};

use super::Queue;

/// Signal that a command was queued, or that the log is closing.
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

    /// Waits for work.
    pub fn wait(&self, queue: &mut MutexGuard<'_, Queue>) {
        self.thread.wait(queue);
    }

    /// Waits for work for at most `patience`. Returns whether the wait timed out.
    pub fn wait_for(&self, queue: &mut MutexGuard<'_, Queue>, patience: Duration) -> bool {
        self.thread.wait_for(queue, patience).timed_out()
    }
}

/// Maximum time between two steps of the preallocator of a simulated node.
#[cfg(feature = "simulation")]
const PREALLOCATOR_INTERVAL: Duration = Duration::from_millis(500);

/// Does the work of the writer's thread in a task, with the time that the simulated disk takes. Commands queued in that time are
/// written with it, as on a real disk.
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
            Some(patience) if idle && mark => {
                // A commit mark is written for itself when nothing else comes.
                let more = tokio::time::timeout(patience, shared.work.task.notified()).await;
                if more.is_ok() {
                    continue;
                }
            }
            _ if idle => {
                // The preallocator of a full disk tries again though nothing is written.
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
