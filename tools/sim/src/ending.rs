//! How a run ends. First a majority of machines is well from now on, and everything that is broken elsewhere stays so: they
//! must elect a leader and serve, soon. Random faults that come and go seldom show a cluster that lives and gets nowhere;
//! faults that stay do. Then all is repaired, and all must agree.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use znode_store::{Data, Op, RequestId, SessionId, Store, ZPath, Zxid};

use crate::agenda::{Event, MILLI, Micros, SECOND};
use crate::clients::{Answer, Ask, ClientId, OpId, REGISTERS, UNIQUE};
use crate::network::HEALTHY;
use crate::world::World;

/// A healthy majority serves within ten times the longest election timeout: an election takes up to two, and the one that
/// wins may have to fetch a snapshot before.
const SERVES_WITHIN: Micros = 6 * SECOND;

/// And goes on to: so many writes and reads.
const GOES_ON: usize = 10;

/// Which take so long at most, all together. A machine that was down may have to fetch a snapshot first.
const GOES_ON_WITHIN: Micros = 30 * SECOND;

/// When all is repaired all machines come to the same state within this time.
const AGREES_WITHIN: Micros = 30 * SECOND;

/// And the sessions of clients that say nothing more are over within this: the longest timeout, by the slowest clock, and as
/// much again for a change of leaders.
const ENDS_WITHIN: Micros = 30 * SECOND;

/// So long a node may watch on behalf of a client that has gone: it looks for what a call whose outcome nobody knows may have
/// left, for twice the patience of a proposal by its own clock, after as long for a leader.
const WATCHES_END_WITHIN: Micros = 30 * SECOND;

/// The leader knows the wall clocks of all members within this: it asks them every 5 s by its own clock, and what was lost is asked again.
const CLOCKS_KNOWN_WITHIN: Micros = 15 * SECOND;

/// A probe that was not answered is sent again.
const PROBES_EVERY: Micros = 100 * MILLI;

/// The client that probes.
pub const PROBE: ClientId = 255;

/// What was measured.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Ending {
    /// So long after its last fault the majority served.
    pub served_after: Micros,
    /// So long after the last repair all machines had the same state.
    pub agreed_after: Micros,
}

impl World {
    /// Ends the run.
    pub fn finish(&mut self) -> Result<Ending, String> {
        let core = self.draw_majority();
        let names: Vec<usize> = core.iter().map(|machine| machine + 1).collect();
        tracing::info!(?names, "from now on these are well");
        self.spare(&core);
        self.operator = None;
        let began = self.now();
        self.probe_until_served(&core, began + SERVES_WITHIN)
            .map_err(|why| format!("liveness: nodes {names:?}, which are well, {why}"))?;
        let served_after = self.now() - began;
        let deadline = self.now() + GOES_ON_WITHIN;
        for round in 0..GOES_ON {
            let read = Ask::Read(path(REGISTERS[round % REGISTERS.len()]));
            for ask in [self.probing_write(), read] {
                self.probe_at(&core, ask, deadline)
                    .map_err(|why| format!("liveness: nodes {names:?}, which are well, {why}"))?;
            }
        }
        let agreed_after = self.repair_and_agree()?;
        Ok(Ending {
            served_after,
            agreed_after,
        })
    }

    fn probing_write(&mut self) -> Ask {
        self.probes += 1;
        let op = Op::Set {
            path: path(REGISTERS[0]),
            data: Data::empty(),
            version: -1,
        };
        Ask::Write {
            session: None,
            ops: vec![op],
            request_id: RequestId::parse(&format!("probe-{}", self.probes)).expect("it is an id"),
        }
    }

    fn ask(&mut self, machine: usize, ask: Ask) -> OpId {
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

    /// Steps until then, or until one of these probes is answered.
    fn answer_to(&mut self, ops: &BTreeSet<OpId>, until: Micros) -> Result<Option<Answer>, String> {
        while self.now() < until {
            self.step()?;
            while let Some((op, answer)) = self.probed.pop() {
                let is_one = matches!(answer, Answer::Applied(_) | Answer::Saw(_));
                if ops.contains(&op) && is_one {
                    return Ok(Some(answer));
                }
            }
        }
        Ok(None)
    }

    fn probe_until_served(&mut self, core: &[usize], deadline: Micros) -> Result<(), String> {
        let mut asked = BTreeSet::new();
        while self.now() < deadline {
            for machine in core {
                let write = self.probing_write();
                asked.insert(self.ask(*machine, write));
            }
            let until = (self.now() + PROBES_EVERY).min(deadline);
            if self.answer_to(&asked, until)?.is_some() {
                return Ok(());
            }
        }
        Err(format!("served nobody within {} ms", SERVES_WITHIN / MILLI))
    }

    /// Asks these machines until one of them answers. Not each has to: one that is cut off from a leader outside of the
    /// majority has nobody to ask, while the others serve.
    fn probe_at(&mut self, machines: &[usize], ask: Ask, deadline: Micros) -> Result<(), String> {
        let floor = self.surroundings.ledger.borrow().acknowledged.floor();
        let mut asked = BTreeSet::new();
        while self.now() < deadline {
            for machine in machines {
                asked.insert(self.ask(*machine, ask.clone()));
            }
            let until = (self.now() + 10 * PROBES_EVERY).min(deadline);
            let answer = self.answer_to(&asked, until)?;
            let mut ledger = self.surroundings.ledger.borrow_mut();
            let check = match answer {
                Some(Answer::Applied(applied)) => ledger.acknowledged.write(floor, applied.zxid.0),
                Some(Answer::Saw(position)) => ledger.acknowledged.read(floor, position.0),
                _ => continue,
            };
            ledger.note("acknowledged", check);
            return Ok(());
        }
        Err("did not go on to serve".to_owned())
    }

    /// Repairs all, and waits until all machines have the same state, with all in it that was acknowledged, and later with
    /// nothing in it that belongs to a client that is gone.
    fn repair_and_agree(&mut self) -> Result<Micros, String> {
        tracing::info!("all is repaired");
        self.repair_all();
        // While somebody writes there is no moment at which all are where the last one is.
        self.clients
            .iter_mut()
            .for_each(crate::clients::Client::fall_quiet);
        let began = self.now();
        self.wait_until(AGREES_WITHIN, "do not agree", |states| {
            states.windows(2).all(|two| two[0] == two[1])
        })?;
        let agreed_after = self.now() - began;
        self.clients
            .iter_mut()
            .for_each(crate::clients::Client::fall_quiet);
        let locks = crate::clients::locks();
        self.wait_until_store(ENDS_WITHIN, "keep something of clients that are gone", |store| {
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
        // One more write, and nobody is behind it.
        let deadline = self.now() + GOES_ON_WITHIN;
        let write = self.probing_write();
        let honest = |machine: &usize| !self.machines[*machine].is_lost();
        let first = (0..self.machines.len()).find(honest).unwrap_or_default();
        self.probe_at(&[first], write, deadline)?;
        self.wait_until(AGREES_WITHIN, "do not agree at last", |states| {
            states.windows(2).all(|two| two[0] == two[1])
        })?;
        self.last_look()?;
        Ok(agreed_after)
    }

    /// What was acknowledged is there, once.
    fn last_look(&mut self) -> Result<(), String> {
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
            let look = |store: &Store| (store.zxid(), store.time_ms(), children(store, UNIQUE));
            let (position, time_ms, unique) = node.read(look);
            let mut ledger = self.surroundings.ledger.borrow_mut();
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
                    "node {} keeps {watching} watchers when all are gone, with {} armed watches: {armed:?}",
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

    /// Whether so many nodes are all but those whose disks are lost.
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
                    tracing::info!(status = ?node.status(), "a node at the end");
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
    ZPath::parse(text).expect("it is a path")
}

fn children(store: &Store, parent: &str) -> BTreeSet<ZPath> {
    let parent = path(parent);
    let names = store.children(&parent).unwrap_or_default();
    names.iter().filter_map(|name| parent.join(name).ok()).collect()
}
