//! End of a run. First no more faults hit a majority of the machines, while everything else that is broken
//! stays broken; this majority must elect a leader and serve soon. Temporary faults seldom reveal a cluster
//! that runs without progress; permanent ones do. Then everything is repaired, and all machines must agree.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use znode_store::{Data, Op, RequestId, SessionId, Store, ZPath, Zxid};

use crate::agenda::Event;
use crate::clients::{ClientId, ClientRequest, ClientResponse, OpId, REGISTERS, UNIQUE};
use crate::network::HEALTHY;
use crate::time::{MILLI, Micros, SECOND};
use crate::world::World;

/// Time limit within which a healthy majority must serve: ten times the longest election timeout. An election
/// takes up to two of these, and its winner may first have to install a snapshot.
const SERVES_WITHIN: Micros = 6 * SECOND;

/// Number of writes and reads that must succeed afterwards.
const REQUIRED_ROUNDS: usize = 10;

/// Time limit of all of these together. A machine that was down may first have to install a snapshot.
const PROGRESS_LIMIT: Micros = 30 * SECOND;

/// Time limit after the repair within which all machines must reach the same state.
const AGREES_WITHIN: Micros = 30 * SECOND;

/// Time limit for the sessions of silent clients to end: the longest timeout by the slowest clock, and as
/// much again for a change of leaders.
const ENDS_WITHIN: Micros = 30 * SECOND;

/// Time limit of watches on behalf of clients that have gone. A node searches for the effects of a call with
/// an unknown outcome for twice the commit timeout by its own clock, after waiting as long for a leader.
const WATCHES_END_WITHIN: Micros = 30 * SECOND;

/// Time limit within which the leader must know the wall clocks of all members: it queries them every 5 s by
/// its own clock, and repeats lost queries.
const CLOCKS_KNOWN_WITHIN: Micros = 15 * SECOND;

/// Interval between two probes while there is no response.
const PROBES_EVERY: Micros = 100 * MILLI;

/// Client id of the probes.
pub const PROBE: ClientId = 255;

/// Measurements of the end of a run.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ending {
    /// Time from the majority's last fault until it served.
    pub served_after: Micros,
    /// Time from the last repair until all machines had the same state.
    pub agreed_after: Micros,
}

impl World {
    /// Ends the run.
    pub fn finish(&mut self) -> Result<Ending, String> {
        let core = self.draw_majority();
        let names: Vec<usize> = core.iter().map(|machine| machine + 1).collect();
        tracing::info!(?names, "no more faults hit these nodes");
        self.spare(&core);
        self.operator = None;
        self.administrator = None;
        let began = self.now();
        self.probe_until_served(&core, began + SERVES_WITHIN)
            .map_err(|why| format!("liveness: healthy nodes {names:?} {why}"))?;
        let served_after = self.now() - began;
        let deadline = self.now() + PROGRESS_LIMIT;
        for round in 0..REQUIRED_ROUNDS {
            let read = ClientRequest::Read(path(REGISTERS[round % REGISTERS.len()]));
            for ask in [self.probing_write(), read] {
                self.probe_at(&core, ask, deadline)
                    .map_err(|why| format!("liveness: healthy nodes {names:?} {why}"))?;
            }
        }
        let agreed_after = self.repair_and_agree()?;
        Ok(Ending {
            served_after,
            agreed_after,
        })
    }

    fn probing_write(&mut self) -> ClientRequest {
        self.probes += 1;
        let op = Op::Set {
            path: path(REGISTERS[0]),
            data: Data::empty(),
            version: -1,
        };
        ClientRequest::Write {
            session: None,
            ops: vec![op],
            request_id: RequestId::parse(&format!("probe-{}", self.probes))
                .expect("the text is a valid request id"),
        }
    }

    fn ask(&mut self, machine: usize, ask: ClientRequest) -> OpId {
        self.next_probe += 1;
        let op = self.next_probe;
        let mut network = self.network().lock();
        let delay = network.client_delay();
        let request = Event::Request {
            machine,
            client: PROBE,
            op,
            ask,
        };
        network.agenda.after(delay, request);
        op
    }

    /// Runs the simulation until `until`, or until one of these probes is answered.
    fn answer_to(&mut self, ops: &BTreeSet<OpId>, until: Micros) -> Result<Option<ClientResponse>, String> {
        while self.now() < until {
            self.step()?;
            while let Some((op, answer)) = self.probed.pop() {
                let is_one = matches!(answer, ClientResponse::Applied(_) | ClientResponse::ReadAt(_));
                if ops.contains(&op) && is_one {
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    fn probe_until_served(&mut self, core: &[usize], deadline: Micros) -> Result<(), String> {
        let mut probes = BTreeSet::new();
        while self.now() < deadline {
            for machine in core {
                let write = self.probing_write();
                probes.insert(self.ask(*machine, write));
            }
            let until = (self.now() + PROBES_EVERY).min(deadline);
            if self.answer_to(&probes, until)?.is_some() {
                return Ok(());
            }
        }
        Err(format!("served no client within {} ms", SERVES_WITHIN / MILLI))
    }

    /// Probes these machines until one of them answers. Not every machine has to: one that is cut off from a
    /// leader outside of the majority cannot answer, while the others serve.
    fn probe_at(&mut self, machines: &[usize], ask: ClientRequest, deadline: Micros) -> Result<(), String> {
        let floor = self.environment.ledger.borrow().acknowledged.floor();
        let mut probes = BTreeSet::new();
        while self.now() < deadline {
            for machine in machines {
                probes.insert(self.ask(*machine, ask.clone()));
            }
            let until = (self.now() + 10 * PROBES_EVERY).min(deadline);
            let answer = self.answer_to(&probes, until)?;
            let mut ledger = self.environment.ledger.borrow_mut();
            let check = match answer {
                Some(ClientResponse::Applied(applied)) => ledger.acknowledged.command(floor, &applied),
                Some(ClientResponse::ReadAt(position)) => ledger.acknowledged.read(floor, position.0),
                _ => continue,
            };
            ledger.note("acknowledged", check);
            return Ok(());
        }
        Err("did not continue to serve".to_owned())
    }

    /// Repairs everything, and waits until all machines have the same state. It must contain everything that
    /// was acknowledged, and later nothing that belongs to a client that is gone.
    fn repair_and_agree(&mut self) -> Result<Micros, String> {
        tracing::info!("everything is repaired");
        self.repair_all();
        // With continuing writes there would be no moment at which all machines are at the same position.
        self.clients
            .iter_mut()
            .for_each(crate::clients::Client::stop_new_calls);
        let began = self.now();
        self.wait_until(AGREES_WITHIN, "do not agree", |states| {
            states.windows(2).all(|two| two[0] == two[1])
        })?;
        let agreed_after = self.now() - began;
        self.clients
            .iter_mut()
            .for_each(crate::clients::Client::stop_new_calls);
        let locks = crate::clients::locks();
        self.wait_until_store(ENDS_WITHIN, "retain state of clients that are gone", |store| {
            let held = locks.iter().any(|lock| !store.holds_of(lock).is_empty());
            let owned = store
                .children(&path("/mine"))
                .is_some_and(|mine| !mine.is_empty());
            store.sessions().is_empty() && !held && !owned
        })?;
        let known = self.now() + CLOCKS_KNOWN_WITHIN;
        while self.now() < known {
            self.step()?;
        }
        // After one more write every machine must catch up again.
        let deadline = self.now() + PROGRESS_LIMIT;
        let write = self.probing_write();
        let honest = |machine: &usize| !self.machines[*machine].is_lost();
        let first = (0..self.machines.len()).find(honest).unwrap_or_default();
        self.probe_at(&[first], write, deadline)?;
        self.wait_until(AGREES_WITHIN, "do not agree at the end", |states| {
            states.windows(2).all(|two| two[0] == two[1])
        })?;
        self.final_checks()?;
        Ok(agreed_after)
    }

    /// Checks that everything acknowledged is present, exactly once.
    fn final_checks(&mut self) -> Result<(), String> {
        let deadline = self.now() + WATCHES_END_WITHIN;
        let watched = |world: &Self| {
            let mut nodes = world.machines.iter().filter_map(|machine| machine.node());
            nodes.any(|node| node.watching() > 0)
        };
        while self.now() < deadline && watched(self) {
            self.step()?;
        }
        let now = self.now();
        for machine in &self.machines {
            let Some(node) = machine.node() else { continue };
            let read_state = |store: &Store| (store.zxid(), store.time_ms(), children(store, UNIQUE));
            let (position, time_ms, unique) = node.read(read_state);
            let mut ledger = self.environment.ledger.borrow_mut();
            let check = ledger.acknowledged.at_end(position.0);
            ledger.note("acknowledged writes", check);
            let check = ledger.time.at_end(time_ms, now);
            ledger.note("no time of a wrong clock", check);
            let check = ledger.exactly_once.at_end(&unique);
            ledger.note("exactly once", check);
            let watching = node.watching();
            if watching > 0 {
                let armed = node.armed_watches();
                let text = format!(
                    "node {} has {watching} watchers although all clients are gone, with {} armed watches: {armed:?}",
                    node.id(),
                    node.watch_counts().watches
                );
                ledger.note("bounded tables", Err(text));
            }
        }
        self.check()
    }

    fn repair_all(&mut self) {
        let all: Vec<usize> = (0..self.machines.len()).collect();
        self.spare(&all);
        all.iter().for_each(|machine| self.put_newest_disk(*machine));
        let mut network = self.network().lock();
        network.client_loss = 0;
        for (from, to) in crate::faults::all_links(all.len()) {
            network.set_link(from, to, HEALTHY);
        }
    }

    /// Returns whether this number of nodes is all of them, except those with lost disks.
    fn all_take_part(&self, nodes: usize) -> bool {
        let lost = self.machines.iter().filter(|machine| machine.is_lost()).count();
        let old = self
            .machines
            .iter()
            .filter(|machine| machine.is_rolled_back())
            .count();
        nodes + lost == self.machines.len() && old == lost
    }

    fn wait_until(
        &mut self,
        patience: Micros,
        problem: &str,
        agreed: impl Fn(&[(Zxid, u64)]) -> bool,
    ) -> Result<(), String> {
        let deadline = self.now() + patience;
        loop {
            let nodes: Vec<_> = self
                .machines
                .iter()
                .filter_map(|machine| machine.node())
                .collect();
            let states = nodes
                .iter()
                .map(|node| node.read(|store| (store.zxid(), store.digest())));
            let states: Vec<_> = states.collect();
            if self.all_take_part(states.len()) && agreed(&states) {
                return Ok(());
            }
            if self.now() >= deadline {
                for node in &nodes {
                    tracing::info!(status = ?node.status(), "node at the end");
                }
                return Err(format!(
                    "liveness: {} ms after the last repair the nodes {problem}: {states:?}",
                    patience / MILLI
                ));
            }
            let next = self.now() + 20 * MILLI;
            while self.now() < next {
                self.step()?;
            }
        }
    }

    fn wait_until_store(
        &mut self,
        patience: Micros,
        problem: &str,
        done: impl Fn(&Store) -> bool,
    ) -> Result<(), String> {
        let deadline = self.now() + patience;
        loop {
            let nodes: Vec<_> = self
                .machines
                .iter()
                .filter_map(|machine| machine.node())
                .collect();
            if self.all_take_part(nodes.len()) && nodes.iter().all(|node| node.read(&done)) {
                return Ok(());
            }
            if self.now() >= deadline {
                let left = nodes.first().map(|node| {
                    node.read(|store| -> Vec<SessionId> {
                        store.sessions().iter().map(|session| session.session).collect()
                    })
                });
                return Err(format!("liveness: the nodes {problem}, sessions {left:?}"));
            }
            let next = self.now() + 100 * MILLI;
            while self.now() < next {
                self.step()?;
            }
        }
    }
}

fn path(text: &str) -> ZPath {
    ZPath::parse(text).expect("the text is a valid path")
}

fn children(store: &Store, parent: &str) -> BTreeSet<ZPath> {
    let parent = path(parent);
    let names = store.children(&parent).unwrap_or_default();
    names.iter().filter_map(|name| parent.join(name).ok()).collect()
}
