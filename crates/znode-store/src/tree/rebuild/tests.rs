//! Tests of the rebuild: impossible trees are rejected, and large ones are restored as they were.

use alloc::format;

use crate::Restorer;
use crate::apply::context::MAX_DESCENDANTS;
use crate::model::acl::Acl;
use crate::model::command::{Command, CreateMode, Op, Request};
use crate::model::data::Data;
use crate::model::path::CreatePath;
use crate::model::path::MAX_LONG_PATHS_BYTES;
use crate::tree::NewZnode;
use crate::tree::rebuild::*;
use crate::{EntryContext, Identities, Limited, Outcome, Refusal, Reply, Store};

fn persistent<'a>(path: &'a ZPath, acl: &'a Acl) -> NewZnode<'a> {
    NewZnode {
        path,
        kind: Kind::Persistent,
        data: Data::empty().into(),
        acl,
    }
}

/// Returns the records of a tree with `/a/b/c`, whose indices are 4, 5 and 6.
fn records() -> Vec<ZnodeRecord> {
    let mut tree = Tree::new();
    for path in ["/a", "/a/b", "/a/b/c"] {
        let path = ZPath::parse(path).expect("it is one");
        let parent = tree
            .find(&path.parent().expect("it has one"))
            .expect("it is there");
        tree.insert(parent, persistent(&path, &Acl::open()), Zxid(1), 1);
    }
    let record = |index| ZnodeRecord::of(index, tree.node(index), &tree.acls);
    (0..tree.slab.slots()).map(NodeIndex).map(record).collect()
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
    // Each name is short enough, but the whole path is not.
    let long = |all: &mut Vec<ZnodeRecord>| {
        for record in &mut all[4..] {
            record.name = "x".repeat(MAX_PATH_BYTES / 3).as_str().into();
        }
    };
    refused(long, "a path in it is illegal");
}

/// Returns a tree with a chain of znodes with these names below the root.
fn chain<'n>(names: impl Iterator<Item = &'n str>) -> Tree {
    let mut tree = Tree::new();
    let (mut path, mut parent) = (ZPath::root(), NodeIndex::ROOT);
    for name in names {
        path = path.join(name).expect("it is not too long yet");
        parent = tree.insert(parent, persistent(&path, &Acl::open()), Zxid(1), 1);
    }
    tree
}

fn records_of(tree: &Tree) -> Vec<ZnodeRecord> {
    let record = |index| ZnodeRecord::of(index, tree.node(index), &tree.acls);
    (0..tree.slab.slots()).map(NodeIndex).map(record).collect()
}

/// Adds a child to the last of these records.
fn deepen(records: &mut Vec<ZnodeRecord>, name: &str) {
    let [.., before, last] = &mut records[..] else {
        panic!("there are more than two")
    };
    let mut deeper = last.clone();
    last.family = before.family;
    (deeper.index, deeper.parent) = (NodeIndex(last.index.0 + 1), last.index);
    deeper.name = name.into();
    records.push(deeper);
}

#[test]
fn a_path_that_is_too_long_in_all() {
    let name = "x".repeat(MAX_PATH_BYTES / 4 - 1);
    let tree = chain([&*name; 4].into_iter());
    let mut all = records_of(&tree);
    assert_eq!(rebuilt(all.clone()).expect("it is right").digest(), tree.digest());
    deepen(&mut all, "d");
    assert_eq!(rebuilt(all).err(), Some("a path in it is illegal"));
}

/// Hashes of long paths, which are made of those of their parents, do not depend on the order of the records.
#[test]
fn a_deep_tree_comes_back_whatever_the_order_of_its_records() {
    let names = ["a", "bc", "def"].into_iter().cycle().take(1_500);
    let tree = chain(names);
    let mut all = records_of(&tree);
    assert_eq!(rebuilt(all.clone()).expect("it is right").digest(), tree.digest());
    all[4..].reverse();
    let again = rebuilt(all).expect("it is right");
    assert_eq!((again.digest(), again.bytes()), (tree.digest(), tree.bytes()));
}

/// Length of a chain of znodes: with names of one letter the deepest one's path has half a million bytes.
const DEEP: usize = 250_000;

/// Returns a store with such a chain, which would take too long to create by commands.
fn deep_store() -> (Store, ZPath) {
    let mut all = records_of(&chain(["d"; 2].into_iter()));
    while all.len() < DEEP + 4 {
        deepen(&mut all, "d");
    }
    let tree = rebuilt(all).expect("it is right");
    let store = Store {
        tree,
        zxid: Zxid(1),
        ..Store::new()
    };
    let path = ZPath::parse(&"/d".repeat(DEEP)).expect("it is short enough");
    (store, path)
}

fn ask(store: &mut Store, op: Op) -> Outcome {
    let request = Request::anonymous(Command::Write(op));
    let entry = EntryContext { time_ms: 1, term: 1 };
    store.apply(&entry, request, &mut Vec::new()).outcome
}

fn create(path: &str, parents: bool) -> Op {
    Op::Create {
        path: CreatePath::parse(path, true).expect("it is one"),
        data: Data::from("x"),
        acl: Acl::open(),
        mode: CreateMode::PersistentSequential,
        parents,
    }
}

#[test]
fn a_very_deep_tree_costs_no_stack_and_no_more_than_its_paths() {
    let (mut store, deepest) = deep_store();
    let everybody = Identities::none();
    assert_eq!(
        store.seen_by(&everybody).descendants(&ZPath::root()),
        Ok(DEEP as u64 + 3)
    );
    // A child of the deepest znode.
    let Ok(Reply::Created { path, .. }) = ask(&mut store, create(&format!("{deepest}/n-"), false)) else {
        panic!("it can be created")
    };
    assert_eq!(path.as_str(), format!("{deepest}/n-0000000000"));
    let (data, _) = store.seen_by(&everybody).get(&path).expect("it is there");
    assert_eq!(data, Data::from("x"));
    let set = Op::Set {
        path: path.clone(),
        data: Data::from("y"),
        version: 0,
    };
    ask(&mut store, set).expect("it can be written");
    // A missing path of the same depth.
    let missing = format!("{}/n-", "/e".repeat(DEEP));
    assert!(matches!(
        ask(&mut store, create(&missing, false)),
        Err(Refusal::NoNode(_))
    ));
    let too_many = |path: &str| Refusal::LimitReached {
        what: Limited::LongPaths(ZPath::parse(path).expect("it is one")),
        limit: MAX_LONG_PATHS_BYTES as u32,
    };
    assert_eq!(
        ask(&mut store, create(&missing, true)),
        Err(too_many(&"/e".repeat(DEEP)))
    );
    // One command cannot remove all of it, nor a part whose paths are long, but it can remove a short piece.
    let remove = |path: &str| Op::DeleteRecursive {
        path: ZPath::parse(path).expect("it is one"),
    };
    let long = "/d".repeat(DEEP - 4_000);
    assert_eq!(ask(&mut store, remove(&long)), Err(too_many(&long)));
    let too_deep = Refusal::LimitReached {
        what: Limited::Descendants(ZPath::parse("/d/d").expect("it is one")),
        limit: MAX_DESCENDANTS as u32,
    };
    assert_eq!(ask(&mut store, remove("/d/d")), Err(too_deep));
    let piece = "/d".repeat(DEEP - 20);
    assert_eq!(ask(&mut store, remove(&piece)), Ok(Reply::Deleted));
    assert_eq!(
        store.seen_by(&everybody).descendants(&ZPath::root()),
        Ok((DEEP - 21) as u64 + 3)
    );
    // Pages of paths are bounded, too.
    let (page, more) = store
        .seen_by(&everybody)
        .mirror_page(
            &ZPath::parse(&"/d".repeat(DEEP - 500)).expect("it is one"),
            None,
            1_000,
        )
        .expect("it is there");
    assert!(page.len() < 10 && more, "{}", page.len());
    // A snapshot restores the same state.
    store.begin_snapshot();
    let mut restorer = Restorer::new();
    while let Some(part) = store.next_snapshot_part(512) {
        restorer.add(part).expect("it was drawn");
    }
    let restored = restorer.finish().expect("it is whole");
    assert_eq!(restored.digest(), store.digest());
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
    // The root is first, and the nodes that exist from the beginning keep their indices.
    other[4..].reverse();
    assert_eq!(rebuilt(other).expect("it is right").digest(), before);
}

/// Tables, orders and free slots, as in a store after many changes.
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
