//! Two replicas that apply the same commands. One is repeatedly restored from a snapshot of itself; the other
//! builds a snapshot meanwhile. Any difference is an error in the store or in an encoding.

use lock_node::fuzz::{decode, encode};
use znode_store::{Applied, EntryContext, Event, Request, Restorer, SnapshotPart, Store};

/// Number of znodes in one part of a snapshot: small, so that even small states have several parts.
const PORTION: usize = 5;

/// Number of commands between two restorations of the restored replica, so that a restored state also applies
/// several commands.
const RESTORE_EVERY: u64 = 4;

/// Two replicas, of which one is repeatedly restored from a snapshot.
pub struct Replicas {
    plain: Store,
    restored: Store,
    snapshot: SnapshotBuilder,
    /// Number of commands so far, which decides when snapshots are taken.
    commands: u64,
}

/// A snapshot of the plain replica, built while commands are applied.
struct SnapshotBuilder {
    /// Digest of the state at the start of the snapshot.
    digest: u64,
    parts: Vec<Vec<u8>>,
    /// Commands applied since the start of the snapshot.
    since: Vec<(EntryContext, Request)>,
}

impl Replicas {
    /// Creates replicas from two stores in the same state. `phase` shifts the points at which snapshots are
    /// taken.
    pub fn new(mut plain: Store, restored: Store, phase: u64) -> Self {
        Self {
            snapshot: SnapshotBuilder::begin(&mut plain),
            plain,
            restored,
            commands: phase % RESTORE_EVERY,
        }
    }

    /// Applies a request to both replicas and returns their common result.
    pub fn apply(&mut self, entry: &EntryContext, request: &Request) -> Applied {
        if self.commands.is_multiple_of(RESTORE_EVERY) {
            self.restored = restore(&encode_snapshot(&mut self.restored));
        }
        self.commands += 1;
        let (mut events, mut other_events) = (Vec::new(), Vec::new());
        let applied = self.plain.apply(entry, request.clone(), &mut events);
        let other = self.restored.apply(entry, request.clone(), &mut other_events);
        assert_eq!(
            applied, other,
            "a restored replica returns a different result for: {request}"
        );
        assert_eq!(
            events, other_events,
            "a restored replica emits different events for: {request}"
        );
        show(request, &applied, &events);
        self.snapshot.since.push((*entry, request.clone()));
        self.snapshot.build_part(&mut self.plain);
        applied
    }

    /// Completes the snapshot in progress and returns the state of both replicas, which must be the same.
    pub fn finish(mut self) -> Store {
        assert_eq!(
            self.plain.digest(),
            self.restored.digest(),
            "a restored replica has a different state"
        );
        for view in self.plain.namespaces() {
            let found = self.plain.recounted_usage(&view.namespace);
            assert_eq!(
                view.usage, found,
                "the usage of {} was counted wrongly",
                view.namespace
            );
        }
        while !self.snapshot.build_part(&mut self.plain) {}
        self.plain
    }
}

impl SnapshotBuilder {
    fn begin(store: &mut Store) -> Self {
        store.begin_snapshot();
        Self {
            digest: store.digest(),
            parts: Vec::new(),
            since: Vec::new(),
        }
    }

    /// Builds one part. After the last part (`true`), checks that the snapshot and the commands since lead to
    /// the state of the store, and starts the next snapshot.
    fn build_part(&mut self, store: &mut Store) -> bool {
        if let Some(part) = store.next_snapshot_part(PORTION) {
            self.parts.push(encode(&part));
            return false;
        }
        let mut restored = restore(&self.parts);
        assert_eq!(
            restored.digest(),
            self.digest,
            "the snapshot differs from the state at its start"
        );
        for (entry, request) in self.since.drain(..) {
            restored.apply(&entry, request, &mut Vec::new());
        }
        assert_eq!(
            restored.digest(),
            store.digest(),
            "the snapshot and the commands since lead to a different state"
        );
        *self = Self::begin(store);
        true
    }
}

/// Returns a whole snapshot of the current state, each part encoded.
pub fn encode_snapshot(store: &mut Store) -> Vec<Vec<u8>> {
    store.begin_snapshot();
    std::iter::from_fn(|| store.next_snapshot_part(PORTION))
        .map(|part| encode(&part))
        .collect()
}

/// Restores a state from the parts of a snapshot.
pub fn restore(parts: &[Vec<u8>]) -> Store {
    let mut restorer = Restorer::new();
    for part in parts {
        let part: SnapshotPart = decode(part).expect("an encoded part can be decoded");
        restorer.add(part).expect("the part was drawn from a store");
    }
    restorer.finish().expect("all parts were drawn from a store")
}

/// Formats the request, its result and its events as logs and errors do, which must not panic.
fn show(request: &Request, applied: &Applied, events: &[Event]) {
    std::hint::black_box(format!("{request} {applied}"));
    for event in events {
        std::hint::black_box(event.to_string());
    }
}
