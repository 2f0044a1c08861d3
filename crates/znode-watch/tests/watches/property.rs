//! Random programs: clients connect and disconnect, arm and remove watches, and a tree changes. A
//! failure prints the shortest list of steps that reproduces it.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use znode_store::{
    Acl, AclEntry, Command, CreateMode, CreatePath, Identities, Identity, Op, Perms, ZPath, ZnodeEventKind,
    Zxid,
};
use znode_watch::{WatchKind, WatchLimits, WatchLists, WatcherId, WatcherType, Watches};

use crate::model::{ClientIndex, Model, Notification};
use crate::tree::{Tree, path};

/// Number of programs.
const CASES: u32 = 2_000;
const STEPS: usize = 300;

/// Number of concurrent clients.
const CLIENTS: u64 = 5;

/// Few paths in all relations to each other, so that most events concern most clients.
const PATHS: [&str; 8] = ["/", "/a", "/a/b", "/a/b/c", "/a/c", "/ab", "/b", "/b/a"];

const TYPES: [WatcherType; 5] = [
    WatcherType::Any,
    WatcherType::Data,
    WatcherType::Children,
    WatcherType::Persistent,
    WatcherType::PersistentRecursive,
];

#[derive(Debug, Clone)]
enum Step {
    Reconnect(ClientIndex, Option<&'static str>),
    Authenticate(ClientIndex, Option<&'static str>),
    Arm(ClientIndex, WatchKind, &'static str),
    Remove(ClientIndex, WatcherType, &'static str),
    Query(ClientIndex, WatcherType, &'static str),
    /// Re-arms with a position this far back.
    Rearm(ClientIndex, u64, WatchLists),
    Change(Vec<Op>),
}

/// Random choices for one step.
struct Generator(u64);

impl Generator {
    /// Returns a number below `limit`.
    fn below(&mut self, limit: u64) -> u64 {
        // The next number of splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % limit
    }

    fn one_of<T: Copy, const N: usize>(&mut self, choices: [T; N]) -> T {
        choices[self.below(N as u64) as usize]
    }

    fn some<T>(&mut self, limit: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.below(limit)).map(|_| one(self)).collect()
    }

    fn step(&mut self) -> Step {
        match self.below(40) {
            0 => Step::Reconnect(self.client(), self.user()),
            1 => Step::Authenticate(self.client(), self.user()),
            2..18 => Step::Arm(self.client(), self.one_of(WatchKind::ALL), self.one_of(PATHS)),
            18..20 => Step::Remove(self.client(), self.one_of(TYPES), self.one_of(PATHS)),
            20..22 => Step::Query(self.client(), self.one_of(TYPES), self.one_of(PATHS)),
            22..24 => Step::Rearm(
                self.client(),
                self.below(10),
                WatchLists {
                    data: self.some(3, |random| path(random.one_of(PATHS))),
                    exists: self.some(3, |random| path(random.one_of(PATHS))),
                    children: self.some(3, |random| path(random.one_of(PATHS))),
                    persistent: self.some(2, |random| path(random.one_of(PATHS))),
                    recursive: self.some(2, |random| path(random.one_of(PATHS))),
                },
            ),
            24..28 => Step::Change(self.some(5, Self::op)),
            _ => Step::Change(vec![self.op()]),
        }
    }

    fn op(&mut self) -> Op {
        let at = self.one_of(PATHS);
        match self.below(12) {
            0..5 => Op::Create {
                path: CreatePath::parse(at, false)
                    .unwrap_or_else(|_| CreatePath::parse("/x", false).unwrap()),
                data: "".into(),
                acl: self.acl(),
                mode: CreateMode::Persistent,
                parents: false,
            },
            5..8 => Op::Delete {
                path: path(at),
                version: -1,
            },
            8 => Op::DeleteRecursive { path: path(at) },
            9 => Op::SetAcl {
                path: path(at),
                acl: self.acl(),
                aversion: -1,
            },
            _ => Op::Set {
                path: path(at),
                data: "".into(),
                version: -1,
            },
        }
    }

    /// Returns an ACL that lets every client change the znode, so that changes happen, and only
    /// some read it.
    fn acl(&mut self) -> Acl {
        let readers = match self.below(6) {
            0 => ("world", "anyone", 0),
            1 => ("digest", "ann:1", 1),
            2 => ("digest", "bob:2", 1),
            _ => return Acl::open(),
        };
        let all_but_read = AclEntry::world(Perms(Perms::ALL.0 & !Perms::READ.0));
        let (scheme, id, perms) = readers;
        Acl::new(vec![
            all_but_read,
            AclEntry {
                perms: Perms(perms),
                scheme: scheme.into(),
                id: id.into(),
            },
        ])
    }

    fn client(&mut self) -> ClientIndex {
        self.below(CLIENTS) as ClientIndex
    }

    fn user(&mut self) -> Option<&'static str> {
        self.one_of([None, Some("ann:1"), Some("bob:2"), Some("super")])
    }
}

/// Seed of a step; its debug format is the step.
#[derive(Clone, Copy)]
struct Seed(u64);

impl Seed {
    fn step(self) -> Step {
        Generator(self.0).step()
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.step().fmt(f)
    }
}

fn identities(user: Option<&str>) -> Identities {
    Identities::new(user.map(|user| match user {
        "super" => Identity::Super,
        user => Identity::Digest(user.into()),
    }))
}

/// Tree with clients that watch it.
struct Clients {
    tree: Tree,
    watches: Watches,
    clients: Vec<WatcherId>,
}

impl Clients {
    fn new() -> Self {
        let mut watches = Watches::new(WatchLimits::default(), 7);
        Self {
            tree: Tree::new(),
            clients: (0..CLIENTS)
                .map(|_| watches.connect(Identities::none()))
                .collect(),
            watches,
        }
    }

    fn change(
        &mut self,
        ops: Vec<Op>,
        mut also: impl FnMut(&znode_store::ZnodeEvent),
    ) -> Vec<(ClientIndex, Notification)> {
        let applied = self.tree.apply_anonymous(Command::Multi(ops));
        let mut notified = Vec::new();
        for event in &applied.events {
            self.watches.fire(
                applied.zxid,
                event,
                znode_store::Visibility::open(),
                |watcher, notice| {
                    assert_eq!(notice.zxid, applied.zxid);
                    let client = self.clients.iter().position(|other| *other == watcher).unwrap();
                    notified.push((client, (notice.kind, notice.path.as_str().to_owned())));
                },
            );
            also(event);
        }
        notified
    }

    /// Returns a client's watches, sorted.
    fn armed(&self, client: ClientIndex) -> Vec<(String, WatchKind)> {
        let armed = self.watches.armed(self.clients[client]);
        let mut armed: Vec<_> = armed
            .map(|(path, kind)| (path.as_str().to_owned(), kind))
            .collect();
        armed.sort();
        armed
    }
}

/// Groups notifications by client, each in order. Their order between clients is unspecified.
fn by_client(notified: Vec<(ClientIndex, Notification)>) -> BTreeMap<ClientIndex, Vec<Notification>> {
    let mut clients: BTreeMap<ClientIndex, Vec<Notification>> = BTreeMap::new();
    for (client, what) in notified {
        clients.entry(client).or_default().push(what);
    }
    clients
}

fn run_with_model(steps: &[Seed]) {
    let mut world = Clients::new();
    let mut model = Model::default();
    for client in 0..CLIENTS as ClientIndex {
        model.connect(client, Identities::none());
    }
    for seed in steps {
        match seed.step() {
            Step::Reconnect(client, user) => {
                world.watches.disconnect(world.clients[client]);
                world.clients[client] = world.watches.connect(identities(user));
                model.disconnect(client);
                model.connect(client, identities(user));
            }
            Step::Authenticate(client, user) => {
                world
                    .watches
                    .set_identities(world.clients[client], identities(user));
                model.connect(client, identities(user));
            }
            Step::Arm(client, kind, at) => {
                world.watches.arm(world.clients[client], kind, &path(at)).unwrap();
                model.arm(client, kind, at);
            }
            Step::Remove(client, which, at) => {
                let removed = world.watches.remove(world.clients[client], &path(at), which);
                assert_eq!(removed.is_ok(), model.remove(client, at, which));
            }
            Step::Query(client, which, at) => {
                let armed = world.watches.is_armed(world.clients[client], &path(at), which);
                assert_eq!(armed, model.contains(client, at, which));
            }
            Step::Rearm(client, ago, lists) => {
                let store = &world.tree.store;
                let since = Zxid(store.zxid().0.saturating_sub(ago));
                let mut notified = Vec::new();
                let rearmed = world
                    .watches
                    .rearm(world.clients[client], store, since, &lists, |notice| {
                        notified.push((notice.kind, notice.path.as_str().to_owned()));
                    });
                assert_eq!(rearmed, Ok(()));
                assert_eq!(notified, model.set_watches(client, store, since.0, &lists));
            }
            Step::Change(ops) => {
                let mut expected = Vec::new();
                let notified = world.change(ops, |event| model.fire(event, &mut expected));
                assert_eq!(by_client(notified), by_client(expected));
            }
        }
    }
    assert_counts(&world);
    for client in 0..CLIENTS as ClientIndex {
        for at in PATHS {
            for which in TYPES {
                let armed = world.watches.is_armed(world.clients[client], &path(at), which);
                assert_eq!(
                    armed,
                    model.contains(client, at, which),
                    "{client} {which:?} {at}"
                );
            }
        }
        world.watches.disconnect(world.clients[client]);
    }
    assert_eq!(world.watches.counts(), znode_watch::WatchCounts::default());
}

fn assert_counts(world: &Clients) {
    let armed: Vec<_> = (0..CLIENTS as ClientIndex)
        .flat_map(|client| world.armed(client))
        .collect();
    let mut paths: Vec<_> = armed.iter().map(|(path, _)| path).collect();
    paths.sort();
    paths.dedup();
    let recursive = armed
        .iter()
        .filter(|(_, kind)| *kind == WatchKind::PersistentRecursive);
    let counts = world.watches.counts();
    assert_eq!(counts.watchers, CLIENTS as u32);
    assert_eq!(counts.watches, armed.len() as u32);
    assert_eq!(counts.paths, paths.len() as u32);
    assert_eq!(counts.recursive, recursive.count() as u32);
}

/// Compares two nodes with the same clients: one applies each change, the other has its state
/// replaced.
fn run_catch_up(before: &[Seed], missed: &[Seed]) {
    let mut live = Clients::new();
    let mut behind = Clients::new();
    for seed in before {
        match seed.step() {
            // `getChildren` leaves a watch only if the store returns an answer.
            Step::Arm(client, kind, at)
                if kind != WatchKind::Children || live.tree.store.stat(&path(at)).is_some() =>
            {
                live.watches.arm(live.clients[client], kind, &path(at)).unwrap();
                behind
                    .watches
                    .arm(behind.clients[client], kind, &path(at))
                    .unwrap();
            }
            Step::Change(ops) => {
                live.change(ops.clone(), |_| ());
                behind.change(ops, |_| ());
            }
            _ => {}
        }
    }
    let armed: Vec<_> = (0..CLIENTS as ClientIndex)
        .map(|client| live.armed(client))
        .collect();
    // Other tests cover rights, and clients without identities would miss some events.
    for client in 0..CLIENTS as ClientIndex {
        live.watches
            .set_identities(live.clients[client], identities(Some("super")));
        behind
            .watches
            .set_identities(behind.clients[client], identities(Some("super")));
    }
    let mut now = Tree::new();
    for seed in before.iter().chain(missed) {
        if let Step::Change(ops) = seed.step() {
            now.apply_anonymous(Command::Multi(ops));
        }
    }
    let mut received: BTreeMap<ClientIndex, Vec<Notification>> = BTreeMap::new();
    for seed in missed {
        if let Step::Change(ops) = seed.step() {
            for (client, notified) in by_client(live.change(ops, |_| ())) {
                received.entry(client).or_default().extend(notified);
            }
        }
    }
    let mut caught_up = Vec::new();
    let lost = behind
        .watches
        .catch_up(&behind.tree.store, &now.store, |watcher, notice| {
            let client = behind.clients.iter().position(|other| *other == watcher).unwrap();
            caught_up.push((client, (notice.kind, notice.path.as_str().to_owned())));
        });
    let caught_up = by_client(caught_up);
    for (client, armed) in armed.iter().enumerate() {
        let notified = caught_up.get(&client).cloned().unwrap_or_default();
        if lost.contains(&behind.clients[client]) {
            assert!(
                notified.is_empty(),
                "a watcher that must reconnect is not notified"
            );
            continue;
        }
        let received = received.get(&client).cloned().unwrap_or_default();
        for (at, kind) in armed {
            let fired = !live.armed(client).contains(&(at.clone(), *kind));
            let fired_late = !behind.armed(client).contains(&(at.clone(), *kind));
            let came_and_went =
                |path: &ZPath| behind.tree.store.stat(path).or(now.store.stat(path)).is_none();
            match kind {
                WatchKind::Data | WatchKind::Children => assert!(
                    fired == fired_late || fired && came_and_went(&path(at)),
                    "{client}'s {kind:?} watch on {at}: fired {fired}, after the fact {fired_late}"
                ),
                WatchKind::Persistent | WatchKind::PersistentRecursive => assert!(
                    !received.iter().any(|(_, path)| path == at),
                    "{client} has a persistent watch on {at}, has missed {received:?}, and is not lost"
                ),
            }
            if fired_late {
                let end = |(kind, path): &Notification| *kind == ZnodeEventKind::Deleted && path == at;
                assert!(
                    notified.iter().any(|(_, path)| path == at),
                    "{client} got no notice of {at}"
                );
                assert!(notified.iter().filter(|notified| end(notified)).count() <= 1);
            }
        }
    }
}

fn seeds(steps: usize) -> impl Strategy<Value = Vec<Seed>> {
    vec(any::<u64>().prop_map(Seed), 0..steps)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn notifications_match_zookeeper(steps in seeds(STEPS)) {
        run_with_model(&steps);
    }

    #[test]
    fn catch_up_misses_no_event(before in seeds(40), missed in seeds(12)) {
        run_catch_up(&before, &missed);
    }
}
