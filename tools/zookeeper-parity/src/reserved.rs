//! State of an unused tree: the root and the znodes below `/zookeeper`. All programs of a server share those
//! znodes, so random ones leave them alone; this program needs a server of its own.

use crate::program::{Program, Step, auth};
use crate::server::SUPER_CREDENTIALS;
use crate::wire::{AclEntry, CreateCall, Request};

/// Every znode of a new server.
const RESERVED: [&str; 4] = ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"];

/// Returns the program, for a server that has run nothing else.
pub fn program() -> Program {
    let mut steps = vec![Step::Open { session: 1 }];
    let mut all = |session: usize, requests: Vec<Request>| {
        steps.extend(
            requests
                .into_iter()
                .map(|request| Step::Call { session, request }),
        );
    };
    all(0, look_at_all());
    all(
        1,
        vec![
            add_watch("/", 1),
            get_children("/", true),
            get_children("/zookeeper", true),
            Request::Exists {
                path: "/zookeeper/x".to_owned(),
                watch: true,
            },
        ],
    );
    // A client without any identity.
    all(0, changes());
    all(0, look_at_all());
    // The super user.
    all(0, vec![auth("digest", SUPER_CREDENTIALS)]);
    all(0, changes());
    all(0, look_at_all());
    Program {
        seed: 0,
        sessions: 2,
        steps,
    }
}

fn look_at_all() -> Vec<Request> {
    let mut requests = Vec::new();
    for path in RESERVED {
        requests.extend([
            Request::GetData {
                path: path.to_owned(),
                watch: false,
            },
            get_children(path, false),
            Request::GetAcl {
                path: path.to_owned(),
            },
            Request::GetAllChildrenNumber {
                path: path.to_owned(),
            },
        ]);
    }
    requests
}

/// Returns requests that create, set, protect and delete at every reserved path, and at the root.
fn changes() -> Vec<Request> {
    let mut requests = Vec::new();
    for path in RESERVED {
        let child = if path == "/" {
            "/x".to_owned()
        } else {
            format!("{path}/x")
        };
        requests.extend([
            set(path),
            create(path, 0),
            create(&child, 0),
            create(&child[..child.len() - 1], 2),
            create(&format!("{child}/below"), 4),
            Request::Multi(vec![create(&child, 0), set(path)]),
            Request::Multi(vec![
                set(path),
                Request::Check {
                    path: path.to_owned(),
                    version: 1,
                },
            ]),
            delete(&format!("{child}/below")),
            delete(&child),
            delete(path),
            Request::SetAcl {
                path: path.to_owned(),
                acl: Some(protected()),
                version: 1,
            },
        ]);
    }
    // Protected znodes stay readable, and one more creation shows the permissions.
    requests.extend([
        create("/y", 1),
        create("/zookeeper/y", 0),
        delete("/zookeeper/y"),
        delete("/y"),
    ]);
    requests.push(Request::SetAcl {
        path: "/".to_owned(),
        acl: Some(open()),
        version: -1,
    });
    requests
}

fn create(path: &str, flags: i32) -> Request {
    Request::Create {
        call: CreateCall::Create2,
        path: path.to_owned(),
        data: Some(b"x"[..].into()),
        acl: Some(open()),
        flags,
    }
}

fn set(path: &str) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: Some(b"changed"[..].into()),
        version: -1,
    }
}

fn delete(path: &str) -> Request {
    Request::Delete {
        path: path.to_owned(),
        version: -1,
    }
}

fn get_children(path: &str, watch: bool) -> Request {
    Request::GetChildren2 {
        path: path.to_owned(),
        watch,
    }
}

fn add_watch(path: &str, mode: i32) -> Request {
    Request::AddWatch {
        path: path.to_owned(),
        mode,
    }
}

fn open() -> Vec<AclEntry> {
    vec![AclEntry {
        perms: 31,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    }]
}

fn protected() -> Vec<AclEntry> {
    vec![AclEntry {
        perms: 1,
        scheme: "world".to_owned(),
        id: "anyone".to_owned(),
    }]
}
