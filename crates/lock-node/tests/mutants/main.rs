//! Planted bugs of a node have the described effect. This is a program of its own, since a process has one bug at a time: each check runs
//! without its bug and with it. It needs the feature `planted`.
//! Arguments select bugs by name; `--list` lists all.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]
// Some of the shared test code is not needed here.
#![allow(dead_code, unused_imports)]

#[path = "../node/cluster.rs"]
mod cluster;
#[path = "../node/rolled_back.rs"]
mod rolled_back;
#[path = "../node/troubled_disk.rs"]
mod troubled_disk;

mod checks;

use lock_node::znode_store::planted::{Bug, plant};

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    let (options, wanted): (Vec<_>, Vec<_>) = std::env::args()
        .skip(1)
        .partition(|argument| argument.starts_with('-'));
    if options.iter().any(|option| option == "--list") {
        // In the format of Rust's own test programs.
        checks::ALL.iter().for_each(|(bug, _)| println!("{bug:?}: test"));
        return;
    }
    let mut seen = 0;
    for (bug, shows) in checks::ALL {
        if !wanted.is_empty() && !wanted.contains(&format!("{bug:?}")) {
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
    assert!(
        seen > 0 && (wanted.is_empty() || seen == wanted.len()),
        "there is no check for one of {wanted:?}"
    );
}
