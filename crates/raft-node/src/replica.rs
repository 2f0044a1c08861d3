//! This node's copy of the state and everything that feeds on it: waiting callers, watches, deadlines.
//! Entries come in at one end, in order; replies, events and heard sessions go out at the others.
//!
//! It does not know where entries come from: openraft's side is in `machine.rs`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::RwLock;
use tokio::sync::{mpsc, watch};
use znode_store::{Applied, Command, EntryContext, Event, HolderId, LockName, Reply, Standing, Store};

use crate::calls::Calls;
use crate::codec::{self, BadBytes, CommandBatch, Envelope, Origin};
use crate::hub::{GrantWait, Hub, Verdict};
use crate::sessions::SessionTracker;
use crate::types::Proposal;

/// A position in the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogPosition {
    /// The index.
    pub index: u64,
    /// The term of the entry there.
    pub term: u64,
}

/// The state of this node, and those who wait for it.
pub struct Replica {
    /// Who this node is in envelopes.
    pub origin: Origin,
    /// The tree, sessions and locks. Readers hold it shortly; the applier for one entry at a time.
    pub store: RwLock<Store>,
    /// Watches and waits.
    pub hub: Arc<Hub>,
    /// This node's unanswered proposals.
    pub calls: Calls,
    /// Deadlines, while this node leads.
    pub sessions: SessionTracker,
    applied: watch::Sender<LogPosition>,
    /// How often the state was replaced as a whole.
    generation: AtomicU64,
    /// Proposals that were lost with their leader go back to the queue from which they came.
    resubmit: mpsc::UnboundedSender<(u64, Bytes)>,
}

impl Replica {
    /// An empty state. Lost proposals go to `resubmit`, which is unbounded because the calls are bounded.
    pub fn new(origin: Origin, resubmit: mpsc::UnboundedSender<(u64, Bytes)>) -> Self {
        Self {
            origin,
            store: RwLock::new(Store::new()),
            hub: Arc::default(),
            calls: Calls::default(),
            sessions: SessionTracker::default(),
            applied: watch::Sender::new(LogPosition::default()),
            generation: AtomicU64::new(0),
            resubmit,
        }
    }

    /// The last position that was applied.
    pub fn applied(&self) -> LogPosition {
        *self.applied.borrow()
    }

    /// Waits until the entry at `index` is applied.
    pub async fn wait_applied(&self, index: u64) {
        let mut applied = self.applied.subscribe();
        applied
            .wait_for(|position| position.index >= index)
            .await
            .expect("the sender lives as long as the replica");
    }

    /// Waits until an entry of `term` or a later one is applied.
    pub async fn wait_term(&self, term: u64) {
        let mut applied = self.applied.subscribe();
        applied
            .wait_for(|position| position.term >= term)
            .await
            .expect("the sender lives as long as the replica");
    }

    /// Applies an entry that carries no commands.
    pub fn apply_blank(&self, at: LogPosition) {
        self.advance(at);
    }

    /// Applies the commands of an entry: answers this node's callers, after everybody who watches was told.
    pub fn apply_commands(&self, at: LogPosition, proposal: &Proposal) -> Result<(), BadBytes> {
        // The proposer lost the term before the entry was appended, and the entry was meant for that term
        // only: whoever proposed it tries again. The same on every replica, so no one applies it.
        if proposal.term != at.term {
            tracing::info!(
                proposed = proposal.term,
                term = at.term,
                at.index,
                "a proposal came too late"
            );
            self.advance(at);
            return Ok(());
        }
        let batch = CommandBatch::decode(proposal.commands.clone())?;
        let entry = EntryContext {
            time_ms: batch.time_ms,
            term: at.term,
        };
        let now = Instant::now();
        let mut answers: Vec<(u64, Applied)> = Vec::new();
        let mut events = Vec::new();
        {
            let mut store = self.store.write();
            for bytes in &batch.envelopes {
                let envelope: Envelope = codec::decode(bytes)?;
                if let Some(session) = envelope.request.session {
                    self.sessions.heard(session, now);
                }
                let opening = opened_timeout(&envelope.request.command);
                let applied = store.apply(&entry, envelope.request, &mut events);
                self.follow_sessions(&applied, &events, opening, now);
                self.hub.dispatch(applied.zxid, &events);
                events.clear();
                if envelope.origin == self.origin {
                    answers.push((envelope.call, applied));
                }
            }
        }
        self.advance(at);
        for (call, applied) in answers {
            self.calls.complete(call, applied);
        }
        Ok(())
    }

    /// Replaces the state by a snapshot's, which ends at `at`.
    pub fn replace(&self, at: LogPosition, restored: Store) {
        {
            let mut store = self.store.write();
            *store = restored;
            self.generation.fetch_add(1, Ordering::Relaxed);
            self.hub.lose_all();
            self.sessions.resign();
        }
        self.calls.lose_sent();
        self.advance(at);
    }

    /// How often the state was replaced by a snapshot's. Ask while the state is locked.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Waits for a contender, or says at once what became of it.
    pub fn wait_for_grant(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        let store = self.store.read();
        match store.standing(lock, holder) {
            Some(Standing::Holds(grant)) => GrantWait::decided(Verdict::Granted(grant)),
            Some(Standing::Waits(_)) => self.hub.wait_for_grant(lock, holder),
            None => GrantWait::decided(Verdict::Lost),
        }
    }

    /// Puts proposals that were not carried out back into the queue.
    pub fn resubmit(&self, calls: Vec<(u64, Bytes)>) {
        for call in calls {
            // The queue is closed when the node stops, and then the calls are answered by `Calls::stop`.
            let _ = self.resubmit.send(call);
        }
    }

    /// Sends again what was sent in terms before the one applied last, and not carried out there.
    pub fn resubmit_lost(&self) {
        self.resubmit(self.calls.term_began(self.applied().term));
    }

    fn advance(&self, at: LogPosition) {
        let before = self.applied.send_replace(at);
        assert!(at >= before, "applied {before:?} after {at:?}");
        if before.term < at.term {
            self.resubmit_lost();
        }
    }

    fn follow_sessions(&self, applied: &Applied, events: &[Event], opening: Option<Duration>, now: Instant) {
        for event in events {
            match event {
                Event::SessionOpened(session) => {
                    if let (Ok(Reply::SessionOpened { .. }), Some(timeout)) = (&applied.outcome, opening) {
                        self.sessions.opened(*session, timeout, now);
                    }
                }
                Event::SessionEnded { session, .. } => self.sessions.ended(*session),
                _ => {}
            }
        }
    }
}

fn opened_timeout(command: &Command) -> Option<Duration> {
    match command {
        Command::OpenSession { timeout_ms, .. } => Some(Duration::from_millis(u64::from(*timeout_ms))),
        _ => None,
    }
}
