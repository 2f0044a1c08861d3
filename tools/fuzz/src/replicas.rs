//! Two replicas that are given the same commands, while one of them is restored from a snapshot of itself again and again,
//! and the other has its snapshot drawn meanwhile. Whatever differs is a mistake in the store or in an encoding.

use raft_node::fuzz::{decode, encode};
use znode_store::{Applied, EntryContext, Event, Request, Restorer, SnapshotPart, Store};

/// Znodes in one part of a snapshot: few, so that even small states have several parts.
const PORTION: usize = 5;

/// The replica that is restored is so before each command whose number is a multiple of this, so that a state that was
/// restored also gets to apply several commands.
const RESTORE_EVERY: u64 = 4;

/// See the module.
pub struct Replicas {
    plain: Store,
    restored: Store,
    drawing: Drawing,
    /// Decides at which of the commands snapshots are taken.
    commands: u64,
}

/// A snapshot of the plain replica that is being drawn while commands are applied.
struct Drawing {
    /// Of the state when it began.
    digest: u64,
    parts: Vec<Vec<u8>>,
    /// What was applied since it began.
    since: Vec<(EntryContext, Request)>,
}

impl Replicas {
    /// Two stores in the same state. `phase` moves the moments at which snapshots are taken.
    pub fn new(mut plain: Store, restored: Store, phase: u64) -> Self {
        Self {
            drawing: Drawing::begin(&mut plain),
            plain,
            restored,
            commands: phase % RESTORE_EVERY,
        }
    }

    /// Has both apply a request; answers what they both answer.
    pub fn apply(&mut self, entry: &EntryContext, request: &Request) -> Applied {
        if self.commands.is_multiple_of(RESTORE_EVERY) {
            self.restored = restore(&draw(&mut self.restored));
        }
        self.commands += 1;
        let (mut events, mut other_events) = (Vec::new(), Vec::new());
        let applied = self.plain.apply(entry, request.clone(), &mut events);
        let other = self.restored.apply(entry, request.clone(), &mut other_events);
        assert_eq!(
            applied, other,
            "a restored replica answers something else to: {request}"
        );
        assert_eq!(
            events, other_events,
            "a restored replica tells of something else after: {request}"
        );
        show(request, &applied, &events);
        self.drawing.since.push((*entry, request.clone()));
        self.drawing.go_on(&mut self.plain);
        applied
    }

    /// The state that both have, if it is the same. Ends the snapshot that is being drawn.
    pub fn finish(mut self) -> Store {
        assert_eq!(
            self.plain.digest(),
            self.restored.digest(),
            "a restored replica has another state"
        );
        while !self.drawing.go_on(&mut self.plain) {}
        self.plain
    }
}

impl Drawing {
    fn begin(store: &mut Store) -> Self {
        store.begin_snapshot();
        Self {
            digest: store.digest(),
            parts: Vec::new(),
            since: Vec::new(),
        }
    }

    /// Draws one part. After the last one (true) the snapshot has to lead to where the store is, and the next begins.
    fn go_on(&mut self, store: &mut Store) -> bool {
        if let Some(part) = store.next_snapshot_part(PORTION) {
            self.parts.push(encode(&part));
            return false;
        }
        let mut restored = restore(&self.parts);
        assert_eq!(
            restored.digest(),
            self.digest,
            "the snapshot is not of the state in which it began"
        );
        for (entry, request) in self.since.drain(..) {
            restored.apply(&entry, request, &mut Vec::new());
        }
        assert_eq!(
            restored.digest(),
            store.digest(),
            "a snapshot and what came since lead elsewhere"
        );
        *self = Self::begin(store);
        true
    }
}

/// A whole snapshot of the state as it is now, each part encoded.
pub fn draw(store: &mut Store) -> Vec<Vec<u8>> {
    store.begin_snapshot();
    std::iter::from_fn(|| store.next_snapshot_part(PORTION))
        .map(|part| encode(&part))
        .collect()
}

/// The state that was drawn.
pub fn restore(parts: &[Vec<u8>]) -> Store {
    let mut restorer = Restorer::new();
    for part in parts {
        let part: SnapshotPart = decode(part).expect("what was encoded can be decoded");
        restorer.add(part).expect("the part was drawn from a store");
    }
    restorer.finish().expect("all parts were drawn from a store")
}

/// What logs and errors show of it must not panic either.
fn show(request: &Request, applied: &Applied, events: &[Event]) {
    std::hint::black_box(format!("{request} {applied}"));
    for event in events {
        std::hint::black_box(event.to_string());
    }
}
