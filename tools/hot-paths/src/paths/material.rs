//! The materials of paths: a filled store, commands, sessions. Creating them is not counted.

use znode_store::{
    Acl, AttemptId, Command, CreateMode, CreatePath, Data, EntryContext, Event, HoldBounds, LeaseChange,
    LeaseKey, LockCommand, LockMode, LockName, LockWish, NewLease, Op, Password, Reply, Request, SessionId,
    Store, ZPath, Zxid,
};

/// Data of one znode, as usual for clients of lock services and registries.
pub const DATA_BYTES: usize = 100;

/// Children of one parent.
pub const SIBLINGS: u64 = 1_000;

/// Znodes of a filled store: more than the caches nearest to a processor hold, and few enough to create under
/// valgrind.
pub const ZNODES: u64 = 10_000;

/// A large odd step, which visits all znodes in a scattered order.
const STEP: u64 = 7_919;

/// The session of the locks and ephemeral znodes.
pub const SESSION: SessionId = SessionId(1);

/// Returns the context of every log entry.
pub fn entry() -> EntryContext {
    EntryContext {
        time_ms: 1_700_000_000_000,
        term: 1,
    }
}

/// Returns data of the usual size.
pub fn data() -> Data {
    vec![b'x'; DATA_BYTES].into()
}

/// Returns the path of the `n`-th znode as text.
pub fn node(n: u64) -> String {
    format!("/bench/p{:04}/node-{n:010}", n / SIBLINGS)
}

/// Returns the path of an existing znode, a different one for each `n`.
pub fn anywhere(n: u64) -> ZPath {
    path(&node(n * STEP % ZNODES))
}

/// Parses a path.
pub fn path(text: &str) -> ZPath {
    ZPath::parse(text).expect("the path is valid")
}

/// Returns the name of the `n`-th lock.
pub fn lock(n: u64) -> LockName {
    LockName::parse(&format!("job-{n}")).expect("the name is valid")
}

/// Builds the creation of a znode.
pub fn create(text: &str) -> Op {
    Op::Create {
        path: CreatePath::parse(text, false).expect("the path is valid"),
        data: data(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    }
}

/// Builds a write to an existing znode.
pub fn set(n: u64) -> Op {
    Op::Set {
        path: anywhere(n),
        data: data(),
        version: -1,
    }
}

/// Builds an acquire that waits for its lock.
pub fn acquire(lock: &LockName, mode: LockMode, n: u64) -> Request {
    of_session(
        SESSION,
        LockCommand::Acquire {
            wish: wish(lock, mode, ""),
            guid: n.into(),
            attempt: AttemptId(n),
            wait: true,
        },
    )
}

/// Builds an acquire by a new lease, which does not wait.
pub fn acquire_by_lease(lock: &LockName, n: u64) -> Request {
    Request::anonymous(Command::Lock(LockCommand::AcquireBounded {
        wish: wish(lock, LockMode::Exclusive, &format!("value of the client {n}")),
        guid: n.into(),
        attempt: AttemptId(n),
        wait: false,
        bounds: HoldBounds::default(),
        lease: Some(NewLease {
            key: LeaseKey {
                session: lease(n),
                password: Password([0; 16]),
            },
            timeout_ms: 10_000,
        }),
    }))
}

/// Builds the release of the lock that a lease holds.
pub fn release_lease(lock: &LockName, n: u64) -> Request {
    Request::anonymous(Command::Lock(LockCommand::ChangeLease {
        lock: lock.clone(),
        lease: lease(n),
        change: LeaseChange::ReleaseOwn,
    }))
}

/// Returns the session of a lease. Leases draw their sessions at random.
fn lease(n: u64) -> SessionId {
    SessionId::from_random(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn wish(lock: &LockName, mode: LockMode, note: &str) -> LockWish {
    LockWish {
        lock: lock.clone(),
        mode,
        permits: 1,
        owner: "".into(),
        reentrant: false,
        note: note.into(),
        address: "127.0.0.1:50000".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    }
}

/// Builds a release.
pub fn release(lock: &LockName, holder: String) -> Request {
    of_session(
        SESSION,
        LockCommand::Release {
            lock: lock.clone(),
            holder,
        },
    )
}

fn of_session(session: SessionId, command: LockCommand) -> Request {
    Request {
        session: Some(session),
        ..Request::anonymous(Command::Lock(command))
    }
}

/// Builds the opening of a session.
pub fn open(session: SessionId) -> Request {
    Request::anonymous(Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 10_000,
        name: "bench".into(),
        address: "127.0.0.1:50000".into(),
    })
}

/// Applies a request that must succeed. Returns its reply and zxid.
pub fn apply(store: &mut Store, events: &mut Vec<Event>, request: Request) -> (Reply, Zxid) {
    let applied = store.apply(&entry(), request, events);
    match applied.outcome {
        Ok(reply) => (reply, applied.zxid),
        Err(refusal) => panic!("the request was rejected: {refusal}"),
    }
}

/// Returns a store with [`SESSION`] and nothing else.
pub fn empty() -> Store {
    let mut store = Store::new();
    apply(&mut store, &mut Vec::new(), open(SESSION));
    store
}

/// Returns a store with [`ZNODES`] znodes and [`SESSION`].
pub fn full() -> Store {
    let mut store = empty();
    for n in 0..ZNODES {
        let create = Request::anonymous(Command::Write(create(&node(n))));
        apply(&mut store, &mut Vec::new(), create);
    }
    store
}
