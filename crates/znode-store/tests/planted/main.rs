//! Planted bugs change what they say they change: each program runs once as it should and once with the bug. Only with the
//! feature `planted`, which no other test has.

mod programs;

use std::sync::{Mutex, PoisonError};

use programs::Program;
use znode_store::planted::{Bug, plant};
use znode_store::*;

/// A process has one bug at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Runs a program without the bug, and with it.
fn both<T>(bug: Bug, program: impl Fn() -> T) -> (T, T) {
    let _guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    plant(None);
    let right = program();
    plant(Some(bug));
    let wrong = program();
    plant(None);
    (right, wrong)
}

#[test]
fn a_waiter_of_an_ended_session_is_granted_the_lock() {
    let owners = both(Bug::GrantToTheDead, || {
        let mut program = Program::with_sessions(3);
        let holder = program.acquire(1, LockMode::Exclusive).holder();
        program.acquire(2, LockMode::Exclusive);
        program.acquire(3, LockMode::Exclusive);
        program.expire(&[2]);
        program.release(1, &holder).expect("it holds");
        program.holders()
    });
    assert_eq!(owners, (vec![SessionId(3)], vec![SessionId(2)]));
}

#[test]
fn a_late_release_takes_the_next_hold() {
    let owners = both(Bug::ReleaseByName, || {
        let mut program = Program::with_sessions(1);
        let first = program.acquire(1, LockMode::Exclusive).holder();
        program.release(1, &first).expect("it holds");
        program.acquire(1, LockMode::Exclusive);
        let late = program.release(1, &first).is_ok();
        (late, program.holders())
    });
    assert_eq!(owners, ((false, vec![SessionId(1)]), (true, vec![])));
}

#[test]
fn expiry_of_a_deposed_leader_is_applied() {
    let left = both(Bug::UnprovenLeader, || {
        let mut program = Program::with_sessions(1);
        program.expire_in_term(&[1], 0);
        program.store.sessions().len()
    });
    assert_eq!(left, (1, 0));
}

#[test]
fn a_sequential_number_comes_again_after_a_snapshot() {
    let names = both(Bug::ForgottenCounter, || {
        let mut program = Program::with_sessions(0);
        for _ in 0..3 {
            program.sequential();
        }
        program.delete("/q/n0000000002");
        program.store = program.restored();
        program.sequential()
    });
    assert_eq!(names, ("/q/n0000000003".into(), "/q/n0000000002".into()));
}

#[test]
fn repeated_request_is_applied_again() {
    let children = both(Bug::Repeated, || {
        let mut program = Program::with_sessions(0);
        for _ in 0..2 {
            program.sequential_as(RequestId::parse("once").ok());
        }
        program.store.children(&ZPath::parse("/q").expect("a path"))
    });
    let count = |children: Option<Vec<_>>| children.map(|children| children.len());
    assert_eq!((count(children.0), count(children.1)), (Some(1), Some(2)));
}

#[test]
fn replicas_remember_sessions_in_orders_of_their_own() {
    let differ = both(Bug::OwnOrder, || {
        // Boxes, as moving a store gives it another place.
        let mut replicas: Vec<Box<Program>> = (0..4).map(|_| Box::new(Program::with_sessions(32))).collect();
        for replica in &mut replicas {
            (1..=32).for_each(|session| replica.expire(&[session]));
        }
        let digests: Vec<u64> = replicas.iter().map(|replica| replica.store.digest()).collect();
        digests.iter().any(|digest| *digest != digests[0])
    });
    assert_eq!(differ, (false, true));
}

#[test]
fn permits_of_ended_sessions_are_lost() {
    let taken = both(Bug::LeakedPermits, || {
        let mut program = Program::with_sessions(3);
        let mode = LockMode::Semaphore { limit: 2 };
        program.acquire(1, mode);
        program.expire(&[1]);
        program.acquire(2, mode);
        program.acquire(3, mode);
        program.holders().len()
    });
    assert_eq!(taken, (2, 1));
}

#[test]
fn reader_behind_a_withdrawn_writer_is_granted() {
    let owners = both(Bug::OvertakingReader, || {
        let mut program = Program::with_sessions(3);
        program.acquire(1, LockMode::Exclusive);
        program.acquire(2, LockMode::Exclusive);
        program.acquire(3, LockMode::Shared);
        program.expire(&[2]);
        program.holders()
    });
    assert_eq!(owners, (vec![SessionId(1)], vec![SessionId(1), SessionId(3)]));
}

#[test]
fn two_are_alone() {
    let owners = both(Bug::CrowdedLock, || {
        let mut program = Program::with_sessions(3);
        (1..=3).for_each(|session| drop(program.acquire(session, LockMode::Exclusive)));
        program.holders()
    });
    assert_eq!(owners, (vec![SessionId(1)], vec![SessionId(1), SessionId(2)]));
}

#[test]
fn an_ephemeral_outlives_its_session() {
    let left = both(Bug::KeptEphemeral, || {
        let mut program = Program::with_sessions(1);
        program.ephemeral(1, "/a");
        program.ephemeral(1, "/b");
        program.expire(&[1]);
        let restored = program.restored();
        ["/a", "/b"].map(|path| restored.stat(&ZPath::parse(path).expect("a path")).is_some())
    });
    assert_eq!(left, ([false, false], [false, true]));
}

#[test]
fn deleted_znode_stays_in_the_usage_of_its_namespace() {
    let usage = both(Bug::UsageOutlivesZnode, || {
        let mut program = Program::with_sessions(1);
        program.set_quotas("a");
        program.ephemeral(1, "/a");
        program.delete("/a");
        let counted = program.store.namespace("a").expect("it has quotas").usage.znodes;
        (
            counted,
            program
                .restored()
                .namespace("a")
                .expect("it has quotas")
                .usage
                .znodes,
        )
    });
    // The restored replica counts again, and so decides otherwise.
    assert_eq!(usage, ((0, 0), (1, 0)));
}

#[test]
fn waiter_is_granted_the_lock_while_its_session_ends() {
    let owners = both(Bug::GrantWhileEnding, || {
        let mut program = Program::with_sessions(3);
        let holder = program.acquire(1, LockMode::Exclusive).holder();
        program.acquire(2, LockMode::Exclusive);
        program.acquire(3, LockMode::Exclusive);
        program.entry(0, |program| {
            program.expire(&[2]);
            program.release(1, &holder).expect("it holds");
        });
        program.holders()
    });
    assert_eq!(owners, (vec![], vec![SessionId(2)]));
}
