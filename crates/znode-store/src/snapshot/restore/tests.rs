//! Tests of snapshots that contradict themselves but have a correct digest. An attacker who can write such a snapshot has other means, too, but a
//! state that cannot apply further commands would stop the whole cluster.

use alloc::string::ToString;
use alloc::vec::Vec;

use crate::model::data::Data;
use crate::model::ids::{LeaseKey, Password, RequestId, SessionId, Zxid};
use crate::model::lock::{AttemptId, ContenderNames, HoldBounds, LockCommand, LockMode, LockWish, NewLease};
use crate::model::path::{LockName, ZPath};
use crate::model::reply::{Place, Reply};
use crate::sessions::request_cache::CachedRequests;
use crate::snapshot::part::{FORMAT_WITHOUT_LEASES, FORMAT_WITHOUT_QUOTAS};
use crate::snapshot::restore::*;
use crate::tree::ZnodeRecord;
use crate::tree::index::NodeIndex;
use crate::{Command, EntryContext, Op, Request};

/// Returns the parts of a state with a session, at position 1.
fn parts() -> Vec<Part> {
    let mut store = Store::new();
    let command = Command::OpenSession {
        session: SessionId(1),
        password: Password([0; 16]),
        timeout_ms: 1,
        name: "".into(),
        address: "".into(),
    };
    let request = Request {
        request_id: RequestId::parse("open").ok(),
        ..Request::anonymous(command)
    };
    let entry = EntryContext { time_ms: 1, term: 1 };
    store
        .apply(&entry, request, &mut Vec::new())
        .outcome
        .expect("it is the first one");
    store.begin_snapshot();
    core::iter::from_fn(|| store.next_snapshot_part(100))
        .map(|part| part.0)
        .collect()
}

/// Restores a state from the parts, with a correct digest in place of theirs.
fn restore(parts: &[Part]) -> Result<Store, SnapshotError> {
    let add = |end: Option<u64>| {
        let mut restorer = Restorer::new();
        for part in parts {
            let part = match (part, end) {
                (Part::End { .. }, Some(digest)) => Part::End { digest },
                (part, _) => part.clone(),
            };
            restorer.add(SnapshotPart(part))?;
        }
        restorer.finish()
    };
    match add(None) {
        Err(SnapshotError::WrongDigest { found, .. }) => add(Some(found)),
        other => other,
    }
}

#[track_caller]
fn refused(change: impl Fn(&mut Part), why: &str) {
    let mut parts = parts();
    assert!(restore(&parts).is_ok());
    parts.iter_mut().for_each(change);
    let error = restore(&parts).err().expect("it was restored");
    assert!(error.to_string().contains(why), "{error}");
}

#[track_caller]
fn refused_znode(at: usize, change: impl Fn(&mut ZnodeRecord), why: &str) {
    let change = |part: &mut Part| {
        if let Part::Znodes(records) = part {
            change(&mut records[at]);
        }
    };
    refused(change, why);
}

#[track_caller]
fn refused_requests(change: impl Fn(&mut CachedRequests), why: &str) {
    let change = |part: &mut Part| {
        if let Part::Requests(kept) = part
            && kept.records.len() == 1
        {
            change(kept);
        }
    };
    refused(change, why);
}

#[test]
fn a_position_that_could_not_go_on() {
    let change = |part: &mut Part| {
        if let Part::Begin { zxid, .. } = part {
            *zxid = Zxid(u64::MAX);
        }
    };
    refused(change, "its position is beyond");
}

#[test]
fn znodes_that_are_newer_than_the_snapshot() {
    // A contender with a future position would be behind new contenders, but hold the lock before them.
    refused_znode(0, |znode| znode.czxid = Zxid(2), "newer");
    let pzxid = |znode: &mut ZnodeRecord| {
        znode.family.as_mut().expect("the root has children").pzxid = Zxid(2);
    };
    refused_znode(0, pzxid, "newer");
}

#[test]
fn counters_of_children_that_could_not_go_on() {
    let creations = |znode: &mut ZnodeRecord| {
        znode.family.as_mut().expect("the root has children").creations = u64::MAX;
    };
    refused_znode(0, creations, "more children than there can be");
}

#[test]
fn a_special_znode_that_could_be_swept() {
    let ttl = crate::model::stat::Kind::Ttl(1);
    for special in [NodeIndex::SYSTEM, NodeIndex::QUOTA, NodeIndex::CONFIG] {
        refused_znode(
            special.0 as usize,
            |znode| znode.owner = ttl.into(),
            "from the beginning",
        );
    }
}

#[test]
fn a_session_that_could_not_own_anything() {
    let change = |part: &mut Part| {
        if let Part::Sessions(records) = part {
            records[0].session = SessionId(0);
        }
    };
    refused(change, "the id of a session");
}

#[test]
fn requests_whose_order_could_not_go_on() {
    refused_requests(|kept| kept.next = u64::MAX, "after all that can come");
    refused_requests(|kept| kept.next = 0, "not in the order");
    let twice = |kept: &mut CachedRequests| {
        let mut again = kept.records[0].clone();
        again.0 = (&RequestId::parse("again").expect("it is short")).into();
        kept.records.push(again);
    };
    refused_requests(twice, "not in the order");
}

#[test]
fn a_request_that_waits_without_a_session() {
    let waits = |kept: &mut CachedRequests| {
        kept.records[0].1.outcome = Ok(Reply::Queued(Place {
            lock: LockName::parse("x").expect("it is a name"),
            holder: "n0000000000".into(),
            ahead: 0,
        }));
    };
    refused_requests(waits, "waits without a session");
}

/// Returns the parts of the state that these commands lead to, encoded and decoded.
fn parts_after(commands: impl IntoIterator<Item = Command>) -> Vec<Part> {
    let mut store = Store::new();
    for command in commands {
        let entry = EntryContext { time_ms: 1, term: 1 };
        let applied = store.apply(&entry, Request::anonymous(command), &mut Vec::new());
        applied.outcome.expect("it is legal");
    }
    store.begin_snapshot();
    let config = bincode::config::standard();
    core::iter::from_fn(|| store.next_snapshot_part(100))
        .map(|part| {
            let bytes = bincode::serde::encode_to_vec(&part.0, config).expect("it can be encoded");
            bincode::serde::decode_from_slice(&bytes, config)
                .expect("it can be decoded")
                .0
        })
        .collect()
}

/// Returns the parts of a state whose root has null data, and `/zookeeper` some bytes.
fn with_null() -> Vec<Part> {
    parts_after(
        [("/", Data::null()), ("/zookeeper", "x".into())].map(|(path, data)| {
            Command::Write(Op::Set {
                path: ZPath::parse(path).expect("it is a path"),
                data,
                version: -1,
            })
        }),
    )
}

/// Returns the parts of a state with a lease.
fn with_lease() -> Vec<Part> {
    parts_after([Command::Lock(LockCommand::AcquireBounded {
        wish: LockWish {
            lock: LockName::parse("x").expect("it is a name"),
            mode: LockMode::Exclusive,
            permits: 1,
            owner: "".into(),
            reentrant: false,
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: ContenderNames::default(),
        },
        guid: 1,
        attempt: AttemptId(1),
        wait: false,
        bounds: HoldBounds::default(),
        lease: Some(NewLease {
            key: LeaseKey {
                session: SessionId(1),
                password: Password([1; 16]),
            },
            timeout_ms: 1,
        }),
    })])
}

/// Returns the parts of a state after a namespace got these quotas, one after the other.
fn with_quotas<const N: usize>(quotas: [Option<Quotas>; N]) -> Vec<Part> {
    parts_after(quotas.map(|quotas| Command::SetQuotas {
        namespace: NamespaceName::parse("a").expect("it is a name"),
        quotas,
    }))
}

#[test]
fn a_namespace_is_in_a_snapshot_once() {
    let mut parts = with_quotas([Some(Quotas::default())]);
    for part in &mut parts {
        if let Part::Quotas(records) = part {
            records.extend(records.clone());
        }
    }
    match restore(&parts) {
        Err(SnapshotError::Damaged(told)) => assert!(told.contains("twice"), "{told}"),
        other => panic!("{:?}", other.map(|_| ())),
    }
}

#[test]
fn snapshot_has_the_oldest_format_that_can_represent_the_state() {
    let format = |parts: &[Part]| match parts[0] {
        Part::Begin { format, .. } => format,
        _ => unreachable!("it is the first part"),
    };
    assert_eq!(format(&parts()), OLDEST_FORMAT);
    assert_eq!(format(&with_lease()), FORMAT_WITHOUT_QUOTAS);
    assert_eq!(format(&with_quotas([Some(Quotas::default())])), FORMAT);
    let removed = with_quotas([Some(Quotas::default()), None]);
    assert_eq!(
        format(&removed),
        FORMAT,
        "a recorded outcome may be a refusal by it"
    );
    let restored = restore(&removed).unwrap_or_else(|error| panic!("{error}"));
    assert!(!restored.has_namespaces());
    let with_null = with_null();
    assert_eq!(format(&with_null), FORMAT_WITHOUT_LEASES);
    let restored = restore(&with_null).unwrap_or_else(|error| panic!("{error}"));
    let root = restored.get(&ZPath::root()).expect("it is the root").0;
    assert!(root.is_null());
}

#[test]
fn null_data_belongs_to_a_znode_and_has_no_bytes() {
    for (node, why) in [
        (NodeIndex(99), "null data in it is of no znode"),
        (NodeIndex::SYSTEM, "null data in it has bytes"),
    ] {
        let mut parts = with_null();
        for part in &mut parts {
            if let Part::NullData(told) = part {
                *told = Vec::from([node]);
            }
        }
        match restore(&parts) {
            Err(SnapshotError::Damaged(told)) => assert_eq!(told, why),
            other => panic!("{:?}", other.map(|_| ())),
        }
    }
}
