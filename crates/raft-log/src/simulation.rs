//! Hook for single-threaded simulations (feature `simulation`): a simulated disk decides how long its
//! operations take. Without a simulated disk, as in every production program, nothing changes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Disk operation that a node is about to wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskWork {
    /// The records that are queued for the log: one write and one sync.
    Log,
    /// Anything else: reads, snapshots, the identity.
    Other,
}

/// Timing of a simulated disk.
pub trait DiskTiming {
    /// Returns the time that the disk takes for its next work.
    fn disk_takes(&self, work: DiskWork) -> Duration;
}

thread_local! {
    static DISK: RefCell<Option<Rc<dyn DiskTiming>>> = const { RefCell::new(None) };
}

/// Sets the disk of the simulated machine on which this thread runs from now on.
pub fn enter(disk: Option<Rc<dyn DiskTiming>>) {
    DISK.with(|current| current.replace(disk));
}

/// Returns whether this thread runs for a simulated machine.
pub fn is_on() -> bool {
    DISK.with(|current| current.borrow().is_some())
}

/// Waits as long as the disk takes for `work`.
pub async fn wait_for_disk(work: DiskWork) {
    let takes = {
        let disk = DISK.with(|current| current.borrow().clone());
        disk.map(|disk| disk.disk_takes(work))
    };
    if let Some(takes) = takes {
        tokio::time::sleep(takes).await;
    }
}
