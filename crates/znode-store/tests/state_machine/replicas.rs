//! A store and a second replica that applies the same requests but is snapshotted, encoded, decoded and
//! restored before each one. Whatever differs between them is a mistake in the store.

use znode_store::{
    Applied, EntryContext, Event, LeaseContender, Reply, Request, Restorer, SnapshotPart, Store,
};

use crate::namespaces::check_usage;

/// See the module.
pub struct Replicas {
    /// The one that tests look at.
    pub store: Store,
    restored: Store,
}

impl Replicas {
    pub fn new() -> Self {
        Self {
            store: Store::new(),
            restored: Store::new(),
        }
    }

    /// Applies a request to both, and returns what the first one answers.
    pub fn apply(&mut self, entry: &EntryContext, request: Request) -> (Applied, Vec<Event>) {
        let (mut events, mut other_events) = (Vec::new(), Vec::new());
        self.restored = restore(draw(&mut self.restored, 3));
        let size = |store: &Store| (store.node_count(), store.sessions().len());
        let (may_grow, before) = (self.store.may_grow(&request), size(&self.store));
        let prospect = self.store.would_wait_behind(&request);
        let applied = self.store.apply(entry, request.clone(), &mut events);
        let other_applied = self.restored.apply(entry, recode(&request), &mut other_events);
        assert_eq!(
            applied, other_applied,
            "a restored replica answers something else to: {request}"
        );
        if let Some(waiting) = prospect {
            let waits = match &applied.outcome {
                Ok(
                    Reply::Queued(place)
                    | Reply::Leased {
                        contender: LeaseContender::Waits(place),
                        ..
                    },
                ) => place.ahead as usize == waiting,
                Ok(_) => false,
                Err(_) => true,
            };
            let outcome = &applied.outcome;
            assert!(
                waits,
                "it was said to wait behind {waiting}, and came to {outcome:?}: {request}"
            );
        }
        let after = size(&self.store);
        assert!(
            may_grow || (after.0 <= before.0 && after.1 <= before.1),
            "it was said not to grow, and made {after:?} of {before:?}: {request}"
        );
        check_usage(&self.store);
        check_usage(&self.restored);
        assert_eq!(
            events, other_events,
            "a restored replica has other events after: {request}"
        );
        assert_eq!(
            self.store.digest(),
            self.restored.digest(),
            "a restored replica has another state after: {request}"
        );
        (applied, events)
    }

    /// Goes on from another state.
    pub fn replace(&mut self, mut store: Store) {
        self.restored = restore(draw(&mut store, 5));
        self.store = store;
    }
}

/// A whole snapshot of the state as it is now.
pub fn draw(store: &mut Store, znodes: usize) -> Vec<SnapshotPart> {
    store.begin_snapshot();
    std::iter::from_fn(|| store.next_snapshot_part(znodes)).collect()
}

/// Restores what was drawn, by way of its encoding.
pub fn restore(parts: Vec<SnapshotPart>) -> Store {
    let mut restorer = Restorer::new();
    for part in parts {
        restorer.add(recode(&part)).expect("the part was just drawn");
    }
    restorer.finish().expect("the snapshot is whole")
}

/// Encodes and decodes a value, as between nodes and on disk.
pub fn recode<T: serde::Serialize + serde::de::DeserializeOwned>(value: &T) -> T {
    let config = bincode::config::standard();
    let bytes = bincode::serde::encode_to_vec(value, config).expect("it can be encoded");
    let (value, read) = bincode::serde::decode_from_slice(&bytes, config).expect("it can be decoded");
    assert_eq!(read, bytes.len());
    value
}
