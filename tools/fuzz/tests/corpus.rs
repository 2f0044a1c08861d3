//! Replays the collected inputs of the fuzz targets, and the first inputs.

use std::path::Path;

use decoder_fuzz::disk::{files, rot};
use decoder_fuzz::{command, doors, http, mutate, peer, redis, seeds, snapshot, wire};

/// Returns the collected inputs of a target.
fn corpus(target: &str) -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let files = std::fs::read_dir(&dir).expect("the corpora are part of the repository");
    let mut inputs: Vec<_> = files
        .map(|file| {
            let path = file.expect("its directory can be read").path();
            let bytes = std::fs::read(&path).expect("the file can be read");
            (path.display().to_string(), bytes)
        })
        .collect();
    inputs.sort_unstable();
    inputs
}

/// Replays `inputs` and checks that at least a third of them reach the code that `reaches` names. The others
/// cover errors. If an encoding changes, most inputs of a corpus cover nothing but errors, and this check
/// fails.
#[track_caller]
fn replay(inputs: Vec<(String, Vec<u8>)>, reaches: impl Fn(&[u8]) -> bool) {
    let reached = inputs.iter().filter(|(name, bytes)| {
        // Printed if the test fails.
        println!("{name}");
        reaches(bytes)
    });
    let (reached, all) = (reached.count(), inputs.len());
    assert!(
        all > 0 && 3 * reached >= all,
        "only {reached} of {all} inputs are decoded: tools/fuzz/README.md describes how to create new ones"
    );
}

fn named(inputs: Vec<Vec<u8>>) -> Vec<(String, Vec<u8>)> {
    let named = inputs.into_iter().enumerate();
    named
        .map(|(number, bytes)| (format!("seed {number}"), bytes))
        .collect()
}

#[test]
fn command_accepts_its_corpus() {
    replay(corpus("command"), |bytes| command::run(bytes) > 0);
}

#[test]
fn snapshot_accepts_its_corpus() {
    replay(corpus("snapshot"), snapshot::run);
}

#[test]
fn wire_accepts_its_corpus() {
    replay(corpus("wire"), |bytes| wire::run(bytes) > 0);
}

#[test]
fn redis_accepts_its_corpus() {
    replay(corpus("redis"), |bytes| redis::run(bytes) > 0);
}

#[test]
fn peer_accepts_its_corpus() {
    replay(corpus("peer"), |bytes| peer::run(bytes) > 0);
}

#[test]
fn log_accepts_its_corpus() {
    replay(corpus("log"), files::run);
}

/// Checks no share of opened directories: most damage is detected, which is the purpose of checksums.
#[test]
fn rot_accepts_its_corpus() {
    let inputs = corpus("rot");
    assert!(!inputs.is_empty());
    for (name, bytes) in inputs {
        println!("{name}");
        rot::run(&bytes);
    }
}

#[test]
fn http_accepts_its_corpus() {
    replay(corpus("http"), |bytes| http::run(bytes) > 0);
}

#[test]
fn peer_accepts_its_seeds() {
    let seeds = peer::seeds::streams();
    for (number, bytes) in seeds.iter().enumerate() {
        assert!(peer::run(bytes) > 0, "seed {number} is not a message: {bytes:?}");
    }
    // A changed message is seldom valid: this only checks that none causes a panic.
    changed(seeds, mutate::peer, |bytes| {
        peer::run(bytes);
        true
    });
}

#[test]
fn redis_accepts_its_seeds() {
    let seeds = redis::seeds();
    let whole = seeds.iter().filter(|bytes| redis::run(bytes) > 0).count();
    assert_eq!(whole, seeds.len() - 1, "one of them is too long an argument");
    changed(
        seeds,
        |data, size, _, mutate_bytes| mutate_bytes(data, size),
        |bytes| {
            redis::run(bytes);
            true
        },
    );
}

#[test]
fn log_accepts_its_seeds() {
    let seeds = files::inputs();
    assert!(seeds.iter().all(|bytes| files::run(bytes)));
    // Nearly every change is damage that the node must detect: this only checks that none causes a panic.
    changed(seeds, mutate::log, |bytes| {
        files::run(bytes);
        true
    });
}

#[test]
fn rot_accepts_its_seeds() {
    let seeds = rot::inputs();
    assert!(rot::run(&seeds[0]), "the files are undamaged");
    let noticed = seeds.iter().filter(|bytes| !rot::run(bytes)).count();
    assert!(
        2 * noticed > seeds.len(),
        "only {noticed} of {} damages were detected",
        seeds.len()
    );
    let mut rng = Rng(3);
    for _ in 0..RANDOM_ROT {
        let edits: Vec<u8> = (0..5 * (1 + rng.below(6)))
            .map(|_| rng.below(256) as u8)
            .collect();
        rot::run(&edits);
    }
}

#[test]
fn http_accepts_its_seeds() {
    let seeds = http::seeds::scripts();
    let understood = seeds.iter().filter(|bytes| http::run(bytes) > 0).count();
    // Some request missing items on purpose, to be rejected.
    assert!(
        4 * understood > 3 * seeds.len(),
        "only {understood} of {} scripts have a request that succeeds",
        seeds.len()
    );
}

#[test]
fn http_seeds_reach_leases_and_places_in_the_queue() {
    let succeeded = |named: &str| {
        let mut seeds = http::seeds::scripts().into_iter();
        let script = seeds.find(|script| String::from_utf8_lossy(script).contains(named));
        http::run(&script.expect("there is a script with this request"))
    };
    // All but the last request, which finds the lease ended.
    assert_eq!(succeeded("GET /v1/leases/{lease}"), 9);
    // All but the withdrawal, and the request for a contender that is gone.
    assert_eq!(succeeded("idempotency-key: q"), 7);
}

#[test]
fn doors_accepts_its_seeds() {
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
        "{worker} of {of_worker}: the worker has some permissions"
    );
    let (nobody, of_nobody) = understood("lg_none");
    // Requests open to everyone: the health of the node and the description of the API.
    assert!(
        8 * nobody < of_nobody * 2,
        "{nobody} of {of_nobody}: an invalid token has no permissions"
    );
}

#[test]
fn doors_accepts_its_corpus() {
    let inputs = corpus("doors");
    assert!(!inputs.is_empty());
    for (name, bytes) in inputs {
        println!("{name}");
        // Most requests are rejected, as required.
        doors::run(&bytes);
    }
}

#[test]
fn command_accepts_its_seeds() {
    let seeds = seeds::commands();
    assert!(seeds.iter().all(|bytes| command::run(bytes) > 0));
    replay(named(seeds), |bytes| command::run(bytes) > 0);
}

#[test]
fn snapshot_accepts_its_seeds() {
    let seeds = seeds::snapshots();
    assert!(seeds.iter().all(|bytes| snapshot::run(bytes)));
    replay(named(seeds), snapshot::run);
}

#[test]
fn wire_accepts_its_seeds() {
    replay(named(wire::seeds::streams()), |bytes| wire::run(bytes) > 0);
}

/// Tries random frames, too: frames are small and fast to decode.
#[test]
fn wire_accepts_random_frames() {
    let mut rng = Rng(1);
    for _ in 0..RANDOM_INPUTS {
        let body: Vec<u8> = (0..rng.below(64)).map(|_| rng.below(256) as u8).collect();
        wire::run(&body);
        wire::run(&wire::stream_of([&body.into()]));
    }
}

#[test]
fn wire_accepts_changed_frames() {
    changed(wire::seeds::streams(), mutate::wire, |bytes| wire::run(bytes) > 0);
}

/// Replays inputs that are mutated from others as a fuzzer would.
#[track_caller]
fn changed(
    seeds: Vec<Vec<u8>>,
    mutate: impl Fn(&mut [u8], usize, u32, &mut mutate::ByteMutator<'_>) -> usize,
    reaches: impl Fn(&[u8]) -> bool,
) {
    let mut rng = Rng(2);
    let mut inputs = Vec::new();
    for seed in seeds {
        for _ in 0..CHANGED_INPUTS {
            let (mut data, mut size) = (seed.clone(), seed.len());
            data.resize(2 * seed.len() + 64, 0);
            for _ in 0..=rng.below(MOST_CHANGES) {
                let number = rng.below(u32::MAX as usize) as u32;
                size = mutate(&mut data, size, number, &mut |data, size| {
                    scramble(data, size, &mut rng)
                });
            }
            data.truncate(size);
            inputs.push(data);
        }
    }
    replay(named(inputs), reaches);
}

/// Number of random inputs: enough to exercise the checks in about a second. The fuzzer tries more.
const RANDOM_INPUTS: usize = 20_000;

/// Number of random inputs of damage to files.
const RANDOM_ROT: usize = 2_000;

/// Number of changed inputs made from each seed.
const CHANGED_INPUTS: usize = 40;

/// Maximum number of successive changes to one input. After more, hardly any of it decodes.
const MOST_CHANGES: usize = 4;

/// Pseudorandom numbers from a seed (xorshift), so that a failure is reproducible.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Changes a byte or a length of four bytes, or adds or removes some bytes, as a fuzzer does without
/// knowledge of the format.
fn scramble(data: &mut [u8], size: usize, rng: &mut Rng) -> usize {
    if size == 0 {
        return data.len().min(8);
    }
    let at = rng.below(size);
    match rng.below(4) {
        0 => data[at] = rng.below(256) as u8,
        1 => {
            let values = [u32::MAX, 0, 1, i32::MAX as u32, 1 << 31, 256];
            let bytes = values[rng.below(values.len())].to_be_bytes();
            let end = size.min(at + bytes.len());
            data[at..end].copy_from_slice(&bytes[..end - at]);
        }
        2 => {
            let grown = data.len().min(size + rng.below(8));
            data.copy_within(at..size, at + grown - size);
            return grown;
        }
        _ => return size - rng.below(size.min(8)),
    }
    size
}
