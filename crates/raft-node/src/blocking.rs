//! Work that may block, away from the threads of the runtime. A simulated node has one thread: there it waits as long as
//! the simulated disk takes, and is then done in one go.

use std::io;

/// Runs `work` where it may block. An error means that it has panicked, or that the runtime ends.
pub async fn run<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    #[cfg(feature = "simulation")]
    if crate::simulation::is_on() {
        crate::simulation::wait_for_disk(crate::simulation::DiskWork::Other).await;
        return Ok(work());
    }
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
