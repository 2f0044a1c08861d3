//! A short version of the long runs of `zookeeper-parity`. Without a ZooKeeper on the machine each test
//! prints a message and passes.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of a test")]

mod clock;

use std::fs;
use std::io::Write;
use std::path::Path;

use zookeeper_parity::arena::{Arena, Counterpart};
use zookeeper_parity::differences::{self, SECTIONS};
use zookeeper_parity::generate;
use zookeeper_parity::program::Program;
use zookeeper_parity::server::Installation;

/// Number of programs, for a few seconds.
const PROGRAMS: u64 = 200;

/// Number of programs over real connections on both sides: most of the time is ZooKeeper's.
const PROGRAMS_OVER_CONNECTIONS: u64 = 100;

/// Number of programs that are compared with themselves: enough to find faults of the traces.
const REPEATED: u64 = 20;

#[test]
fn both_sides_produce_the_same_trace() {
    let Some(mut arena) = arena("both_sides_produce_the_same_trace") else {
        return;
    };
    for seed in 1..=PROGRAMS {
        if let Some(difference) = arena
            .examine(&generate::program(seed), Counterpart::Lockgate)
            .unwrap()
        {
            panic!("{}", arena.shrink(difference, Counterpart::Lockgate).unwrap());
        }
    }
    // A comparison of programs without effects would prove nothing.
    let tally = arena.tally();
    let enough = |kind, outcome, least| {
        let met = tally.met(kind, outcome);
        assert!(
            met >= least,
            "{kind}: {outcome} happened only {met} times\n{tally}"
        );
    };
    enough("create", "ok", 300);
    enough("create", "NodeExists", 50);
    enough("create", "NoAuth", 5);
    enough("create", "QuotaExceeded", 3);
    enough("multi", "ok", 100);
    enough("multi", "failed", 50);
    enough("setData", "ok", 100);
    enough("delete", "ok", 80);
    enough("delete", "NotEmpty", 5);
    enough("setWatches2", "ok", 50);
    enough("removeWatches", "ok", 5);
    assert!(tally.notifications() >= 400, "too few notifications\n{tally}");

    // ZooKeeper against itself: a difference here is not caused by a server.
    for seed in 1..=REPEATED {
        if let Some(difference) = arena
            .examine(&generate::program(seed), Counterpart::Itself)
            .unwrap()
        {
            panic!("ZooKeeper differs from itself\n{difference}");
        }
    }
    // Each listed difference must still exist.
    for known in SECTIONS.iter().flat_map(|section| section.known) {
        if let Some(steps) = known.example {
            let example = Program {
                seed: 0,
                sessions: 2,
                steps: steps(),
            };
            let difference = arena.examine(&example, Counterpart::Lockgate).unwrap();
            assert!(difference.is_some(), "{} is no longer a difference", known.name);
        }
    }
}

#[test]
fn front_end_produces_the_same_trace() {
    let Some(mut arena) = arena("front_end_produces_the_same_trace") else {
        return;
    };
    for seed in 1..=PROGRAMS_OVER_CONNECTIONS {
        let program = generate::program(seed);
        if let Some(difference) = arena.examine(&program, Counterpart::Front).unwrap() {
            panic!("{}", arena.shrink(difference, Counterpart::Front).unwrap());
        }
    }
}

#[test]
fn both_sides_have_the_same_reserved_tree() {
    let Some(arena) = arena("both_sides_have_the_same_reserved_tree") else {
        return;
    };
    if let Some(difference) = arena.examine_reserved().unwrap() {
        panic!("{difference}");
    }
}

#[test]
fn seed_determines_the_program() {
    for seed in 0..100 {
        assert_eq!(generate::program(seed), generate::program(seed));
    }
    assert_ne!(generate::program(1).steps, generate::program(2).steps);
}

#[test]
fn page_of_differences_is_up_to_date() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/zookeeper-differences.md");
    let advice = "write it with `cargo run -p zookeeper-parity -- --differences > docs/reference/zookeeper-differences.md`";
    assert_eq!(
        fs::read_to_string(page).unwrap(),
        differences::markdown(),
        "{advice}"
    );
}

fn arena(test: &str) -> Option<Arena> {
    Some(Arena::start(&installation(test)?).unwrap())
}

/// Returns the installation; without one prints a message past the test harness, so that a skipped test is
/// visible.
fn installation(test: &str) -> Option<Installation> {
    let installation = Installation::find();
    if installation.is_none() {
        let notice = format!("\nSKIPPED {test}: ZooKeeper is not installed (apt-get install zookeeper)\n");
        std::io::stderr().write_all(notice.as_bytes()).unwrap();
    }
    installation
}
