//! Main loop: takes the next event, executes it, and checks the invariants.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::agenda::Event;
use crate::clients::messages::ClientTimer;
use crate::clients::{self, Client, ClientResponse, Environment, OpId};
use crate::dice::Dice;
use crate::ending::PROBE;
use crate::faults::{Fault, Kind, Nemesis, wrong_clock_ms};
use crate::invariants::{Coverage, Ledger};
use crate::machine::{End, Machine};
use crate::network::{Network, Shared};
use crate::plan::Plan;
use crate::policies::Operator;
use crate::quotas::Administrator;
use crate::time::{MILLI, Micros};

/// Time within which all machines are switched on.
const STARTS_WITHIN: Micros = 300 * MILLI;

/// Time within which all clients begin.
const CLIENTS_WITHIN: Micros = 2_000 * MILLI;

/// Time after which a process that ended by itself restarts, as under a service manager.
const RESTARTED_AFTER: Micros = 1_000 * MILLI;

/// Time after a fault until connections and logs have recovered: broken connections are re-established, and
/// lagging machines catch up.
pub(crate) const MENDS_WITHIN: Micros = 4_000 * MILLI;

/// Time limit of a handover of leadership; a later change of leaders has another cause.
const HANDS_OVER_WITHIN: Micros = 3_000 * MILLI;

/// Milliseconds between two checks for sessions that live too long.
const SESSIONS_EVERY: u64 = 20;

/// Knowledge about the leader.
#[derive(Debug, Default)]
pub(crate) struct LeaderWatch {
    leader: Option<usize>,
    /// Term of the leader.
    term: u64,
    /// Process of the leader, by number.
    boots: u64,
    /// Time at which a handover was requested.
    pub(crate) asked_to_move: Option<Micros>,
    /// Time up to which the effects of a fault last.
    pub(crate) broken_until: Micros,
}

impl LeaderWatch {
    /// Returns the machine of the last known leader.
    pub(crate) fn leader(&self) -> Option<usize> {
        self.leader
    }
}

/// Cluster with its clients and all events.
pub struct World {
    pub(crate) plan: Plan,
    pub(crate) machines: Vec<Machine>,
    pub(crate) clients: Vec<Client>,
    pub(crate) environment: Environment,
    pub(crate) nemesis: Nemesis,
    /// The last known leader, and the reasons for which it may change.
    pub(crate) watch: LeaderWatch,
    /// No more faults happen.
    pub(crate) is_final: bool,
    /// Machine with an older copy of its disk that not all others know of. Until it is rejected there are no
    /// other faults.
    pub(crate) returning: Option<usize>,
    /// Responses to probes.
    pub(crate) probed: Vec<(OpId, ClientResponse)>,
    pub(crate) next_probe: OpId,
    pub(crate) probes: u64,
    /// Operator that changes the clients' rights, in some seeds.
    pub(crate) operator: Option<Operator>,
    /// Administrator who changes quotas of namespaces, in some seeds.
    pub(crate) administrator: Option<Administrator>,
    ticks: u64,
}

impl World {
    /// Creates the world of a plan before its first event.
    pub fn new(plan: Plan) -> Self {
        let seed = plan.seed;
        let network = Arc::new(Mutex::new(Network::new(
            plan.machines,
            Dice::new(seed, "network"),
        )));
        let ledger = Rc::new(RefCell::new(Ledger::new(
            plan.machines,
            clients::locks(),
            &plan.rates,
            plan.most_clocks_are_right(),
        )));
        let machine = |index| {
            let dice = Dice::new(seed, &format!("machine {index}"));
            Machine::new(index, &plan, network.clone(), ledger.clone(), dice)
        };
        let mut machines: Vec<Machine> = (0..plan.machines).map(machine).collect();
        if plan.kinds.contains(&Kind::WallClock) {
            // Some wall clocks are wrong from the start.
            let mut dice = Dice::new(seed, "wall clocks at first");
            for machine in plan
                .wrong_clocks
                .iter()
                .filter(|_| dice.chance(500))
                .copied()
                .collect::<Vec<_>>()
            {
                machines[machine].move_wall_clock(wrong_clock_ms(&mut dice));
            }
        }
        let client = |id| Client::new(id, plan.client_pauses, Dice::new(seed, &format!("client {id}")));
        let clients: Vec<Client> = (0..plan.clients).map(client).collect();
        let nemesis = Nemesis::new(
            Dice::new(seed, "faults"),
            plan.machines,
            plan.kinds.clone(),
            plan.calm,
        );
        {
            let mut dice = Dice::new(seed, "beginning");
            let mut network = network.lock();
            network.client_loss = plan.client_loss;
            network.client_copies = plan.client_copies;
            for machine in 0..plan.machines {
                let delay = dice.between(0..STARTS_WITHIN);
                network.agenda.after(delay, Event::Boot(machine));
            }
            for client in 0..plan.clients {
                let delay = dice.between(0..CLIENTS_WITHIN);
                let timer = Event::Client(client, ClientTimer::Next);
                network.agenda.after(delay, timer);
            }
            network.agenda.after(plan.calm, Event::Fault(Fault::Strike));
            network.agenda.after(MILLI, Event::Tick);
        }
        let environment = Environment {
            network,
            ledger,
            machines: plan.machines,
        };
        Self {
            plan,
            machines,
            clients,
            environment,
            nemesis,
            watch: LeaderWatch::default(),
            is_final: false,
            returning: None,
            probed: Vec::new(),
            next_probe: 0,
            probes: 0,
            operator: Operator::draw(seed),
            administrator: Administrator::draw(seed),
            ticks: 0,
        }
    }

    pub(crate) fn network(&self) -> &Shared {
        &self.environment.network
    }

    /// Returns the simulated time.
    pub fn now(&self) -> Micros {
        self.network().lock().agenda.now()
    }

    /// Returns the number of steps so far.
    pub fn steps(&self) -> u64 {
        self.network().lock().agenda.steps()
    }

    /// Returns the number of simulated milliseconds.
    pub fn ticks(&self) -> u64 {
        self.ticks
    }

    /// Returns the amounts of checked items.
    pub fn coverage(&self) -> Coverage {
        self.environment.ledger.borrow().coverage()
    }

    /// Returns the number of faults of each kind.
    pub fn struck(&self) -> &[(Kind, u64)] {
        &self.nemesis.struck
    }

    /// Returns the hash of all events: the same for the same seed and number of steps.
    pub fn trace(&self) -> u64 {
        self.network().lock().agenda.trace()
    }

    /// Makes steps up to this number, or until a violation.
    pub fn run(&mut self, steps: u64) -> Result<(), String> {
        while self.steps() < steps {
            self.step()?;
        }
        Ok(())
    }

    /// Executes the next event, and checks the invariants.
    pub(crate) fn step(&mut self) -> Result<(), String> {
        let event = self.network().lock().agenda.take_next();
        match event {
            Event::Tick => {
                self.ticks += 1;
                self.network().lock().agenda.after(MILLI, Event::Tick);
                self.machines.iter_mut().for_each(Machine::tick);
                self.supervise_machines();
                self.check_rolled_back();
                self.check_sessions();
                self.change_policies();
                self.change_quotas();
            }
            Event::Network(conn, packet) => {
                let network = self.network().clone();
                let arrival = network.lock().arrive(&network, conn, packet);
                drop(arrival.unwanted);
                arrival.wake.into_iter().for_each(std::task::Waker::wake);
                if let Some(machine) = arrival.machine {
                    self.machines[machine].settle();
                }
            }
            Event::Request {
                machine,
                client,
                op,
                ask,
            } => self.machines[machine].request(client, op, ask),
            Event::Disconnect { machine, client, op } => self.machines[machine].disconnect(client, op),
            Event::ClientResponse { client, op, answer } if client == PROBE => self.probed.push((op, answer)),
            Event::ClientResponse { client, op, answer } => {
                self.client(client).answered(op, answer);
            }
            Event::Client(client, timer) => self.client(client).timer(timer),
            Event::Fault(fault) => self.fault(fault),
            Event::Boot(machine) => {
                // In the final phase a machine that is down stays down unless it is spared.
                let stays_down = self.is_final && !self.is_spared(machine);
                let stays_down = stays_down || self.machines[machine].is_refused();
                if !self.machines[machine].is_up() && !stays_down {
                    let rate = self.plan.rates[machine];
                    self.machines[machine].boot(rate);
                }
            }
        }
        self.check()
    }

    fn client(&mut self, id: u64) -> AtClient<'_> {
        AtClient {
            client: &mut self.clients[id as usize],
            environment: &self.environment,
        }
    }

    /// Ends processes that have finished or failed, and restarts them.
    fn supervise_machines(&mut self) {
        for machine in 0..self.machines.len() {
            let Some((reason, surprising)) = self.machines[machine].ended() else {
                continue;
            };
            tracing::info!(machine = machine + 1, reason, "process ends");
            if self.is_refusal(machine, &reason) {
                self.refused(machine);
                continue;
            }
            let full = self.machines[machine].device().is_full() && reason.contains("did not start");
            if surprising && !full {
                let text = format!("node {} has ended by itself: {reason}", machine + 1);
                self.environment
                    .ledger
                    .borrow_mut()
                    .note("nodes keep running", Err(text));
            }
            let how = match self.machines[machine].device().is_cut() {
                true => End::PowerCut(self.now()),
                false => End::Killed,
            };
            self.end(machine, how, RESTARTED_AFTER);
        }
    }

    /// Measures the time for which the cluster is not whole, and checks for sessions that live too long.
    fn check_sessions(&mut self) {
        let now = self.now();
        let mut leading = (0..self.machines.len()).filter_map(|machine| {
            let node = self.machines[machine].node();
            let node = node.filter(|_| self.machines[machine].is_running());
            Some((machine, node?.leads_in()?))
        });
        let leading = leading.next().filter(|_| leading.next().is_none());
        let leader = leading.map(|(machine, _)| machine);
        let has_majority = leader.is_some_and(|leader| self.has_whole_majority(leader));
        let mut ledger = self.environment.ledger.borrow_mut();
        // The same node may lead again in another term, without the state of the earlier one.
        if let Some((leader, term)) = leading
            && (self.watch.leader, self.watch.term) != (Some(leader), term)
        {
            let handed_over = self
                .watch
                .asked_to_move
                .is_some_and(|asked| now < asked + HANDS_OVER_WITHIN);
            if let Some((before, boots)) = self.watch.leader.map(|before| (before, self.watch.boots)) {
                let is_running =
                    self.machines[before].is_running() && self.machines[before].boot_count() == boots;
                let lost = !handed_over || !is_running || now < self.watch.broken_until;
                ledger.leader_changed(lost);
            }
            self.watch.leader = Some(leader);
            self.watch.term = term;
            self.watch.boots = self.machines[leader].boot_count();
        }
        // Each change has a moment without a leader, which breaks nothing.
        if leader.is_some() && !has_majority {
            self.watch.broken_until = now + MENDS_WITHIN;
        }
        // A leader that hands over accepts no commands until its successor leads.
        let hands_over = self.machines.iter().any(Machine::moves_leader);
        let is_whole = has_majority && !hands_over && now >= self.watch.broken_until;
        ledger.passed(MILLI, is_whole);
        if self.ticks.is_multiple_of(SESSIONS_EVERY) {
            ledger.check_sessions(now);
        }
    }

    /// Returns whether this machine and enough others are healthy and connected to each other.
    fn has_whole_majority(&self, leader: usize) -> bool {
        let whole = |one, other| self.is_settled(one, other) && self.is_settled(other, one);
        let mut core = vec![leader];
        for machine in 0..self.machines.len() {
            let joins = machine != leader && core.iter().all(|other| whole(machine, *other));
            if joins && self.machines[machine].is_healthy() {
                core.push(machine);
            }
        }
        self.machines[leader].is_healthy() && core.len() > self.machines.len() / 2
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let ledger = self.environment.ledger.borrow();
        match ledger.violations() {
            [] => Ok(()),
            violations => Err(violations.join("\n")),
        }
    }
}

/// Client with its environment.
struct AtClient<'w> {
    client: &'w mut Client,
    environment: &'w Environment,
}

impl AtClient<'_> {
    fn answered(self, op: clients::OpId, answer: clients::ClientResponse) {
        self.client.answered(op, answer, self.environment);
    }

    fn timer(self, timer: ClientTimer) {
        self.client.timer(timer, self.environment);
    }
}
