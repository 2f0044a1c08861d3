//! Trees that no store has ever had, and what is said of them; and large ones that come back as they were.

use alloc::format;

use super::*;
use crate::acl::Acl;
use crate::command::{Command, CreateMode, Op, Request};
use crate::ids::Data;
use crate::path::CreatePath;
use crate::snapshot::Restorer;
use crate::{EntryContext, Identities, Store};

/// The records of a tree with `/a/b/c` below the root, whose places are 4, 5 and 6.
fn records() -> Vec<ZnodeRecord> {
    let mut tree = Tree::new();
    for path in ["/a", "/a/b", "/a/b/c"] {
        let path = ZPath::parse(path).expect("it is one");
        let parent = tree
            .find(&path.parent().expect("it has one"))
            .expect("it is there");
        tree.insert(
            parent,
            &path,
            Kind::Persistent,
            Data::empty(),
            &Acl::open(),
            Zxid(1),
            1,
        );
    }
    let record = |index| ZnodeRecord::of(index, tree.node(index), tree.acls());
    (0..tree.slab().slots()).map(NodeIndex).map(record).collect()
}

fn rebuilt(records: Vec<ZnodeRecord>) -> Result<Tree, Damage> {
    let mut rebuild = Rebuild::default();
    for record in records {
        rebuild.add(record, Zxid(1))?;
    }
    rebuild.finish().map(|(tree, _)| tree)
}

#[track_caller]
fn refused(change: impl FnOnce(&mut Vec<ZnodeRecord>), why: &str) {
    let mut records = records();
    assert!(rebuilt(records.clone()).is_ok());
    change(&mut records);
    assert_eq!(rebuilt(records).err(), Some(why));
}

#[test]
fn znodes_below_themselves() {
    let below_none = "some of its znodes are below none";
    let circle = |all: &mut Vec<ZnodeRecord>| {
        (all[4].parent, all[6].family) = (NodeIndex(6), all[5].family);
    };
    refused(circle, below_none);
    let itself = |all: &mut Vec<ZnodeRecord>| {
        all.truncate(6);
        all[5].parent = NodeIndex(5);
    };
    refused(itself, below_none);
}

#[test]
fn names_that_are_none() {
    for name in ["", ".", "..", "a/b", "\u{7f}", &"x".repeat(MAX_PATH_BYTES)] {
        refused(|all| all[6].name = name.into(), "a path in it is illegal");
    }
    // The parts are short enough, and the whole is not.
    let long = |all: &mut Vec<ZnodeRecord>| {
        for record in &mut all[4..] {
            record.name = "x".repeat(MAX_PATH_BYTES / 3).as_str().into();
        }
    };
    refused(long, "a path in it is illegal");
}

#[test]
fn a_tree_that_is_too_deep() {
    let mut tree = Tree::new();
    let (mut path, mut parent) = (ZPath::root(), NodeIndex::ROOT);
    for _ in 0..MAX_PATH_DEPTH {
        path = path.join("d").expect("it is not too deep yet");
        parent = tree.insert(
            parent,
            &path,
            Kind::Persistent,
            Data::empty(),
            &Acl::open(),
            Zxid(1),
            1,
        );
    }
    let record = |index| ZnodeRecord::of(index, tree.node(index), tree.acls());
    let mut all: Vec<_> = (0..tree.slab().slots()).map(NodeIndex).map(record).collect();
    assert_eq!(rebuilt(all.clone()).expect("it is right").digest(), tree.digest());
    let mut deeper = all[all.len() - 1].clone();
    all.last_mut().expect("there are some").family = all[all.len() - 2].family;
    (deeper.index, deeper.parent) = (NodeIndex(all.len() as u32), parent);
    all.push(deeper);
    assert_eq!(rebuilt(all).err(), Some("a path in it is illegal"));
}

#[test]
fn znodes_that_are_there_twice() {
    refused(
        |all| all[6].index = NodeIndex(5),
        "two of its znodes are the same",
    );
    let same = |all: &mut Vec<ZnodeRecord>| {
        let mut again = all[6].clone();
        again.index = NodeIndex(7);
        all.push(again);
    };
    refused(same, "two znodes in it have the same path");
}

#[test]
fn parents_that_are_none() {
    refused(|all| all[6].parent = NodeIndex(99), "a znode in it has no parent");
    let more = "a znode in it has more children than it had";
    refused(|all| all[5].parent = NodeIndex(6), more);
    let other = |all: &mut Vec<ZnodeRecord>| {
        let mut other = all[6].clone();
        (other.index, other.name) = (NodeIndex(7), "other".into());
        all.push(other);
    };
    refused(other, more);
}

#[test]
fn the_order_of_the_records_does_not_matter() {
    let before = rebuilt(records()).expect("it is right").digest();
    let mut other = records();
    // The root is the first, and those that are there from the beginning keep their places.
    other[4..].reverse();
    assert_eq!(rebuilt(other).expect("it is right").digest(), before);
}

/// Tables, their order, and places that were free: as in a store that has changed for long.
#[test]
fn many_children_come_back_in_their_order() {
    const MANY: u64 = 3_000;
    let mut store = Store::new();
    let entry = EntryContext { time_ms: 1, term: 1 };
    let mut ask = |op| {
        let request = Request::anonymous(Command::Write(op));
        store
            .apply(&entry, request, &mut Vec::new())
            .outcome
            .expect("it is right");
    };
    let name = |n: u64| format!("/many/{:04x}", n * 7_919 % MANY);
    for n in 0..MANY {
        ask(Op::Create {
            path: CreatePath::parse(&name(n), false).expect("it is one"),
            data: Data::from("x"),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: true,
        });
        if n % 3 == 2 {
            let path = ZPath::parse(&name(n - 1)).expect("it is one");
            ask(Op::Delete { path, version: -1 });
        }
    }
    store.begin_snapshot();
    let mut restorer = Restorer::new();
    while let Some(part) = store.next_snapshot_part(100) {
        restorer.add(part).expect("it was drawn");
    }
    let restored = restorer.finish().expect("it is whole");
    assert_eq!(restored.digest(), store.digest());
    let parent = ZPath::parse("/many").expect("it is one");
    let nobody = Identities::none();
    let pages = |store: &Store| {
        let page = store
            .seen_by(&nobody)
            .children_page(&parent, "0", Some("02"), 500);
        format!("{page:?}")
    };
    assert_eq!(pages(&restored), pages(&store));
    assert_eq!(restored.children(&parent), store.children(&parent));
}
