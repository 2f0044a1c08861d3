//! Random programs with a crash at every moment.

use raft_log::sim_disk::{IgnoredCall, Random, SimDisk};

use crate::node::{History, Node, run};

/// Number of calls in a program.
const CALLS: usize = 60;
/// Default number of programs (`STORAGE_PROGRAMS`); each crashes at hundreds of moments.
const PROGRAMS: u64 = 6;
/// Number of disks built per moment: nothing kept, everything kept, and random ones.
const DISKS_PER_CUT: u64 = 4;
/// Number of consecutive lives of a disk, each starting from the state that a crash left.
const LIVES: usize = 3;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

/// Runs a program, crashes it at every moment, and checks every resulting disk. Returns their number.
pub fn crash_everywhere(seed: u64, ignored: Option<IgnoredCall>) -> Result<usize, String> {
    let mut random = Random::new(seed);
    let mut disk = SimDisk::new();
    let mut history = History::default();
    let mut cuts = 0;
    for life in 0..LIVES {
        if let Some(ignored) = ignored {
            disk.ignore_calls(ignored);
        }
        drop(run(&disk, &mut history, &mut random, CALLS)?);
        let mut model = disk.crash_model();
        for events in 0..=disk.events() {
            disk.advance(&mut model, events);
            for kind in 0..DISKS_PER_CUT {
                let number = if kind < 2 { kind } else { 2 + random.next_u64() / 2 };
                let crashed = model.crash(number);
                check(&crashed, &history, events)
                    .map_err(|why| format!("life {life}, event {events}, disk {number}: {why}"))?;
                cuts += 1;
            }
        }
        // The next life begins with a crash at a random moment of this one.
        let mut model = disk.crash_model();
        let events = random.below(disk.events() as u64 + 1) as usize;
        disk.advance(&mut model, events);
        disk = model.crash(random.next_u64());
        let node = Node::open(&disk).map_err(|error| error.to_string())?;
        history = History::after(&node);
    }
    Ok(cuts)
}

/// Starts a node on the disk, checks its state, appends, and checks again after a restart.
fn check(disk: &SimDisk, history: &History, events: usize) -> Result<(), String> {
    let node = Node::open(disk).map_err(|error| error.to_string())?;
    history.check(events, &node)?;
    let mut after = History::after(&node);
    drop(node);
    let mut random = Random::new(events as u64);
    drop(run(disk, &mut after, &mut random, 3)?);
    let mut model = disk.crash_model();
    disk.advance(&mut model, disk.events());
    let again = model.crash(0);
    let node = Node::open(&again).map_err(|error| format!("after further appends: {error}"))?;
    after
        .check(disk.events(), &node)
        .map_err(|why| format!("after further appends: {why}"))?;
    Ok(())
}

#[test]
fn acknowledged_writes_survive_crash_at_any_moment() {
    let first = from_environment("STORAGE_SEED", 1);
    let programs = from_environment("STORAGE_PROGRAMS", PROGRAMS);
    let mut cuts = 0;
    for seed in first..first + programs {
        match crash_everywhere(seed, None) {
            Ok(count) => cuts += count,
            Err(why) => panic!("STORAGE_SEED={seed} STORAGE_PROGRAMS=1 shows it again: {why}"),
        }
    }
    println!("{cuts} disks after crashes of {programs} programs");
    assert!(
        cuts >= 2000 || programs < PROGRAMS,
        "only {cuts} disks were tried"
    );
}
