//! The command line, and what each part of it leads to.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context, bail, ensure};
use clap::Parser;

use crate::cell::Spec;
use crate::inside::Isolation;
use crate::leftovers;
use crate::matrix::{self, Matrix, Share};
use crate::mutants::{self, Found};
use crate::report::{CellReport, Report, html, recovery};
use crate::supervise::Supervisor;
use crate::systems::System;
use crate::terminal;
use crate::{nemesis, workloads};

/// What is asked for while recoveries are measured: many short calls at all nodes.
const RECOVERY_WORKLOAD: &str = "register";

/// One fault takes no longer than this, with the calm before it.
const RECOVERY_SECONDS: u64 = 30;

/// The program, what was done, the cells, and the bugs that were looked for.
type Done = (PathBuf, String, Vec<CellReport>, Vec<Found>);

/// Runs clusters of real processes under faults, and checks what their clients saw.
#[derive(Parser, Debug)]
pub struct Options {
    /// What clients do
    #[arg(long, requires = "nemesis")]
    workload: Option<String>,
    /// What happens to the nodes
    #[arg(long, requires = "workload")]
    nemesis: Option<String>,
    /// For how long there are faults
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// For how long there are none before
    #[arg(long, default_value_t = 3.0)]
    quiet_seconds: f64,
    /// What every random choice is drawn from [default: random]
    #[arg(long)]
    seed: Option<u64>,
    /// What is under test
    #[arg(long, value_enum, default_value_t = System::Lockgate)]
    system: System,
    /// Fewer successful calls per second before the faults make a run invalid [default: the workload's own, by the number of cells at a time]
    #[arg(long)]
    least_rate: Option<f64>,
    /// The program under test [default: target/release/lockgate, else the one beside this program]
    #[arg(long)]
    program: Option<PathBuf>,
    /// Many cells: see docs/internals/testing.md
    #[arg(long, value_enum)]
    matrix: Option<Matrix>,
    /// So many cells at a time [default: 2 for the gate, else 1]
    #[arg(long)]
    side_by_side: Option<usize>,
    /// Measure how long it takes until calls succeed again, after this nemesis
    #[arg(long)]
    recovery: Option<String>,
    /// So many times
    #[arg(long, default_value_t = 20, requires = "recovery")]
    repeat: usize,
    /// Plant each bug that there is on purpose, and see which cell catches it
    #[arg(long)]
    mutants: bool,
    /// Only this one
    #[arg(long, requires = "mutants")]
    mutant: Option<u8>,
    /// Only cells whose name (`exclusive x kill-leader`) has this in it
    #[arg(long)]
    only: Option<String>,
    /// Only a share of the cells: of each M one, the Nth (N may be larger than M, as the number of a day is)
    #[arg(long, value_name = "N/M")]
    share: Option<Share>,
    /// Show all workloads and nemeses, and what can be run here
    #[arg(long)]
    list: bool,
    /// Write report.json and report.html here
    #[arg(long)]
    report: Option<PathBuf>,
    /// Where runs have their files [default: the directory for temporary files]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Use no namespaces, as on a machine that has none
    #[arg(long)]
    no_namespaces: bool,
    /// Keep the files of cells that have passed, too
    #[arg(long)]
    keep: bool,
    /// Run the cell of this file, in this process: what this program starts itself with
    #[arg(long, hide = true)]
    pub inside: Option<PathBuf>,
}

impl Options {
    /// Where runs have their files.
    pub fn dir(&self) -> PathBuf {
        self.dir.clone().unwrap_or_else(std::env::temp_dir)
    }

    /// Does what was asked for. Says whether all went well.
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
        self.tell_all(&report);
        self.write(&report)?;
        Ok(report.is_fine())
    }

    async fn run_cells(&self, supervisor: &Supervisor, seed: u64) -> anyhow::Result<Done> {
        let program = self.program()?;
        let (title, cells) = self.cells(&program, seed)?;
        ensure!(!cells.is_empty(), "no cell has that in its name");
        let cells = matrix::run(supervisor, cells, self.side_by_side(), &terminal::tell).await;
        Ok((program, title, cells, Vec::new()))
    }

    /// Looks for every bug that can be planted, or for one.
    async fn search(&self, supervisor: &Supervisor, seed: u64) -> anyhow::Result<Done> {
        let program = match &self.program {
            Some(_) => self.program()?,
            None => mutants::build().await?,
        };
        let cells = std::cell::RefCell::new(Vec::new());
        let note = |cell: &CellReport| {
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
                found.push(mutants::search(mutant, supervisor, &spec, &note).await?);
            }
        }
        ensure!(!found.is_empty(), "there is no such bug");
        let cells = cells.take();
        Ok((program, "planted bugs".to_owned(), cells, found))
    }

    fn tell_all(&self, report: &Report) {
        if self.recovery.is_some() {
            print!("{}", recovery::table(&report.recoveries));
        }
        match report.mutants.is_empty() {
            true => terminal::summary(report),
            false => print!("{}", mutants::table(&report.mutants)),
        }
    }

    /// How many cells at a time. They share the machine, so each is asked for that much less.
    fn side_by_side(&self) -> usize {
        let usually = if self.matrix == Some(Matrix::Gate) { 2 } else { 1 };
        self.side_by_side.unwrap_or(usually).max(1)
    }

    /// The cells that were asked for, and what that is called.
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
            // The first one has the seed itself, so that a single cell is what was asked for.
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
        let kind = workloads::named(&workload).with_context(|| format!("there is no workload {workload}"))?;
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

    /// The program under test.
    fn program(&self) -> anyhow::Result<PathBuf> {
        if !self.system.is_lockgate() {
            return Ok(PathBuf::from("as installed"));
        }
        let beside = || -> anyhow::Result<PathBuf> {
            let own = std::env::current_exe().context("this program")?;
            let dir = own.parent().context("it is in a directory")?;
            let places = [dir.join("../release/lockgate"), dir.join("lockgate")];
            let found = places.into_iter().find(|place| place.exists());
            found.context(
                "there is no lockgate beside this program: cargo build --release -p lockgate, or --program",
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

/// The planted bug of this environment goes to the nodes: a cell that failed with one is reproduced by the same command.
fn planted() -> Vec<(String, String)> {
    const NAME: &str = "LOCKGATE_PLANTED";
    std::env::var(NAME)
        .map(|bug| (NAME.to_owned(), bug))
        .into_iter()
        .collect()
}
