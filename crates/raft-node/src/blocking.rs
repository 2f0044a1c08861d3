//! Blocking work off the threads of the runtime. A simulated node has one thread, on which the work waits as
//! long as the simulated disk takes, and is then done at once.

use std::io;

/// Runs `work` on a thread that may block. An error means that it has panicked, or that the runtime is
/// shutting down.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_on() {
        crate::simulation::wait_for_disk(crate::simulation::DiskWork::Other).await;
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
