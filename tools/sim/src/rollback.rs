//! Machines that restart with an older copy of their disk: a restored image, or a disk that forgot what it
//! had synced.
//!
//! Such a node has forgotten its acknowledgements, so it belongs to the minority that may be lost. It must be
//! rejected, and everything else must hold as if it were dead. That cannot be guaranteed if no live node
//! knows what the node did after the copy was made (docs/internals/replica-trust.md). So a copy is put in
//! place when either
//! did after the copy was taken (docs/internals/replica-trust.md). So a copy is put in place when either
//!
//! * every other machine has recorded a later start of it on its disk, and none has another disk that comes back
//!   later: then all other faults may happen at the same time; or
//! * the leader has counted an acknowledgement that the copy lacks, and all machines are healthy: then there are no
//!   other faults until the node was rejected, since a new leader does not know what only the old one has counted.
//!
//! In the first case the newest disk is put back later, and the node rejoins. In the second case the peers
//! record permanently that it has lost something: only a new member could replace it, so it stays down.

use crate::agenda::Event;
use crate::faults::{Fault, all_links};
use crate::machine::Machine;
use crate::time::{MILLI, Micros, SECOND};
use crate::world::World;

/// Interval between two checks of a copy that cannot be used yet.
const RETRY_DELAY: Micros = 200 * MILLI;

/// Time for which the machine is down while its disk is exchanged.
const EXCHANGED_WITHIN: Micros = 500 * MILLI;

/// Time after which a rejected node gets its newest disk back.
const NEWEST_AFTER: Micros = 2 * SECOND;

/// Time limit within which a node with an older copy must be rejected among healthy machines.
const REFUSED_WITHIN: Micros = 10 * SECOND;

/// Log text of a node that exits because of its old disk.
const REFUSAL: &str = "data directory is older than what node";

/// Machines that know that a copy is outdated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KnownBy {
    /// All other machines, on their disks.
    All,
    /// The leader, in its memory.
    Leader,
}

impl World {
    /// Returns whether a machine has an older copy that only the leader knows of.
    pub(crate) fn returns(&self) -> bool {
        self.returning.is_some()
    }

    /// Replaces a machine's disk by the copy, or tries again later.
    pub(crate) fn put_old_image(&mut self, machine: usize) {
        if self.is_final {
            return;
        }
        let Some(known_by) = self.known_by(machine) else {
            self.after(RETRY_DELAY, Fault::OldImage(machine));
            return;
        };
        tracing::info!(
            machine = machine + 1,
            ?known_by,
            "an older copy replaces the disk"
        );
        self.machines[machine].roll_back(known_by == KnownBy::All);
        if known_by == KnownBy::Leader {
            self.returning = Some(machine);
            // Planned disk faults are cancelled.
            self.machines.iter().for_each(|machine| machine.device().repair());
        }
        let mut network = self.network().lock();
        network.agenda.after(EXCHANGED_WITHIN, Event::Boot(machine));
    }

    /// Puts the newest disk back, if the node was rejected and the disk still exists.
    pub(crate) fn put_newest_disk(&mut self, machine: usize) {
        if self.machines[machine].put_newest_back() {
            tracing::info!(machine = machine + 1, "the newest disk is in place again");
            self.network().lock().agenda.after(0, Event::Boot(machine));
        }
    }

    /// Returns which machines know that a copy is outdated, if the cluster must survive its use now.
    fn known_by(&self, machine: usize) -> Option<KnownBy> {
        let count = self.machines.len();
        let (start, last) = self.machines[machine].image()?;
        let node = self.machines[machine].id();
        let old = self.machines.iter().filter(|machine| machine.is_rolled_back());
        if self.returns() || self.machines[machine].is_rolled_back() || old.count() >= (count - 1) / 2 {
            return None;
        }
        let others =
            || (0..count).filter(|other| *other != machine && !self.machines[*other].is_rolled_back());
        // A machine whose newest disk comes back later may know fewer starts than all others do.
        let another_returns = self.machines.iter().any(Machine::regains_newest_disk);
        let known_by = |other: usize| {
            let other = self.machines[other].node();
            other.is_some_and(|other| other.knows_start_of(node) > start)
        };
        if !another_returns && others().all(known_by) {
            return Some(KnownBy::All);
        }
        let leader = self.watch.leader().filter(|leader| *leader != machine)?;
        let leading = self.machines[leader].node().filter(lock_node::Node::leads)?;
        let is_healthy =
            |other: usize| self.machines[other].is_healthy() && !self.machines[other].is_stopping();
        let is_calm = self.now() >= self.watch.broken_until
            && others().all(is_healthy)
            && !self.machines.iter().any(Machine::moves_leader);
        let network = self.network().lock();
        let links_are_healthy = all_links(count).all(|(from, to)| network.link(from, to).is_healthy());
        let counted = leading.knows_committed_by(node) > last;
        (is_calm && links_are_healthy && counted).then_some(KnownBy::Leader)
    }

    /// Returns whether a process has exited because of its machine's older copy.
    pub(crate) fn is_refusal(&self, machine: usize, reason: &str) -> bool {
        self.machines[machine].is_rolled_back() && reason.contains(REFUSAL)
    }

    /// Records that the node of a machine was rejected because of its disk.
    pub(crate) fn refused(&mut self, machine: usize) {
        self.machines[machine].set_refused();
        self.environment.ledger.borrow_mut().refused();
        self.returning = self.returning.filter(|returning| *returning != machine);
        self.after(NEWEST_AFTER, Fault::NewestDisk(machine));
    }

    /// Checks that no node with an older copy serves, and that each is rejected in time.
    pub(crate) fn check_rolled_back(&self) {
        for machine in self.machines.iter().filter(|machine| machine.is_rolled_back()) {
            let id = machine.id();
            let serves = machine
                .node()
                .is_some_and(|node| node.leads() || node.not_ready().is_none());
            let late = machine.expects_refusal_since();
            let late = late.is_some_and(|since| self.now() > since + REFUSED_WITHIN);
            let check = match (serves, late) {
                (true, _) => Err(format!(
                    "node {id} restarted with an older disk, and participates"
                )),
                (_, true) => Err(format!(
                    "node {id} restarted with an older disk, and was not rejected within {} ms",
                    REFUSED_WITHIN / MILLI
                )),
                (false, false) => Ok(()),
            };
            let mut ledger = self.environment.ledger.borrow_mut();
            ledger.note("older disks are rejected", check);
        }
    }
}
