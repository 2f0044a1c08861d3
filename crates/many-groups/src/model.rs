//! The simulation: one event after the other, each with what follows of it.

use std::collections::VecDeque;
use std::mem;

use fastrand::Rng;

use crate::batches::{Batch, BatchId, Batches};
use crate::calendar::Calendar;
use crate::events::{Event, Job, Kind, Request};
use crate::names::{Names, exponential};
use crate::outcome::{Outcome, Times};
use crate::placement::{Members, spread};
use crate::station::Station;
use crate::{Load, Nanos, SECOND, Setting};

/// See the module.
#[derive(Debug)]
pub struct Model {
    pub(crate) setting: Setting,
    pub(crate) calendar: Calendar<Event>,
    random: Rng,
    pub(crate) names: Names,
    pub(crate) groups: Vec<Group>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) batches: Batches,
    seen: Seen,
}

#[derive(Debug)]
pub(crate) struct Group {
    pub members: Members,
    /// Counts its leaders.
    pub term: u32,
    /// Operations for the next entry; while nobody leads, those that clients will send again.
    pub waiting: VecDeque<Request>,
    /// An entry is being made.
    pub making: bool,
    /// Entries that are made, or being made, and not committed.
    pub on_their_way: usize,
    /// Entries that are committed and not applied, and whether one is being applied.
    pub committed: VecDeque<BatchId>,
    pub applying: bool,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub alive: bool,
    pub cores: Station<Job>,
    disk: Disk,
    /// What its cores had worked when counting began.
    worked_before: Nanos,
}

/// One sync takes everything of a log that has come since the one before was begun.
#[derive(Debug, Default)]
struct Disk {
    syncing: Vec<(BatchId, usize)>,
    waiting: Vec<(BatchId, usize)>,
}

/// What is counted.
#[derive(Debug, Default)]
struct Seen {
    all: Vec<Nanos>,
    reads: Vec<Nanos>,
    multi: Vec<Nanos>,
    entries: u64,
    operations: u64,
    before: u64,
    after: u64,
}

impl Model {
    /// A model of this.
    pub fn new(setting: Setting) -> Self {
        let machine = || Machine {
            alive: true,
            cores: Station::new(setting.cores),
            disk: Disk::default(),
            worked_before: 0,
        };
        let group = |members| Group {
            members,
            term: 0,
            waiting: VecDeque::new(),
            making: false,
            on_their_way: 0,
            committed: VecDeque::new(),
            applying: false,
        };
        Self {
            calendar: Calendar::new(),
            random: Rng::with_seed(setting.seed),
            names: Names::new(setting.names, setting.skew, setting.groups),
            groups: spread(setting.groups, setting.members, setting.machines)
                .into_iter()
                .map(group)
                .collect(),
            machines: (0..setting.machines).map(|_| machine()).collect(),
            batches: Batches::default(),
            seen: Seen::default(),
            setting,
        }
    }

    /// Runs it.
    pub fn run(mut self) -> Outcome {
        match self.setting.load {
            Load::Closed { clients } => (0..clients).for_each(|client| {
                // Not all in the same nanosecond.
                self.calendar
                    .after(client as Nanos * crate::MICROSECOND, Event::Ask);
            }),
            Load::Open { .. } => self.calendar.after(0, Event::Next),
        }
        let waited_share = match self.setting.lost {
            Some(lost) => {
                self.calendar.after(lost.at, Event::Lose(lost.machine));
                self.share_led_by(lost.machine)
            }
            None => 0.0,
        };
        let (begin, end) = (self.setting.warmup, self.setting.warmup + self.setting.measured);
        let mut counting = false;
        while let Some(event) = self.calendar.advance() {
            let now = self.calendar.now();
            if now >= begin && !mem::replace(&mut counting, now >= begin) {
                for machine in &mut self.machines {
                    machine.worked_before = machine.cores.worked();
                }
            }
            if now >= end {
                break;
            }
            self.happens(event);
        }
        self.outcome(waited_share)
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Next => {
                let Load::Open { per_second } = self.setting.load else {
                    unreachable!("clients of a closed loop wait for their answers");
                };
                let pause = exponential(&mut self.random, 1.0 / per_second);
                self.calendar.after((pause * SECOND as f64) as Nanos, Event::Next);
                self.ask();
            }
            Event::Ask if self.setting.clients_share => {
                self.work(0, self.setting.costs.client, Job::Client);
            }
            Event::Ask => self.ask(),
            Event::Arrive(request) => self.arrive(request),
            Event::Done(machine, job) => self.done(machine, job),
            Event::Synced(machine) => self.synced(machine),
            Event::Reach { batch, member } => self.reach(batch, member),
            Event::Acknowledged(batch) => self.acknowledged(batch),
            Event::Apply(batch) => {
                let group = self.batches.get(batch).group;
                self.groups[group].committed.push_back(batch);
                self.apply_next(group);
            }
            Event::Answered(request) => self.answered(&request),
            Event::Lose(machine) => self.lose(machine),
            Event::Lead(group) => self.lead(group),
        }
    }

    /// Somebody asks for something.
    fn ask(&mut self) {
        let mut group = self.names.wanted(&mut self.random);
        let mut then = Vec::new();
        let kind = if self.random.f64() < self.setting.reads {
            Kind::Read
        } else if self.random.f64() < self.setting.multi.0 {
            // In the order of the groups' numbers, so that no two wait for each other; a group once, however many of its names.
            then.push(group);
            then.extend((1..self.setting.multi.1).map(|_| self.names.wanted(&mut self.random)));
            then.sort_unstable_by(|a, b| b.cmp(a));
            then.dedup();
            group = then.pop().expect("it has one at least");
            Kind::Multi
        } else {
            Kind::Write
        };
        let request = Request {
            sent: self.calendar.now(),
            group,
            then,
            kind,
        };
        self.calendar
            .after(self.setting.costs.hop, Event::Arrive(request));
    }

    pub(crate) fn arrive(&mut self, request: Request) {
        let members = &self.groups[request.group as usize].members;
        if request.kind == Kind::Read {
            let first = self.random.usize(..members.machines.len());
            let mut places = (0..members.machines.len())
                .map(|next| members.machines[(first + next) % members.machines.len()]);
            let machine = places.find(|machine| self.machines[*machine].alive);
            let machine = machine.expect("one machine is lost at most");
            return self.work(machine, self.setting.costs.read, Job::Read(request));
        }
        match members.leader {
            Some(leader) => {
                let machine = members.machines[leader];
                self.work(machine, self.setting.costs.front, Job::Front(request));
            }
            None => self.groups[request.group as usize].waiting.push_back(request),
        }
    }

    /// A job for the cores of a machine that lives.
    fn work(&mut self, machine: usize, takes: Nanos, job: Job) {
        if let Some((takes, job)) = self.machines[machine].cores.arrive(takes, job) {
            self.calendar.after(takes, Event::Done(machine, job));
        }
    }

    fn done(&mut self, machine: usize, job: Job) {
        if !self.machines[machine].alive {
            return self.given_up(job);
        }
        if let Some((takes, next)) = self.machines[machine].cores.leave() {
            self.calendar.after(takes, Event::Done(machine, next));
        }
        let hop = self.setting.costs.hop;
        match job {
            Job::Client => self.ask(),
            Job::Read(request) => self.calendar.after(hop, Event::Answered(request)),
            Job::Front(request) => {
                let group = request.group as usize;
                self.groups[group].waiting.push_back(request);
                self.make(group);
            }
            Job::Entry(batch) => {
                let (group, stale) = self.of(batch);
                if stale {
                    return self.batches.settle(batch);
                }
                self.groups[group].making = false;
                let members = self.groups[group].members.clone();
                for (member, at) in members.machines.into_iter().enumerate() {
                    if Some(member) != members.leader && self.machines[at].alive {
                        self.batches.get(batch).outstanding += 1;
                        self.calendar.after(hop, Event::Reach { batch, member });
                    }
                }
                self.sync(
                    machine,
                    batch,
                    members.leader.expect("an entry that is not stale has a leader"),
                );
                self.make(group);
            }
            Job::Follow { batch, member } => self.sync(machine, batch, member),
            Job::Apply(batch) => {
                let (group, stale) = self.of(batch);
                if !stale {
                    self.groups[group].applying = false;
                    for request in mem::take(&mut self.batches.get(batch).requests) {
                        self.applied(request);
                    }
                    self.apply_next(group);
                }
                self.batches.settle(batch);
            }
        }
    }

    /// The group of an entry, and whether its leader is another one since.
    pub(crate) fn of(&mut self, batch: BatchId) -> (usize, bool) {
        let Batch { group, term, .. } = *self.batches.get(batch);
        (group, self.groups[group].term != term)
    }

    /// Makes the next entry of all operations that wait, if nothing is in its way.
    pub(crate) fn make(&mut self, group: usize) {
        let of = &mut self.groups[group];
        let Some(leader) = of.members.leader else { return };
        if of.making || of.on_their_way >= self.setting.pipeline || of.waiting.is_empty() {
            return;
        }
        let operations = of.waiting.len().min(self.setting.largest_batch);
        let requests: Vec<Request> = of.waiting.drain(..operations).collect();
        of.making = true;
        of.on_their_way += 1;
        let (machine, term) = (of.members.machines[leader], of.term);
        if self.calendar.now() >= self.setting.warmup {
            self.seen.entries += 1;
            self.seen.operations += operations as u64;
        }
        let costs = &self.setting.costs;
        let takes = costs.entry + operations as Nanos * costs.entry_operation;
        // Its own sync is outstanding from now on.
        let batch = self.batches.add(Batch {
            group,
            term,
            requests,
            acknowledged: 0,
            outstanding: 1,
        });
        self.work(machine, takes, Job::Entry(batch));
    }

    fn reach(&mut self, batch: BatchId, member: usize) {
        let (group, stale) = self.of(batch);
        let machine = self.groups[group].members.machines[member];
        if stale || !self.machines[machine].alive {
            return self.batches.settle(batch);
        }
        let operations = self.batches.get(batch).requests.len() as Nanos;
        let costs = &self.setting.costs;
        let takes = costs.follow + operations * costs.follow_operation;
        self.work(machine, takes, Job::Follow { batch, member });
    }

    /// An entry for the disk of a member.
    fn sync(&mut self, machine: usize, batch: BatchId, member: usize) {
        let disk = &mut self.machines[machine].disk;
        disk.waiting.push((batch, member));
        if disk.syncing.is_empty() {
            self.sync_next(machine);
        }
    }

    fn sync_next(&mut self, machine: usize) {
        let one_log = self.setting.machines >= self.setting.members;
        let disk = &mut self.machines[machine].disk;
        let Some((_, first)) = disk.waiting.first().copied() else {
            return;
        };
        // Where one machine has all members of a group they are processes with a log each, which are synced one after the other.
        disk.syncing = disk
            .waiting
            .extract_if(.., |(_, member)| one_log || *member == first)
            .collect();
        self.calendar
            .after(self.setting.costs.sync, Event::Synced(machine));
    }

    fn synced(&mut self, machine: usize) {
        let synced = mem::take(&mut self.machines[machine].disk.syncing);
        if !self.machines[machine].alive {
            return synced
                .into_iter()
                .for_each(|(batch, _)| self.batches.settle(batch));
        }
        for (batch, member) in synced {
            let (group, _) = self.of(batch);
            match self.groups[group].members.leader == Some(member) {
                true => self.acknowledged(batch),
                false => self
                    .calendar
                    .after(self.setting.costs.hop, Event::Acknowledged(batch)),
            }
        }
        self.sync_next(machine);
    }

    fn acknowledged(&mut self, batch: BatchId) {
        let (group, stale) = self.of(batch);
        if !stale {
            let of = self.batches.get(batch);
            of.acknowledged += 1;
            if of.acknowledged == self.setting.members / 2 + 1 {
                of.outstanding += 1;
                self.groups[group].on_their_way -= 1;
                self.calendar.after(self.setting.costs.wake, Event::Apply(batch));
                self.make(group);
            }
        }
        self.batches.settle(batch);
    }

    fn apply_next(&mut self, group: usize) {
        let of = &mut self.groups[group];
        if of.applying {
            return;
        }
        let Some(batch) = of.committed.pop_front() else {
            return;
        };
        let (Some(leader), false) = (of.members.leader, self.batches.get(batch).term != of.term) else {
            self.batches.settle(batch);
            return self.apply_next(group);
        };
        of.applying = true;
        let machine = of.members.machines[leader];
        let operations = self.batches.get(batch).requests.len() as Nanos;
        let costs = &self.setting.costs;
        let takes = costs.apply + operations * costs.apply_operation;
        self.work(machine, takes, Job::Apply(batch));
    }

    /// An operation is applied: its client is answered, and goes on to the next group if there is one.
    fn applied(&mut self, mut request: Request) {
        let hop = self.setting.costs.hop;
        match request.then.pop() {
            Some(next) => {
                request.group = next;
                self.calendar.after(2 * hop, Event::Arrive(request));
            }
            None => self.calendar.after(hop, Event::Answered(request)),
        }
    }

    fn answered(&mut self, request: &Request) {
        let now = self.calendar.now();
        if matches!(self.setting.load, Load::Closed { .. }) {
            self.calendar.after(0, Event::Ask);
        }
        if now < self.setting.warmup {
            return;
        }
        let took = now - request.sent;
        match request.kind {
            Kind::Read => self.seen.reads.push(took),
            Kind::Write => {}
            Kind::Multi => self.seen.multi.push(took),
        }
        self.seen.all.push(took);
        if let Some(lost) = self.setting.lost {
            self.seen.before += u64::from(now < lost.at);
            self.seen.after += u64::from(now >= lost.at + 2 * self.setting.costs.failover);
        }
    }

    fn outcome(self, waited_share: f64) -> Outcome {
        let seconds = |time: Nanos| time as f64 / SECOND as f64;
        let measured = seconds(self.setting.measured);
        let end = self.setting.warmup + self.setting.measured;
        let rates = self.setting.lost.map_or((0.0, 0.0), |lost| {
            let before = seconds(lost.at.saturating_sub(self.setting.warmup));
            let after = seconds(end.saturating_sub(lost.at + 2 * self.setting.costs.failover));
            (self.seen.before as f64 / before, self.seen.after as f64 / after)
        });
        let busy = self.machines.iter().map(|machine| {
            let worked = machine.cores.worked() - machine.worked_before;
            seconds(worked) / measured / self.setting.cores as f64
        });
        Outcome {
            operations_per_second: self.seen.all.len() as f64 / measured,
            times: Times::new(self.seen.all),
            reads: Times::new(self.seen.reads),
            multi: Times::new(self.seen.multi),
            busy: busy.collect(),
            batch: self.seen.operations as f64 / self.seen.entries.max(1) as f64,
            waited_share,
            before_and_after: rates,
            leads: leads(&self.groups, self.machines.len()),
        }
    }
}

/// How many groups each machine leads.
pub(crate) fn leads(groups: &[Group], machines: usize) -> Vec<usize> {
    let mut leads = vec![0; machines];
    for members in groups.iter().map(|group| &group.members) {
        if let Some(leader) = members.leader {
            leads[members.machines[leader]] += 1;
        }
    }
    leads
}
