//! What goes wrong, and how it is repaired. A strike draws one kind; what it breaks has an end of its own, so strikes overlap.

use raft_log::sim_disk::Fault as DiskFault;

use crate::agenda::{Event, MILLI, Micros, SECOND};
use crate::dice::Dice;
use crate::machine::{AS_IT_IS, End, HEALTHY_LOG};
use crate::network::{HEALTHY, Link};
use crate::world::{MENDS_WITHIN, World};

/// The kinds of what goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Some machines do not hear some others, in one direction or both.
    Partition,
    /// A link goes and comes.
    Flapping,
    /// Links are slow, lose, and break connections.
    BadLinks,
    /// A process is killed.
    Kill,
    /// A machine loses power.
    PowerCut,
    /// All machines lose power at once.
    PowerCutOfAll,
    /// A node is stopped in order.
    Stop,
    /// A process stands still.
    Pause,
    /// A disk returns an error.
    DiskError,
    /// A disk is full.
    DiskFull,
    /// A disk is slow.
    SlowDisk,
    /// A wall clock jumps.
    WallClock,
    /// No client reaches a machine.
    ClientsCutOff,
    /// The leader is asked to hand over.
    MoveLeader,
    /// What one machine sends to another one waits.
    HeldUp,
    /// A machine comes back with an older copy of its disk.
    OldImage,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 16] = [
        Self::Partition,
        Self::Flapping,
        Self::BadLinks,
        Self::Kill,
        Self::PowerCut,
        Self::PowerCutOfAll,
        Self::Stop,
        Self::Pause,
        Self::DiskError,
        Self::DiskFull,
        Self::SlowDisk,
        Self::WallClock,
        Self::ClientsCutOff,
        Self::MoveLeader,
        Self::HeldUp,
        Self::OldImage,
    ];

    /// Those that leave a majority whole: in such a run sessions must end in time always. Each as often as it is to be drawn.
    pub const GENTLE: [&[Self]; 3] = [
        &[
            Self::ClientsCutOff,
            Self::MoveLeader,
            Self::HeldUp,
            Self::WallClock,
        ],
        // A session that has fallen silent sees several leaders.
        &[Self::MoveLeader, Self::MoveLeader, Self::WallClock],
        // The last heartbeat of a session is on its way to the leader for long.
        &[Self::HeldUp, Self::HeldUp, Self::ClientsCutOff],
    ];
}

/// An event of what goes wrong.
#[derive(Debug)]
pub enum Fault {
    /// The next thing goes wrong.
    Strike,
    /// Links that were cut are whole again.
    Heal(Vec<(usize, usize)>),
    /// A link goes, or comes, and goes on so until then.
    Flap {
        /// From which machine to which.
        link: (usize, usize),
        /// Whether it is cut now.
        cut: bool,
        /// Until when.
        until: Micros,
    },
    /// Links are as they should be.
    GoodLinks(Vec<(usize, usize)>),
    /// A process goes on, and its clock has, meanwhile.
    Resume(usize, bool),
    /// A disk has space again.
    Space(usize),
    /// A disk is as fast as it should be.
    FastDisk(usize),
    /// Clients reach a machine again.
    ClientsBack(usize),
    /// An older copy comes in place of a disk, as soon as the cluster must survive that.
    OldImage(usize),
    /// A refused node gets its newest disk back.
    NewestDisk(usize),
}

/// Who lets things go wrong.
pub struct Nemesis {
    dice: Dice,
    kinds: Vec<Kind>,
    calm: Micros,
    /// How many cuts each link has at present.
    cuts: Vec<Vec<u32>>,
    /// Time at which each link last became healthy.
    mended: Vec<Vec<Micros>>,
    /// Machines that nothing happens to any more.
    spared: Vec<bool>,
    /// How often what went wrong.
    pub struck: Vec<(Kind, u64)>,
}

impl Nemesis {
    /// One that knows these kinds.
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
    /// Something goes wrong, or is repaired.
    pub(crate) fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Strike => self.strike(),
            Fault::Heal(links) => {
                // Between those who are spared all is well already; what is broken elsewhere stays so.
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
        // One link is held up at a time, and none while another one mends: else there may be no majority that is whole, and then no
        // session has to end in time.
        let links_mend = !all_links(self.machines.len()).all(|(from, to)| self.is_settled(from, to));
        let dice = &mut self.nemesis.dice;
        let machine = dice.between(0..count) as usize;
        let lasts = dice.between(200..6_000) * MILLI;
        let back = dice.between(100..5_000) * MILLI;
        let mixture = dice.between(0..u64::MAX);
        tracing::info!(?kind, machine = machine + 1, "something goes wrong");
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
                // In the middle of what it does to its disk.
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
            // Any node: it asks the leader.
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
                    // In its next life it has a later start.
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

    /// Ends a process, and has it start again after a while.
    pub(crate) fn end(&mut self, machine: usize, how: End, back: Micros) {
        self.machines[machine].end(how);
        let mut network = self.network().lock();
        network.agenda.after(back, Event::Boot(machine));
    }

    /// Cuts links, or takes such a cut back.
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
        let mut network = self.surroundings.network.lock();
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

    /// Makes links good or bad, and leaves those cut that are.
    fn set_links(&mut self, links: &[(usize, usize)], quality: Link) {
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
        // At the end it goes on flapping where nobody is spared; before, it ends whole.
        if cut || self.now() < until || self.is_final {
            let next = self.nemesis.dice.between(50..500) * MILLI;
            let cut = !cut;
            self.after(next, Fault::Flap { link, cut, until });
        }
    }

    /// From now on nothing happens to these any more, and what was broken between them is whole; all else stays as it is.
    pub(crate) fn spare(&mut self, machines: &[usize]) {
        self.is_final = true;
        for machine in machines {
            self.nemesis.spared[*machine] = true;
            self.network().lock().cut_clients_off(*machine, false);
            let machine = *machine;
            self.machines[machine].device().be_well();
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

    /// Whether nothing happens to a machine any more.
    pub(crate) fn is_spared(&self, machine: usize) -> bool {
        self.nemesis.spared[machine]
    }

    /// Some machines of which nothing more is to go wrong.
    pub(crate) fn draw_majority(&mut self) -> Vec<usize> {
        let honest = |machine: &usize| !self.machines[*machine].is_rolled_back();
        let mut machines: Vec<usize> = (0..self.machines.len()).filter(honest).collect();
        self.nemesis.dice.shuffle(&mut machines);
        machines.truncate(self.machines.len() / 2 + 1);
        machines
    }
}

/// How far a wall clock is ahead that is wrong.
pub(crate) fn wrong_clock_ms(dice: &mut Dice) -> i64 {
    let hour = 3_600_000;
    dice.between(0..2 * hour) as i64 - hour as i64
}

/// Every link.
pub(crate) fn all_links(machines: usize) -> impl Iterator<Item = (usize, usize)> {
    let ends = move |from| {
        (0..machines)
            .filter(move |to| *to != from)
            .map(move |to| (from, to))
    };
    (0..machines).flat_map(ends)
}

/// Which links are cut: around one machine, in one direction or both; between two groups; all but those of one machine that
/// is the bridge; of majorities in a ring; or any.
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
        // Two groups that meet in one machine only.
        4 => links
            .filter(|(from, to)| {
                let side = |machine| place(machine) % 2;
                *from != one && *to != one && side(*from) != side(*to)
            })
            .collect(),
        // Each hears its neighbours in a ring.
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
