//! Invariants that must hold after every step, one file each. They receive events as they happen: an entry, a
//! vote, an applied command. So the cost of a step depends on its changes.
//! A violation is recorded and ends the run. Nothing here panics, since the node under test would handle the
//! panic as its own.

mod acknowledged;
mod bounded_tables;
mod election_safety;
mod ephemerals;
mod equal_digests;
mod exactly_once;
mod leases;
mod live_grants;
mod log_matching;
mod one_holder;
mod permits;
mod prompt_expiry;
mod queue_order;
mod session_expiry;
mod state_machine_safety;
mod state_time;
mod tokens;
mod watches;

use lock_node::simulation::Place;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;
use znode_store::{ContenderEnd, Event, HolderId, LockName, SessionId, Store, Zxid};

pub use self::acknowledged::Acknowledged;
use self::bounded_tables::BoundedTables;
use self::election_safety::ElectionSafety;
use self::ephemerals::Ephemerals;
use self::equal_digests::EqualDigests;
pub use self::exactly_once::ExactlyOnce;
pub use self::leases::Leases;
use self::log_matching::LogMatching;
pub use self::prompt_expiry::PromptExpiry;
use self::session_expiry::SessionExpiry;
use self::state_machine_safety::StateMachineSafety;
pub use self::state_time::StateTime;
use self::tokens::Tokens;
pub use self::watches::Watches;
use crate::policies::may_lock;
use crate::quotas::check_usage;
use crate::time::{MILLI, Micros};

/// Result of a check; an error describes the violation.
pub type Check = Result<(), String>;

/// Amounts of checked items, so that a run in which nothing happened does not count as a success.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct Coverage {
    /// Terms that had a leader.
    pub leaders: u64,
    /// Log entries.
    pub entries: u64,
    /// Applied entries of all machines together.
    pub applied: u64,
    /// Distinct positions.
    pub positions: u64,
    /// Holds that began.
    pub holds: u64,
    /// Expired sessions.
    pub expired: u64,
    /// Leases.
    pub leases: u64,
    /// Holds that ended by their maximum time.
    pub ended_by_bound: u64,
    /// States installed from snapshots.
    pub snapshots: u64,
    /// Acknowledged calls.
    pub acknowledged: u64,
    /// Watches that fired.
    pub fired: u64,
    /// Machines that restarted with an older copy of their disk.
    pub rolled_back: u64,
    /// Nodes that were rejected because of it.
    pub refused: u64,
}

/// All invariants with the violations that they have found.
pub struct Ledger {
    locks: Vec<LockName>,
    elections: ElectionSafety,
    logs: LogMatching,
    machines: StateMachineSafety,
    digests: EqualDigests,
    tokens: Tokens,
    ephemerals: Ephemerals,
    bounds: BoundedTables,
    /// Times in the state.
    pub time: StateTime,
    /// Checks that no session expires too early.
    pub sessions: SessionExpiry,
    /// Checks that sessions expire in time.
    pub prompt: PromptExpiry,
    /// Leases and bounds of holds.
    pub leases: Leases,
    /// Checks that holds with a maximum time end in time.
    pub bounded: PromptExpiry<(LockName, HolderId)>,
    /// Positions that clients learned from responses.
    pub acknowledged: Acknowledged,
    /// Requests that clients have repeated.
    pub exactly_once: ExactlyOnce,
    /// Notifications of watches.
    pub watches: Watches,
    coverage: Coverage,
    violations: Vec<String>,
}

impl Ledger {
    /// Creates the ledger of a new run. `locks` are all locks that clients use, and `rates` those of the
    /// clocks, in thousandths.
    pub fn new(machines: usize, locks: Vec<LockName>, rates: &[u64], most_clocks_are_right: bool) -> Self {
        Self {
            locks,
            elections: ElectionSafety::default(),
            logs: LogMatching::default(),
            machines: StateMachineSafety::new(machines),
            digests: EqualDigests::default(),
            tokens: Tokens::default(),
            ephemerals: Ephemerals::default(),
            bounds: BoundedTables,
            time: StateTime::new(most_clocks_are_right),
            sessions: SessionExpiry::default(),
            prompt: PromptExpiry::new(rates),
            leases: Leases::new(most_clocks_are_right),
            bounded: PromptExpiry::new(rates),
            acknowledged: Acknowledged::default(),
            exactly_once: ExactlyOnce::default(),
            watches: Watches::default(),
            coverage: Coverage::default(),
            violations: Vec::new(),
        }
    }

    /// Records the result of a check.
    pub fn note(&mut self, what: &str, check: Check) {
        if let Err(contradiction) = check {
            self.violations.push(format!("{what}: {contradiction}"));
        }
    }

    /// Returns the violations so far.
    pub fn violations(&self) -> &[String] {
        &self.violations
    }

    /// Returns the last term that had a leader, and the leader's node id.
    pub fn last_leader(&self) -> Option<(u64, u64)> {
        self.elections.last()
    }

    /// Returns the amounts of checked items.
    pub fn coverage(&self) -> Coverage {
        Coverage {
            leaders: self.elections.leaders(),
            entries: self.logs.entries(),
            acknowledged: self.acknowledged.count(),
            fired: self.watches.fired(),
            ..self.coverage.clone()
        }
    }

    /// Records that a machine runs on an older copy of its disk, or has its own again.
    pub fn rolled_back(&mut self, machine: usize, is: bool) {
        self.coverage.rolled_back += u64::from(is);
        self.elections.rolled_back(machine, is);
    }

    /// Records that a node was rejected because of an older copy.
    pub fn refused(&mut self) {
        self.coverage.refused += 1;
    }

    /// Records the start of a process on a machine. It counts the time of the holds that it finds by the wall clock, less what
    /// clocks may differ by, so if it leads they last longer.
    pub fn booted(&mut self, machine: usize) {
        self.bounded.clear();
        self.machines.booted(machine);
    }

    /// See [`lock_node::simulation::Host::voted`].
    pub fn voted(&mut self, machine: usize, term: u64, candidate: u64, committed: bool) {
        let check = self.elections.voted(machine, term, candidate, committed);
        self.note("election safety", check);
    }

    /// See [`lock_node::simulation::Host::appended`].
    pub fn appended(&mut self, machine: usize, at: Place, payload: &[u8], before: Option<Place>) {
        let check = self.logs.appended(machine, at, xxh3_64(payload), before);
        self.note("log matching", check);
    }

    /// See [`lock_node::simulation::Host::applied`].
    pub fn applied(&mut self, machine: usize, at: Place, payload: &[u8]) {
        self.coverage.applied += 1;
        let check = self.machines.applied(machine, at, xxh3_64(payload));
        self.note("state machine safety", check);
    }

    /// See [`lock_node::simulation::Host::replaced`].
    pub fn replaced(&mut self, machine: usize, at: Place, store: &Store) {
        self.coverage.snapshots += 1;
        self.bounded.clear();
        let check = self.machines.replaced(machine, at);
        self.note("state machine safety", check);
        let check = self.digests.seen(machine, store);
        self.note("equal digests", check.map(drop));
        self.watches.replaced(machine);
    }

    /// See [`lock_node::simulation::Host::command_applied`].
    pub fn command_applied(
        &mut self,
        machine: usize,
        now: Micros,
        at: Place,
        zxid: Zxid,
        events: &[Event],
        store: &Store,
    ) {
        let first = match self.digests.seen(machine, store) {
            Ok(first) => first,
            Err(contradiction) => {
                self.note("equal digests", Err(format!("{contradiction} (entry {at})")));
                return;
            }
        };
        // A property of one state holds for all states with the same digest.
        if !first {
            return;
        }
        self.coverage.positions += 1;
        let check = self.time.check(store.time_ms(), now);
        self.note("no time of a wrong clock", check);
        let check = self.leases.check_events(events, store, now);
        self.note("leases and bounds of holds", check);
        let check = Leases::check(store);
        self.note("leases have one contender", check);
        for view in store.sessions().into_iter().filter(|view| view.is_lease) {
            let timeout = u64::from(view.timeout_ms) * MILLI;
            self.prompt.has_timeout(&view.session, timeout);
        }
        for event in events {
            match event {
                Event::HoldEnded { hold, how, .. } => {
                    self.coverage.ended_by_bound += u64::from(*how == ContenderEnd::MaxHold);
                    self.bounded.ended(&(hold.lock.clone(), hold.holder.to_string()));
                }
                Event::HoldBegan(hold) => {
                    let bounded = store.bounded_hold(&hold.lock, &hold.holder);
                    if let Some(bounded) = bounded.filter(|bounded| bounded.bounds.max_ms > 0) {
                        let max = Micros::from(bounded.bounds.max_ms) * MILLI;
                        self.bounded.opened((bounded.lock, bounded.holder), max, now);
                    }
                    self.coverage.holds += 1;
                    let check = self.tokens.began(hold, zxid);
                    self.note("tokens strictly increasing", check);
                    let check = may_lock(&hold.lock, store);
                    self.note("no lock without permission", check);
                    let check = live_grants::check(hold, store);
                    self.note("no lock granted to an ended session", check);
                }
                Event::SessionOpened(session) => {
                    self.sessions.opened(*session);
                    let mut views = store.sessions().into_iter();
                    if let Some(view) = views.find(|view| view.session == *session) {
                        self.coverage.leases += u64::from(view.is_lease);
                        let timeout = u64::from(view.timeout_ms) * MILLI;
                        self.prompt.opened(*session, timeout, now);
                    }
                }
                Event::SessionEnded { session, expired } => {
                    self.coverage.expired += u64::from(*expired);
                    self.prompt.ended(session);
                    let check = self.sessions.ended(*session, *expired, now);
                    self.note("no live session expired early", check);
                }
                Event::Znode(changed) => self.watches.changed(changed, zxid),
                _ => {}
            }
        }
        let ended = events
            .iter()
            .any(|event| matches!(event, Event::SessionEnded { .. }));
        for lock in 0..self.locks.len() {
            let lock = &self.locks[lock];
            let holds = store.holds_of(lock);
            let checks = [
                ("one holder per lock", one_holder::check(lock, &holds, store)),
                ("permits within the limit", permits::check(lock, &holds, store)),
                ("queues in order", queue_order::check(lock, store)),
            ];
            for (what, check) in checks {
                let check = check.map_err(|why| format!("{why} at position {zxid}"));
                self.note(what, check);
            }
        }
        let check = self.ephemerals.check(store, ended);
        self.note("no ephemeral without a session", check);
        let check = check_usage(store);
        self.note("usage of namespaces", check);
        let check = self.bounds.check(store);
        self.note("bounded tables", check);
    }

    /// See [`PromptExpiry::check`].
    pub fn check_sessions(&mut self, now: Micros) {
        let check = self.prompt.check(now);
        self.note("sessions expire in time", check);
        let check = self.bounded.check(now);
        self.note("bounded holds end in time", check);
    }

    /// Records that a lease was promised a place in the queue.
    pub fn note_place(&mut self, session: SessionId) {
        let check = self.leases.note_place(session);
        self.note("leases and bounds of holds", check);
    }

    /// Records a change of leaders; see [`PromptExpiry::leader_changed`].
    pub fn leader_changed(&mut self, lost: bool) {
        self.prompt.leader_changed(lost);
        self.bounded.leader_changed(lost);
    }

    /// Records that time has passed in which the cluster was or was not whole.
    pub fn passed(&mut self, time: Micros, was_whole: bool) {
        self.prompt.passed(time, was_whole);
        self.bounded.passed(time, was_whole);
    }

    /// Records a confirmed heartbeat; see `SessionExpiry::note_activity`.
    pub fn note_activity(&mut self, session: SessionId, sent: Micros, timeout: Micros) {
        let check = self.sessions.note_activity(session, sent, timeout);
        self.note("no live session expired early", check);
    }

    /// Records that a client was informed of its session's end.
    pub fn reported_ended(&mut self, session: SessionId) {
        let check = self.sessions.reported_ended(session);
        self.note("no live session reported as ended", check);
    }
}
