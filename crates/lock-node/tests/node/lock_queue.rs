//! Log entries of acquires that wait for a lock.

use lock_node::Node;
use lock_node::znode_store::{
    AttemptId, Command, LockCommand, LockMode, LockName, LockWish, Password, Reply, Request, SessionId,
};

use crate::cluster::{Cluster, TIMEOUT, request};

/// Number of attempts: an attempt that the machine delays for two milliseconds shows nothing.
const TRIES: u128 = 50;

fn lock() -> LockName {
    LockName::parse("job").unwrap()
}

fn of(session: SessionId, command: LockCommand) -> Request {
    Request {
        session: Some(session),
        ..request(Command::Lock(command))
    }
}

fn acquire(session: SessionId, guid: u128) -> Request {
    let wish = LockWish {
        lock: lock(),
        mode: LockMode::Exclusive,
        permits: 1,
        owner: "".into(),
        reentrant: false,
        note: "".into(),
        address: "".into(),
        lock_delay_ms: 0,
        names: Default::default(),
    };
    let acquire = LockCommand::Acquire {
        wish,
        guid,
        attempt: AttemptId(guid as u64),
        wait: true,
    };
    of(session, acquire)
}

fn release(session: SessionId, holder: &str) -> Request {
    let (lock, holder) = (lock(), holder.to_owned());
    of(session, LockCommand::Release { lock, holder })
}

async fn open_session(node: &Node, session: SessionId) {
    let command = Command::OpenSession {
        session,
        password: Password([0; 16]),
        timeout_ms: 60_000,
        name: "".into(),
        address: "".into(),
    };
    node.propose(request(command)).await.unwrap().outcome.unwrap();
}

/// A busy lock is released and granted in one entry: the next acquire waits for the release, and not the release for the acquire.
#[tokio::test]
async fn waiting_acquire_shares_an_entry_with_the_release() {
    let mut cluster = Cluster::start(1).await;
    let node = cluster.node(1);
    let (mut holds, mut waits) = (SessionId(0xa), SessionId(0xb));
    for session in [holds, waits] {
        open_session(node, session).await;
    }
    let granted = node.propose(acquire(holds, 0)).await.unwrap().outcome.unwrap();
    let Reply::Granted(grant) = granted else {
        panic!("nobody else wants it, and yet: {granted:?}");
    };
    let mut holder = grant.holder;
    let mut by_one_entry = 0;
    for guid in 1..=TRIES {
        let before = node.status().applied_index;
        let call = tokio::spawn(node.submit(acquire(waits, guid)).unwrap());
        // Long enough for a leader that would propose the acquire at once.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        node.propose(release(holds, &holder))
            .await
            .unwrap()
            .outcome
            .unwrap();
        let queued = call.await.unwrap().unwrap().outcome.unwrap();
        by_one_entry += u32::from(node.status().applied_index == before + 1);
        // It was queued before the release, or arrived after it.
        holder = match queued {
            Reply::Queued(place) => place.holder,
            Reply::Granted(grant) => grant.holder,
            other => panic!("{other:?}"),
        };
        std::mem::swap(&mut holds, &mut waits);
    }
    assert!(by_one_entry > 0, "all {TRIES} acquires were proposed alone");

    // Without a release the acquire is queued soon, too.
    let call = node.propose(acquire(waits, TRIES + 1));
    let queued = tokio::time::timeout(TIMEOUT, call).await;
    let queued = queued
        .expect("the acquire is not held back until a release")
        .unwrap()
        .outcome;
    assert!(matches!(queued, Ok(Reply::Queued(_))), "{queued:?}");
    cluster.stop_all().await;
}
