//! Seam for simulations in one thread (feature `simulation`): a simulated disk says how long its work takes. Where none is entered, as in
//! every program that serves anybody, nothing changes.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Work of a disk for which a node is about to wait.
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

/// Sets the disk of the simulated machine for which this thread works from now on.
pub fn enter(disk: Option<Rc<dyn DiskTiming>>) {
    DISK.with(|current| current.replace(disk));
}

/// Returns whether this thread works for a simulated machine.
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
