//! Fault tests of real processes; see docs/internals/testing.md.

mod cell;
mod client;
mod cluster;
mod command;
mod http;
mod isolation;
mod leftovers;
mod matrix;
mod mutants;
mod nemesis;
mod network;
mod options;
mod pace;
mod proxy;
mod record;
mod report;
mod supervise;
mod systems;
mod terminal;
mod workloads;
mod world;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;
use options::Options;
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};

fn main() -> anyhow::Result<ExitCode> {
    let options = Options::parse();
    if let Some(spec) = &options.inside {
        let threads = runtime::Builder::new_multi_thread().enable_all().build();
        threads
            .context("starting the runtime")?
            .block_on(cell::run_inside(spec))?;
        return Ok(ExitCode::SUCCESS);
    }
    // One thread: the cells' processes end with the thread that has started them.
    let thread = runtime::Builder::new_current_thread().enable_all().build();
    thread
        .context("starting the runtime")?
        .block_on(supervised(options))
}

/// Runs the requested cells until they are done or a signal ends this program. Then the cells' processes end
/// with it, and their directories are removed.
async fn supervised(options: Options) -> anyhow::Result<ExitCode> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let dir = options.dir();
    let fine = tokio::select! {
        fine = options.run() => Some(fine?),
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
    };
    let Some(fine) = fine else {
        // The cells' processes ended when `run` was dropped.
        leftovers::sweep_own(&dir)?;
        return Ok(ExitCode::FAILURE);
    };
    Ok(if fine {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
