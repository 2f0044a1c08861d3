//! Random trees brought to one another: after the steps that a comparison comes to, the other one looks the same, but for
//! positions; replicas agree, and a command that is refused has changed nothing.

use std::collections::BTreeMap;

use proptest::prelude::*;
use znode_store::{
    Acl, AclEntry, Command, CreateMode, CreatePath, EntryContext, EphemeralOwner, Identities, MirrorStep,
    Mirrored, MirroredKind, MirroredZnode, Op, Perms, Refusal, Request, Store, ZPath,
};

use crate::replicas::Replicas;

const NAMES: [&str; 4] = ["a", "b", "c", "n-"];
const MODES: [CreateMode; 4] = [
    CreateMode::Persistent,
    CreateMode::PersistentSequential,
    CreateMode::Container,
    CreateMode::Ttl { ttl_ms: 60_000 },
];

/// One change of a tree.
#[derive(Debug, Clone)]
enum Change {
    Create(Vec<usize>, usize),
    Set(Vec<usize>, u8),
    SetAcl(Vec<usize>, u8),
    Delete(Vec<usize>),
}

fn change() -> impl Strategy<Value = Change> {
    let place = || prop::collection::vec(0..NAMES.len(), 1..4);
    prop_oneof![
        4 => (place(), 0..MODES.len()).prop_map(|(place, mode)| Change::Create(place, mode)),
        2 => (place(), any::<u8>()).prop_map(|(place, data)| Change::Set(place, data)),
        1 => (place(), any::<u8>()).prop_map(|(place, perms)| Change::SetAcl(place, perms)),
        1 => place().prop_map(Change::Delete),
    ]
}

fn text(place: &[usize]) -> String {
    place.iter().map(|name| format!("/{}", NAMES[*name])).collect()
}

fn op(change: &Change) -> Op {
    let path = |place: &[usize]| ZPath::parse(&text(place)).expect("it is a path");
    match change {
        Change::Create(place, mode) => Op::Create {
            path: CreatePath::parse(&text(place), MODES[*mode].is_sequential()).expect("it is a path"),
            data: "new".into(),
            acl: Acl::open(),
            mode: MODES[*mode],
            parents: true,
        },
        Change::Set(place, data) => Op::Set {
            path: path(place),
            data: vec![*data; 3].into(),
            version: -1,
        },
        Change::SetAcl(place, perms) => Op::SetAcl {
            path: path(place),
            acl: Acl::new(vec![
                AclEntry::world(Perms::ALL),
                AclEntry::world(Perms(u32::from(*perms) & 31)),
            ]),
            aversion: -1,
        },
        Change::Delete(place) => Op::DeleteRecursive { path: path(place) },
    }
}

/// All of a tree, page by page.
fn all(store: &Store, page: usize) -> BTreeMap<ZPath, MirroredZnode> {
    let (caller, root) = (Identities::none(), ZPath::root());
    let mut all = BTreeMap::new();
    let mut after = None;
    loop {
        let (shown, more) = store
            .seen_by(&caller)
            .mirror_page(&root, after.as_ref(), page)
            .expect("the operator may");
        after = shown.last().map(|shown| shown.path.clone());
        for shown in shown {
            assert!(
                all.insert(shown.path.clone(), shown).is_none(),
                "it was shown before"
            );
        }
        if !more {
            assert_eq!(all.len(), store.node_count());
            return all;
        }
    }
}

fn kind(owner: EphemeralOwner) -> MirroredKind {
    match owner.ttl_ms() {
        Some(ttl_ms) => MirroredKind::Ttl(ttl_ms),
        None if owner.is_container() => MirroredKind::Container,
        None => MirroredKind::Persistent,
    }
}

fn mirrored(shown: &MirroredZnode) -> Mirrored {
    Mirrored {
        path: shown.path.clone(),
        data: shown.data.clone(),
        acl: shown.acl.clone(),
        kind: kind(shown.stat.ephemeral_owner),
        version: shown.stat.version,
        aversion: shown.stat.aversion,
        ctime_ms: shown.stat.ctime_ms,
        mtime_ms: shown.stat.mtime_ms,
        creations: shown.creations,
    }
}

/// The cluster's own, which looks the same everywhere.
fn is_own(path: &ZPath) -> bool {
    path.as_str().starts_with("/zookeeper")
}

/// Returns the steps that make `to` equal to `from`: children are removed before their parents, and added after them.
fn steps(from: &BTreeMap<ZPath, MirroredZnode>, to: &BTreeMap<ZPath, MirroredZnode>) -> Vec<MirrorStep> {
    let gone = to.keys().rev().filter(|path| !from.contains_key(path));
    let gone = gone.map(|path| MirrorStep::Remove { path: path.clone() });
    let put = from.values().filter(|shown| !is_own(&shown.path));
    gone.chain(put.map(|shown| MirrorStep::Put(mirrored(shown))))
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_tree_is_brought_to_another(
        from in prop::collection::vec(change(), 0..40),
        to in prop::collection::vec(change(), 0..40),
        page in 1..9_usize,
    ) {
        let mut source = Store::new();
        let mut target = Replicas::new();
        for (time_ms, change) in (1_000..).zip(&from) {
            let entry = EntryContext { time_ms, term: 1 };
            let _refused_or_not = source.apply(&entry, Request::anonymous(Command::Write(op(change))), &mut Vec::new());
        }
        for (time_ms, change) in (5_000..).zip(&to) {
            let entry = EntryContext { time_ms, term: 1 };
            target.apply(&entry, Request::anonymous(Command::Write(op(change))));
        }
        let (wanted, there) = (all(&source, page), all(&target.store, page));
        let steps = steps(&wanted, &there);
        let entry = EntryContext { time_ms: 9_000, term: 1 };

        // Something in it is wrong: nothing is done.
        let tree = |store: &Store| all(store, 100).into_values().collect::<Vec<_>>();
        let before = tree(&target.store);
        let bad = MirrorStep::Put(Mirrored {
            path: ZPath::parse("/zookeeper/config").unwrap(),
            ..mirrored(&wanted[&ZPath::root()])
        });
        let spoiled = steps.iter().cloned().chain([bad]).collect();
        let (applied, events) = target.apply(&entry, Request::anonymous(Command::Mirror(spoiled)));
        prop_assert!(matches!(applied.outcome, Err(Refusal::Multi { .. })), "{applied:?}");
        prop_assert!(events.is_empty());
        prop_assert_eq!(tree(&target.store), before);

        let (applied, _) = target.apply(&entry, Request::anonymous(Command::Mirror(steps.clone())));
        prop_assert!(applied.outcome.is_ok(), "{applied:?}");
        let facts = |all: BTreeMap<ZPath, MirroredZnode>| {
            let others = all.into_values().filter(|shown| !is_own(&shown.path));
            others.map(|shown| (mirrored(&shown), shown.stat.cversion)).collect::<Vec<_>>()
        };
        prop_assert_eq!(facts(all(&target.store, page)), facts(wanted.clone()));

        // To do it again is to do nothing.
        let (_, events) = target.apply(&entry, Request::anonymous(Command::Mirror(steps)));
        prop_assert!(events.is_empty(), "{events:?}");

        // And what is created next is called the same in both.
        for path in wanted.keys().filter(|path| !is_own(path)) {
            let create = Request::anonymous(Command::Write(Op::Create {
                path: CreatePath { parent: path.clone(), name: "next-".into() },
                data: "".into(),
                acl: Acl::open(),
                mode: CreateMode::PersistentSequential,
                parents: false,
            }));
            let there = source.apply(&entry, create.clone(), &mut Vec::new()).outcome;
            let (here, _) = target.apply(&entry, create);
            let name = |outcome| match outcome {
                Ok(znode_store::Reply::Created { path, .. }) => Ok(path),
                other => Err(other),
            };
            prop_assert_eq!(name(here.outcome), name(there));
        }
    }
}
