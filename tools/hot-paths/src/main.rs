//! The command line: counts paths, checks the counts against the recorded ones, and records new ones.

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use hot_paths::expected::{self, Counts, TOLERANCE_PERCENT, Verdict};
use hot_paths::paths::{self, HotPath};
use hot_paths::valgrind;

/// The cargo profile whose builds are counted: optimised, with assertions, and shared with the simulation.
const PROFILE: &str = "checked";

/// Environment variable that records the counts in place of checking them, as for golden files.
const UPDATE: &str = "UPDATE_HOT_PATHS";

/// Counts the instructions of Lockgate's hot paths.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Count all paths and compare them with the recorded counts; with UPDATE_HOT_PATHS=1, record them.
    Check,
    /// Count these paths, or all paths with such a prefix.
    Count {
        /// Names or prefixes.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// List the paths.
    List,
    /// Run a path once without counting: the command that valgrind runs.
    Run {
        /// Name of the path.
        name: String,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().action {
        Action::Check => check(),
        Action::Count { names } => {
            let is_named = |path: &&HotPath| names.iter().any(|name| path.name.starts_with(name.as_str()));
            let some: Vec<&HotPath> = paths::all().iter().filter(is_named).collect();
            if some.is_empty() {
                bail!("no path has such a name: see `hot-paths list`");
            }
            for (path, count) in count(&some)? {
                println!("{}\t{count}", path.name);
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::List => {
            for path in paths::all() {
                println!("{:<24} {}", path.name, path.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        Action::Run { name } => {
            let path = paths::find(&name).with_context(|| format!("there is no path {name}"))?;
            paths::seed_random_numbers();
            path.run();
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check() -> anyhow::Result<ExitCode> {
    // Counts of another profile cannot be compared with the recorded ones.
    let own = std::env::current_exe().context("the path of this program")?;
    if !own.parent().is_some_and(|directory| directory.ends_with(PROFILE)) {
        bail!("this is a build of another profile; run cargo run --profile {PROFILE} -p hot-paths -- check");
    }
    let began = Instant::now();
    let all: Vec<&HotPath> = paths::all().iter().collect();
    let counted = count(&all)?;
    let file = expected::file();
    if std::env::var_os(UPDATE).is_some_and(|value| value == "1") {
        let lines: Vec<_> = counted.iter().map(|(path, count)| (path.name, *count)).collect();
        std::fs::write(&file, expected::render(HEAD, &lines))
            .with_context(|| format!("writing {}", file.display()))?;
        println!("recorded {} counts in {}", lines.len(), file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let recorded = match std::fs::read_to_string(&file) {
        Ok(text) => expected::parse(&text).with_context(|| format!("{}", file.display()))?,
        // Counts of one architecture cannot be compared with those of another.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!(
                "skipped: no counts are recorded for {}; {UPDATE}=1 records them",
                std::env::consts::ARCH
            );
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error).with_context(|| format!("{}", file.display())),
    };
    let all_match = report(&counted, &recorded);
    println!("{} paths, {:.0} s", counted.len(), began.elapsed().as_secs_f64());
    Ok(match all_match {
        true => ExitCode::SUCCESS,
        false => {
            eprintln!(
                "A path takes over {TOLERANCE_PERCENT} % more or less instructions than recorded. Correct an unintended slowdown \
                 (`hot-paths count NAME`; callgrind_annotate shows where they are). Record an intended change with {UPDATE}=1: \
                 reviewers then see it in the file."
            );
            ExitCode::FAILURE
        }
    })
}

const HEAD: &str =
    "Instructions of one operation of each hot path: `cargo run --profile checked -p hot-paths -- check`.
Written with UPDATE_HOT_PATHS=1; see docs/internals/testing.md.";

/// Prints every count, and returns whether all are as recorded.
fn report(counted: &[(&HotPath, u64)], recorded: &Counts) -> bool {
    let mut all_match = true;
    println!("{:<24} {:>12} {:>12} {:>8}", "", "instructions", "recorded", "");
    for (path, count) in counted {
        let before = recorded.get(path.name).copied();
        let verdict = Verdict::of(*count, before);
        all_match &= verdict == Verdict::Same;
        let (shown, change) = match before {
            Some(before) => {
                let percent = (*count as f64 / before as f64 - 1.0) * 100.0;
                (before.to_string(), format!("{percent:+.1} %"))
            }
            None => (String::new(), String::new()),
        };
        let line = format!(
            "{:<24} {count:>12} {shown:>12} {change:>8}  {}",
            path.name,
            verdict.words()
        );
        println!("{}", line.trim_end());
    }
    for name in recorded.keys().filter(|name| paths::find(name).is_none()) {
        println!("{name}: is recorded, but no path has this name");
        all_match = false;
    }
    all_match
}

/// Counts paths, as many at once as there are processors: the count of one does not depend on the others.
fn count<'a>(some: &[&'a HotPath]) -> anyhow::Result<Vec<(&'a HotPath, u64)>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let mut counted = std::thread::scope(|scope| {
        let work = || {
            let mut done = Vec::new();
            while let Some((at, path)) = take(&next, some) {
                done.push((at, *path, valgrind::count(path.name)?.div_ceil(path.operations)));
            }
            anyhow::Ok(done)
        };
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let done = workers
            .into_iter()
            .map(|worker| worker.join().expect("a worker does not panic"));
        done.collect::<anyhow::Result<Vec<_>>>().map(|done| done.concat())
    })?;
    counted.sort_by_key(|(at, ..)| *at);
    Ok(counted
        .into_iter()
        .map(|(_, path, count)| (path, count))
        .collect())
}

fn take<'a, T>(next: &AtomicUsize, of: &'a [T]) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    of.get(at).map(|item| (at, item))
}
