//! The checks on a restored state: all reads, and commands about its items. Its own snapshot must lead to the
//! same state before, during and after the commands.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

use znode_store::{
    Acl, AclEntry, AttemptId, Command, CreateMode, CreatePath, Downgraded, EntryContext, Identities,
    Identity, Limits, LockCommand, LockMode, LockName, LockView, LockWish, NamespaceName, Op, Perms, Quotas,
    Request, RequestId, SessionId, Store, WithdrawCause, ZPath, namespace_of,
};

use crate::material::TERM;
use crate::read_all::{contenders, paths, read_all};
use crate::replicas::{Replicas, encode_snapshot, restore};

/// Maximum numbers of items of each kind that get commands: a snapshot may hold thousands, and a fuzzer tries
/// thousands of snapshots.
const SESSIONS: usize = 4;
const LOCKS: usize = 4;
const CONTENDERS: usize = 4;
/// Number of paths whose namespaces get quotas.
const PATHS_WITH_QUOTAS: usize = 8;

/// Panics if the state does not behave as any other.
pub fn check(mut store: Store) {
    read_all(&store);
    let again = restore(&encode_snapshot(&mut store));
    let digest = store.digest();
    assert_eq!(
        again.digest(),
        digest,
        "the snapshot of a restored state leads to a different state"
    );
    let requests = requests(&store);
    let entry = EntryContext {
        time_ms: store.time_ms().saturating_add(1),
        term: TERM,
    };
    let mut replicas = Replicas::new(store, again, digest);
    for request in &requests {
        replicas.apply(&entry, request);
    }
    read_all(&replicas.finish());
}

type SessionCommand = (Option<SessionId>, Command);

/// Returns commands about the items of the state: locks first, then znodes, then the end of all sessions and the deletion of all paths.
fn requests(store: &Store) -> Vec<Request> {
    let mut commands: Vec<SessionCommand> = vec![
        (None, Command::SetLimits(Limits::default())),
        (None, Command::Sweep(store.to_sweep(u64::MAX, u64::MAX))),
    ];
    commands.extend(namespaces(store).into_iter().map(|namespace| {
        let quotas = Some(Quotas::default());
        (None, Command::SetQuotas { namespace, quotas })
    }));
    let sessions: Vec<_> = store
        .sessions()
        .iter()
        .map(|view| view.session)
        .take(SESSIONS)
        .collect();
    let first = sessions.first().copied();
    for lock in store.locks("", None, LOCKS) {
        let view = store.lock(&lock.lock).expect("the lock was just listed");
        commands.extend(about_lock(store, &view, &sessions));
    }
    let paths = paths(store);
    let ops: Vec<_> = paths
        .iter()
        .zip(0..)
        .map(|(path, number)| about_path(path, number))
        .collect();
    // All changes in one transaction that is rolled back at its end.
    let nowhere = Op::Delete {
        path: ZPath::parse("/no/where").expect("the path is valid"),
        version: -1,
    };
    commands.push((
        first,
        Command::Multi(ops.iter().flatten().cloned().chain([nowhere]).collect()),
    ));
    commands.extend(ops.into_iter().flatten().map(|op| (first, Command::Write(op))));
    commands.extend(first.map(|session| (None, Command::CloseSession { session })));
    let sessions = sessions.into_iter().chain([SessionId(u64::MAX)]).collect();
    commands.push((
        None,
        Command::ExpireSessions {
            sessions,
            term: TERM,
            as_of: store.zxid(),
        },
    ));
    commands.extend(
        paths
            .into_iter()
            .map(|path| (None, Command::Write(Op::DeleteRecursive { path }))),
    );
    commands.push((None, Command::Sweep(store.to_sweep(u64::MAX, u64::MAX))));
    commands.into_iter().enumerate().flat_map(as_requests).collect()
}

/// Returns some namespaces of the state. With quotas their usage is counted.
fn namespaces(store: &Store) -> BTreeSet<NamespaceName> {
    let paths = paths(store);
    let names = paths
        .iter()
        .filter_map(|path| NamespaceName::parse(namespace_of(path)?).ok());
    names.take(PATHS_WITH_QUOTAS).collect()
}

/// Builds the requests of a command: every third one has an id and is sent twice. Most callers are the
/// operator, whom no access control list stops.
fn as_requests((number, (session, command)): (usize, SessionCommand)) -> Vec<Request> {
    let address = Identity::Ip(Ipv4Addr::new(10, 0, 0, 7).into());
    let identity = if number % 4 == 1 { address } else { Identity::Super };
    let id = RequestId::parse(&number.to_string()).expect("a number is short");
    let is_repeated = number.is_multiple_of(3);
    let request = Request {
        session,
        request_id: is_repeated.then_some(id),
        caller: Identities::new([identity, Identity::Digest("user:hash".into())]),
        command,
    };
    vec![request; 1 + usize::from(is_repeated)]
}

fn about_path(path: &ZPath, number: usize) -> Vec<Op> {
    let auth = Acl::new(vec![AclEntry {
        perms: Perms::ALL,
        scheme: "auth".into(),
        id: "".into(),
    }]);
    let mode = match number % 4 {
        0 => CreateMode::PersistentSequential,
        1 => CreateMode::EphemeralSequential,
        2 => CreateMode::TtlSequential { ttl_ms: 1 },
        _ => CreateMode::Container,
    };
    let child = CreatePath {
        parent: path.clone(),
        name: "n".into(),
    };
    vec![
        Op::Check {
            path: path.clone(),
            version: 0,
        },
        Op::Set {
            path: path.clone(),
            data: "count=1".into(),
            version: -1,
        },
        Op::SetAcl {
            path: path.clone(),
            acl: auth,
            aversion: -1,
        },
        Op::Create {
            path: child,
            data: "x".into(),
            acl: Acl::open(),
            mode,
            parents: true,
        },
        Op::Delete {
            path: path.clone(),
            version: -1,
        },
    ]
}

fn about_lock(store: &Store, view: &LockView, sessions: &[SessionId]) -> Vec<SessionCommand> {
    let mut steps = Vec::new();
    for (contender, _) in contenders(view).take(CONTENDERS) {
        let session = contender.session;
        let name = || (view.lock.clone(), contender.holder.clone());
        steps.push((session, acquire(view, contender.owner.clone(), true)));
        for attempt in attempts(store, &view.lock, &contender.holder) {
            for cause in [WithdrawCause::TimedOut, WithdrawCause::Abandoned] {
                let (lock, holder) = name();
                let withdraw = LockCommand::Withdraw {
                    lock,
                    holder,
                    attempt,
                    cause,
                };
                steps.push((session, withdraw));
            }
        }
        let (lock, holder) = name();
        let (attempt, wait) = (AttemptId(2), true);
        let upgrade = LockCommand::Upgrade {
            lock,
            holder,
            attempt,
            wait,
        };
        steps.push((session, upgrade));
        let (lock, holder) = name();
        let to = Downgraded::Shared;
        steps.push((session, LockCommand::Downgrade { lock, holder, to }));
        let (lock, holder) = name();
        steps.push((session, LockCommand::Release { lock, holder }));
    }
    steps.extend(
        sessions
            .iter()
            .map(|&session| (session, acquire(view, "".into(), false))),
    );
    if let Some((last, _)) = contenders(view).last() {
        let (lock, holder, reason) = (view.lock.clone(), last.holder.clone(), "tried".into());
        let by = "10.0.0.7".into();
        steps.push((
            last.session,
            LockCommand::Break {
                lock,
                holder,
                by,
                reason,
            },
        ));
    }
    let lift = LockCommand::Configure {
        lock: view.lock.clone(),
        limit: None,
        draining: Some(false),
    };
    let revoke = LockCommand::Revoke {
        lock: view.lock.clone(),
        holder: None,
        by: "10.0.0.7".into(),
        reason: "tried".into(),
    };
    let closed = store.closed_locks().into_iter();
    let open = LockCommand::CountDelays {
        locks: closed
            .map(|closed| (closed.lock, closed.at, closed.delay_ms))
            .collect(),
        term: TERM,
    };
    if let Some(session) = sessions.first() {
        steps.extend([lift, revoke, open].map(|step| (*session, step)));
    }
    let commands = steps
        .into_iter()
        .map(|(session, step)| (Some(session), Command::Lock(step)));
    commands.collect()
}

/// Builds a request in the lock's current mode.
fn acquire(view: &LockView, owner: Arc<str>, wait: bool) -> LockCommand {
    LockCommand::Acquire {
        wish: LockWish {
            lock: view.lock.clone(),
            mode: view.mode.unwrap_or(LockMode::Exclusive),
            permits: 1,
            owner,
            reentrant: true,
            note: "".into(),
            address: "".into(),
            lock_delay_ms: 0,
            names: Default::default(),
        },
        guid: 1,
        attempt: AttemptId(1),
        wait,
    }
}

/// Returns the calls that a contender's record names: the numbers after `"id":`, found without a JSON parser.
fn attempts(store: &Store, lock: &LockName, holder: &str) -> Vec<AttemptId> {
    let path = ZPath::parse(&format!("/locks/{lock}/{holder}")).expect("the path of a contender is valid");
    let (data, _) = store.get(&path).expect("the contender was just listed");
    let text = String::from_utf8_lossy(data.as_bytes());
    let numbers = text.split("\"id\":").skip(1).take(CONTENDERS).filter_map(|rest| {
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().ok().map(AttemptId)
    });
    numbers.collect()
}
