//! Planted bugs of a node change what they say they change, and the crash suite finds those of the storage. A program of its
//! own, as a process has one bug at a time: each check runs without its bug and with it. Only with the feature `planted`.
//! An argument names the only bug that is wanted.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]
// Some of what other tests share is not needed here.
#![allow(dead_code, unused_imports)]

#[path = "../node/cluster.rs"]
mod cluster;
#[path = "../storage/crash.rs"]
mod crash;
#[path = "../storage/node.rs"]
mod node;
#[path = "../storage/state.rs"]
mod state;
#[path = "../node/troubled_disk.rs"]
mod troubled_disk;

mod checks;

use raft_node::znode_store::planted::{Bug, plant};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let wanted = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let mut seen = 0;
    for (bug, shows) in checks::ALL {
        if wanted
            .as_ref()
            .is_some_and(|wanted| *wanted != format!("{bug:?}"))
        {
            continue;
        }
        plant(None);
        assert!(
            !runtime.block_on(shows()),
            "{bug:?} is seen although it was not planted"
        );
        plant(Some(bug));
        assert!(runtime.block_on(shows()), "{bug:?} was planted and is not seen");
        println!("{bug:?}: seen");
        seen += 1;
    }
    assert!(seen > 0, "there is no check for {wanted:?}");
}
