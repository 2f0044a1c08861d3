//! Expectation of the tests: every program prints its expected output. Independent of the execution of the
//! programs and of the servers.

use std::env;
use std::fs;
use std::time::Instant;

use crate::ensemble::Ensemble;
use crate::programs::{ALL, Program};
use crate::runner;

/// Environment variable that makes a missing prerequisite an error.
const REQUIRED_VARIABLE: &str = "LOCKGATE_ZOOKEEPER_CLIENTS";

/// Environment variable with a part of the names of the programs to run.
const ONLY_VARIABLE: &str = "LOCKGATE_ZOOKEEPER_PROGRAMS";

/// Environment variable that selects a share of each test's programs: `20782/3` runs every third one, and
/// `20783/3` the ones before those.
const SHARE_VARIABLE: &str = "LOCKGATE_ZOOKEEPER_SHARE";

/// Environment variable that makes the test of ZooKeeper write the expected files.
const WRITE_VARIABLE: &str = "LOCKGATE_WRITE_EXPECTED";

/// Starts an ensemble and runs these programs against it, one after the other. All of them run, even after a
/// failure.
pub async fn check_programs(
    start: impl AsyncFnOnce() -> Result<Ensemble, String>,
    chosen: impl Fn(&Program) -> bool,
) {
    let only = env::var(ONLY_VARIABLE).unwrap_or_default();
    let (share, of) = share();
    let mut commands = Vec::new();
    for (_, program) in ALL
        .iter()
        .filter(|program| chosen(program) && program.title().contains(&only))
        .enumerate()
        .filter(|(number, _)| (number + share) % of == 0)
    {
        match program.command() {
            Ok(command) => commands.push((program, command)),
            Err(missing) => skip(&program.title(), &missing),
        }
    }
    if commands.is_empty() {
        return;
    }
    let mut ensemble = match start().await {
        Ok(ensemble) => ensemble,
        Err(missing) => return skip("the servers", &missing),
    };
    let mut failures = Vec::new();
    for (program, command) in commands {
        let begin = Instant::now();
        // While the program starts, the servers that the previous one has killed start again.
        ensemble.start_all();
        if !program.reads_more_output() {
            ensemble.wait_all().await;
        }
        let outcome = match runner::run(program, command, &mut ensemble).await {
            Ok(results) => compare(program, &results, &ensemble),
            Err(failure) => Err(format!("{failure}\n{}", ensemble.logs())),
        };
        println!("{}: {:.1} s", program.title(), begin.elapsed().as_secs_f64());
        if let Err(failure) = outcome {
            failures.push(format!("{}: {failure}", program.title()));
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

/// Returns the offset and the divisor that select the programs of a test.
fn share() -> (usize, usize) {
    let Ok(text) = env::var(SHARE_VARIABLE) else {
        return (0, 1);
    };
    let parts = text
        .split_once('/')
        .and_then(|(share, of)| Some((share.parse().ok()?, of.parse().ok()?)));
    match parts {
        Some((share, of)) if of > 0 => (share, of),
        _ => panic!("{SHARE_VARIABLE} is {text:?}, but must be two numbers, as 20782/3"),
    }
}

/// Runs these programs at the same time against three Lockgate nodes; all of them must print `says`.
pub async fn check_programs_together(programs: &[Program], says: &str) {
    let mut commands = Vec::new();
    for program in programs {
        match program.command() {
            Ok(command) => commands.push((program, command)),
            Err(missing) => return skip(&program.title(), &missing),
        }
    }
    let ensemble = match Ensemble::lockgate().await {
        Ok(ensemble) => ensemble,
        Err(missing) => return skip("the servers", &missing),
    };
    let outcomes = runner::run_together(commands, &ensemble).await;
    for (program, outcome) in programs.iter().zip(outcomes) {
        match outcome {
            Ok(results) => assert_eq!(results.trim_end(), says, "{}", program.title()),
            Err(failure) => panic!("{}: {failure}\n{}", program.title(), ensemble.logs()),
        }
    }
}

pub fn skip(what: &str, missing: &str) {
    let required = env::var(REQUIRED_VARIABLE).is_ok_and(|value| value == "required");
    assert!(!required, "{what} cannot run: {missing}");
    println!("skipped: {what} cannot run on this machine: {missing}");
}

fn compare(program: &Program, results: &str, ensemble: &Ensemble) -> Result<(), String> {
    let file = program.expected_file();
    if env::var_os(WRITE_VARIABLE).is_some() && matches!(ensemble, Ensemble::ZooKeeper(_)) {
        fs::write(&file, results).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let expected = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    if results == expected {
        return Ok(());
    }
    let differing = expected
        .lines()
        .map(Some)
        .chain(std::iter::repeat(None))
        .zip(results.lines().map(Some).chain(std::iter::repeat(None)))
        .enumerate()
        .find(|(_, (expected, found))| expected != found);
    let (number, (expected, found)) = differing.expect("the texts differ");
    Err(format!(
        "line {} differs from the expected one\n  expected: {}\n  found:    {}\n--- the program printed:\n{results}",
        number + 1,
        expected.unwrap_or("nothing more"),
        found.unwrap_or("nothing more"),
    ))
}
