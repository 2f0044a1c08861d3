//! Replays the inputs that fuzzing has found to be worth keeping, and those that it begins with.

use std::path::Path;

use decoder_fuzz::{command, seeds, snapshot};

/// The kept inputs of a target.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let files = std::fs::read_dir(&dir).expect("the corpora are part of the repository");
    let mut inputs: Vec<_> = files
        .map(|file| {
            let path = file.expect("its directory can be read").path();
            let bytes = std::fs::read(&path).expect("it can be read");
            (path.display().to_string(), bytes)
        })
        .collect();
    inputs.sort_unstable();
    inputs
}

/// Replays `inputs` and demands that a good part of them still gets to where `reaches` says: others are there for the errors that
/// they end with, but an encoding that changed would leave a corpus behind that tries nothing else.
#[track_caller]
fn replay(inputs: Vec<(String, Vec<u8>)>, reaches: impl Fn(&[u8]) -> bool) {
    let reached = inputs.iter().filter(|(name, bytes)| {
        // Shown if the test fails.
        println!("{name}");
        reaches(bytes)
    });
    let (reached, all) = (reached.count(), inputs.len());
    assert!(
        all > 0 && 3 * reached >= all,
        "only {reached} of {all} inputs are understood: fuzz/README.md says how to make new ones"
    );
}

fn named(inputs: Vec<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    let named = inputs.into_iter().enumerate();
    named
        .map(|(number, bytes)| (format!("seed {number}"), bytes))
        .collect()
}

#[test]
fn the_corpus_of_commands() {
    replay(corpus("command"), |bytes| command::run(bytes) > 0);
}

#[test]
fn the_corpus_of_snapshots() {
    replay(corpus("snapshot"), snapshot::run);
}

#[test]
fn the_seeds_of_commands() {
    let seeds = seeds::commands();
    assert!(seeds.iter().all(|bytes| command::run(bytes) > 0));
    replay(named(seeds), |bytes| command::run(bytes) > 0);
}

#[test]
fn the_seeds_of_snapshots() {
    let seeds = seeds::snapshots();
    assert!(seeds.iter().all(|bytes| snapshot::run(bytes)));
    replay(named(seeds), snapshot::run);
}
