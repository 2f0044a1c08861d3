//! Machines that come back with an older copy of their disk: a restored image, or a disk that forgot what it had synced.
//!
//! Such a node has forgotten what it acknowledged, so it is one of the minority that may be lost. It must be refused, and
//! everything else must hold as if it were dead. That cannot be asked for when nobody who lives has heard of what the node
//! did after the copy was taken (docs/internals/replica-trust.md). So a copy is put in place when either
//!
//! * every other machine has noted a later start of it on its disk, and none has another disk that comes back later: then all else may go
//!   wrong at the same time; or
//! * the leader has counted an acknowledgement that the copy lacks, and all machines are well: then nothing else goes wrong
//!   until the node was refused, since a new leader does not know what only the old one has counted.
//!
//! In the first case somebody puts the newest disk back later, and the node takes part again. In the second case the peers
//! note that it lost something, for good: only a new member could take its place, so it is down from then on.

use crate::agenda::{Event, MILLI, Micros, SECOND};
use crate::faults::{Fault, all_links};
use crate::machine::Machine;
use crate::world::World;

/// A copy whose time has not come is looked at again after this.
const LOOKS_AGAIN_AFTER: Micros = 200 * MILLI;

/// The machine is down for so long while its disk is exchanged.
const EXCHANGED_WITHIN: Micros = 500 * MILLI;

/// A refused node gets its newest disk back after this.
const NEWEST_AFTER: Micros = 2 * SECOND;

/// Among machines that are well a node with an older copy is refused within this time.
const REFUSED_WITHIN: Micros = 10 * SECOND;

/// What a node says that ends because of its old disk.
const REFUSAL: &str = "data directory is older than what node";

/// Who knows that a copy is an older one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Knows {
    /// All other machines, on their disks.
    All,
    /// The leader, in its memory.
    Leader,
}

impl World {
    /// Whether a machine has an older copy of which only the leader knows.
    pub(crate) fn returns(&self) -> bool {
        self.returning.is_some()
    }

    /// Puts the copy in place of a machine's disk, or tries again later.
    pub(crate) fn put_old_image(&mut self, machine: usize) {
        if self.is_final {
            return;
        }
        let Some(knows) = self.who_knows(machine) else {
            self.after(LOOKS_AGAIN_AFTER, Fault::OldImage(machine));
            return;
        };
        tracing::info!(
            machine = machine + 1,
            ?knows,
            "an older copy comes in place of a disk"
        );
        self.machines[machine].roll_back(knows == Knows::All);
        if knows == Knows::Leader {
            self.returning = Some(machine);
            // What was to befall a disk does not.
            self.machines
                .iter()
                .for_each(|machine| machine.device().be_well());
        }
        let mut network = self.network().lock();
        network.agenda.after(EXCHANGED_WITHIN, Event::Boot(machine));
    }

    /// Puts the newest disk back, if the node was refused and there is one.
    pub(crate) fn put_newest_disk(&mut self, machine: usize) {
        if self.machines[machine].put_newest_back() {
            tracing::info!(machine = machine + 1, "the newest disk is back");
            self.network().lock().agenda.after(0, Event::Boot(machine));
        }
    }

    /// Who knows that the copy of a machine's disk is an older one, if the cluster must survive that it comes now.
    fn who_knows(&self, machine: usize) -> Option<Knows> {
        let count = self.machines.len();
        let (start, last) = self.machines[machine].image()?;
        let node = self.machines[machine].id();
        let old = self.machines.iter().filter(|machine| machine.is_rolled_back());
        if self.returns() || self.machines[machine].is_rolled_back() || old.count() >= (count - 1) / 2 {
            return None;
        }
        let others =
            || (0..count).filter(|other| *other != machine && !self.machines[*other].is_rolled_back());
        // A machine whose newest disk comes back later may know of fewer starts than all others do.
        let another_returns = self.machines.iter().any(Machine::gets_newest_back);
        let knows = |other: usize| {
            let other = self.machines[other].node();
            other.is_some_and(|other| other.knows_start_of(node) > start)
        };
        if !another_returns && others().all(knows) {
            return Some(Knows::All);
        }
        let leader = self.watch.leader().filter(|leader| *leader != machine)?;
        let leading = self.machines[leader].node().filter(raft_node::Node::leads)?;
        let is_well = |other: usize| self.machines[other].is_well() && !self.machines[other].is_stopping();
        let is_calm = self.now() >= self.watch.broken_until
            && others().all(is_well)
            && !self.machines.iter().any(Machine::moves_leader);
        let network = self.network().lock();
        let links_are_well = all_links(count).all(|(from, to)| network.link(from, to).is_healthy());
        let counted = leading.knows_committed_by(node) > last;
        (is_calm && links_are_well && counted).then_some(Knows::Leader)
    }

    /// Whether a process has ended because of the older copy that its machine has.
    pub(crate) fn is_refusal(&self, machine: usize, reason: &str) -> bool {
        self.machines[machine].is_rolled_back() && reason.contains(REFUSAL)
    }

    /// The node of a machine was refused because of its disk.
    pub(crate) fn refused(&mut self, machine: usize) {
        self.machines[machine].set_refused();
        self.surroundings.ledger.borrow_mut().refused();
        self.returning = self.returning.filter(|returning| *returning != machine);
        self.after(NEWEST_AFTER, Fault::NewestDisk(machine));
    }

    /// Looks whether a node with an older copy serves, or is refused too late.
    pub(crate) fn look_after_rolled_back(&self) {
        for machine in self.machines.iter().filter(|machine| machine.is_rolled_back()) {
            let id = machine.id();
            let serves = machine
                .node()
                .is_some_and(|node| node.leads() || node.not_ready().is_none());
            let late = machine.expects_refusal_since();
            let late = late.is_some_and(|since| self.now() > since + REFUSED_WITHIN);
            let check = match (serves, late) {
                (true, _) => Err(format!("node {id} came back with an older disk, and takes part")),
                (_, true) => Err(format!(
                    "node {id} came back with an older disk, and was not refused within {} ms",
                    REFUSED_WITHIN / MILLI
                )),
                (false, false) => Ok(()),
            };
            let mut ledger = self.surroundings.ledger.borrow_mut();
            ledger.note("older disks are refused", check);
        }
    }
}
