//! All reads of a state. None of them panics, in any state.

use std::hint::black_box;

use znode_store::{ContenderState, ContenderView, Identities, Identity, LockView, Store, ZPath};

/// Maximum number of znodes that are read: a state may have thousands, and a fuzzer tries thousands of
/// states.
const PATHS: usize = 12;

/// Makes every read.
pub(crate) fn read_all(store: &Store) {
    let nobody = Identities::none();
    let operator = Identities::new([Identity::Super]);
    read_as(store, &nobody);
    read_as(store, &operator);
    let view = store.seen_by(&operator);
    black_box((
        view.tokens().is_ok(),
        view.roles().is_ok(),
        view.certificates().is_ok(),
    ));
    for session in store.sessions() {
        black_box(session.to_string());
        black_box((
            store.contenders_of(session.session),
            store.revocations(session.session),
        ));
    }
    for lock in store.locks("", None, usize::MAX) {
        let view = store.lock(&lock.lock).expect("the lock was just listed");
        for (contender, holds) in contenders(&view) {
            let state = store
                .contender_state(&lock.lock, &contender.holder)
                .expect("the contender was just listed");
            let is_holder = !matches!(state, ContenderState::Waits(_));
            assert_eq!(is_holder, holds, "two reads of a contender disagree");
        }
    }
    black_box((store.to_sweep(u64::MAX, u64::MAX), store.closed_locks()));
    black_box(store.wait_graph(""));
}

/// Makes every read that a caller can make.
fn read_as(store: &Store, caller: &Identities) {
    let view = store.seen_by(caller);
    for path in paths(store) {
        black_box((
            view.get(&path).is_ok(),
            view.acl(&path).is_ok(),
            view.exists(&path).is_ok(),
        ));
        black_box((view.descendants(&path).is_ok(), view.children(&path).is_ok()));
        black_box(view.children_page(&path, "", Some("m"), 3).is_ok());
    }
    for session in store.sessions() {
        black_box(view.ephemerals(session.session, "/").is_ok());
        black_box(view.session(session.session).is_ok());
    }
    for lock in store.locks("", None, usize::MAX) {
        black_box((
            view.lock(&lock.lock).is_ok(),
            view.lock_history(&lock.lock).is_ok(),
        ));
    }
    black_box((view.sessions().is_ok(), view.wait_graph("").is_ok()));
}

/// Returns all contenders of a lock, and for each whether it holds the lock.
pub(crate) fn contenders(view: &LockView) -> impl Iterator<Item = (&ContenderView, bool)> {
    let holders = view.holders.iter().map(|holder| (holder, true));
    holders.chain(view.queue.iter().map(|waiter| (waiter, false)))
}

/// Returns some paths, parents before their children. The choice depends on the state, so that every path is
/// chosen in some state.
pub(crate) fn paths(store: &Store) -> Vec<ZPath> {
    let mut paths = vec![ZPath::root()];
    let mut at = 0;
    while at < paths.len() {
        let children = store.children(&paths[at]).expect("the path was just listed");
        let children = children
            .iter()
            .map(|name| paths[at].join(name).expect("the child has a valid path"));
        let children: Vec<_> = children.collect();
        paths.extend(children);
        at += 1;
    }
    let skipped = store.digest() as usize % paths.len();
    paths.rotate_left(skipped);
    paths.truncate(PATHS);
    paths.sort_unstable();
    paths
}
