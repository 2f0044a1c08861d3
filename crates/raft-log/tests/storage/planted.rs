//! Deliberate bugs: a suite that does not find them would not find others.

use raft_log::sim_disk::IgnoredCall;

use crate::crash::crash_everywhere;

/// Number of programs within which a planted bug must show.
const PROGRAMS: u64 = 5;

fn is_found(ignored: IgnoredCall) -> bool {
    (1..=PROGRAMS).any(|seed| crash_everywhere(seed, Some(ignored)).is_err())
}

#[test]
fn ignored_data_sync_is_found() {
    assert!(is_found(IgnoredCall::SyncData));
}

#[test]
fn ignored_directory_sync_is_found() {
    assert!(is_found(IgnoredCall::SyncDir));
}
