//! Where programs are run against both sides: one server, and one program at a time on it.
//!
//! One at a time, because the zxids that replies carry are the whole server's. Several arenas may run side by side.

use anyhow::{Context, Result};

use crate::compare::{Difference, shrink};
use crate::lockgate::Lockgate;
use crate::program::{Program, Root};
use crate::server::{Installation, Server};
use crate::side::{self, Run};
use crate::tally::Tally;
use crate::zookeeper::{Observer, ZooKeeper};

/// Whom ZooKeeper is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opponent {
    /// Our state machine.
    Lockgate,
    /// Itself: what differs then is what the traces forget to make alike.
    Itself,
}

/// A server and what is needed to use it.
pub struct Arena {
    server: Server,
    observer: Observer,
    runs: u64,
    tally: Tally,
}

impl Arena {
    /// Starts a server.
    pub fn start(installation: &Installation) -> Result<Self> {
        let server = Server::start(installation)?;
        let observer = Observer::connect(server.address())?;
        Ok(Self { server, observer, runs: 0, tally: Tally::default() })
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// What was examined so far, without what was run again to make a difference small.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Runs a program against both sides.
    pub fn examine(&mut self, program: &Program, opponent: Opponent) -> Result<Option<Difference>> {
        let (difference, tally) = self.compare(program, opponent)?;
        self.tally.add(&tally);
        Ok(difference)
    }

    /// Makes a difference small.
    pub fn shrink(&mut self, difference: Difference, opponent: Opponent) -> Result<Difference> {
        shrink(difference, |program| Ok(self.compare(program, opponent)?.0))
    }

    fn compare(&mut self, program: &Program, opponent: Opponent) -> Result<(Option<Difference>, Tally)> {
        let zookeeper = self.zookeeper(program)?;
        let (other, name) = match opponent {
            Opponent::Lockgate => (lockgate(program)?, "Lockgate"),
            Opponent::Itself => (self.zookeeper(program)?, "ZooKeeper again"),
        };
        let difference = Difference::find(program, &zookeeper.trace, &other.trace, name);
        Ok((difference, zookeeper.tally))
    }

    fn zookeeper(&mut self, program: &Program) -> Result<Run> {
        self.runs += 1;
        let root = Root::numbered(self.runs);
        let mut side = ZooKeeper::new(self.server.address(), &mut self.observer, program.sessions);
        let ran = side::run(&mut side, program, &root);
        drop(side);
        let ran = ran.with_context(|| format!("ZooKeeper, seed {}\n{program}", program.seed))?;
        self.observer.sweep(&ran.left)?;
        Ok(ran)
    }
}

fn lockgate(program: &Program) -> Result<Run> {
    let mut side = Lockgate::new(program.sessions);
    side::run(&mut side, program, &Root::written())
        .with_context(|| format!("Lockgate, seed {}\n{program}", program.seed))
}
