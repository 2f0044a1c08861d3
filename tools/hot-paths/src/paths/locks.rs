//! Locks in the state machine. The commands are built while they are counted, as a release names the holder
//! of the grant.

use std::hint::black_box;

use znode_store::{Event, LockMode, LockName, Reply, Store};

use super::counted;
use super::material::{acquire, acquire_by_lease, apply, empty, lock, release, release_lease};

/// Number of locks in turn, so that the last used lock is not always the same.
const LOCKS: u64 = 100;

/// Number of waiters for the lock that is handed over.
const WAITING: u64 = 100;

fn granted(store: &mut Store, events: &mut Vec<Event>, lock: &LockName, mode: LockMode, n: u64) -> String {
    match apply(store, events, acquire(lock, mode, n)).0 {
        Reply::Granted(grant) => grant.holder,
        other => panic!("the lock is free: {other:?}"),
    }
}

pub fn cycle(operations: u64) {
    let mut store = empty();
    let locks: Vec<_> = (0..LOCKS).map(lock).collect();
    let mut cycles = |from: u64, times: u64| {
        let mut events = Vec::new();
        for n in from..from + times {
            let lock = &locks[(n % LOCKS) as usize];
            events.clear();
            let holder = granted(&mut store, &mut events, lock, LockMode::Exclusive, n);
            black_box(apply(&mut store, &mut events, release(lock, holder)));
        }
    };
    // Each lock's znode exists from its first acquire on.
    cycles(0, LOCKS);
    counted(&mut || cycles(LOCKS, operations));
}

/// The same by a lease of each cycle, as the clients of Redis' protocol take and release a lock.
pub fn lease_cycle(operations: u64) {
    let mut store = Store::new();
    let locks: Vec<_> = (0..LOCKS).map(lock).collect();
    let mut cycles = |from: u64, times: u64| {
        let mut events = Vec::new();
        for n in from..from + times {
            let lock = &locks[(n % LOCKS) as usize];
            events.clear();
            black_box(apply(&mut store, &mut events, acquire_by_lease(lock, n)));
            black_box(apply(&mut store, &mut events, release_lease(lock, n)));
        }
    };
    cycles(0, LOCKS);
    counted(&mut || cycles(LOCKS, operations));
}

pub fn hand_over(operations: u64) {
    assert!(operations < WAITING);
    let mut store = empty();
    let lock = lock(0);
    let mut events = Vec::new();
    let first = granted(&mut store, &mut events, &lock, LockMode::Exclusive, 0);
    let mut holders = vec![first];
    for n in 1..=WAITING {
        match apply(&mut store, &mut events, acquire(&lock, LockMode::Exclusive, n)).0 {
            Reply::Queued(place) => holders.push(place.holder),
            other => panic!("the lock is held: {other:?}"),
        }
    }
    let mut next = holders.into_iter();
    let mut grants = 0;
    counted(&mut || {
        for holder in next.by_ref().take(operations as usize) {
            events.clear();
            black_box(apply(&mut store, &mut events, release(&lock, holder)));
            grants += events
                .iter()
                .filter(|event| matches!(event, Event::Granted { .. }))
                .count();
        }
    });
    assert_eq!(grants as u64, operations);
}

pub fn semaphore(operations: u64) {
    const LIMIT: u32 = 5;
    let mode = LockMode::Semaphore { limit: LIMIT };
    let mut store = empty();
    let mut events = Vec::new();
    let lock = lock(0);
    for n in 1..LIMIT {
        granted(&mut store, &mut events, &lock, mode, u64::from(n));
    }
    counted(&mut || {
        for n in 0..operations {
            events.clear();
            let holder = granted(&mut store, &mut events, &lock, mode, u64::from(LIMIT) + n);
            black_box(apply(&mut store, &mut events, release(&lock, holder)));
        }
    });
}
