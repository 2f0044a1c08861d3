//! Replays the inputs that fuzzing has found to be worth keeping, and those that it begins with.

use std::path::Path;

use decoder_fuzz::disk::{files, rot};
use decoder_fuzz::{command, doors, http, mutate, peer, seeds, snapshot, wire};

/// The kept inputs of a target.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
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
        "only {reached} of {all} inputs are understood: tools/fuzz/README.md says how to make new ones"
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
fn the_corpus_of_peers() {
    replay(corpus("peer"), |bytes| peer::run(bytes) > 0);
}

#[test]
fn the_corpus_of_logs() {
    replay(corpus("log"), files::run);
}

/// Most damage is noticed, which is what it is for.
#[test]
fn the_corpus_of_rot() {
    let inputs = corpus("rot");
    assert!(!inputs.is_empty());
    for (name, bytes) in inputs {
        println!("{name}");
        rot::run(&bytes);
    }
}

#[test]
fn the_corpus_of_requests() {
    replay(corpus("http"), |bytes| http::run(bytes) > 0);
}

#[test]
fn the_seeds_of_peers() {
    let seeds = peer::seeds::streams();
    for (number, bytes) in seeds.iter().enumerate() {
        assert!(peer::run(bytes) > 0, "seed {number} is no message: {bytes:?}");
    }
    // A message that is changed is mostly none: that none ends otherwise is all that is asked.
    changed(seeds, mutate::peer, |bytes| {
        peer::run(bytes);
        true
    });
}

#[test]
fn the_seeds_of_logs() {
    let seeds = files::inputs();
    assert!(seeds.iter().all(|bytes| files::run(bytes)));
    // Nearly every change is damage, and is to be noticed: that none ends otherwise is all that is asked.
    changed(seeds, mutate::log, |bytes| {
        files::run(bytes);
        true
    });
}

#[test]
fn the_seeds_of_rot() {
    let seeds = rot::inputs();
    assert!(rot::run(&seeds[0]), "nothing is damaged");
    let noticed = seeds.iter().filter(|bytes| !rot::run(bytes)).count();
    assert!(
        2 * noticed > seeds.len(),
        "{noticed} of {} were noticed",
        seeds.len()
    );
    let mut dice = Dice(3);
    for _ in 0..RANDOM_ROT {
        let edits: Vec<u8> = (0..5 * (1 + dice.below(6)))
            .map(|_| dice.below(256) as u8)
            .collect();
        rot::run(&edits);
    }
}

#[test]
fn the_seeds_of_requests() {
    let seeds = http::seeds::scripts();
    let understood = seeds.iter().filter(|bytes| http::run(bytes) > 0).count();
    // Some ask for what is not there, in order to be refused.
    assert!(
        4 * understood > 3 * seeds.len(),
        "{understood} of {}",
        seeds.len()
    );
}

#[test]
fn the_seeds_of_callers_who_may_do_little() {
    let understood = |named: &str| {
        let seeds = doors::seeds::scripts();
        let of_caller: Vec<_> = seeds
            .iter()
            .filter(|bytes| String::from_utf8_lossy(bytes).contains(named))
            .collect();
        let understood = of_caller.iter().filter(|bytes| doors::run(bytes) > 0).count();
        (understood, of_caller.len())
    };
    let (worker, of_worker) = understood("{worker}");
    assert!(
        3 * worker > of_worker,
        "{worker} of {of_worker}: it may do some of it"
    );
    let (nobody, of_nobody) = understood("lg_none");
    // What everybody may ask: whether the node is alive, and what the API is.
    assert!(
        8 * nobody < of_nobody * 2,
        "{nobody} of {of_nobody}: a token that does not count"
    );
}

#[test]
fn the_corpus_of_callers_who_may_do_little() {
    let inputs = corpus("doors");
    assert!(!inputs.is_empty());
    for (name, bytes) in inputs {
        println!("{name}");
        // Most of them are refused, as they have to be.
        doors::run(&bytes);
    }
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
    changed(wire::seeds::streams(), mutate::wire, |bytes| wire::run(bytes) > 0);
}

/// Replays inputs that are made of others as a fuzzer would make them.
#[track_caller]
fn changed(
    seeds: Vec<Vec<u8>>,
    mutate: impl Fn(&mut [u8], usize, u32, &mut mutate::Blind<'_>) -> usize,
    reaches: impl Fn(&[u8]) -> bool,
) {
    let mut dice = Dice(2);
    let mut inputs = Vec::new();
    for seed in seeds {
        for _ in 0..CHANGED_INPUTS {
            let (mut data, mut size) = (seed.clone(), seed.len());
            data.resize(2 * seed.len() + 64, 0);
            for _ in 0..=dice.below(MOST_CHANGES) {
                let number = dice.below(u32::MAX as usize) as u32;
                size = mutate(&mut data, size, number, &mut |data, size| {
                    scramble(data, size, &mut dice)
                });
            }
            data.truncate(size);
            inputs.push(data);
        }
    }
    replay(named(inputs), reaches);
}

/// Enough to see that the checks hold at all, in about a second; for more there is the fuzzer.
const RANDOM_INPUTS: usize = 20_000;

/// The same, of damage to files.
const RANDOM_ROT: usize = 2_000;

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
