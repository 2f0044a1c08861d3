//! The state machine: the cost of one command and of one read. Requests are built before they are counted, as
//! a node decodes them elsewhere.

use std::hint::black_box;

use znode_store::{Command, Identities, Op, Password, Request, SessionId, Step, Store, Turn};

use super::counted;
use super::material::{
    SESSION, ZNODES, anywhere, apply, create as create_op, data, empty, full, node, open, path, set as set_op,
};

/// Applies all requests, and counts that.
fn apply_all(store: &mut Store, requests: Vec<Request>) {
    let mut events = Vec::new();
    let (mut requests, mut done) = (requests.into_iter(), 0);
    let request_count = requests.len();
    counted(&mut || {
        for request in requests.by_ref() {
            events.clear();
            black_box(apply(store, &mut events, request));
            done += 1;
        }
    });
    assert_eq!(done, request_count);
}

fn write(op: Op) -> Request {
    Request::anonymous(Command::Write(op))
}

pub fn create(operations: u64) {
    let mut store = full();
    let before = store.node_count();
    let requests = (0..operations).map(|n| write(create_op(&node(ZNODES + n))));
    apply_all(&mut store, requests.collect());
    // Each thousand siblings share a parent, which the first of them creates.
    assert_eq!(store.node_count() as u64, before as u64 + operations + 1);
}

pub fn set(operations: u64) {
    apply_all(&mut full(), (0..operations).map(|n| write(set_op(n))).collect());
}

pub fn set_in_turn(operations: u64) {
    let mut store = full();
    let reconnect = Request::anonymous(Command::Reconnect {
        session: SESSION,
        password: Password([0; 16]),
    });
    let (_, since) = apply(&mut store, &mut Vec::new(), reconnect);
    let in_turn = |n| Request {
        session: Some(SESSION),
        ..Request::anonymous(Command::InTurn {
            turn: Turn { since, number: n },
            step: Step::Write(set_op(n)),
        })
    };
    apply_all(&mut store, (0..operations).map(in_turn).collect());
}

pub fn multi(operations: u64) {
    let multi = |n| {
        let check = Op::Check {
            path: anywhere(n),
            version: -1,
        };
        Request::anonymous(Command::Multi(vec![check, set_op(n)]))
    };
    apply_all(&mut full(), (0..operations).map(multi).collect());
}

pub fn get(operations: u64) {
    let store = full();
    let nobody = Identities::none();
    let view = store.seen_by(&nobody);
    let paths: Vec<_> = (0..operations).map(anywhere).collect();
    let mut bytes = 0;
    counted(&mut || {
        for path in &paths {
            let found = view.get(path).expect("the znode exists");
            bytes += black_box(found).0.len();
        }
    });
    assert_eq!(bytes, data().len() * paths.len());
}

pub fn children(operations: u64) {
    const PAGE: usize = 100;
    let store = full();
    let nobody = Identities::none();
    let view = store.seen_by(&nobody);
    let parent = path("/bench/p0003");
    let mut shown = 0;
    counted(&mut || {
        for _ in 0..operations {
            let page = view
                .children_page(&parent, "", Some("node-0000003500"), PAGE)
                .expect("the parent exists");
            shown += black_box(page).children.len();
        }
    });
    assert_eq!(shown as u64, operations * PAGE as u64);
}

pub fn session(operations: u64) {
    let pair = |n| {
        let session = SessionId(n);
        [
            open(session),
            Request::anonymous(Command::CloseSession { session }),
        ]
    };
    apply_all(&mut empty(), (1_000..1_000 + operations).flat_map(pair).collect());
}
