//! Replays the inputs that fuzzing has found to be worth keeping, and those that it begins with.

use std::path::Path;

use decoder_fuzz::{command, mutate, seeds, snapshot, wire};

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
fn the_corpus_of_frames() {
    replay(corpus("wire"), |bytes| wire::run(bytes) > 0);
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

#[test]
fn the_seeds_of_frames() {
    replay(named(wire::seeds::streams()), |bytes| wire::run(bytes) > 0);
}

/// Frames are small and quickly tried, so plain tests try some that nobody has kept.
#[test]
fn frames_of_random_bytes() {
    let mut dice = Dice(1);
    for _ in 0..RANDOM_INPUTS {
        let body: Vec<u8> = (0..dice.below(64)).map(|_| dice.below(256) as u8).collect();
        wire::run(&body);
        wire::run(&wire::stream_of([&body.into()]));
    }
}

#[test]
fn frames_that_were_changed() {
    let mut dice = Dice(2);
    let mut inputs = Vec::new();
    for seed in wire::seeds::streams() {
        for _ in 0..CHANGED_INPUTS {
            let (mut data, mut size) = (seed.clone(), seed.len());
            data.resize(4 * seed.len(), 0);
            for _ in 0..=dice.below(MOST_CHANGES) {
                let number = dice.below(u32::MAX as usize) as u32;
                size = mutate::wire(&mut data, size, number, &mut |data, size| {
                    scramble(data, size, &mut dice)
                });
            }
            data.truncate(size);
            inputs.push(data);
        }
    }
    replay(named(inputs), |bytes| wire::run(bytes) > 0);
}

/// Enough to see that the checks hold at all, in about a second; for more there is the fuzzer.
const RANDOM_INPUTS: usize = 20_000;

/// So many changed inputs are made of each seed.
const CHANGED_INPUTS: usize = 40;

/// So many changes are made to one of them, one upon the other. After more there is little left that is understood.
const MOST_CHANGES: usize = 4;

/// Numbers that follow from a seed (xorshift), so that a failure comes again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Changes a byte or a length of four, adds some bytes, or takes some away: what a fuzzer does that knows nothing.
fn scramble(data: &mut [u8], size: usize, dice: &mut Dice) -> usize {
    if size == 0 {
        return data.len().min(8);
    }
    let at = dice.below(size);
    match dice.below(4) {
        0 => data[at] = dice.below(256) as u8,
        1 => {
            let values = [u32::MAX, 0, 1, i32::MAX as u32, 1 << 31, 256];
            let bytes = values[dice.below(values.len())].to_be_bytes();
            let end = size.min(at + bytes.len());
            data[at..end].copy_from_slice(&bytes[..end - at]);
        }
        2 => {
            let grown = data.len().min(size + dice.below(8));
            data.copy_within(at..size, at + grown - size);
            return grown;
        }
        _ => return size - dice.below(size.min(8)),
    }
    size
}
