//! `zookeeper-parity`: long runs of random programs against both sides, with any number of servers.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use zookeeper_parity::arena::{Arena, Counterpart};
use zookeeper_parity::differences;
use zookeeper_parity::generate;
use zookeeper_parity::server::Installation;
use zookeeper_parity::tally::Tally;

/// Number of differences that are minimized; further ones are only counted. Minimization is slow, and the
/// first ones are the most informative.
const MOST_SHRUNK: u64 = 10;

/// Programs per server, which limits the size of its log.
const PROGRAMS_PER_SERVER: u64 = 20_000;

/// Interval between two progress messages.
const PROGRESS: Duration = Duration::from_secs(5);

/// Runs random programs against Lockgate's state machine and a real ZooKeeper, and prints their differences.
#[derive(Parser)]
struct Arguments {
    /// Number of programs
    #[arg(long, default_value_t = 1_000)]
    programs: u64,
    /// Seed of the first program; the others have the following numbers
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of servers, each with programs of its own
    #[arg(long, default_value_t = 1)]
    servers: u64,
    /// Side that ZooKeeper is compared with
    #[arg(long, value_enum, default_value_t = Against::Lockgate)]
    against: Against,
    /// Print each program with all of ZooKeeper's results
    #[arg(long)]
    show: bool,
    /// Print docs/reference/zookeeper-differences.md and exit
    #[arg(long)]
    differences: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Against {
    /// The state machine, in this process
    Lockgate,
    /// A node of Lockgate, over real connections
    Front,
    /// ZooKeeper itself, to check that programs are deterministic
    Itself,
}

/// State that the servers' threads share.
struct Shared {
    next: AtomicU64,
    end: u64,
    done: AtomicU64,
    steps: AtomicU64,
    differences: AtomicU64,
    tally: Mutex<Tally>,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    if arguments.differences {
        print!("{}", differences::markdown());
        return Ok(ExitCode::SUCCESS);
    }
    let installation = Installation::find().context("ZooKeeper or Java is not installed")?;
    let shared = Shared {
        next: AtomicU64::new(arguments.seed),
        end: arguments.seed.saturating_add(arguments.programs),
        done: AtomicU64::new(0),
        steps: AtomicU64::new(0),
        differences: AtomicU64::new(0),
        tally: Mutex::new(Tally::default()),
    };
    let started = Instant::now();
    let main = thread::current();
    thread::scope(|scope| -> Result<()> {
        let servers = (0..arguments.servers.max(1))
            .map(|_| {
                scope.spawn(|| {
                    let worked = work(&installation, &arguments, &shared);
                    main.unpark();
                    worked
                })
            })
            .collect::<Vec<_>>();
        while servers.iter().any(|server| !server.is_finished()) {
            thread::park_timeout(PROGRESS);
            eprintln!("{}", progress(&shared, started));
        }
        servers
            .into_iter()
            .try_for_each(|server| server.join().expect("a server's thread does not panic"))
    })?;

    print!("{}", shared.tally.lock().expect("no thread has panicked"));
    println!("{}", progress(&shared, started));
    Ok(if shared.differences.into_inner() == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn progress(shared: &Shared, started: Instant) -> String {
    format!(
        "{} programs, {} steps, {} differences in {:.0?}",
        shared.done.load(Ordering::Relaxed),
        shared.steps.load(Ordering::Relaxed),
        shared.differences.load(Ordering::Relaxed),
        started.elapsed(),
    )
}

/// Runs programs until there are no more.
fn work(installation: &Installation, arguments: &Arguments, shared: &Shared) -> Result<()> {
    let counterpart = match arguments.against {
        Against::Lockgate => Counterpart::Lockgate,
        Against::Front => Counterpart::Front,
        Against::Itself => Counterpart::Itself,
    };
    loop {
        let mut arena = Arena::start(installation)?;
        eprintln!(
            "ZooKeeper {} at {}",
            arena.server().version(),
            arena.server().address()
        );
        for _ in 0..PROGRAMS_PER_SERVER {
            let seed = shared.next.fetch_add(1, Ordering::Relaxed);
            if seed >= shared.end {
                shared
                    .tally
                    .lock()
                    .expect("no thread has panicked")
                    .add(arena.tally());
                return Ok(());
            }
            let program = generate::program(seed);
            if arguments.show {
                println!("seed {seed}\n{}", arena.show(&program)?);
            }
            if let Some(difference) = arena.examine(&program, counterpart)? {
                if shared.differences.fetch_add(1, Ordering::Relaxed) < MOST_SHRUNK {
                    println!("{}", arena.shrink(difference, counterpart)?);
                } else {
                    println!("seed {seed} differs");
                }
            }
            shared.done.fetch_add(1, Ordering::Relaxed);
            shared
                .steps
                .fetch_add(program.steps.len() as u64, Ordering::Relaxed);
        }
        shared
            .tally
            .lock()
            .expect("no thread has panicked")
            .add(arena.tally());
    }
}
