//! Command line of the simulation: one seed, or many.

use std::process::ExitCode;

use clap::Parser;
use lockgate_sim::log_prefix::LogPrefix;
use lockgate_sim::{fleet, mutants, regressions, run, stalls};
use tracing::Level;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt;
use tracing_subscriber::prelude::*;

/// Simulates a whole Lockgate cluster in one thread under a seed, with faults of all kinds.
#[derive(Parser)]
struct Args {
    /// The one seed to run, in this process.
    #[arg(long, conflicts_with_all = ["seeds", "regressions"])]
    seed: Option<u64>,
    /// Number of seeds to run, each in a process of its own.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// First of these seeds.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Number of steps of each seed, before its ending.
    #[arg(long, default_value_t = 50_000)]
    steps: u64,
    /// Number of processes at a time; by default the number of processors.
    #[arg(long)]
    jobs: Option<usize>,
    /// Run the seeds that once found a violation instead.
    #[arg(long)]
    regressions: bool,
    /// Search for planted bugs, each in up to `--seeds` seeds. Needs the feature `planted`.
    #[arg(long)]
    mutants: bool,
    /// Number of the bug to plant; with `--mutants` the only one to search for.
    #[arg(long)]
    planted: Option<u8>,
    /// Instead of all faults, let the nodes of the one seed stall for this number of simulated seconds, and
    /// check the elections.
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    stalls: Option<u64>,
    /// Print the report of one seed as JSON.
    #[arg(long)]
    json: bool,
    /// Print the logs of the nodes of one seed.
    #[arg(long)]
    log: bool,
}

fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    if args.mutants {
        return mutants::search(args.from, args.seeds, args.steps, args.planted);
    }
    if let Some(bug) = args.planted {
        mutants::plant(bug)?;
    }
    if let Some(seed) = args.seed {
        return one(seed, &args);
    }
    let jobs = args
        .jobs
        .or_else(|| std::thread::available_parallelism().ok().map(usize::from))
        .unwrap_or(1);
    let summary = match args.regressions {
        true => fleet::run(regressions::all()?, jobs)?,
        false => {
            let seeds = args.from..args.from.saturating_add(args.seeds);
            fleet::run(seeds.map(|seed| (seed, args.steps)), jobs)?
        }
    };
    summary.print();
    Ok(match summary.failed() {
        [] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

fn one(seed: u64, args: &Args) -> anyhow::Result<ExitCode> {
    if args.log {
        // No filter that draws the keys of a hash map: the run must be the same with and without logs.
        let is_shown = filter_fn(|about| {
            let most = match about.target().starts_with("openraft") {
                true => Level::WARN,
                false => Level::INFO,
            };
            *about.level() <= most
        });
        let lines = fmt::layer()
            .with_writer(std::io::stderr)
            .with_ansi(false)
            .with_timer(LogPrefix);
        tracing_subscriber::registry()
            .with(lines.with_filter(is_shown))
            .init();
    }
    if let Some(seconds) = args.stalls {
        let elections = stalls::run(seed, seconds);
        println!("{}", serde_json::to_string(&elections)?);
        return Ok(match elections.violation {
            None => ExitCode::SUCCESS,
            Some(_) => ExitCode::FAILURE,
        });
    }
    let report = run::run(seed, args.steps);
    match args.json {
        true => println!("{}", serde_json::to_string(&report)?),
        false => println!("{report:#?}"),
    }
    Ok(match &report.violation {
        None => ExitCode::SUCCESS,
        Some(violation) => {
            if !args.json {
                eprintln!("{violation}\n  {}", report.reproduce());
            }
            ExitCode::FAILURE
        }
    })
}
