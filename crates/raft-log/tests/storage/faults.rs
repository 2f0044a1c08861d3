//! Failing calls: each call to the disk fails once. No acknowledged write is lost, the log reports its
//! failure and accepts nothing more, and the next start finds everything, even if power is lost after it.

use raft_log::StorageError;
use raft_log::sim_disk::{CrashModel, Fault, Random, SimDisk};

use crate::node::{History, Node};

/// Number of calls in a program.
const CALLS: usize = 40;
/// Number of appends after the restart that follows the failure.
const APPENDS_AFTER_RESTART: u64 = 2;
/// Number of programs that run with each call failing once.
const PROGRAMS: u64 = 3;

/// Runs a program until it ends or a call fails.
fn run(disk: &SimDisk, history: &mut History, seed: u64) -> Result<(), StorageError> {
    let mut random = Random::new(seed);
    let mut node = Node::open(disk)?;
    for _ in 0..CALLS {
        let called = history.call(&mut node, &mut random);
        if called.is_err() {
            // All waiting callers get the error, too.
            while node.step_writer() {}
            return called.and(node.note_answers(history));
        }
    }
    node.step(history)
}

fn fail_everywhere(fault: Fault) {
    let mut all = 0;
    for seed in 1..=PROGRAMS {
        let mut failed = 0;
        for call in 1.. {
            let disk = SimDisk::new();
            disk.fail_call(call, fault);
            let mut history = History::default();
            let result = run(&disk, &mut history, seed);
            if disk.calls() < call {
                assert!(result.is_ok(), "nothing failed: {result:?}");
                break;
            }
            failed += u32::from(result.is_err());
            check(&disk, &history).unwrap_or_else(|why| panic!("seed {seed}, call {call}, {fault:?}: {why}"));
        }
        assert!(
            failed > 100,
            "a program has hundreds of calls, and {failed} failed"
        );
        all += failed;
    }
    println!("{all} calls failed with {fault:?} in {PROGRAMS} programs");
}

/// Checks the states after the failure: power is lost at once, or the process restarts and power is lost
/// then.
fn check(disk: &SimDisk, history: &History) -> Result<(), String> {
    let mut model = disk.crash_model();
    crash_all(disk, &mut model, history)?;
    let mut history = history.clone();
    let mut node = Node::open(disk).map_err(|error| format!("restarted: {error}"))?;
    history
        .restarted(&node)
        .map_err(|why| format!("restarted: {why}"))?;
    crash_all(disk, &mut model, &history).map_err(|why| format!("restarted, {why}"))?;
    // Appends after the restart must be durable, too.
    for seed in 0..APPENDS_AFTER_RESTART {
        let appended = history.call_append(&mut node, &mut Random::new(seed));
        appended
            .and_then(|()| node.step(&mut history))
            .map_err(|error| format!("restarted: {error}"))?;
        crash_all(disk, &mut model, &history).map_err(|why| format!("restarted, {why}"))?;
    }
    Ok(())
}

/// Checks all disks that a power cut now may leave.
fn crash_all(disk: &SimDisk, model: &mut CrashModel, history: &History) -> Result<(), String> {
    let events = disk.events();
    disk.advance(model, events);
    for number in 0..6 {
        let crashed = model.crash(number);
        let node = Node::open(&crashed).map_err(|error| format!("disk {number}: {error}"))?;
        history
            .check(events, &node)
            .map_err(|why| format!("disk {number}: {why}"))?;
    }
    Ok(())
}

#[test]
fn io_error_at_any_call_loses_no_acknowledged_write() {
    fail_everywhere(Fault::InputOutput);
}

#[test]
fn full_disk_at_any_call_loses_no_acknowledged_write() {
    fail_everywhere(Fault::NoSpace);
}
