//! A machine is lost: its groups' names wait until another member leads, and their clients send again what was not answered.

use crate::events::{Event, Job, Request};
use crate::model::{Model, leads};
use crate::placement::next_leader;

impl Model {
    /// How much of all that is asked for is for groups that this machine leads.
    pub(crate) fn share_led_by(&self, machine: usize) -> f64 {
        let shares = self.names.shares(self.groups.len());
        let of = self.groups.iter().zip(shares);
        of.filter(|(group, _)| {
            let leader = group.members.leader;
            leader.map(|leader| group.members.machines[leader]) == Some(machine)
        })
        .map(|(_, share)| share)
        .sum()
    }

    pub(crate) fn lose(&mut self, machine: usize) {
        self.machines[machine].alive = false;
        for group in 0..self.groups.len() {
            let of = &mut self.groups[group];
            let Some(leader) = of.members.leader else { continue };
            if of.members.machines[leader] != machine {
                continue;
            }
            of.members.leader = None;
            of.term += 1;
            of.making = false;
            of.applying = false;
            of.on_their_way = 0;
            // What was on its way may be committed or not; its clients cannot know, and send it again.
            let again: Vec<Request> = self
                .batches
                .of_group(group)
                .flat_map(|batch| std::mem::take(&mut batch.requests))
                .collect();
            let of = &mut self.groups[group];
            of.waiting.extend(again);
            while let Some(batch) = of.committed.pop_front() {
                self.batches.settle(batch);
            }
            self.calendar
                .after(self.setting.costs.failover, Event::Lead(group));
        }
        let jobs: Vec<Job> = self.machines[machine].cores.abandon().collect();
        jobs.into_iter().for_each(|job| self.given_up(job));
    }

    /// A job of a machine that is lost.
    pub(crate) fn given_up(&mut self, job: Job) {
        match job {
            Job::Client => {}
            Job::Front(request) => {
                let hop = self.setting.costs.hop;
                self.calendar.after(hop, Event::Arrive(request));
            }
            // Another member answers it.
            Job::Read(request) => self.arrive(request),
            // Its requests were taken back when its leader was lost.
            Job::Entry(batch) | Job::Follow { batch, .. } | Job::Apply(batch) => self.batches.settle(batch),
        }
    }

    pub(crate) fn lead(&mut self, group: usize) {
        let alive: Vec<bool> = self.machines.iter().map(|machine| machine.alive).collect();
        let leads = leads(&self.groups, self.machines.len());
        let of = &mut self.groups[group];
        of.members.leader = next_leader(&of.members, &alive, &leads);
        for request in std::mem::take(&mut of.waiting) {
            self.arrive(request);
        }
    }
}
