//! Where programs are run against both sides: one server, and one program at a time on it.
//!
//! One at a time, because the zxids that replies carry are the whole server's. Several arenas may run side by side.

use anyhow::{Context, Result};

use crate::compare::{Difference, shrink};
use crate::program::{Program, Root};
use crate::server::{Installation, Server};
use crate::side;
use crate::trace::Trace;
use crate::zookeeper::{Observer, ZooKeeper};

/// Whom ZooKeeper is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opponent {
    /// Itself: what differs then is what the traces forget to make alike.
    Itself,
}

/// A server and what is needed to use it.
pub struct Arena {
    server: Server,
    observer: Observer,
    runs: u64,
}

impl Arena {
    /// Starts a server.
    pub fn start(installation: &Installation) -> Result<Self> {
        let server = Server::start(installation)?;
        let observer = Observer::connect(server.address())?;
        Ok(Self { server, observer, runs: 0 })
    }

    /// The server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Runs a program against both sides.
    pub fn examine(&mut self, program: &Program, opponent: Opponent) -> Result<Option<Difference>> {
        let zookeeper = self.zookeeper(program)?;
        let (other, name) = match opponent {
            Opponent::Itself => (self.zookeeper(program)?, "ZooKeeper again"),
        };
        Ok(Difference::find(program, &zookeeper, &other, name))
    }

    /// Makes a difference small.
    pub fn shrink(&mut self, difference: Difference, opponent: Opponent) -> Result<Difference> {
        shrink(difference, |program| self.examine(program, opponent))
    }

    fn zookeeper(&mut self, program: &Program) -> Result<Trace> {
        self.runs += 1;
        let root = Root::numbered(self.runs);
        let mut side = ZooKeeper::new(self.server.address(), &mut self.observer, program.sessions);
        let ran = side::run(&mut side, program, &root);
        drop(side);
        let (trace, left) = ran.with_context(|| format!("seed {}\n{program}", program.seed))?;
        self.observer.sweep(&left)?;
        Ok(trace)
    }
}
