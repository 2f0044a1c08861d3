//! Faults and their repairs. A strike draws one kind; each fault has an end of its own, so faults overlap.

use raft_log::sim_disk::Fault as DiskFault;

use crate::agenda::Event;
use crate::dice::Dice;
pub use crate::fault_events::{Fault, Kind};
use crate::machine::{AS_IT_IS, End, HEALTHY_LOG};
use crate::network::{HEALTHY, Link};
use crate::time::{MILLI, Micros, SECOND};
use crate::world::{MENDS_WITHIN, World};

/// Source of the faults.
pub struct Nemesis {
    dice: Dice,
    kinds: Vec<Kind>,
    calm: Micros,
    /// Number of active cuts of each link.
    cuts: Vec<Vec<u32>>,
    /// Time at which each link last became healthy.
    mended: Vec<Vec<Micros>>,
    /// Machines that no fault hits any more.
    spared: Vec<bool>,
    /// Number of faults of each kind.
    pub struck: Vec<(Kind, u64)>,
}

impl Nemesis {
    /// Creates a nemesis that injects these kinds.
    pub fn new(dice: Dice, machines: usize, kinds: Vec<Kind>, calm: Micros) -> Self {
        Self {
            dice,
            struck: Kind::ALL
                .into_iter()
                .filter(|kind| kinds.contains(kind))
                .map(|kind| (kind, 0))
                .collect(),
            kinds,
            calm,
            cuts: vec![vec![0; machines]; machines],
            mended: vec![vec![0; machines]; machines],
            spared: vec![false; machines],
        }
    }
}

impl World {
    /// Handles the event of a fault.
    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Strike => self.strike(),
            Fault::Heal(links) => {
                // The links between spared machines are healthy already; what is broken elsewhere stays so.
                if !self.is_final {
                    self.cut(&links, false);
                }
            }
            Fault::Flap { link, cut, until } => self.flap(link, cut, until),
            Fault::GoodLinks(links) => {
                if !self.is_final {
                    self.set_links(&links, HEALTHY);
                }
            }
            Fault::Resume(machine, clock_went_on) => {
                if !self.is_final || self.nemesis.spared[machine] {
                    self.machines[machine].resume(clock_went_on);
                }
            }
            Fault::Space(machine) => self.machines[machine].device().set_full(false),
            Fault::FastDisk(machine) => self.machines[machine].set_log_takes(HEALTHY_LOG),
            Fault::ClientsBack(machine) => self.network().lock().cut_clients_off(machine, false),
            Fault::OldImage(machine) => self.put_old_image(machine),
            Fault::NewestDisk(machine) => {
                if !self.is_final || self.nemesis.spared[machine] {
                    self.put_newest_disk(machine);
                }
            }
        }
    }

    pub(crate) fn after(&self, delay: Micros, fault: Fault) {
        let mut network = self.network().lock();
        network.agenda.after(delay, Event::Fault(fault));
    }

    fn strike(&mut self) {
        if self.is_final {
            return;
        }
        let next = self
            .nemesis
            .dice
            .between(self.nemesis.calm / 10..self.nemesis.calm);
        self.after(next, Fault::Strike);
        if self.nemesis.kinds.is_empty() || self.returns() {
            return;
        }
        let kind = *self.nemesis.dice.pick(&self.nemesis.kinds);
        let struck = self.nemesis.struck.iter_mut().find(|(known, _)| *known == kind);
        if let Some((_, times)) = struck {
            *times += 1;
        }
        let count = self.machines.len() as u64;
        // One link is held up at a time, and none while another one recovers. Otherwise no majority may be
        // intact, and then no session has to end in time.
        let links_mend = !all_links(self.machines.len()).all(|(from, to)| self.is_settled(from, to));
        let dice = &mut self.nemesis.dice;
        let machine = dice.between(0..count) as usize;
        let lasts = dice.between(200..6_000) * MILLI;
        let back = dice.between(100..5_000) * MILLI;
        let mixture = dice.between(0..u64::MAX);
        tracing::info!(?kind, machine = machine + 1, "fault begins");
        match kind {
            Kind::Partition => {
                let links = draw_partition(dice, count as usize);
                self.cut(&links, true);
                self.after(lasts, Fault::Heal(links));
            }
            Kind::Flapping => {
                let other = (machine + 1 + dice.between(0..count - 1) as usize) % count as usize;
                let until = self.now() + lasts;
                self.flap((machine, other), true, until);
            }
            Kind::BadLinks => {
                let slow = dice.between(1..150) * MILLI;
                let bad = Link {
                    cut: false,
                    delay: (dice.between(100..slow), slow),
                    loss: dice.between(0..200),
                    breaks: dice.between(0..300),
                };
                let links: Vec<_> = all_links(count as usize).filter(|_| dice.chance(500)).collect();
                self.set_links(&links, bad);
                self.after(lasts, Fault::GoodLinks(links));
            }
            Kind::Kill => self.end(machine, End::Killed, back),
            Kind::PowerCut => match dice.chance(500) {
                true => self.end(machine, End::PowerCut(mixture), back),
                // Within the calls to its disk.
                false => {
                    let calls = dice.between(0..60);
                    self.machines[machine].device().cut_power_in(calls);
                }
            },
            Kind::PowerCutOfAll => {
                for machine in 0..self.machines.len() {
                    let back = back + self.nemesis.dice.between(0..SECOND);
                    self.end(machine, End::PowerCut(mixture.wrapping_add(machine as u64)), back);
                }
            }
            Kind::Stop => self.machines[machine].stop(),
            Kind::Pause => {
                let clock_goes_on = dice.chance(700);
                self.machines[machine].pause();
                self.after(lasts, Fault::Resume(machine, clock_goes_on));
            }
            Kind::DiskError => {
                let call = dice.between(0..40);
                if self.machines[machine].is_up() {
                    let disk = self.machines[machine].device().disk().clone();
                    disk.fail_call(disk.calls() + call, DiskFault::InputOutput);
                    self.machines[machine].expect_failure();
                }
            }
            Kind::DiskFull => {
                self.machines[machine].device().set_full(true);
                self.after(lasts, Fault::Space(machine));
            }
            Kind::SlowDisk => {
                let slow = dice.between(10..1_500) * MILLI;
                self.machines[machine].set_log_takes((slow / 4, slow));
                self.after(lasts, Fault::FastDisk(machine));
            }
            Kind::WallClock => {
                if let Some(machine) = self
                    .plan
                    .wrong_clocks
                    .get(machine % self.plan.wrong_clocks.len().max(1))
                {
                    self.machines[*machine].move_wall_clock(wrong_clock_ms(dice));
                }
            }
            // Any node will do: it forwards the request to the leader.
            Kind::MoveLeader => {
                self.watch.asked_to_move = Some(self.now());
                self.machines[machine].move_leader();
            }
            Kind::HeldUp if links_mend => {}
            Kind::HeldUp => {
                let to_leader = dice.chance(800);
                let other = (machine + 1 + dice.between(0..count - 1) as usize) % count as usize;
                let leader = self
                    .watch
                    .leader()
                    .filter(|leader| to_leader && *leader != machine);
                let other = leader.unwrap_or(other);
                let links = vec![(machine, other)];
                self.cut(&links, true);
                self.after(lasts, Fault::Heal(links));
            }
            Kind::OldImage => {
                let mixture = if dice.chance(500) { AS_IT_IS } else { mixture };
                let in_use = dice.chance(500);
                if self.machines[machine].image().is_none() && self.machines[machine].take_image(mixture) {
                    // After a restart the node has a later start on record.
                    if !in_use {
                        self.end(machine, End::Killed, back);
                    }
                    self.after(back + lasts, Fault::OldImage(machine));
                }
            }
            Kind::ClientsCutOff => {
                self.network().lock().cut_clients_off(machine, true);
                self.after(lasts, Fault::ClientsBack(machine));
            }
        }
    }

    /// Ends a process, and starts it again after a while.
    pub(crate) fn end(&mut self, machine: usize, how: End, back: Micros) {
        self.machines[machine].end(how);
        let mut network = self.network().lock();
        network.agenda.after(back, Event::Boot(machine));
    }

    /// Cuts links, or undoes such a cut.
    pub(crate) fn cut(&mut self, links: &[(usize, usize)], cut: bool) {
        for (from, to) in links {
            let cuts = &mut self.nemesis.cuts[*from][*to];
            *cuts = if cut { *cuts + 1 } else { cuts.saturating_sub(1) };
            let cut = *cuts > 0;
            let link = Link {
                cut,
                ..self.network().lock().link(*from, *to).clone()
            };
            self.set_link(*from, *to, link);
        }
    }

    fn set_link(&mut self, from: usize, to: usize, link: Link) {
        let mut network = self.environment.network.lock();
        if link.is_healthy() && !network.link(from, to).is_healthy() {
            self.nemesis.mended[from][to] = network.agenda.now();
        }
        network.set_link(from, to, link);
    }

    /// Returns whether a link has been healthy for so long that its connections have recovered.
    pub(crate) fn is_settled(&self, from: usize, to: usize) -> bool {
        let network = self.network().lock();
        network.link(from, to).is_healthy()
            && network.agenda.now() >= self.nemesis.mended[from][to] + MENDS_WITHIN
    }

    /// Sets the quality of links; cut links stay cut.
    pub(crate) fn set_links(&mut self, links: &[(usize, usize)], quality: Link) {
        for (from, to) in links {
            let link = Link {
                cut: self.network().lock().link(*from, *to).cut,
                ..quality.clone()
            };
            self.set_link(*from, *to, link);
        }
    }

    fn flap(&mut self, link: (usize, usize), cut: bool, until: Micros) {
        let spared = self.nemesis.spared[link.0] && self.nemesis.spared[link.1];
        if spared {
            return;
        }
        self.cut(&[link], cut && !self.returns());
        // In the final phase a link goes on flapping unless both ends are spared; before, the flapping ends
        // with a healthy link.
        if cut || self.now() < until || self.is_final {
            let next = self.nemesis.dice.between(50..500) * MILLI;
            let cut = !cut;
            self.after(next, Fault::Flap { link, cut, until });
        }
    }

    /// Protects these machines from all further faults, and repairs everything between them; everything else
    /// stays as it is.
    pub(crate) fn spare(&mut self, machines: &[usize]) {
        self.is_final = true;
        for machine in machines {
            self.nemesis.spared[*machine] = true;
            self.network().lock().cut_clients_off(*machine, false);
            let machine = *machine;
            self.machines[machine].device().repair();
            self.machines[machine].set_log_takes(HEALTHY_LOG);
            self.machines[machine].resume(true);
            if !self.machines[machine].is_up() {
                self.network().lock().agenda.after(0, Event::Boot(machine));
            }
        }
        for (from, to) in all_links(self.machines.len()) {
            if self.nemesis.spared[from] && self.nemesis.spared[to] {
                self.nemesis.cuts[from][to] = 0;
                self.set_link(from, to, HEALTHY);
            }
        }
    }

    /// Returns whether a machine is protected from faults.
    pub(crate) fn is_spared(&self, machine: usize) -> bool {
        self.nemesis.spared[machine]
    }

    /// Draws the machines that will be protected from faults: a majority.
    pub(crate) fn draw_majority(&mut self) -> Vec<usize> {
        let honest = |machine: &usize| !self.machines[*machine].is_rolled_back();
        let mut machines: Vec<usize> = (0..self.machines.len()).filter(honest).collect();
        self.nemesis.dice.shuffle(&mut machines);
        machines.truncate(self.machines.len() / 2 + 1);
        machines
    }
}

/// Draws the offset of a wrong wall clock.
pub(crate) fn wrong_clock_ms(dice: &mut Dice) -> i64 {
    let hour = 3_600_000;
    dice.between(0..2 * hour) as i64 - hour as i64
}

/// Returns all links.
pub(crate) fn all_links(machines: usize) -> impl Iterator<Item = (usize, usize)> {
    let ends = move |from| {
        (0..machines)
            .filter(move |to| *to != from)
            .map(move |to| (from, to))
    };
    (0..machines).flat_map(ends)
}

/// Draws the links to cut: around one machine, in one direction or both; between two groups; between two
/// groups with one machine as a bridge; between distant nodes of a ring; or any links.
fn draw_partition(dice: &mut Dice, machines: usize) -> Vec<(usize, usize)> {
    let mut order: Vec<usize> = (0..machines).collect();
    dice.shuffle(&mut order);
    let one = order[0];
    let place = |machine: usize| {
        order
            .iter()
            .position(|other| *other == machine)
            .unwrap_or_default()
    };
    let half = machines / 2;
    let kind = dice.between(0..7);
    let links = all_links(machines);
    match kind {
        0 => links.filter(|(from, to)| *from == one || *to == one).collect(),
        1 => links.filter(|(from, _)| *from == one).collect(),
        2 => links.filter(|(_, to)| *to == one).collect(),
        3 => links
            .filter(|(from, to)| (place(*from) < half) != (place(*to) < half))
            .collect(),
        // Two groups that are connected through one machine only.
        4 => links
            .filter(|(from, to)| {
                let side = |machine| place(machine) % 2;
                *from != one && *to != one && side(*from) != side(*to)
            })
            .collect(),
        // Each machine is connected to its neighbours in a ring.
        5 => links
            .filter(|(from, to)| {
                let apart = place(*from).abs_diff(place(*to));
                apart.min(machines - apart) > machines / 4
            })
            .collect(),
        _ => {
            let share = dice.between(50..600);
            links.filter(|_| dice.chance(share)).collect()
        }
    }
}
