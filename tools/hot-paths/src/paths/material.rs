//! What paths are made of: a filled store, commands, sessions. None of it is counted.

use znode_store::{
    Acl, AttemptId, Command, CreateMode, CreatePath, Data, EntryContext, Event, LockCommand, LockMode,
    LockName, LockWish, Op, Password, Reply, Request, SessionId, Store, ZPath, Zxid,
};

/// Data of one znode, as the clients of lock services and registries have it.
pub const DATA_BYTES: usize = 100;

/// Children of one parent.
pub const SIBLINGS: u64 = 1_000;

/// Znodes of a filled store: more than the caches nearest to a processor hold, few enough to be made under valgrind.
pub const ZNODES: u64 = 10_000;

/// A large odd step visits all znodes in no order.
const STEP: u64 = 7_919;

/// Whose locks and ephemeral znodes they are.
pub const SESSION: SessionId = SessionId(1);

/// What comes with every entry of the log.
pub fn entry() -> EntryContext {
    EntryContext {
        time_ms: 1_700_000_000_000,
        term: 1,
    }
}

/// Data of the usual size.
pub fn data() -> Data {
    vec![b'x'; DATA_BYTES].into()
}

/// The text of the `n`-th znode's path.
pub fn node(n: u64) -> String {
    format!("/bench/p{:04}/node-{n:010}", n / SIBLINGS)
}

/// The path of a znode that is there, another one for each `n`.
pub fn anywhere(n: u64) -> ZPath {
    path(&node(n * STEP % ZNODES))
}

/// A path.
pub fn path(text: &str) -> ZPath {
    ZPath::parse(text).expect("paths here are right")
}

/// The name of a lock.
pub fn lock(n: u64) -> LockName {
    LockName::parse(&format!("job-{n}")).expect("names here are right")
}

/// Creates a znode.
pub fn create(text: &str) -> Op {
    Op::Create {
        path: CreatePath::parse(text, false).expect("paths here are right"),
        data: data(),
        acl: Acl::open(),
        mode: CreateMode::Persistent,
        parents: true,
    }
}

/// Sets a znode that is there.
pub fn set(n: u64) -> Op {
    Op::Set {
        path: anywhere(n),
        data: data(),
        version: -1,
    }
}

/// Asks for a lock and waits for it.
pub fn acquire(lock: &LockName, mode: LockMode, n: u64) -> Request {
    of_session(
        SESSION,
        LockCommand::Acquire {
            wish: LockWish {
                lock: lock.clone(),
                mode,
                permits: 1,
                owner: "".into(),
                reentrant: false,
                note: "".into(),
                address: "127.0.0.1:50000".into(),
                lock_delay_ms: 0,
                names: Default::default(),
            },
            guid: n.into(),
            attempt: AttemptId(n),
            wait: true,
        },
    )
}

/// Gives a lock back.
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

/// Opens a session.
pub fn open(session: SessionId) -> Request {
    Request::anonymous(Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 10_000,
        name: "bench".into(),
        address: "127.0.0.1:50000".into(),
    })
}

/// Carries out a request that nobody refuses, and answers with what it came to.
pub fn ask(store: &mut Store, events: &mut Vec<Event>, request: Request) -> (Reply, Zxid) {
    let applied = store.apply(&entry(), request, events);
    match applied.outcome {
        Ok(reply) => (reply, applied.zxid),
        Err(refusal) => panic!("nothing here is refused: {refusal}"),
    }
}

/// A store with [`SESSION`] and nothing else.
pub fn empty() -> Store {
    let mut store = Store::new();
    ask(&mut store, &mut Vec::new(), open(SESSION));
    store
}

/// A store with [`ZNODES`] znodes and [`SESSION`].
pub fn full() -> Store {
    let mut store = empty();
    for n in 0..ZNODES {
        let create = Request::anonymous(Command::Write(create(&node(n))));
        ask(&mut store, &mut Vec::new(), create);
    }
    store
}
