//! Arena in which programs run against both sides: one server, with one program at a time.
//!
//! One at a time, because the zxids in replies are global to a server. Several arenas may run in parallel.

use std::any::Any;
use std::fmt::Write;
use std::panic;

use anyhow::{Context, Result};

use crate::compare::{Difference, shrink};
use crate::front::FrontNode;
use crate::lockgate::{Lockgate, ReplicaOptions};
use crate::program::{Program, Root};
use crate::reserved;
use crate::server::{Installation, Server};
use crate::side::{self, Run};
use crate::tally::Tally;
use crate::zookeeper::{Observer, ZooKeeper};

/// Side that ZooKeeper is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counterpart {
    /// Lockgate's state machine.
    Lockgate,
    /// A Lockgate node, over its ZooKeeper port.
    Front,
    /// ZooKeeper itself: a difference then is a fault of the traces.
    Itself,
}

/// Server with its observer and counts.
pub struct Arena {
    installation: Installation,
    server: Server,
    observer: Observer,
    /// Started when it is first needed.
    front: Option<FrontNode>,
    runs: u64,
    tally: Tally,
}

impl Arena {
    /// Starts a server.
    pub fn start(installation: &Installation) -> Result<Self> {
        let server = Server::start(installation)?;
        let observer = Observer::connect(server.address())?;
        Ok(Self {
            installation: installation.clone(),
            server,
            observer,
            front: None,
            runs: 0,
            tally: Tally::default(),
        })
    }

    /// Returns the server.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Returns the counts of all examined programs, without the repetitions for minimization.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Runs a program against both sides; returns their first difference.
    pub fn examine(&mut self, program: &Program, counterpart: Counterpart) -> Result<Option<Difference>> {
        let (difference, tally) = self.compare(program, counterpart)?;
        self.tally.add(&tally);
        Ok(difference)
    }

    /// Runs a program against ZooKeeper, and returns each step with its result.
    pub fn show(&mut self, program: &Program) -> Result<String> {
        let trace = self.zookeeper(program)?.trace;
        let mut text = String::new();
        for (label, lines) in side::labels(program).iter().zip(&trace.0) {
            writeln!(text, "{label}\n       {}", lines.join("\n       ")).expect("a String takes everything");
        }
        Ok(text)
    }

    /// Runs the program about the reserved tree against both sides. It needs a server that has run nothing
    /// else.
    pub fn examine_reserved(mut self) -> Result<Option<Difference>> {
        let program = reserved::program();
        let zookeeper = self.run_at(&program, &Root::written())?;
        let other = lockgate(&program, ReplicaOptions::default())?;
        Ok(Difference::find(
            &program,
            &zookeeper.trace,
            &other.trace,
            "Lockgate",
        ))
    }

    /// Minimizes the program of a difference.
    pub fn shrink(&mut self, difference: Difference, counterpart: Counterpart) -> Result<Difference> {
        // A part of a program may crash the server; it is no smaller example of this difference.
        shrink(difference, |program| {
            Ok(self
                .compare(program, counterpart)
                .map_or(None, |(found, _)| found))
        })
    }

    fn compare(
        &mut self,
        program: &Program,
        counterpart: Counterpart,
    ) -> Result<(Option<Difference>, Tally)> {
        let zookeeper = self.zookeeper(program)?;
        let difference = match counterpart {
            Counterpart::Lockgate => VARIANTS.into_iter().find_map(|(name, options)| {
                // A panic of the state machine would stop all replicas: it is a difference, and does not end
                // the run.
                match panic::catch_unwind(|| lockgate(program, options)) {
                    Ok(Ok(other)) => Difference::find(program, &zookeeper.trace, &other.trace, name),
                    Ok(Err(error)) => Some(Difference::failed(program, &format!("{error:#}"), name)),
                    Err(payload) => Some(Difference::failed(program, &panic_message(&*payload), name)),
                }
            }),
            Counterpart::Front => match self.front(program) {
                Ok(other) => Difference::find(program, &zookeeper.trace, &other.trace, FRONT),
                Err(error) => Some(Difference::failed(program, &format!("{error:#}"), FRONT)),
            },
            Counterpart::Itself => {
                let again = self.zookeeper(program)?;
                Difference::find(program, &zookeeper.trace, &again.trace, "ZooKeeper again")
            }
        };
        Ok((difference, zookeeper.tally))
    }

    fn zookeeper(&mut self, program: &Program) -> Result<Run> {
        self.runs += 1;
        let ran = self.run_at(program, &Root::numbered(self.runs)).and_then(|ran| {
            self.observer.sweep(&ran.left)?;
            Ok(ran)
        });
        if ran.is_err() {
            // After any error the next program gets a fresh server.
            let log = self.server.log_tail();
            self.server = Server::start(&self.installation)?;
            self.observer = Observer::connect(self.server.address())?;
            return ran.with_context(|| format!("ZooKeeper's log ends with\n{log}\n"));
        }
        ran
    }

    fn front(&mut self, program: &Program) -> Result<Run> {
        let mut front = match self.front.take() {
            Some(front) => front,
            None => FrontNode::start()?,
        };
        let (address, observer) = front.parts();
        let ran = {
            let mut side = ZooKeeper::new(address, observer, program.sessions);
            side::run(&mut side, program, &Root::numbered(self.runs))
                .with_context(|| format!("{FRONT}, seed {}\n{program}", program.seed))?
        };
        front.parts().1.sweep(&ran.left)?;
        // After an error the next program gets a fresh node.
        self.front = Some(front);
        Ok(ran)
    }

    fn run_at(&mut self, program: &Program, root: &Root) -> Result<Run> {
        let mut side = ZooKeeper::new(self.server.address(), &mut self.observer, program.sessions);
        side::run(&mut side, program, root)
            .with_context(|| format!("ZooKeeper, seed {}\n{program}", program.seed))
    }
}

/// Name in reports.
const FRONT: &str = "Lockgate's front end";

/// Additional events on Lockgate's side: none, or such as must stay invisible.
const VARIANTS: [(&str, ReplicaOptions); 2] = [
    (
        "Lockgate",
        ReplicaOptions {
            repeats: false,
            restores_after: None,
        },
    ),
    (
        "Lockgate, repeated and restored",
        ReplicaOptions {
            repeats: true,
            restores_after: Some(5),
        },
    ),
];

fn lockgate(program: &Program, options: ReplicaOptions) -> Result<Run> {
    let mut side = Lockgate::new(program.sessions, options);
    side::run(&mut side, program, &Root::written())
        .with_context(|| format!("Lockgate, seed {}\n{program}", program.seed))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or(payload.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a message"))
}
