//! The contents of inputs: a few sessions, znodes and locks, and short functions that build commands about
//! them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::OnceLock;

use znode_store::{
    Acl, AclEntry, AttemptId, Command, CreateMode, CreatePath, EntryContext, HoldBounds, Identities,
    Identity, LeaseKey, LockCommand, LockMode, LockName, LockWish, NewLease, Op, Password, Perms, Request,
    RequestId, SessionId, Store, ZPath,
};

use crate::replicas::encode_snapshot;

/// Term of all entries.
pub(crate) const TERM: u64 = 1;

/// Time of the commands that build the base state.
pub(crate) const TIME_MS: u64 = 1_000;

/// Open sessions. `ENDED` is one that has ended.
pub(crate) const SESSIONS: [u64; 3] = [1, 2, 3];
pub(crate) const ENDED: u64 = 4;

/// Lease that holds its lock, and one that waits for the same lock.
pub(crate) const HOLDING_LEASE: LeaseKey = lease(11);
pub(crate) const WAITING_LEASE: LeaseKey = lease(12);

/// Returns the key of the lease with this number.
pub(crate) const fn lease(number: u64) -> LeaseKey {
    LeaseKey {
        session: SessionId(number),
        password: Password([number as u8; 16]),
    }
}

/// Hash of a password, as ZooKeeper's clients send it.
pub(crate) const ALICE: &str = "alice:2bRVXC1CNEZ7cK6uzw2ASgzPDRc=";
/// Subject of a certificate.
pub(crate) const BOB: &str = "CN=bob,O=example";
/// Name that Curator gives to a contender.
pub(crate) const CURATOR: &str = "_c_7c1e1b2a-5c8f-4f5e-9a53-0d2f6a3c9f11-lock-";

/// Returns the snapshot of the base state.
pub(crate) fn base_parts() -> &'static [Vec<u8>] {
    static PARTS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PARTS.get_or_init(|| encode_snapshot(&mut base()))
}

/// Returns a state with every kind of item: sessions, znodes, quotas, locks and waiters.
pub(crate) fn base() -> Store {
    let mut store = Store::new();
    let entry = EntryContext {
        time_ms: TIME_MS,
        term: TERM,
    };
    for request in base_requests() {
        let applied = store.apply(&entry, request.clone(), &mut Vec::new());
        assert!(applied.outcome.is_ok(), "{request}: {applied}");
    }
    store
}

fn base_requests() -> Vec<Request> {
    let mut requests: Vec<Request> = SESSIONS.into_iter().chain([ENDED]).map(open).collect();
    requests.push(request(0, "", close(ENDED)));
    let open_list = Acl::open;
    for (path, mode, acl) in [
        ("/a", CreateMode::Persistent, open_list()),
        ("/a/b", CreateMode::Container, open_list()),
        ("/a/b/c", CreateMode::Ephemeral, open_list()),
        ("/a/s", CreateMode::EphemeralSequential, open_list()),
        ("/e", CreateMode::Container, open_list()),
        ("/e/f", CreateMode::PersistentSequential, open_list()),
        ("/t", CreateMode::Ttl { ttl_ms: 10 }, open_list()),
        ("/t/u", CreateMode::TtlSequential { ttl_ms: 1_000 }, open_list()),
        ("/v", CreateMode::Ttl { ttl_ms: 1 }, open_list()),
        ("/closed", CreateMode::Persistent, mixed_acl()),
        ("/read-only", CreateMode::Persistent, Acl::read_only()),
        ("/q", CreateMode::Persistent, open_list()),
        ("/zookeeper/quota/q", CreateMode::Persistent, open_list()),
    ] {
        requests.push(write(1, path, create(path, "data", mode, acl)));
    }
    for (path, data) in [
        (
            "/zookeeper/quota/q/zookeeper_limits",
            "count=4,bytes=40=;byteHardLimit=60;countHardLimit=6",
        ),
        ("/zookeeper/quota/q/zookeeper_stats", ""),
        ("/q/r", "something"),
    ] {
        requests.push(write(
            1,
            "",
            create(path, data, CreateMode::Persistent, Acl::open()),
        ));
    }
    // More children than a short list holds.
    requests.extend((0..12).map(|_| {
        write(
            2,
            "",
            create("/a/n", "", CreateMode::PersistentSequential, Acl::open()),
        )
    }));
    // Now empty, so that the sweep can delete its parent.
    requests.push(write(1, "", delete("/e/f0000000000")));
    let semaphore = LockMode::Semaphore { limit: 3 };
    for (session, lock, mode, permits) in [
        (1, "x", LockMode::Exclusive, 1),
        (1, "x", LockMode::Exclusive, 1),
        (2, "x", LockMode::Exclusive, 1),
        (3, "x", LockMode::Exclusive, 1),
        (2, "x", LockMode::Exclusive, 1),
        (1, "r", LockMode::Shared, 1),
        (2, "r", LockMode::Shared, 1),
        (3, "r", LockMode::Exclusive, 1),
        (1, "r", LockMode::Shared, 1),
        (1, "s", semaphore, 2),
        (2, "s", semaphore, 1),
        (3, "s", semaphore, 3),
        (1, "u", LockMode::Upgradeable, 1),
        (2, "u", LockMode::Shared, 1),
    ] {
        let number = requests.len() as u64;
        let command = acquire(lock, mode, permits, number, true);
        requests.push(request(session, &number.to_string(), command));
    }
    for (lease, wait) in [(HOLDING_LEASE, false), (WAITING_LEASE, true)] {
        requests.push(acquire_by_lease(lease, wait));
    }
    for session in [2, 3] {
        let path = format!("/locks/c/{CURATOR}");
        let op = create_below(
            &path,
            "10.0.0.7",
            CreateMode::EphemeralSequential,
            Acl::open(),
            true,
        );
        requests.push(write(session, "", op));
    }
    requests
}

/// Builds the acquire of the lock `l` by a lease, whose hold has bounds. The number of the lease also
/// determines the name of its contender.
pub(crate) fn acquire_by_lease(lease: LeaseKey, wait: bool) -> Request {
    let number = lease.session.0;
    let command = LockCommand::AcquireBounded {
        wish: wish("l", LockMode::Exclusive, 1),
        guid: number.into(),
        attempt: AttemptId(number),
        wait,
        bounds: HoldBounds {
            min_ms: 20,
            max_ms: 5_000,
        },
        lease: Some(NewLease {
            key: lease,
            timeout_ms: 4_000,
        }),
    };
    request(0, &format!("lease {number}"), Command::Lock(command))
}

/// Builds a request of a session (0: of none), with a request id unless `id` is empty.
pub(crate) fn request(session: u64, id: &str, command: Command) -> Request {
    request_as(session, id, Identities::none(), command)
}

/// Builds the same request from a caller with proven identities.
pub(crate) fn request_as(session: u64, id: &str, caller: Identities, command: Command) -> Request {
    Request {
        session: (session != 0).then_some(SessionId(session)),
        request_id: RequestId::parse(id).ok(),
        caller,
        command,
    }
}

/// Builds a request for one change of the tree.
pub(crate) fn write(session: u64, id: &str, op: Op) -> Request {
    request(session, id, Command::Write(op))
}

pub(crate) fn open(session: u64) -> Request {
    let command = Command::OpenSession {
        session: SessionId(session),
        password: Password([session as u8; 16]),
        timeout_ms: 10_000,
        name: "worker".into(),
        address: "10.0.0.7".into(),
    };
    request(0, &format!("open {session}"), command)
}

pub(crate) fn close(session: u64) -> Command {
    Command::CloseSession {
        session: SessionId(session),
    }
}

pub(crate) fn create(path: &str, data: &str, mode: CreateMode, acl: Acl) -> Op {
    create_below(path, data, mode, acl, false)
}

pub(crate) fn create_below(path: &str, data: &str, mode: CreateMode, acl: Acl, parents: bool) -> Op {
    Op::Create {
        path: CreatePath::parse(path, mode.is_sequential()).expect("the path is valid"),
        data: data.into(),
        acl,
        mode,
        parents,
    }
}

pub(crate) fn delete(path: &str) -> Op {
    Op::Delete {
        path: zpath(path),
        version: -1,
    }
}

pub(crate) fn set(path: &str, data: &str) -> Op {
    Op::Set {
        path: zpath(path),
        data: data.into(),
        version: -1,
    }
}

pub(crate) fn zpath(text: &str) -> ZPath {
    ZPath::parse(text).expect("the path is valid")
}

pub(crate) fn lock_name(text: &str) -> LockName {
    LockName::parse(text).expect("the name is valid")
}

/// Builds one call of `acquire`. Its number also determines the name of its contender.
pub(crate) fn acquire(lock: &str, mode: LockMode, permits: u32, number: u64, wait: bool) -> Command {
    Command::Lock(LockCommand::Acquire {
        wish: wish(lock, mode, permits),
        guid: number.into(),
        attempt: AttemptId(number),
        wait,
    })
}

pub(crate) fn wish(lock: &str, mode: LockMode, permits: u32) -> LockWish {
    LockWish {
        lock: lock_name(lock),
        mode,
        permits,
        owner: "".into(),
        reentrant: true,
        note: "nightly".into(),
        address: "10.0.0.7".into(),
        lock_delay_ms: 10,
        names: Default::default(),
    }
}

/// Returns an access control list with an entry of each scheme.
pub(crate) fn mixed_acl() -> Acl {
    let entry = |perms, scheme: &str, id: &str| AclEntry {
        perms,
        scheme: scheme.into(),
        id: id.into(),
    };
    Acl::new(vec![
        entry(Perms::READ, "world", "anyone"),
        entry(Perms::ALL, "digest", ALICE),
        entry(Perms::READ | Perms::CREATE, "x509", BOB),
        entry(Perms::WRITE, "ip", "10.0.0.0/8"),
        entry(Perms::DELETE, "ip", "2001:db8::/32"),
    ])
}

/// Returns a caller with one proven identity of each scheme.
pub(crate) fn alice() -> Identities {
    Identities::new([
        Identity::Ip(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7))),
        Identity::Digest(ALICE.into()),
        Identity::X509(BOB.into()),
    ])
}
