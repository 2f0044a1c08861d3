//! Planted bugs and the cells that must detect them: a test suite that misses these would miss others as
//! well.
//! LOCKGATE_PLANTED selects a bug of the program with planted bugs (`tools/system-tests`). The bug's cells
//! run one after the other until one is violated. Bugs that no real machine shows in reasonable time are left
//! to the crash suite.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use crate::cell::Spec;
use crate::report::{CellReport, Outcome};
use crate::supervise::Supervisor;

/// Environment variable that selects a bug.
pub const PLANTED: &str = "LOCKGATE_PLANTED";

/// Program with planted bugs.
const PROGRAM: &str = "lockgate-with-faults";

/// Planted bug with the cells that search for it.
pub struct Mutant {
    /// Number of the bug, the value of [`PLANTED`].
    pub number: u8,
    /// Description of the bug.
    pub about: &'static str,
    /// Pairs of workload and nemesis, the most promising first.
    pub cells: &'static [(&'static str, &'static str)],
}

/// Planted bugs that real processes show in reasonable time, by number. The simulation searches for others.
pub const ALL: &[Mutant] = &[
    Mutant {
        number: 1,
        about: "the log is not synced",
        cells: &[
            ("set", "power-cut-all"),
            ("register", "power-cut-all"),
            ("set", "power-cut-majority"),
        ],
    },
    Mutant {
        number: 2,
        about: "a vote is granted before it is on disk",
        cells: &[("set", "power-cut-majority")],
    },
    Mutant {
        number: 3,
        about: "linearizable reads are local",
        cells: &[("register", "isolate-leader"), ("register", "partition-halves")],
    },
    Mutant {
        number: 4,
        about: "a lock is granted to a session that has ended",
        cells: &[("exclusive", "none"), ("exclusive", "kill-leader")],
    },
    Mutant {
        number: 5,
        about: "a release ends any hold of the session",
        cells: &[("exclusive", "none"), ("exclusive", "slow-network")],
    },
    Mutant {
        number: 7,
        about: "snapshots omit the counters of sequential names",
        cells: &[
            ("unique-ids", "kill-one"),
            ("unique-ids", "snapshot-install"),
            ("unique-ids", "kill-all"),
        ],
    },
    Mutant {
        number: 8,
        about: "watches are lost without notice when the leader changes",
        cells: &[("watches", "kill-leader"), ("watches", "isolate-leader")],
    },
    Mutant {
        number: 9,
        about: "a repeated request is executed again",
        cells: &[("exactly-once", "none"), ("exactly-once", "slow-network")],
    },
    Mutant {
        number: 10,
        about: "ended sessions are remembered in an order that differs between replicas",
        cells: &[("sessions", "none"), ("sessions", "kill-one")],
    },
    Mutant {
        number: 11,
        about: "times in the state come from the replica's own clock",
        cells: &[("sessions", "clock-jump"), ("register", "none")],
    },
    Mutant {
        number: 12,
        about: "permits of a session that ends are not released",
        cells: &[("semaphore", "none"), ("semaphore", "kill-one")],
    },
    Mutant {
        number: 13,
        about: "a reader overtakes a waiting writer",
        cells: &[("shared", "none"), ("shared", "pause-one")],
    },
    Mutant {
        number: 14,
        about: "an unreachable follower counts as an acknowledgement",
        cells: &[
            ("register", "kill-majority"),
            ("register", "isolate-leader"),
            ("set", "isolate-leader"),
        ],
    },
    Mutant {
        number: 15,
        about: "a snapshot is renamed without a sync of the directory",
        cells: &[("set", "power-cut-all")],
    },
    Mutant {
        number: 16,
        about: "access is checked when a request arrives, not when it is applied",
        cells: &[("access", "none"), ("access", "slow-network")],
    },
    Mutant {
        number: 17,
        about: "an exclusive lock is granted to a second holder",
        cells: &[("exclusive", "none"), ("exclusive", "kill-leader")],
    },
    Mutant {
        number: 18,
        about: "the end of a session leaves one of its ephemerals behind",
        cells: &[("sessions", "none"), ("sessions", "kill-one")],
    },
    Mutant {
        number: 19,
        about: "a node that returns with an older data directory is trusted",
        cells: &[("exclusive", "old-image"), ("set", "copied-directory")],
    },
    Mutant {
        number: 20,
        about: "replicas are not compared while they run",
        cells: &[("set", "flipped-bits")],
    },
    Mutant {
        number: 30,
        about: "a lease lives on after its lock was released or lost",
        cells: &[("leases", "none"), ("leases", "kill-leader")],
    },
    Mutant {
        number: 31,
        about: "only the node that leads at the grant counts the maximum time of a hold",
        cells: &[("leases", "kill-leader"), ("leases", "isolate-leader")],
    },
    Mutant {
        number: 32,
        about: "the minimum time of a hold is kept only if the lock was free at the call",
        cells: &[("leases", "none"), ("leases", "kill-leader")],
    },
    Mutant {
        number: 33,
        about: "a place in the queue without a connection is withdrawn when its request is over",
        cells: &[("queued", "none"), ("queued", "kill-leader")],
    },
    Mutant {
        number: 34,
        about: "a compare-and-delete of a Redis client compares nothing",
        cells: &[("redis", "none"), ("redis", "kill-leader")],
    },
];

/// Returns the name of the test in raft-log's crash suite that detects the bug. A real machine rarely shows
/// storage bugs: ext4 writes a file's name along with the next sync of anything, and a few hundred
/// microseconds lie between a vote and the next entry. The simulated disk is cut off at every moment.
fn crash_suite_test(number: u8) -> Option<&'static str> {
    match number {
        1 => Some("UnsyncedLog"),
        2 => Some("UnsyncedVote"),
        15 => Some("UnsyncedName"),
        _ => None,
    }
}

/// Returns whether the crash suite's test detects the bug, and passes without it.
async fn crash_suite_detects(name: &str) -> anyhow::Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let ran = Command::new(cargo())
        .args([
            "test",
            "-p",
            "raft-log",
            "--features",
            "planted",
            "--test",
            "storage_mutants",
            "--",
            name,
        ])
        .current_dir(&root)
        .stdin(Stdio::null())
        .status();
    Ok(ran.await.context("cargo")?.success())
}

fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Result of the search for one bug.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SearchResult {
    /// Number of the bug.
    pub number: u8,
    /// Description of the bug.
    pub about: String,
    /// The violated cell and the violation, if there was one.
    pub caught_by: Option<(String, String)>,
    /// Duration of the search in seconds, including the start of every cluster.
    pub seconds: f64,
    /// Outcomes of the other cells.
    pub missed_by: Vec<String>,
}

/// Builds the program with planted bugs (`tools/system-tests`), which are switches of the process.
pub async fn build() -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    println!("building {PROGRAM}");
    let built = Command::new(cargo())
        .args(["build", "--release", "-p", "system-tests", "--bin", PROGRAM])
        .current_dir(&root)
        .stdin(Stdio::null())
        .status()
        .await
        .context("cargo")?;
    ensure!(built.success(), "{PROGRAM} cannot be built");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    Ok(target.join("release").join(PROGRAM))
}

/// Searches for one bug. `spec` creates a cell of a workload and a nemesis; each finished cell is reported.
pub async fn search(
    mutant: &Mutant,
    supervisor: &Supervisor,
    spec: &dyn Fn(&str, &str) -> anyhow::Result<Spec>,
    on_cell: &dyn Fn(&CellReport),
) -> anyhow::Result<SearchResult> {
    let begun = Instant::now();
    let mut found = SearchResult {
        number: mutant.number,
        about: mutant.about.to_owned(),
        caught_by: None,
        seconds: 0.0,
        missed_by: Vec::new(),
    };
    for (workload, nemesis) in mutant.cells {
        let mut spec = spec(workload, nemesis)?;
        spec.environment = vec![(PLANTED.to_owned(), mutant.number.to_string())];
        let cell = supervisor.run(spec).await;
        on_cell(&cell);
        if cell.outcome == Outcome::Violated {
            let reason = cell.reasons.first().cloned().unwrap_or_default();
            found.caught_by = Some((cell.name(), reason));
            break;
        }
        found
            .missed_by
            .push(format!("{} ({})", cell.name(), cell.outcome.word()));
    }
    if found.caught_by.is_none()
        && let Some(name) = crash_suite_test(mutant.number)
    {
        match crash_suite_detects(name).await? {
            true => {
                found.caught_by = Some((
                    "lock-node's own tests".to_owned(),
                    format!("their check of {name} fails"),
                ))
            }
            false => found.missed_by.push("lock-node's own tests".to_owned()),
        }
    }
    found.seconds = begun.elapsed().as_secs_f64();
    Ok(found)
}

/// Formats the results as a table.
pub fn table(all: &[SearchResult]) -> String {
    let caught = all.iter().filter(|found| found.caught_by.is_some()).count();
    let mut text = format!("{caught} of {} planted bugs caught\n", all.len());
    for found in all {
        let how = match &found.caught_by {
            Some((cell, reason)) => {
                let reason: String = reason.chars().take(100).collect();
                format!("caught by {cell} after {:.0} s: {reason}", found.seconds)
            }
            None if found.missed_by.is_empty() => "SURVIVES: no cell searches for it".to_owned(),
            None => format!("SURVIVES {}", found.missed_by.join(", ")),
        };
        writeln!(text, "{:>3}  {:<70} {how}", found.number, found.about).expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{nemesis, workloads};

    #[test]
    fn each_planted_bug_names_existing_cells() {
        assert!(ALL.is_sorted_by(|one, next| one.number < next.number));
        for mutant in ALL {
            for (workload, nemesis) in mutant.cells {
                assert!(workloads::named(workload).is_some(), "{workload}");
                nemesis::find(nemesis).expect("the nemesis exists");
            }
        }
    }
}
