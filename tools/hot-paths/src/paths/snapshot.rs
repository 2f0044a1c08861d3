//! A whole state encoded and restored, in portions as in a node's snapshot; without the file around them.

use std::hint::black_box;

use lock_node::counted::{PORTION, decode, encode};
use znode_store::{Restorer, Store};

use super::counted;
use super::material::{ZNODES, full};

fn parts(store: &mut Store) -> Vec<Vec<u8>> {
    store.begin_snapshot();
    std::iter::from_fn(|| store.next_snapshot_part(PORTION))
        .map(|part| encode(&part))
        .collect()
}

pub fn draw(operations: u64) {
    let mut store = full();
    let mut bytes = 0;
    counted(&mut || {
        for _ in 0..operations {
            bytes += black_box(parts(&mut store)).iter().map(Vec::len).sum::<usize>() as u64;
        }
    });
    assert!(bytes > operations * ZNODES * 100);
}

pub fn restore(operations: u64) {
    let mut store = full();
    let (digest, parts) = (store.digest(), parts(&mut store));
    drop(store);
    let mut restored = None;
    counted(&mut || {
        for _ in 0..operations {
            let mut restorer = Restorer::new();
            for part in &parts {
                let part = decode(part).expect("an encoded part can be decoded");
                restorer.add(part).expect("the part is from a store");
            }
            restored = Some(restorer.finish().expect("all parts were added"));
        }
    });
    assert_eq!(restored.expect("the state was restored").digest(), digest);
}
