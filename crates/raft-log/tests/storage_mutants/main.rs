//! Planted bugs of the storage: the crash suite must find each of them, and nothing without them. A program
//! of its own, as a process has one bug at a time. Only with the feature `planted`. Arguments name the bugs
//! to check; `--list` lists all.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]
// Not all parts of the crash suite are needed here.
#![allow(dead_code, unused_imports)]

#[path = "../storage/crash.rs"]
mod crash;
#[path = "../storage/node.rs"]
mod node;
#[path = "../storage/state.rs"]
mod state;

use crash::crash_everywhere;
use fault_injection::planted::{Bug, plant};

/// Number of random programs; each bug shows in one of them.
const PROGRAMS: u64 = 5;

fn crash_suite_fails() -> bool {
    (1..=PROGRAMS).any(|seed| crash_everywhere(seed, None).is_err())
}

const BUGS: [Bug; 3] = [Bug::UnsyncedLog, Bug::UnsyncedVote, Bug::UnsyncedName];

fn main() {
    let (options, wanted): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|argument| argument.starts_with('-'));
    if options.iter().any(|option| option == "--list") {
        // Same format as Rust's test programs.
        BUGS.iter().for_each(|bug| println!("{bug:?}: test"));
        return;
    }
    assert!(
        !crash_suite_fails(),
        "a fault is found although no bug is planted"
    );
    let mut found = 0;
    for bug in BUGS {
        if wanted.is_empty() || wanted.contains(&format!("{bug:?}")) {
            plant(Some(bug));
            assert!(crash_suite_fails(), "{bug:?} is planted and is not found");
            println!("{bug:?}: found");
            found += 1;
        }
    }
    assert!(found > 0, "there is no bug of {wanted:?}");
}
