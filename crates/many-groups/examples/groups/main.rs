//! What many groups would give: the tables and the picture of docs/scaling.md.
//!
//! ```sh
//! cargo run --release -p many-groups --example groups -- --svg docs/images/many-groups.svg
//! ```

mod tables;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use many_groups::{Costs, MICROSECOND, SECOND, Setting};

/// The model of many groups over many machines.
#[derive(Debug, Parser)]
struct Arguments {
    /// The same seed gives the same figures
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many cores a machine has
    #[arg(long, default_value_t = 2)]
    cores: usize,
    /// From one machine to another, in microseconds
    #[arg(long, default_value_t = 50)]
    hop_us: u64,
    /// How long names wait whose leader's machine is lost, in milliseconds (what was measured if not given)
    #[arg(long)]
    failover_ms: Option<u64>,
    /// How long each run is measured, in milliseconds of the model's time
    #[arg(long, default_value_t = 1_000)]
    measured_ms: u64,
    /// Where to write the picture
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let mut costs = Costs::measured().with_hop(arguments.hop_us * MICROSECOND);
    if let Some(ms) = arguments.failover_ms {
        costs.failover = ms * 1_000 * MICROSECOND;
    }
    let setting = Setting {
        seed: arguments.seed,
        cores: arguments.cores,
        costs,
        measured: arguments.measured_ms * SECOND / 1_000,
        ..Setting::default()
    };
    tables::one_group(&setting);
    let plots = [tables::groups_and_machines(&setting), tables::waiting(&setting)];
    tables::skew(&setting);
    tables::reads(&setting);
    tables::lost(&setting);
    tables::multi(&setting);
    tables::sessions(&setting.costs);
    if let Some(file) = arguments.svg {
        std::fs::write(&file, many_groups::plot::document(&plots))
            .with_context(|| file.display().to_string())?;
        println!("\n{} is written.", file.display());
    }
    Ok(())
}
