//! A change and the watches that it fires. The notifications are discarded: no path counts their delivery.

use std::hint::black_box;

use znode_store::{Acl, Identities, Visibility, ZnodeEvent, ZnodeEventKind, Zxid};
use znode_watch::{WatchKind, WatchLimits, Watches};

use super::counted;
use super::material::{anywhere, node, path};

const WATCHERS: u64 = 1_000;

/// Seed of the hashes of paths.
const HASH_SEED: u64 = 0x5eed;

fn watches() -> Watches {
    let limits = WatchLimits {
        per_watcher: u32::MAX,
        per_node: u32::MAX,
    };
    Watches::new(limits, HASH_SEED)
}

fn changed(text: &str) -> ZnodeEvent {
    ZnodeEvent {
        kind: ZnodeEventKind::DataChanged,
        path: path(text),
        acl: Acl::open(),
    }
}

fn fire(watches: &mut Watches, event: &ZnodeEvent, times: u64) -> u64 {
    let mut notified = 0;
    for _ in 0..times {
        watches.fire(Zxid(1), event, Visibility::open(), |watcher, notice| {
            black_box((watcher, notice));
            notified += 1;
        });
    }
    notified
}

pub fn none(operations: u64) {
    let mut watches = watches();
    for n in 0..WATCHERS {
        let watcher = watches.connect(Identities::none());
        watches
            .arm(watcher, WatchKind::Persistent, &anywhere(n))
            .expect("the number of watches is unlimited");
    }
    let event = changed("/elsewhere/and/not/watched");
    let mut notified = 0;
    counted(&mut || notified = fire(&mut watches, &event, operations));
    assert_eq!(notified, 0);
}

pub fn many(operations: u64) {
    let mut watches = watches();
    let here = node(7);
    for _ in 0..WATCHERS {
        let watcher = watches.connect(Identities::none());
        watches
            .arm(watcher, WatchKind::Persistent, &path(&here))
            .expect("the number of watches is unlimited");
    }
    let event = changed(&here);
    let mut notified = 0;
    counted(&mut || notified = fire(&mut watches, &event, operations));
    assert_eq!(notified, operations * WATCHERS);
}
