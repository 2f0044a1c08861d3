//! This node's copy of the state and everything that feeds on it: waiting callers, watches, deadlines.
//! Entries come in at one end, in order; replies, events and heard sessions go out at the others.
//!
//! It does not know where entries come from: openraft's side is in `state_machine.rs`.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use tokio::time::Instant;
use znode_store::{
    Command, ContenderEnd, ContenderState, EntryContext, EntryWork, Event, Hold, HolderId, LockMode,
    LockName, Reply, SessionId, Store, Zxid,
};

use crate::command_versions;
use crate::envelope::{Envelope, Origin};
use crate::hold_spans;
use crate::hold_timer::HoldTimer;
use crate::metrics::node_counters::NodeCounters;
use crate::pending_proposals::{Applying, PendingProposals};
use crate::sessions::SessionTracker;
use crate::traces::{Collector, Tracing};
use fault_injection::fail_step;
use lock_history::Position;
use observers::history::Holders;
use observers::notifier::{GrantWait, WaitOutcome};
use observers::{Applied, AppliedCommand, Observers};
use raft_log::sync::{RwLock, RwLockReadGuard};
use raft_node::Proposal;
use raft_node::audit::StateDigest;
use raft_node::cluster_clock::ClusterClock;
use raft_node::codec::{self, BadBytes};
use raft_node::command_batch::CommandBatch;
use raft_node::replicated_state::{
    AppliedPosition, LogPosition, ReplicatedState, SnapshotPart, SnapshotParts,
};

mod recent_reads;
pub(crate) mod restore;
mod states;

use recent_reads::RecentReads;
use states::States;

/// State of this node, and the observers and callers that it notifies.
pub struct Replica {
    /// Origin of this node's envelopes.
    pub origin: Origin,
    /// The tree, sessions and locks. Readers hold it shortly; the applier for one entry at a time.
    pub store: RwLock<Store>,
    /// Observers of what is applied.
    pub observers: Observers,
    /// This node's unanswered proposals.
    pub calls: PendingProposals,
    /// Deadlines, while this node leads.
    pub sessions: SessionTracker,
    /// Ends of holds with a maximum time.
    pub holds: HoldTimer,
    /// Clock that entries are stamped with.
    pub clock: Arc<ClusterClock>,
    /// Counters.
    pub counters: Arc<NodeCounters>,
    /// Collector of the spans of the leader's part of proposals, of waiting and of holding.
    pub spans: Option<Arc<dyn Collector>>,
    /// Detector of recent reads.
    recent_reads: RecentReads,
    /// Digests of some earlier states.
    states: States,
    applied: AppliedPosition,
    /// Number of times that the state was replaced as a whole. Read it while the state is locked.
    generation: AtomicU64,
}

impl Replica {
    /// An empty state.
    pub fn new(origin: Origin, observers: Observers) -> Self {
        Self {
            origin,
            store: RwLock::new(Store::new()),
            observers,
            calls: PendingProposals::default(),
            sessions: SessionTracker::default(),
            holds: HoldTimer::default(),
            clock: Arc::default(),
            counters: Arc::default(),
            spans: None,
            recent_reads: RecentReads::default(),
            states: States::default(),
            applied: AppliedPosition::default(),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns the replica with this clock.
    pub(crate) fn with_clock(self, clock: Arc<ClusterClock>) -> Self {
        Self { clock, ..self }
    }

    /// Returns the replica with these counters.
    pub(crate) fn with_counters(self, counters: Arc<NodeCounters>) -> Self {
        Self { counters, ..self }
    }

    /// Returns the replica with this destination of spans.
    pub(crate) fn with_tracing(self, tracing: Option<Tracing>) -> Self {
        let spans = tracing.map(|tracing| tracing.collector);
        Self { spans, ..self }
    }

    /// Waits until the state fulfils `is_so`.
    pub async fn wait_until(&self, is_so: impl Fn(&Store) -> bool) {
        self.applied.wait_for(|_| is_so(&self.store.read())).await;
    }

    /// Locks the state for a reader outside.
    pub fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.recent_reads.note();
        self.store.read()
    }

    /// Returns whether any local client waits for newly committed entries: a caller for an answer or for entries of others, a waiter for a
    /// lock, a connected client or a stream, or a reader that has read recently and may read again.
    pub fn is_awaited(&self) -> bool {
        self.applied.is_awaited()
            || !self.calls.is_empty()
            || self.observers.are_awaited()
            || self.recent_reads.were_lately(Instant::now())
    }

    /// Waits for a contender, or says at once what became of it. With `alone` it waits until a holder's upgrade is
    /// granted.
    pub fn wait_for_grant(&self, lock: &LockName, holder: &HolderId, alone: bool) -> GrantWait {
        let store = self.store.read();
        match store.contender_state(lock, holder) {
            Some(ContenderState::Upgrades(_)) if alone => {
                self.observers.notifier.wait_for_grant(lock, holder)
            }
            // An upgrade that was given up, elsewhere and under the same request.
            Some(ContenderState::Holds(grant)) if alone && grant.mode != LockMode::Exclusive => {
                GrantWait::decided(WaitOutcome::Ended(ContenderEnd::Withdrawn))
            }
            Some(ContenderState::Holds(grant) | ContenderState::Upgrades(grant)) => {
                GrantWait::decided(WaitOutcome::Granted(grant))
            }
            Some(ContenderState::Waits(_)) => self.observers.notifier.wait_for_grant(lock, holder),
            None => GrantWait::decided(WaitOutcome::Lost),
        }
    }

    /// Waits for the end of a contender, or says at once that it is gone.
    pub fn wait_for_end(&self, lock: &LockName, holder: &HolderId) -> GrantWait {
        let store = self.store.read();
        match store.contender_state(lock, holder) {
            Some(_) => self.observers.notifier.wait_for_end(lock, holder),
            None => GrantWait::decided(WaitOutcome::Lost),
        }
    }

    /// Queues the proposals again that were sent in terms before the one applied last, and were not applied.
    pub fn resubmit_lost(&self) {
        self.calls.term_began(self.applied.get().term);
    }

    fn advance(&self, at: LogPosition) {
        let before = self.applied.advance(at);
        if before.term < at.term {
            self.resubmit_lost();
        }
    }

    /// Takes a session off the record, if the state has heard it at this very position: a request without rights is no sign of life.
    fn off_record(&self, store: &Store, session: SessionId, at: Zxid) {
        if store.session_heard_at(session) == Some(at) {
            self.sessions.off_record(session);
        }
    }

    /// Applies the effects of a command to the deadlines of sessions and to the text log. `on_record` is the session of its request, if the
    /// state has the session's silence on record.
    fn follow(&self, applied: &Applied, on_record: Option<SessionId>, now: Instant, store: &Store) {
        let Applied { position, .. } = *applied;
        let heard = |session| {
            if self.sessions.note_activity(session, now) {
                self.off_record(store, session, position);
            }
        };
        if let Some(session) = on_record {
            self.off_record(store, session, position);
        }
        match &applied.outcome {
            Ok(Reply::SilenceRecorded(_)) => self.sessions.recorded(position, now),
            Ok(Reply::HeartbeatsNoted(_)) => {
                if let AppliedCommand::NotesHeartbeats(sessions) = &applied.command {
                    sessions
                        .iter()
                        .for_each(|session| self.off_record(store, *session, position));
                }
            }
            // Also if the session was opened by an earlier request with the same id: the retry counts from then on.
            Ok(Reply::SessionOpened { session, .. }) => heard(*session),
            Ok(Reply::Leased { lease, .. }) => heard(lease.session),
            // A late copy of a renewal changes nothing.
            Ok(Reply::LeaseRenewed { session, timeout_ms })
                if store.session_heard_at(*session) == Some(position) =>
            {
                let timeout = Duration::from_millis(u64::from(*timeout_ms));
                self.sessions.opened(*session, timeout, now);
            }
            _ => {}
        }
        for event in &applied.events {
            match event {
                Event::SessionOpened(session) => {
                    if let AppliedCommand::OpensSession(timeout) = &applied.command {
                        self.sessions.opened(*session, *timeout, now);
                    }
                }
                Event::SessionReconnected { session, .. } => heard(*session),
                Event::SessionEnded { session, .. } => self.sessions.ended(*session),
                Event::HoldBegan(hold)
                    if !planted::is(Bug::HoldOutlivesBound) || self.sessions.leading_term().is_some() =>
                {
                    if let Some(bounded) = store.bounded_hold(&hold.lock, &hold.holder) {
                        self.holds.began(bounded, now);
                    }
                }
                Event::HoldEnded { hold, how, .. } if *how != ContenderEnd::Upgraded => {
                    self.holds.ended(&hold.lock, &hold.holder);
                }
                // It contains no secret. The leader logs it, as below.
                Event::AccessChanged(change) if self.sessions.leading_term().is_some() => {
                    let (by, change) = (change.by.to_string(), change.command.to_string());
                    tracing::info!(by, change, "access rights were changed");
                }
                // The leader logs it once, and no node logs it again when it reads its log after a restart.
                Event::SoftQuotaPassed {
                    path,
                    what,
                    limit,
                    used,
                } if self.sessions.leading_term().is_some() => {
                    tracing::warn!(path = path.to_string(), of = %what, limit, used, "a soft quota was passed");
                }
                _ => {}
            }
        }
    }

    /// Replaces the state by one that ends at `at`. Returns the former state, unless the lock history took it.
    fn replace(&self, at: LogPosition, restored: Store) -> Option<Store> {
        let before = {
            let mut store = self.store.write();
            let before = std::mem::replace(&mut *store, restored);
            self.generation.fetch_add(1, Ordering::Relaxed);
            self.states.replaced();
            let before = self.observers.state_replaced(before, &store);
            #[cfg(feature = "simulation")]
            crate::simulation::ask(|host| host.replaced(at.into(), &store));
            self.sessions.replaced();
            self.holds.replaced(store.bounded_holds(), Instant::now());
            before
        };
        self.calls.lose_sent();
        self.advance(at);
        before
    }
}

impl ReplicatedState for Replica {
    fn applied(&self) -> &AppliedPosition {
        &self.applied
    }

    fn zxid(&self) -> u64 {
        self.read().zxid().0
    }

    fn apply_blank(&self, at: LogPosition) {
        self.advance(at);
    }

    // Callers are answered after every watch has been notified.
    fn apply_commands(&self, at: LogPosition, proposal: &Proposal) -> Result<(), BadBytes> {
        // The proposer lost the term before the entry was appended, and the entry was meant for that term only: its proposers try again. It
        // is the same on every replica, so none applies it.
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
            time_ms: match planted::is(Bug::OwnClock) {
                true => raft_node::wall_clock::now_ms(),
                false => batch.time_ms,
            },
            term: at.term,
        };
        let now = Instant::now();
        // The leader alone counts what happens in the whole cluster.
        let leads = self.sessions.leading_term().is_some();
        let mut answers = Vec::new();
        let (mut events, mut work) = (Vec::new(), EntryWork::default());
        #[cfg(feature = "simulation")]
        if let Some(removals) = crate::simulation::ask(|host| host.removals_per_entry()).flatten() {
            work = EntryWork::of(removals);
        }
        {
            let mut store = self.store.write();
            for bytes in &batch.envelopes {
                let envelope = Envelope::decode(bytes)?;
                // Nobody keeps somebody else's session alive.
                let asking = envelope.request.session;
                let is_its_connection = matches!(envelope.request.command, Command::InTurn { .. });
                let asking = asking.filter(|session| {
                    let view = store.seen_by(&envelope.request.caller);
                    let may = match is_its_connection {
                        true => view.may_go_on(*session),
                        false => view.may_use(*session),
                    };
                    may.is_ok()
                });
                let on_record = asking.filter(|session| self.sessions.note_activity(*session, now));
                let command = AppliedCommand::from(&envelope.request.command);
                #[cfg(feature = "failpoints")]
                crate::command_fail_points::applying(&envelope.request.command);
                let rules = command_versions::rules(envelope.version);
                let decided = store.apply_by(rules, &entry, &mut work, envelope.request, &mut events);
                let mut applied = Applied {
                    position: decided.zxid,
                    command,
                    outcome: decided.outcome,
                    events: std::mem::take(&mut events),
                };
                fail_step!("apply::after_command");
                self.follow(&applied, on_record, now, &store);
                #[cfg(feature = "simulation")]
                crate::simulation::ask(|host| {
                    if let Some(session) = asking.or(renewed_session(&applied)) {
                        host.note_activity(applied.position, session);
                    }
                    host.command_applied(at.into(), applied.position, &applied.events, &store);
                });
                if leads && let Some(spans) = &self.spans {
                    hold_spans::collect(&**spans, &store, &applied.events);
                }
                fail_step!("watch::before_dispatch");
                self.observers.command_applied(&mut applied, &store, leads);
                fail_step!("watch::after_dispatch");
                // The next command uses its memory again.
                events = applied.events;
                if envelope.origin == self.origin {
                    let (zxid, outcome) = (applied.position, applied.outcome);
                    answers.push((envelope.call, znode_store::Applied { zxid, outcome }));
                }
            }
            self.states.applied(at.index, &store);
        }
        self.advance(at);
        let applying = Applying {
            began: now,
            ended: Instant::now(),
        };
        self.counters.applied.add(batch.envelopes.len() as u64);
        self.counters.applying.took(applying.ended - applying.began);
        self.counters.applied_longest.note(applying.began, applying.ended);
        fail_step!("apply::before_answers");
        for (call, applied) in answers {
            self.calls.complete(call, applied, applying);
        }
        fail_step!("apply::after_answers");
        Ok(())
    }

    fn begin_snapshot(&self) -> u64 {
        let mut store = self.store.write();
        store.begin_snapshot();
        self.generation.load(Ordering::Relaxed)
    }

    fn next_snapshot_part(&self, generation: u64, items: usize) -> Option<Option<SnapshotPart>> {
        let mut store = self.store.write();
        if self.generation.load(Ordering::Relaxed) != generation {
            return None;
        }
        let part = store.next_snapshot_part(items);
        Some(part.map(|part| -> SnapshotPart { Box::new(move || codec::encode(&part)) }))
    }

    fn abandon_snapshot(&self, generation: u64) {
        let mut store = self.store.write();
        if self.generation.load(Ordering::Relaxed) == generation {
            store.abandon_snapshot();
        }
    }

    fn install(&self, at: LogPosition, parts: SnapshotParts) -> io::Result<()> {
        let restored = restore::restore(parts)?;
        let znodes = restored.node_count();
        tracing::info!(at.index, at.term, znodes, "the state comes from a snapshot");
        fail_step!("install::before_replace", |error| error);
        let before = self.replace(at, restored);
        fail_step!("install::after_replace", |error| error);
        drop(before);
        Ok(())
    }

    fn digest_version(&self) -> u32 {
        znode_store::DIGEST_VERSION
    }

    fn digests(&self) -> Vec<StateDigest> {
        self.states.with_present(&self.store.read())
    }

    fn end_waits(&self) {
        self.calls.stop();
        self.observers.end_waits();
    }
}

impl Holders for Replica {
    fn still_hold(&self, holds: &[Arc<Hold>]) -> Vec<bool> {
        let store = self.store.read();
        let holds = holds.iter();
        holds
            .map(|hold| store.is_held_by(&hold.lock, hold.fencing_token, &hold.holder))
            .collect()
    }

    fn position(&self) -> Position {
        let store = self.store.read();
        Position {
            zxid: store.zxid().0,
            time_ms: store.time_ms(),
        }
    }
}

/// Returns the session or lease that a command has opened or renewed, or that an earlier request with the same id has.
#[cfg(feature = "simulation")]
fn renewed_session(applied: &Applied) -> Option<SessionId> {
    match applied.outcome {
        Ok(Reply::SessionOpened { session, .. } | Reply::LeaseRenewed { session, .. }) => Some(session),
        Ok(Reply::Leased { lease, .. }) => Some(lease.session),
        _ => None,
    }
}

#[cfg(test)]
mod warnings;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use znode_store::{Acl, CreateMode, CreatePath, Identities, Op, Request, ZPath};
    use znode_watch::WatchKind;

    use super::*;
    use crate::admission::{Admission, AdmissionConfig};
    use crate::watch_connection::WatchConnection;
    use observers::ObserversConfig;
    use observers::notifier::WatchesLost;
    use raft_node::application::BatchRoom;
    use raft_node::codec;

    const ORIGIN: Origin = Origin { node: 1, boot: 7 };

    struct Caller {
        replica: Arc<Replica>,
    }

    fn caller() -> Caller {
        let observers = Observers::new(&ObserversConfig::default(), 1);
        Caller {
            replica: Arc::new(Replica::new(ORIGIN, observers)),
        }
    }

    fn create(text: &str) -> Request {
        let path = CreatePath::parse(text, false).unwrap();
        let op = Op::Create {
            path,
            data: "x".into(),
            acl: Acl::open(),
            mode: CreateMode::Persistent,
            parents: false,
        };
        Request {
            session: None,
            request_id: None,
            caller: Identities::none(),
            command: Command::Write(op),
        }
    }

    fn proposal(term: u64, envelope: &Bytes) -> Proposal {
        let batch = CommandBatch {
            time_ms: 1,
            envelopes: vec![envelope.clone()],
        };
        Proposal {
            term,
            commands: batch.encode(),
        }
    }

    fn at(term: u64, index: u64) -> LogPosition {
        LogPosition { index, term }
    }

    impl Caller {
        fn call(
            &self,
            text: &str,
        ) -> (
            u64,
            Bytes,
            tokio::sync::oneshot::Receiver<crate::pending_proposals::Answered>,
        ) {
            let request = create(text);
            let place = Arc::new(Admission::new(AdmissionConfig::default())).permit(&request);
            let mut envelope = Bytes::new();
            let encode = |call| {
                envelope = codec::encode(&Envelope::new(ORIGIN, call, request)).into();
                envelope.clone()
            };
            let calls = &self.replica.calls;
            let (call, answer) = calls.enter(None, place.unwrap(), None, encode).unwrap();
            (call, envelope, answer)
        }

        /// Sends the next queued call in a term, and returns its number.
        fn send(&self, term: u64) -> Option<u64> {
            let room = BatchRoom {
                commands: 1,
                bytes: 1,
            };
            self.replica.calls.take_batch(term, room).numbers.pop()
        }

        fn has(&self, text: &str) -> bool {
            let path = ZPath::parse(text).unwrap();
            self.replica.store.read().get(&path).is_some()
        }
    }

    #[tokio::test]
    async fn pending_proposal_is_resubmitted_in_the_next_term() {
        let caller = caller();
        let (call, _, mut answer) = caller.call("/a");
        assert_eq!(caller.send(2), Some(call));
        caller.replica.apply_blank(at(2, 1));
        assert_eq!(
            caller.send(2),
            None,
            "its own term has only begun: it may be in the log"
        );
        caller.replica.apply_blank(at(3, 2));
        caller.replica.apply_blank(at(4, 3));
        assert_eq!(caller.send(4), Some(call), "no entry of its term can follow");
        assert_eq!(caller.send(4), None);
        assert!(answer.try_recv().is_err());
    }

    #[tokio::test]
    async fn proposal_of_another_term_is_void() {
        let caller = caller();
        let (call, envelope, answer) = caller.call("/a");
        assert_eq!(caller.send(2), Some(call));
        // The leader of term 2 lost it and won term 3, and appended what was meant for term 2.
        caller
            .replica
            .apply_commands(at(3, 1), &proposal(2, &envelope))
            .unwrap();
        assert!(!caller.has("/a"));
        assert_eq!(caller.send(3), Some(call));
        caller
            .replica
            .apply_commands(at(3, 2), &proposal(3, &envelope))
            .unwrap();
        assert!(caller.has("/a"));
        let applied = answer.await.unwrap().result.unwrap();
        assert!(applied.outcome.is_ok());
        assert_eq!(
            caller.replica.store.read().zxid(),
            applied.zxid,
            "one command took one position"
        );
    }

    #[tokio::test]
    async fn notice_is_queued_before_the_answer() {
        let caller = caller();
        let path = ZPath::parse("/a").unwrap();
        let notifier = &caller.replica.observers.notifier;
        let watcher = notifier
            .watch(&path, WatchKind::Data, Identities::none())
            .unwrap();
        let (call, envelope, answer) = caller.call("/a");
        assert_eq!(caller.send(1), Some(call));
        caller
            .replica
            .apply_commands(at(1, 1), &proposal(1, &envelope))
            .unwrap();
        let applied = answer.await.unwrap().result.unwrap();
        // Without waiting: an event that comes later would be too late.
        let event = futures_util::FutureExt::now_or_never(watcher.fired()).flatten();
        assert_eq!(event.map(|event| event.zxid), Some(applied.zxid));
    }

    #[tokio::test]
    async fn outcome_hidden_by_a_snapshot_is_unknown() {
        let caller = caller();
        let (call, _, answer) = caller.call("/a");
        let (_, _, mut waiting) = caller.call("/b");
        assert_eq!(caller.send(1), Some(call));
        drop(caller.replica.replace(at(1, 10), Store::new()));
        let unknown = answer.await.unwrap().result;
        assert!(
            matches!(
                unknown,
                Err(crate::request_error::ProposeError::OutcomeUnknown(_))
            ),
            "{unknown:?}"
        );
        assert!(waiting.try_recv().is_err(), "what was not sent can still be done");
    }

    /// The state after the creation of these.
    fn state_with(paths: &[&str]) -> Store {
        let mut store = Store::new();
        let entry = EntryContext { time_ms: 1, term: 1 };
        for path in paths {
            store
                .apply(&entry, create(path), &mut Vec::new())
                .outcome
                .unwrap();
        }
        store
    }

    fn watches_of(caller: &Caller) -> WatchConnection {
        WatchConnection::new(caller.replica.clone(), Identities::none())
    }

    #[tokio::test]
    async fn one_shot_watches_survive_an_installed_snapshot() {
        let caller = caller();
        let (come, never) = (ZPath::parse("/come").unwrap(), ZPath::parse("/never").unwrap());
        let notifier = &caller.replica.observers.notifier;
        let watcher = notifier
            .watch(&come, WatchKind::Data, Identities::none())
            .unwrap();
        let client = watches_of(&caller);
        for path in [&come, &never] {
            client.read().arm(WatchKind::Data, path).unwrap();
        }
        drop(
            caller
                .replica
                .replace(at(1, 10), state_with(&["/come", "/other"])),
        );
        let notice = client.try_next().unwrap().unwrap();
        assert_eq!(notice.to_string(), "created /come at 1");
        assert_eq!(watcher.fired().await, Some(notice));
        // A later event fires the watch.
        assert_eq!(client.try_next(), Ok(None));
        let (_, envelope, _) = caller.call("/never");
        caller
            .replica
            .apply_commands(at(1, 11), &proposal(1, &envelope))
            .unwrap();
        let notice = client.try_next().unwrap().unwrap();
        assert_eq!(notice.to_string(), "created /never at 3");
    }

    #[tokio::test]
    async fn persistent_watch_is_lost_by_an_installed_snapshot() {
        let caller = caller();
        let root = ZPath::root();
        let notifier = &caller.replica.observers.notifier;
        let watcher = notifier
            .watch(&root, WatchKind::PersistentRecursive, Identities::none())
            .unwrap();
        let client = watches_of(&caller);
        client.read().arm(WatchKind::Persistent, &root).unwrap();
        drop(caller.replica.replace(at(1, 10), state_with(&["/a"])));
        assert_eq!(client.next().await, Err(WatchesLost::StateReplaced));
        assert_eq!(watcher.fired().await, None);
    }

    #[tokio::test]
    async fn reader_of_a_change_has_its_notice_already() {
        let caller = caller();
        let client = watches_of(&caller);
        let path = ZPath::parse("/a").unwrap();
        client.read().arm(WatchKind::Data, &path).unwrap();
        let (_, envelope, _) = caller.call("/a");
        let replica = caller.replica.clone();
        let applying = std::thread::spawn(move || {
            replica.apply_commands(at(1, 1), &proposal(1, &envelope)).unwrap();
        });
        while client.read().store().stat(&path).is_none() {
            std::thread::yield_now();
        }
        assert!(client.try_next().unwrap().is_some());
        applying.join().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn recent_reader_awaits_the_next_entries_for_a_while() {
        let Caller { replica, .. } = caller();
        assert!(!replica.is_awaited());
        drop(replica.read());
        assert!(replica.is_awaited());
        tokio::time::sleep(recent_reads::LATELY).await;
        assert!(!replica.is_awaited());
        let client = WatchConnection::new(replica.clone(), Identities::none());
        assert!(
            replica.is_awaited(),
            "by a client that is connected and may look at any time"
        );
        drop(client);
        assert!(!replica.is_awaited());
    }
}
