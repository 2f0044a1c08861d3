//! The command line: counts paths, checks the counts against those that are noted, notes new ones.

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

/// Notes what is counted in place of checking it, as golden files are renewed.
const UPDATE: &str = "UPDATE_HOT_PATHS";

/// Counts the instructions of Lockgate's hot paths.
#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Count all paths and hold them against what is noted; with UPDATE_HOT_PATHS=1 note them.
    Check,
    /// Count these paths, or all whose names begin so.
    Count {
        /// Names, or their beginnings.
        #[arg(required = true)]
        names: Vec<String>,
    },
    /// Tell the paths.
    List,
    /// Go down a path once, without counting: what valgrind is asked to run.
    Run {
        /// Its name.
        name: String,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    match Args::parse().what {
        What::Check => check(),
        What::Count { names } => {
            let asked = |path: &&HotPath| names.iter().any(|name| path.name.starts_with(name.as_str()));
            let some: Vec<&HotPath> = paths::all().iter().filter(asked).collect();
            if some.is_empty() {
                bail!("there is no such path: see `hot-paths list`");
            }
            for (path, count) in count(&some)? {
                println!("{}\t{count}", path.name);
            }
            Ok(ExitCode::SUCCESS)
        }
        What::List => {
            for path in paths::all() {
                println!("{:<24} {}", path.name, path.about);
            }
            Ok(ExitCode::SUCCESS)
        }
        What::Run { name } => {
            let path = paths::find(&name).with_context(|| format!("there is no path {name}"))?;
            paths::with_seed();
            path.run();
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn check() -> anyhow::Result<ExitCode> {
    // The counts of another profile have nothing to do with those that are noted.
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
        println!("noted {} counts in {}", lines.len(), file.display());
        return Ok(ExitCode::SUCCESS);
    }
    let noted = match std::fs::read_to_string(&file) {
        Ok(text) => expected::parse(&text).with_context(|| format!("{}", file.display()))?,
        // Instructions of one architecture say nothing about another one's.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            println!(
                "skipped: nothing is noted for {}; {UPDATE}=1 does",
                std::env::consts::ARCH
            );
            return Ok(ExitCode::SUCCESS);
        }
        Err(error) => return Err(error).with_context(|| format!("{}", file.display())),
    };
    let is_well = report(&counted, &noted);
    println!("{} paths, {:.0} s", counted.len(), began.elapsed().as_secs_f64());
    Ok(match is_well {
        true => ExitCode::SUCCESS,
        false => {
            eprintln!(
                "A path takes over {TOLERANCE_PERCENT} % more or less instructions than is noted. What is slower by mistake is to \
                 be corrected (`hot-paths count NAME`; callgrind_annotate tells where they go); what is meant is noted \
                 with {UPDATE}=1, and the change of the file tells it to whoever reviews it."
            );
            ExitCode::FAILURE
        }
    })
}

const HEAD: &str =
    "Instructions of one operation of each hot path: `cargo run --profile checked -p hot-paths -- check`.
Written with UPDATE_HOT_PATHS=1; see docs/internals/testing.md.";

/// Tells every count, and whether all is as noted.
fn report(counted: &[(&HotPath, u64)], noted: &Counts) -> bool {
    let mut is_well = true;
    println!("{:<24} {:>12} {:>12} {:>8}", "", "instructions", "noted", "");
    for (path, count) in counted {
        let before = noted.get(path.name).copied();
        let verdict = Verdict::of(*count, before);
        is_well &= verdict == Verdict::Same;
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
    for name in noted.keys().filter(|name| paths::find(name).is_none()) {
        println!("{name}: is noted, and there is no such path");
        is_well = false;
    }
    is_well
}

/// Counts paths, as many at a time as there are processors: what one takes does not depend on the others.
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
