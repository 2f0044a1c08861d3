//! Command line and its evaluation.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use clap::Parser;

use crate::cell::Spec;
use crate::isolation::Isolation;
use crate::leftovers;
use crate::matrix::{self, Matrix, Share};
use crate::mutants::{self, SearchResult};
use crate::report::{CellReport, Report, html, recovery};
use crate::supervise::Supervisor;
use crate::systems::System;
use crate::terminal;
use crate::{nemesis, workloads};

/// Workload for the measurement of recoveries: many short calls to all nodes.
const RECOVERY_WORKLOAD: &str = "register";

/// Time limit of one fault with the pause before it.
const RECOVERY_SECONDS: u64 = 30;

/// Program, title, cells, and the results of the search for planted bugs.
type RunResult = (PathBuf, String, Vec<CellReport>, Vec<SearchResult>);

/// Runs clusters of real processes under faults and checks the histories of their clients.
#[derive(Parser, Debug)]
pub struct Options {
    /// Workload of the clients
    #[arg(long, requires = "nemesis")]
    workload: Option<String>,
    /// Faults that are injected into the nodes
    #[arg(long, requires = "workload")]
    nemesis: Option<String>,
    /// Duration of the faults, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Duration of the phase without faults before them, in seconds
    #[arg(long, default_value_t = 3.0)]
    quiet_seconds: f64,
    /// Seed of all random choices [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// System under test
    #[arg(long, value_enum, default_value_t = System::Lockgate)]
    system: System,
    /// Minimum of successful calls per second before the faults; a slower run is invalid [default: the
    /// workload's own, by the number of cells at a time]
    #[arg(long)]
    least_rate: Option<f64>,
    /// The program under test [default: target/release/lockgate, else the one beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Set of cells to run; see docs/internals/testing.md
    #[arg(long, value_enum)]
    matrix: Option<Matrix>,
    /// Number of cells that run at a time [default: 2 for the gate, else 1]
    #[arg(long)]
    side_by_side: Option<usize>,
    /// Measure the time until calls succeed again after faults of this nemesis
    #[arg(long)]
    recovery: Option<String>,
    /// Number of faults for `--recovery`
    #[arg(long, default_value_t = 20, requires = "recovery")]
    repeat: usize,
    /// Search for every planted bug and show the cell that catches it
    #[arg(long)]
    mutants: bool,
    /// Search only for the planted bug with this number
    #[arg(long, requires = "mutants")]
    mutant: Option<u8>,
    /// Run only cells whose name (`exclusive x kill-leader`) contains this text
    #[arg(long)]
    only: Option<String>,
    /// Run only a share of the cells: one in M, the Nth (N may be larger than M, like the number of a day)
    #[arg(long, value_name = "N/M")]
    share: Option<Share>,
    /// List all workloads and nemeses, and those that can run on this machine
    #[arg(long)]
    list: bool,
    /// Write report.json and report.html to this directory
    #[arg(long)]
    report: Option<PathBuf>,
    /// Directory for the files of runs [default: the directory for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Use no namespaces, as on a machine without them
    #[arg(long)]
    no_namespaces: bool,
    /// Keep the files of passed cells as well
    #[arg(long)]
    keep: bool,
    /// Run the cell of this file in this process; used by this program to start cells
    #[arg(long, hide = true)]
    pub inside: Option<PathBuf>,
}

impl Options {
    /// Returns the directory for the files of runs.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Runs the command line's request; returns whether all cells are fine.
    pub async fn run(self) -> anyhow::Result<bool> {
        let isolation = match self.no_namespaces {
            true => Isolation::None,
            false => Isolation::best(),
        };
        if self.list {
            return terminal::show(&terminal::list(isolation)).map(|()| true);
        }
        let seed = self.seed.unwrap_or_else(|| fastrand::u64(..1 << 53));
        println!("seed {seed}; {}", isolation.describe());
        let dir = self.dir();
        leftovers::sweep(&dir)?;
        let supervisor = Supervisor {
            dir,
            isolation,
            verbose: self.workload.is_some() || self.recovery.is_some(),
            keep: self.keep,
        };
        let begun = Instant::now();
        let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let (program, title, cells, mutants) = match self.mutants {
            true => self.search(&supervisor, seed).await?,
            false => self.run_cells(&supervisor, seed).await?,
        };
        let report = Report {
            title,
            started_at,
            program: program.display().to_string(),
            machine: isolation.describe().to_owned(),
            seed,
            took_seconds: begun.elapsed().as_secs_f64(),
            recoveries: recovery::of(&cells),
            cells,
            mutants,
        };
        self.print_report(&report);
        self.write(&report)?;
        Ok(report.is_fine())
    }

    async fn run_cells(&self, supervisor: &Supervisor, seed: u64) -> anyhow::Result<RunResult> {
        let program = self.program()?;
        let (title, cells) = self.cells(&program, seed)?;
        ensure!(!cells.is_empty(), "no cell matches --only and --share");
        let cells = matrix::run(supervisor, cells, self.side_by_side(), &terminal::print_cell).await;
        Ok((program, title, cells, Vec::new()))
    }

    /// Searches for all planted bugs, or for one.
    async fn search(&self, supervisor: &Supervisor, seed: u64) -> anyhow::Result<RunResult> {
        let program = match &self.program {
            Some(_) => self.program()?,
            None => mutants::build().await?,
        };
        let cells = std::cell::RefCell::new(Vec::new());
        let record = |cell: &CellReport| {
            println!("    {}", cell.line());
            cells.borrow_mut().push(cell.clone());
        };
        let spec = |workload: &str, nemesis: &str| {
            self.spec(
                &program,
                workload.to_owned(),
                nemesis.to_owned(),
                seed,
                self.seconds,
            )
        };
        let mut found = Vec::new();
        for mutant in mutants::ALL {
            if self.mutant.is_none_or(|number| number == mutant.number) {
                println!("{}: {}", mutant.number, mutant.about);
                found.push(mutants::search(mutant, supervisor, &spec, &record).await?);
            }
        }
        ensure!(!found.is_empty(), "no planted bug has this number");
        let cells = cells.take();
        Ok((program, "planted bugs".to_owned(), cells, found))
    }

    fn print_report(&self, report: &Report) {
        if self.recovery.is_some() {
            print!("{}", recovery::table(&report.recoveries));
        }
        match report.mutants.is_empty() {
            true => terminal::summary(report),
            false => print!("{}", mutants::table(&report.mutants)),
        }
    }

    /// Returns the number of cells that run at a time. They share the machine, so the minimum rate of each is
    /// divided by it.
    fn side_by_side(&self) -> usize {
        let usually = if self.matrix == Some(Matrix::Gate) { 2 } else { 1 };
        self.side_by_side.unwrap_or(usually).max(1)
    }

    /// Returns the requested cells, and a title for them.
    fn cells(&self, program: &Path, seed: u64) -> anyhow::Result<(String, Vec<Spec>)> {
        if let Some(nemesis) = &self.recovery {
            let workload = RECOVERY_WORKLOAD.to_owned();
            let seconds = self.repeat as u64 * RECOVERY_SECONDS;
            let mut spec = self.spec(program, workload, nemesis.clone(), seed, seconds)?;
            spec.faults = Some(self.repeat);
            return Ok((format!("recovery from {nemesis}"), vec![spec]));
        }
        let (title, pairs) = match (&self.matrix, &self.workload, &self.nemesis) {
            (Some(matrix), None, None) => (format!("matrix {}", matrix.name()), matrix.cells(self.system)),
            (None, Some(workload), Some(nemesis)) => (
                format!("{workload} x {nemesis}"),
                vec![(workload.clone(), nemesis.clone())],
            ),
            _ => bail!("give --workload and --nemesis, or --matrix, --recovery, --mutants or --list"),
        };
        let seconds = self
            .matrix
            .map_or(self.seconds, |matrix| matrix.seconds(self.seconds));
        let only = self.only.as_deref().unwrap_or_default();
        let wanted = pairs
            .into_iter()
            .filter(|(workload, nemesis)| format!("{workload} x {nemesis}").contains(only))
            .enumerate()
            .filter(|(number, _)| self.share.is_none_or(|share| share.has(*number)))
            .map(|(_, pair)| pair);
        let specs = wanted.enumerate().map(|(number, (workload, nemesis))| {
            // The first cell has the seed itself, so that a single cell runs with the requested seed.
            let seed = seed.wrapping_add(number as u64);
            self.spec(program, workload, nemesis, seed, seconds)
        });
        Ok((title, specs.collect::<anyhow::Result<_>>()?))
    }

    fn spec(
        &self,
        program: &Path,
        workload: String,
        nemesis: String,
        seed: u64,
        seconds: u64,
    ) -> anyhow::Result<Spec> {
        let kind = workloads::named(&workload)
            .with_context(|| format!("no workload {workload}; --list shows all"))?;
        nemesis::find(&nemesis)?;
        Ok(Spec {
            least_rate: self
                .least_rate
                .unwrap_or(kind.least_rate / self.side_by_side() as f64),
            workload,
            nemesis,
            system: self.system,
            seconds,
            quiet_seconds: self.quiet_seconds,
            seed,
            faults: None,
            program: program.to_owned(),
            environment: planted(),
            isolation: Isolation::None,
            dir: PathBuf::new(),
        })
    }

    /// Returns the program under test.
    fn program(&self) -> anyhow::Result<PathBuf> {
        if !self.system.is_lockgate() {
            return Ok(PathBuf::from("as installed"));
        }
        let beside = || -> anyhow::Result<PathBuf> {
            let own = std::env::current_exe().context("this program")?;
            let dir = own.parent().context("this program's directory")?;
            let candidates = [dir.join("../release/lockgate"), dir.join("lockgate")];
            let found = candidates.into_iter().find(|candidate| candidate.exists());
            found.context(
                "no lockgate next to this program; run cargo build --release -p lockgate, or give --program",
            )
        };
        let program = self.program.clone().map_or_else(beside, Ok)?;
        program
            .canonicalize()
            .with_context(|| program.display().to_string())
    }

    fn write(&self, report: &Report) -> anyhow::Result<()> {
        let Some(dir) = &self.report else { return Ok(()) };
        std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        let json = serde_json::to_string_pretty(report).context("the report as JSON")?;
        let file = dir.join("report.json");
        std::fs::write(&file, json).with_context(|| file.display().to_string())?;
        println!("{}", file.display());
        let file = dir.join("report.html");
        std::fs::write(&file, html::page(report)).with_context(|| file.display().to_string())?;
        println!("{}", file.display());
        Ok(())
    }
}

/// Returns the planted bug of this process's environment for the nodes, so that the same command reproduces a
/// cell that failed with it.
fn planted() -> Vec<(String, String)> {
    const NAME: &str = "LOCKGATE_PLANTED";
    std::env::var(NAME)
        .map(|bug| (NAME.to_owned(), bug))
        .into_iter()
        .collect()
}
