//! Random requests on the store, on a second replica and on the naive model, while snapshots are drawn and
//! restored in between. A failure prints the shortest list of steps that shows it.

use std::collections::BTreeSet;

use proptest::collection::vec;
use proptest::prelude::*;
use znode_store::{
    Acl, AclEntry, Command, CreateMode, CreatePath, Data, EntryContext, Identities, Identity, Op, Password,
    Perms, Request, RequestId, Restorer, SessionFate, SessionId, SnapshotPart, Store, ZPath, Zxid,
};

use crate::cases;
use crate::model::{Model, Znode};
use crate::replicas::recode;

/// Number of lists of steps that the test tries if PROPTEST_CASES is not set. With [`STEPS`] that is over 75,000 requests.
const CASES: u32 = 100;
const STEPS: usize = 1_000;

/// Number of steps between two comparisons of the whole state.
const COMPARE_EVERY: usize = 50;

#[derive(Debug, Clone)]
enum Step {
    Ask {
        session: Option<u64>,
        request: Option<u8>,
        caller: u8,
        what: What,
    },
    /// Moves the clock of the next entries by this time, less a second: it may go back.
    Time(u64),
    BeginSnapshot,
    /// Takes some parts of a snapshot, each with a budget.
    Draw(u8, u8),
    AbandonSnapshot,
}

#[derive(Debug, Clone)]
enum What {
    Open(u64),
    Close(u64),
    /// Sessions, the term, and how many commands ago they were found silent.
    Expire(Vec<u64>, u64, u64),
    Write(Change),
    Multi(Vec<Change>),
    Sweep(Vec<Place>),
}

#[derive(Debug, Clone)]
enum Change {
    Create {
        place: Place,
        name: Name,
        data: u8,
        acl: Rights,
        mode: CreateMode,
        parents: bool,
    },
    Delete(Place, i32),
    DeleteRecursive(Place),
    Set(Place, u8, i32),
    SetAcl(Place, Rights, i32),
    Check(Place, i32),
}

/// One of [`rights`].
type Rights = u8;

/// Lists that let everybody in, nobody write, or one of two users do some things.
fn rights(n: Rights) -> Acl {
    let user = |perms, n: u8| AclEntry {
        perms,
        scheme: "digest".into(),
        id: format!("u{n}:secret").into(),
    };
    match n {
        0 => Acl::read_only(),
        1 => Acl::new(vec![user(Perms::ALL, 1)]),
        2 => Acl::new(vec![user(Perms::ALL, 1), user(Perms::READ | Perms::CREATE, 2)]),
        3 => Acl::new(vec![
            AclEntry::world(Perms::READ | Perms::CREATE | Perms::DELETE),
            user(Perms::ADMIN | Perms::WRITE, 2),
        ]),
        _ => Acl::open(),
    }
}

/// Returns a caller: without identities, one of the two users, or the operator.
fn caller(n: u8) -> Identities {
    match n {
        0 => Identities::none(),
        3 => Identities::new([Identity::Super]),
        n => Identities::new([Identity::Digest(format!("u{n}:secret").into())]),
    }
}

/// Most operations should hit something.
#[derive(Debug, Clone)]
enum Place {
    /// One of the znodes that exist.
    Existing(u16),
    /// Any path.
    Any(Vec<Name>),
}

/// Few, so that they meet; some as sequential nodes have them; none below `/locks`.
type Name = &'static str;
const NAMES: [Name; 5] = ["a", "b", "c", "s0000000001", "s0000000003"];

/// Source of the choices for one step. (Strategies of proptest for each part of a step would be more of its style, and cost ten times what
/// the step itself costs.)
struct Dice(u64);

impl Dice {
    /// A number below `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        // The next number of splitmix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (bits ^ (bits >> 31)) % sides
    }

    /// True once in `times`.
    fn once_in(&mut self, times: u64) -> bool {
        self.roll(times) == 0
    }

    fn some<T>(&mut self, below: u64, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        (0..self.roll(below)).map(|_| one(self)).collect()
    }

    fn step(&mut self) -> Step {
        match self.roll(72) {
            0..4 => Step::Time(self.roll(5_000)),
            4 => Step::BeginSnapshot,
            5..11 => Step::Draw(1 + self.roll(3) as u8, 1 + self.roll(11) as u8),
            11 if self.once_in(10) => Step::AbandonSnapshot,
            _ => {
                let session = (!self.once_in(3)).then(|| self.roll(8));
                let request = self.once_in(5).then(|| self.roll(12) as u8);
                Step::Ask {
                    session,
                    request,
                    caller: self.roll(4) as u8,
                    what: self.what(),
                }
            }
        }
    }

    fn what(&mut self) -> What {
        match self.roll(44) {
            0..2 => What::Open(1 + self.roll(200)),
            2 => What::Close(1 + self.roll(200)),
            3 => What::Expire(
                self.some(4, |dice| 1 + dice.roll(200)),
                1 + self.roll(2),
                self.roll(20),
            ),
            4..12 => What::Multi(self.some(6, Self::change)),
            12..14 => What::Sweep(self.some(4, Self::place)),
            _ => What::Write(self.change()),
        }
    }

    fn change(&mut self) -> Change {
        match self.roll(16) {
            0..6 => Change::Create {
                place: self.place(),
                name: if self.once_in(2) { "s" } else { self.name() },
                data: self.roll(256) as u8,
                acl: self.rights(),
                mode: match self.roll(10) {
                    0..2 => CreateMode::Persistent,
                    2..4 => CreateMode::Ephemeral,
                    4 => CreateMode::PersistentSequential,
                    5..7 => CreateMode::EphemeralSequential,
                    7 => CreateMode::Container,
                    8 => CreateMode::Ttl {
                        ttl_ms: 1 + self.roll(9_000),
                    },
                    _ => CreateMode::TtlSequential {
                        ttl_ms: 1 + self.roll(9_000),
                    },
                },
                parents: self.once_in(2),
            },
            6..10 => Change::Delete(self.place(), self.version()),
            10 => Change::DeleteRecursive(self.place()),
            11..14 => Change::Set(self.place(), self.roll(256) as u8, self.version()),
            14 => Change::SetAcl(self.place(), self.rights(), self.version()),
            _ => Change::Check(self.place(), self.version()),
        }
    }

    fn place(&mut self) -> Place {
        match self.roll(4) {
            0 => Place::Any(self.some(4, Self::name)),
            _ => Place::Existing(self.roll(1 << 16) as u16),
        }
    }

    fn name(&mut self) -> Name {
        NAMES[self.roll(NAMES.len() as u64) as usize]
    }

    /// Mostly open ones: otherwise hardly anything would happen.
    fn rights(&mut self) -> Rights {
        self.roll(30) as u8
    }

    fn version(&mut self) -> i32 {
        self.roll(5) as i32 % 4 - 1
    }
}

/// A step by the number that its choices follow from; shown as what it is.
#[derive(Clone, Copy)]
struct Seed(u64);

impl Seed {
    fn step(self) -> Step {
        Dice(self.0).step()
    }
}

impl std::fmt::Debug for Seed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.step().fmt(f)
    }
}

/// Everything that has to stay in step.
struct World {
    model: Model,
    store: Store,
    replica: Store,
    entry: EntryContext,
    drawing: Option<Drawing>,
}

/// A snapshot on its way, and what has to come out.
struct Drawing {
    expected: Model,
    parts: Vec<SnapshotPart>,
    /// The requests since: the restored state catches up by them.
    log: Vec<(EntryContext, Request)>,
}

impl World {
    fn new() -> Self {
        Self {
            model: Model::new(),
            store: Store::new(),
            replica: Store::new(),
            entry: EntryContext { time_ms: 0, term: 1 },
            drawing: None,
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Ask {
                session,
                request,
                caller: n,
                what,
            } => {
                // The n-th live session, or now and then one that does not live.
                let session = session.map(|n| {
                    self.model
                        .sessions
                        .keys()
                        .nth(n as usize)
                        .copied()
                        .unwrap_or(SessionId(n + 1))
                });
                let request_id = request.map(|n| RequestId::parse(&format!("r{n}")).expect("it is short"));
                let command = self.command(what);
                self.ask(Request {
                    session,
                    request_id,
                    caller: caller(*n),
                    command,
                });
            }
            Step::Time(time_ms) => self.entry.time_ms = (self.entry.time_ms + time_ms).saturating_sub(1_000),
            Step::BeginSnapshot => {
                self.store.begin_snapshot();
                self.drawing = Some(Drawing {
                    expected: self.model.clone(),
                    parts: Vec::new(),
                    log: Vec::new(),
                });
            }
            Step::Draw(parts, znodes) => {
                for _ in 0..*parts {
                    self.draw((*znodes).into());
                }
            }
            Step::AbandonSnapshot => {
                self.store.abandon_snapshot();
                self.drawing = None;
            }
        }
    }

    fn ask(&mut self, request: Request) {
        let (mut events, mut replica_events) = (Vec::new(), Vec::new());
        let (may_grow, before) = (self.store.may_grow(&request), self.model.size());
        let (outcome, expected_events) = self.model.apply(&self.entry, &request);
        let applied = self.store.apply(&self.entry, request.clone(), &mut events);
        assert_eq!(applied.outcome, outcome, "to {request}");
        let after = self.model.size();
        assert!(
            may_grow || before.iter().zip(after).all(|(before, after)| after <= *before),
            "it was said not to grow, and made {after:?} of {before:?}: {request}"
        );
        assert_eq!(applied.zxid.0, self.model.zxid);
        assert_eq!(events, expected_events, "after {request}");
        assert_eq!(
            self.replica
                .apply(&self.entry, request.clone(), &mut replica_events),
            applied
        );
        assert_eq!(replica_events, events, "at the replica, after {request}");
        if let Some(drawing) = &mut self.drawing {
            drawing.log.push((self.entry, request));
        }
    }

    /// Draws a part; after the last one a restored state takes the place of the replica.
    fn draw(&mut self, znodes: usize) {
        let Some(drawing) = &mut self.drawing else {
            assert!(self.store.next_snapshot_part(znodes).is_none());
            return;
        };
        if let Some(part) = self.store.next_snapshot_part(znodes) {
            drawing.parts.push(recode(&part));
            return;
        }
        let drawing = self.drawing.take().expect("it was there a moment ago");
        let mut restorer = Restorer::new();
        for part in drawing.parts {
            restorer.add(part).expect("the part is whole");
        }
        let mut restored = restorer.finish().expect("the snapshot is whole");
        agree(&restored, &drawing.expected);
        for (entry, request) in drawing.log {
            restored.apply(&entry, request, &mut Vec::new());
        }
        assert_eq!(restored.digest(), self.store.digest(), "after a restore");
        self.replica = restored;
    }

    fn command(&self, what: &What) -> Command {
        match what {
            What::Open(session) => Command::OpenSession {
                session: SessionId(*session),
                password: Password([*session as u8; 16]),
                timeout_ms: 1_000,
                name: "name".into(),
                address: "address".into(),
            },
            What::Close(session) => Command::CloseSession {
                session: SessionId(*session),
            },
            What::Expire(sessions, term, ago) => Command::ExpireSessions {
                sessions: sessions.iter().copied().map(SessionId).collect(),
                term: *term,
                as_of: Zxid(self.store.zxid().0.saturating_sub(*ago)),
            },
            What::Write(change) => Command::Write(self.op(change)),
            What::Multi(changes) => Command::Multi(changes.iter().map(|change| self.op(change)).collect()),
            What::Sweep(places) => Command::Sweep(places.iter().map(|place| self.path(place)).collect()),
        }
    }

    fn op(&self, change: &Change) -> Op {
        let data = |n: &u8| match n {
            0..8 => Data::null(),
            n => Data::from(vec![*n; usize::from(*n - 8) / 8]),
        };
        match change {
            Change::Create {
                place,
                name,
                data: n,
                acl,
                mode,
                parents,
            } => Op::Create {
                path: CreatePath {
                    parent: self.path(place),
                    name: (*name).into(),
                },
                data: data(n),
                acl: rights(*acl),
                mode: *mode,
                parents: *parents,
            },
            Change::Delete(place, version) => Op::Delete {
                path: self.path(place),
                version: *version,
            },
            Change::DeleteRecursive(place) => Op::DeleteRecursive {
                path: self.path(place),
            },
            Change::Set(place, n, version) => Op::Set {
                path: self.path(place),
                data: data(n),
                version: *version,
            },
            Change::SetAcl(place, acl, aversion) => Op::SetAcl {
                path: self.path(place),
                acl: rights(*acl),
                aversion: *aversion,
            },
            Change::Check(place, version) => Op::Check {
                path: self.path(place),
                version: *version,
            },
        }
    }

    fn path(&self, place: &Place) -> ZPath {
        match place {
            Place::Existing(n) => {
                let nodes = &self.model.nodes;
                let path = nodes
                    .keys()
                    .nth(usize::from(*n) % nodes.len())
                    .expect("there is the root");
                // Deep trees stay below the limits of a path.
                if path.components().count() > 6 {
                    ZPath::root()
                } else {
                    path.clone()
                }
            }
            Place::Any(names) => names
                .iter()
                .fold(ZPath::root(), |path, name| path.join(name).expect("it is short")),
        }
    }
}

/// The store shows what the model says, through all of its reads.
fn agree(store: &Store, model: &Model) {
    assert_eq!(store.zxid().0, model.zxid);
    assert_eq!(store.time_ms(), model.time_ms);
    assert_eq!(store.node_count(), model.nodes.len());
    for (path, node) in &model.nodes {
        let (data, stat) = store.get(path).unwrap_or_else(|| panic!("{path} is missing"));
        assert_eq!((&data, &stat), (&node.data, &node.stat), "{path}");
        let children = store.children(path).expect("it exists");
        assert_eq!(
            children.iter().map(|name| name.to_string()).collect::<Vec<_>>(),
            model.children(path),
            "{path}"
        );
    }
    let sessions: Vec<_> = store.sessions().iter().map(|view| view.session).collect();
    assert_eq!(sessions, model.sessions.keys().copied().collect::<Vec<_>>());
    for view in store.sessions() {
        let owned = model
            .nodes
            .values()
            .filter(|node| node.stat.ephemeral_owner.session() == Some(view.session));
        assert_eq!(view.ephemerals as usize, owned.count(), "ephemerals of {view}");
    }
    for &session in &model.ended {
        assert_eq!(store.session_fate(session), SessionFate::Ended);
    }
    // One of them each time: the comparison must not cost more than what is compared.
    agree_as(store, model, &caller((model.zxid % 4) as u8));
    let empty = || model.nodes.iter().filter(|(_, node)| node.is_empty_container());
    for (_, node) in empty() {
        let before_ms = node.emptied_at_ms;
        let longer_empty = empty()
            .filter(|(_, node)| node.emptied_at_ms < before_ms)
            .map(|(path, _)| path.clone());
        let shown: BTreeSet<_> = store.to_sweep(before_ms, 0).into_iter().collect();
        assert_eq!(
            shown,
            longer_empty.collect(),
            "containers that were emptied before {before_ms}"
        );
    }
    assert_eq!(store.to_sweep(u64::MAX, 0).len(), empty().count());
    for now_ms in [model.time_ms, model.time_ms + 5_000] {
        let is_over = |node: &Znode| node.expires_at_ms().is_some_and(|end| end <= now_ms);
        let over = model.nodes.iter().filter(|(_, node)| is_over(node));
        let over: BTreeSet<_> = over.map(|(path, _)| path.clone()).collect();
        let shown: BTreeSet<_> = store.to_sweep(0, now_ms).into_iter().collect();
        assert_eq!(shown, over, "TTL nodes that are over at {now_ms}");
    }
}

/// The store shows a caller what the model says that it may see, and nothing else.
fn agree_as(store: &Store, model: &Model, caller: &Identities) {
    let view = store.seen_by(caller);
    for (path, node) in &model.nodes {
        let seen = node.acl.allows(Perms::READ, caller);
        assert_eq!(view.get(path).is_ok(), seen, "{path}");
        assert_eq!(view.exists(path), Ok(node.stat.clone()), "{path}");
        let page = view.children_page(path, "s", Some("s0000000001"), 2);
        assert_eq!(page.is_ok(), seen, "{path}");
        if let Ok(page) = page {
            let mut wanted = model.children(path);
            wanted.retain(|name| name.starts_with('s') && &**name > "s0000000001");
            assert_eq!(page.more, wanted.len() > 2, "{path}");
            wanted.truncate(2);
            let names: Vec<_> = page.children.iter().map(|(name, _)| name.to_string()).collect();
            assert_eq!(names, wanted, "{path}");
        }
        let administered = node.acl.allows(Perms::ADMIN, caller);
        match view.acl(path) {
            Ok((acl, _)) if administered => assert_eq!(acl, node.acl, "{path}"),
            Ok((acl, _)) => assert!(seen && !acl.to_string().contains("secret"), "{path}"),
            Err(refusal) => assert!(!seen && !administered, "{path}: {refusal}"),
        }
    }
    if let Ok(descendants) = view.descendants(&ZPath::root()) {
        assert_eq!(descendants as usize, model.nodes.len() - 1);
    }
}

proptest! {
    #![proptest_config(cases(CASES))]

    #[test]
    fn store_matches_the_model(steps in vec(any::<u64>().prop_map(Seed), STEPS)) {
        let mut world = World::new();
        for (n, step) in steps.iter().enumerate() {
            world.take(&step.step());
            if n % COMPARE_EVERY == 0 || n + 1 == steps.len() {
                agree(&world.store, &world.model);
                prop_assert_eq!(world.store.digest(), world.replica.digest());
            }
        }
    }
}
