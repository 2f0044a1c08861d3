//! Elections on a busy machine. First a leader is killed, frozen, cut off and put behind slow links while everything is quiet. Then
//! nodes are paused and continued at random, as processes are that wait for a processor. Pauses alone must
//! not cost the leader its office, and a leader that is killed among them must still be replaced at once.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::dice::Dice;
use crate::faults::all_links;
use crate::machine::End;
use crate::network::{HEALTHY, Link};
use crate::plan::Plan;
use crate::run::take_randomness_from;
use crate::time::{MILLI, Micros, SECOND};
use crate::world::World;

/// Range of a node's pause.
const PAUSE: Range<Micros> = 50 * MILLI..1_001 * MILLI;

/// Range of the time between two pauses.
const RUNNING: Range<Micros> = 50 * MILLI..1_000 * MILLI;

/// Time for which pauses grow longer, as on a machine whose load grows.
const GROWS_FOR: Micros = 20 * SECOND;

/// Time limit for the election after a leader was killed.
const KILLED_LEADER_LIMIT: Micros = 50 * MILLI;

/// Time limit for the election after a leader was frozen or cut off, without recent stalls.
const SILENT_LEADER_LIMIT: Micros = SECOND;

/// Links on which no heartbeat is answered within its timeout.
const SLOW: Link = Link {
    delay: (60 * MILLI, 80 * MILLI),
    ..HEALTHY
};

/// Time limit for the election after the links of a leader without proposals became slow: the leader goes silent after two election timeouts
/// without an answer in time, and the others wait as after a silent leader. An election may take two more.
const SLOW_LEADER_LIMIT: Micros = 4 * SECOND;

/// Time limit for the first election, and again for all nodes to learn of the leader.
const ELECTION_LIMIT: Micros = 3 * SECOND;

/// Time after which a killed process restarts.
const RESTART_DELAY: Micros = 2 * SECOND;

/// Elections of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Elections {
    /// The seed.
    pub seed: u64,
    /// Number of pauses.
    pub stalls: u64,
    /// Milliseconds without a leader: after a leader was killed, frozen, cut off, put behind slow links, and killed among stalls.
    pub took_ms: Vec<u64>,
    /// Violation, if one was found.
    pub violation: Option<String>,
}

/// Runs a seed with stalls for this number of simulated seconds. The process must run nothing else.
pub fn run(seed: u64, seconds: u64) -> Elections {
    take_randomness_from(seed);
    let mut elections = Elections {
        seed,
        stalls: 0,
        took_ms: Vec::new(),
        violation: None,
    };
    let mut world = World::new(Plan::quiet(seed));
    let ran = busy(&mut world, seed, seconds * SECOND, &mut elections);
    elections.violation = ran.err();
    elections
}

fn busy(world: &mut World, seed: u64, lasts: Micros, elections: &mut Elections) -> Result<(), String> {
    let mut dice = Dice::new(seed, "stalls");
    world.run_for(ELECTION_LIMIT)?;
    let first = world.leads().ok_or("no leader was elected")?;
    world.run_for(ELECTION_LIMIT)?;
    world.check_leader(first)?;

    elections.took_ms.push(world.kill_leader()?);
    let (_, frozen) = world.leads().ok_or("there is no leader")?;
    world.machines[frozen].pause();
    elections
        .took_ms
        .push(world.is_succeeded("frozen", SILENT_LEADER_LIMIT)?);
    world.machines[frozen].resume(true);
    world.run_for(ELECTION_LIMIT)?;
    let (_, cut) = world.leads().ok_or("there is no leader")?;
    let links: Vec<_> = all_links(world.machines.len())
        .filter(|(from, to)| *from == cut || *to == cut)
        .collect();
    world.cut(&links, true);
    elections
        .took_ms
        .push(world.is_succeeded("cut off", SILENT_LEADER_LIMIT)?);
    world.cut(&links, false);
    world.run_for(ELECTION_LIMIT)?;

    let (_, slow) = world.leads().ok_or("there is no leader")?;
    let links: Vec<_> = all_links(world.machines.len())
        .filter(|(from, to)| *from == slow || *to == slow)
        .collect();
    // Without entries to acknowledge, the leader loses its right to propose.
    world.cut_all_clients_off(true);
    world.set_links(&links, SLOW);
    elections
        .took_ms
        .push(world.is_succeeded("behind slow links", SLOW_LEADER_LIMIT)?);
    world.set_links(&links, HEALTHY);
    world.cut_all_clients_off(false);
    world.run_for(ELECTION_LIMIT)?;

    let leader = world.leads().ok_or("there is no leader")?;
    let begin = world.now();
    let mut next: Vec<Micros> = world
        .machines
        .iter()
        .map(|_| begin + dice.between(RUNNING))
        .collect();
    while world.now() < begin + lasts {
        world.step()?;
        let now = world.now();
        for (machine, next) in next.iter_mut().enumerate() {
            if now < *next {
                continue;
            }
            let node = &mut world.machines[machine];
            *next = now
                + match node.is_running() {
                    true => {
                        node.pause();
                        elections.stalls += 1;
                        let grown = (now - begin).min(GROWS_FOR);
                        let longest = PAUSE.start + (PAUSE.end - PAUSE.start) * grown / GROWS_FOR;
                        dice.between(PAUSE.start..longest.max(PAUSE.start + 1))
                    }
                    false => {
                        node.resume(true);
                        dice.between(RUNNING)
                    }
                };
        }
        world.check_leader(leader)?;
    }
    for machine in &mut world.machines {
        machine.resume(true);
    }
    world.run_for(SECOND)?;
    world.check_leader(leader)?;
    elections.took_ms.push(world.kill_leader()?);
    Ok(())
}

impl World {
    fn run_for(&mut self, time: Micros) -> Result<(), String> {
        let end = self.now() + time;
        while self.now() < end {
            self.step()?;
        }
        Ok(())
    }

    fn cut_all_clients_off(&mut self, is_cut: bool) {
        for machine in 0..self.machines.len() {
            self.network().lock().cut_clients_off(machine, is_cut);
        }
    }

    /// Returns the last elected leader: its term and its machine.
    fn leads(&self) -> Option<(u64, usize)> {
        let ledger = self.environment.ledger.borrow();
        let (term, node) = ledger.last_leader()?;
        Some((term, node as usize - 1))
    }

    fn check_leader(&self, leader: (u64, usize)) -> Result<(), String> {
        match self.leads() {
            Some(now) if now != leader => Err(format!(
                "an unnecessary election: node {} of term {} took over from node {} of term {}",
                now.1 + 1,
                now.0,
                leader.1 + 1,
                leader.0
            )),
            _ => Ok(()),
        }
    }

    /// Kills the leader and restarts it. Returns the milliseconds without a leader.
    fn kill_leader(&mut self) -> Result<u64, String> {
        let (_, killed) = self.leads().ok_or("there is no leader")?;
        self.end(killed, End::Killed, RESTART_DELAY);
        let took = self.is_succeeded("killed", KILLED_LEADER_LIMIT)?;
        self.run_for(RESTART_DELAY + ELECTION_LIMIT)?;
        Ok(took)
    }

    /// Waits until another leader is elected. Returns the milliseconds until then.
    fn is_succeeded(&mut self, what: &str, within: Micros) -> Result<u64, String> {
        let (before, begin) = (self.leads(), self.now());
        while self.leads() == before {
            self.step()?;
            if self.now() > begin + within {
                return Err(format!(
                    "{before:?} was {what}, and no leader was elected for {} ms",
                    within / MILLI
                ));
            }
        }
        Ok((self.now() - begin) / MILLI)
    }
}
