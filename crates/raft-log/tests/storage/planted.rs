//! Bugs on purpose: a suite that does not find them would not find others.

use raft_log::sim_disk::IgnoredCall;

use crate::crash::crash_everywhere;

/// Maximum number of programs until a planted bug is seen.
const PROGRAMS: u64 = 5;

fn is_found(ignored: IgnoredCall) -> bool {
    (1..=PROGRAMS).any(|seed| crash_everywhere(seed, Some(ignored)).is_err())
}

#[test]
fn a_disk_that_does_not_sync_is_found() {
    assert!(is_found(IgnoredCall::SyncData));
}

#[test]
fn a_disk_that_does_not_sync_names_is_found() {
    assert!(is_found(IgnoredCall::SyncDir));
}
