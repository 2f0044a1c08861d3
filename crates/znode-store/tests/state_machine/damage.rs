//! Snapshots that are damaged in all kinds of ways: a restore refuses them, or comes to the very state that
//! was drawn. It never panics and never comes to another state.

use znode_store::{
    Acl, AttemptId, Command, CreateMode, CreatePath, EntryContext, Identities, LockCommand, LockMode,
    LockName, LockWish, Op, Password, Request, RequestId, Restorer, SessionId, SnapshotError, SnapshotPart,
    Store,
};

use crate::replicas::draw;

/// Maximum length in these snapshots, so that a damaged length does not take all memory. Readers of real snapshots have a checksum and a
/// limit of their own.
const LIMIT: usize = 1024 * 1024;

/// A state that has some of everything.
fn some_of_everything() -> Store {
    let mut store = Store::new();
    let entry = EntryContext {
        time_ms: 5_000,
        term: 1,
    };
    let mut ask = |session: Option<u64>, request_id: Option<&str>, command| {
        let session = session.map(SessionId);
        let request_id = request_id.map(|id| RequestId::parse(id).expect("it is short"));
        store
            .apply(
                &entry,
                Request {
                    session,
                    request_id,
                    caller: Identities::none(),
                    command,
                },
                &mut Vec::new(),
            )
            .outcome
            .expect("this is executed");
    };
    for id in 1..=3 {
        let command = Command::OpenSession {
            session: SessionId(id),
            password: Password([7; 16]),
            timeout_ms: 10_000,
            name: "name".into(),
            address: "address".into(),
        };
        ask(None, Some(&id.to_string()), command);
    }
    ask(
        None,
        None,
        Command::CloseSession {
            session: SessionId(3),
        },
    );
    for (path, mode) in [
        ("/a", CreateMode::Persistent),
        ("/a/b", CreateMode::Container),
        ("/a/b/c", CreateMode::Ephemeral),
        ("/a/s", CreateMode::EphemeralSequential),
        ("/d/e", CreateMode::PersistentSequential),
    ] {
        let path = CreatePath::parse(path, mode.is_sequential()).expect("it is legal");
        let op = Op::Create {
            path,
            data: "data".into(),
            acl: Acl::open(),
            mode,
            parents: true,
        };
        ask(Some(1), Some(&format!("{mode}")), Command::Write(op));
    }
    for id in [1, 2] {
        let wish = LockWish {
            lock: LockName::parse("lock").expect("it is legal"),
            mode: LockMode::Exclusive,
            permits: 1,
            owner: "".into(),
            reentrant: true,
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        };
        let command = LockCommand::Acquire {
            wish,
            guid: id.into(),
            attempt: AttemptId(id),
            wait: true,
        };
        ask(Some(id), Some("acquire"), Command::Lock(command));
    }
    store
}

fn encode(parts: &[SnapshotPart]) -> Vec<Vec<u8>> {
    parts
        .iter()
        .map(|part| {
            bincode::serde::encode_to_vec(part, bincode::config::standard()).expect("it can be encoded")
        })
        .collect()
}

/// `None`: the encoding noticed already.
fn restore(parts: &[Vec<u8>]) -> Option<Result<Store, SnapshotError>> {
    let mut restorer = Restorer::new();
    for part in parts {
        let config = bincode::config::standard().with_limit::<LIMIT>();
        let (part, _) = bincode::serde::decode_from_slice::<SnapshotPart, _>(part, config).ok()?;
        if let Err(error) = restorer.add(part) {
            return Some(Err(error));
        }
    }
    Some(restorer.finish())
}

#[test]
fn complete_snapshots_are_restored() {
    let mut store = some_of_everything();
    let parts = encode(&draw(&mut store, 3));
    let restored = restore(&parts).expect("it can be decoded").expect("it is whole");
    assert_eq!(restored.digest(), store.digest());
}

#[test]
fn no_flipped_bit_makes_another_state() {
    let mut store = some_of_everything();
    let parts = encode(&draw(&mut store, 3));
    for part in 0..parts.len() {
        for bit in 0..8 * parts[part].len() {
            let mut damaged = parts.clone();
            damaged[part][bit / 8] ^= 1 << (bit % 8);
            if let Some(Ok(restored)) = restore(&damaged) {
                assert_eq!(restored.digest(), store.digest(), "bit {bit} of part {part}");
            }
        }
    }
}

#[test]
fn parts_that_are_missing_or_out_of_order_are_noticed() {
    let mut store = some_of_everything();
    let parts = encode(&draw(&mut store, 2));
    for end in 0..parts.len() {
        let cut = restore(&parts[..end]).expect("it can be decoded").err();
        assert_eq!(cut, Some(SnapshotError::Incomplete), "the first {end} parts");
    }
    for at in 0..parts.len() {
        let mut damaged = parts.clone();
        damaged.remove(at);
        if let Some(Ok(restored)) = restore(&damaged) {
            // The part was empty.
            assert_eq!(restored.digest(), store.digest(), "without part {at}");
        }
        let mut damaged = parts.clone();
        damaged.insert(at, parts[at].clone());
        if let Some(Ok(restored)) = restore(&damaged) {
            assert_eq!(restored.digest(), store.digest(), "with part {at} twice");
        }
        let mut damaged = parts.clone();
        damaged.swap(at, parts.len() - 1);
        if let Some(Ok(restored)) = restore(&damaged) {
            assert_eq!(restored.digest(), store.digest(), "with part {at} last");
        }
    }
}
