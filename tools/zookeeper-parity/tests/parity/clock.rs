//! Effects of the clock, which programs cannot contain: the sweeping of containers and TTL nodes. Both sides
//! must sweep the same ones, with the same notifications.

use std::time::Duration;

use zookeeper_parity::lockgate::{Lockgate, ReplicaOptions};
use zookeeper_parity::program::Step;
use zookeeper_parity::server::Server;
use zookeeper_parity::side::Side;
use zookeeper_parity::trace::Effect;
use zookeeper_parity::wire::{
    AclEntry, ConnectOutcome, Connection, CreateCall, Notification, Outcome, Reaction, Reply, Request,
};

use crate::installation;

/// Interval of sweeps, short so that the test does not wait for long.
const SWEEP_EVERY: Duration = Duration::from_millis(100);

/// TTL nodes that show that a sweep has happened. When a later node is swept, an earlier one is due as well;
/// the next sweep certainly deletes it, since siblings are swept in no order. A third sweep is for a
/// container that only a sweep has emptied.
const MARKERS: [&str; 3] = ["/p/marker-1", "/p/marker-2", "/p/marker-3"];

const NODE_DELETED: i32 = 2;

#[test]
fn both_sides_sweep_the_same_znodes() {
    let Some(installation) = installation("both_sides_sweep_the_same_znodes") else {
        return;
    };
    let server = Server::start_sweeping(&installation, SWEEP_EVERY).unwrap();
    assert_eq!(zookeeper(&server), lockgate());
}

/// Deleted znodes, and those that are left.
#[derive(PartialEq, Debug)]
struct SweepResult {
    deleted: Vec<String>,
    left: Vec<String>,
}

fn zookeeper(server: &Server) -> SweepResult {
    let ConnectOutcome::Accepted(mut connection, _) = Connection::open(server.address(), None, 0).unwrap()
    else {
        panic!("a new session was rejected")
    };
    let mut received = Vec::new();
    for request in requests() {
        call(&mut connection, &request, &mut received).unwrap_or_else(|code| panic!("{request:?}: {code}"));
    }
    for marker in MARKERS {
        call(
            &mut connection,
            &create(CreateCall::Ttl(1), marker, 5),
            &mut received,
        )
        .unwrap();
        while !received
            .iter()
            .any(|notification| is_deletion(notification, marker))
        {
            received.push(connection.next_notification().unwrap());
        }
    }
    let mut read = |request: &Request| call(&mut connection, request, &mut Vec::new());
    SweepResult {
        deleted: deletions(&received),
        left: left(&mut read),
    }
}

fn call(connection: &mut Connection, request: &Request, received: &mut Vec<Notification>) -> Outcome {
    let answer = connection.call(request).unwrap();
    received.extend(answer.notifications);
    match answer.reaction {
        Reaction::Reply { outcome, .. } => outcome,
        Reaction::Closed => panic!("{request:?} ended the connection"),
    }
}

fn lockgate() -> SweepResult {
    let mut side = Lockgate::new(1, ReplicaOptions::default());
    side.step(&Step::Open { session: 0 }).unwrap();
    let mut received = Vec::new();
    let markers = MARKERS.map(|marker| create(CreateCall::Ttl(1), marker, 5));
    for request in requests().into_iter().chain(markers) {
        let step_result = side
            .step(&Step::Call {
                session: 0,
                request: request.clone(),
            })
            .unwrap();
        let Effect::Replied { outcome: Ok(_), .. } = step_result.effect else {
            panic!("{request:?}: {:?}", step_result.effect)
        };
        received.extend(
            step_result
                .received
                .into_iter()
                .flat_map(|(_, notifications)| notifications),
        );
    }
    while let Some(notifications) = side.sweep(0) {
        received.extend(notifications);
    }
    let mut read = |request: &Request| side.read_all(std::slice::from_ref(request)).unwrap().remove(0);
    SweepResult {
        deleted: deletions(&received),
        left: left(&mut read),
    }
}

/// Returns the creation of one znode for each rule.
fn requests() -> Vec<Request> {
    let plain = |path| create(CreateCall::Create, path, 0);
    let container = |path| create(CreateCall::Container, path, 4);
    let delete = |path: &str| Request::Delete {
        path: path.to_owned(),
        version: -1,
    };
    vec![
        plain("/p"),
        Request::AddWatch {
            path: "/p".to_owned(),
            mode: 1,
        },
        // A container is deleted after it has had children, and not before.
        container("/p/emptied"),
        plain("/p/emptied/child"),
        delete("/p/emptied/child"),
        container("/p/never-used"),
        container("/p/in-use"),
        plain("/p/in-use/child"),
        // A container in a container: the deletion of the inner one empties the outer one.
        container("/p/outer"),
        container("/p/outer/inner"),
        plain("/p/outer/inner/child"),
        delete("/p/outer/inner/child"),
        // TTL nodes are deleted when their time is over, but not while they have children.
        create(CreateCall::Ttl(1), "/p/short", 5),
        create(CreateCall::Ttl(1), "/p/numbered-", 6),
        create(CreateCall::Ttl(1_000_000_000), "/p/long", 5),
        // Created together with their children, so that they are not deleted before.
        Request::Multi(vec![
            create(CreateCall::Ttl(1), "/p/parent", 5),
            plain("/p/parent/child"),
        ]),
        Request::Multi(vec![
            create(CreateCall::Ttl(1), "/p/bereft", 5),
            plain("/p/bereft/child"),
            delete("/p/bereft/child"),
        ]),
        // The flags of a container on an ordinary create make a plain node.
        create(CreateCall::Create, "/p/in-name-only", 4),
        plain("/p/in-name-only/child"),
        delete("/p/in-name-only/child"),
    ]
}

fn create(call: CreateCall, path: &str, flags: i32) -> Request {
    let acl = vec![AclEntry {
        perms: 31,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    }];
    Request::Create {
        call,
        path: path.to_owned(),
        data: None,
        acl: Some(acl),
        flags,
    }
}

fn is_deletion(notification: &Notification, path: &str) -> bool {
    notification.kind == NODE_DELETED && notification.path == path
}

fn deletions(received: &[Notification]) -> Vec<String> {
    let deleted = received
        .iter()
        .filter(|notification| notification.kind == NODE_DELETED);
    let mut paths = deleted
        .map(|notification| notification.path.clone())
        .collect::<Vec<_>>();
    paths.sort();
    paths
}

/// Returns all remaining paths, with the fields that the deletion of a child changes.
fn left(read: &mut dyn FnMut(&Request) -> Outcome) -> Vec<String> {
    let mut lines = Vec::new();
    let mut paths = vec!["/p".to_owned()];
    while let Some(path) = paths.pop() {
        let Ok(Reply::NamesAndStat(names, stat)) = read(&Request::GetChildren2 {
            path: path.clone(),
            watch: false,
        }) else {
            panic!("{path} disappeared while it was read")
        };
        lines.push(format!(
            "{path} cversion={} children={}",
            stat.cversion, stat.num_children
        ));
        paths.extend(names.iter().map(|name| format!("{path}/{name}")));
    }
    lines.sort();
    lines
}
