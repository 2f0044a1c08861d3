//! Every fail point, with every fault that it supports, on the leader and on a follower, under a load of
//! locks and writes.
//!
//! By default a few of the cells run; the environment selects others:
//!
//! | `LOCKGATE_FAIL_POINTS` | cells |
//! |---|---|
//! | absent | 12, spread over the matrix, different ones every day (`LOCKGATE_DAY=20782` selects those of
//! that day) |
//! | `all` | all cells, in about twenty-five minutes |
//! | any other text | the cells whose names (`area::step Fault Target`) contain it |
//!
//! ```sh
//! LOCKGATE_FAIL_POINTS=all cargo test -p system-tests --test fail_points -- --nocapture
//! ```

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used, reason = "a panic is the failure of a test")]

mod faulty_cluster;
mod first_start;
mod cell;
mod load;
mod provoke;
mod zookeeper_client;

use std::time::{Duration, Instant, SystemTime};

use lockgate::lock_node::fail_points::table::{POINTS, Side};

use crate::cell::{Cell, matrix};
use crate::faulty_cluster::FaultyCluster;
use crate::load::Load;

/// Default number of cells: one or two minutes of the gate. Every cell has its day.
const FEW: usize = 12;

/// Number of cells between two checks that silent sessions have ended, which take as long as their TTL.
const SILENT_SESSIONS_EVERY: usize = 50;

const SECONDS_A_DAY: u64 = 24 * 3600;

/// Returns the day whose cells run: that of LOCKGATE_DAY, which .ci/run sets, or today.
fn day() -> usize {
    if let Ok(day) = std::env::var("LOCKGATE_DAY") {
        return day.parse().expect("LOCKGATE_DAY is the number of a day");
    }
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    usize::try_from(since.unwrap_or_default().as_secs() / SECONDS_A_DAY).unwrap_or(0)
}

fn chosen() -> Vec<Cell> {
    let all = matrix(POINTS);
    match std::env::var("LOCKGATE_FAIL_POINTS").as_deref() {
        Ok("all") => all,
        Ok(part) => all
            .into_iter()
            .filter(|cell| cell.to_string().contains(part))
            .collect(),
        Err(_) => {
            let every = all.len().div_ceil(FEW);
            let first = day() % every;
            all.into_iter().skip(first).step_by(every).collect()
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cluster_survives_every_fault_at_every_point() {
    let cells = chosen();
    let began = Instant::now();
    let mut failed = Vec::new();
    let mut next_session_check = SILENT_SESSIONS_EVERY;
    let mut slowest = Duration::ZERO;
    let (mut ended, mut run) = (0, 0);
    let mut cluster = FaultyCluster::start(3).await;
    let load = Load::start(&cluster.addresses());
    for (number, cell) in cells.iter().enumerate() {
        let cell_began = Instant::now();
        let outcome = if cell.point.side == Side::Birth {
            first_start::run(cell).await
        } else {
            let mut outcome = cell.run(&mut cluster, &load, number).await;
            let last_of_point = cells
                .get(number + 1)
                .is_none_or(|next| next.point.name != cell.point.name);
            if last_of_point {
                let sessions_too = number + 1 == cells.len() || number >= next_session_check;
                if sessions_too {
                    next_session_check = number + SILENT_SESSIONS_EVERY;
                }
                outcome
                    .problems
                    .extend(cell::compare(&cluster, &load, sessions_too).await);
            }
            outcome
        };
        run += 1;
        ended += usize::from(outcome.ended);
        slowest = slowest.max(outcome.serves_after);
        println!(
            "{:>3}/{} {cell}: {:.1} s, served after {:.1} s{}{}",
            number + 1,
            cells.len(),
            cell_began.elapsed().as_secs_f32(),
            outcome.serves_after.as_secs_f32(),
            if outcome.ended { ", ended" } else { "" },
            if outcome.problems.is_empty() {
                ""
            } else {
                ": FAILED"
            },
        );
        for problem in &outcome.problems {
            println!("    {problem}");
            failed.push(format!("{cell}: {problem}"));
        }
        if !outcome.problems.is_empty() && cell.point.side != Side::Birth {
            cluster.keep_logs(number);
            cluster.up().await;
        }
    }
    println!(
        "{run} cells, {ended} ended a node, {} problems, {} grants, {} writes, served again after at most {:.1} s; {:.0} s",
        failed.len(),
        load.grants(),
        load.writes(),
        slowest.as_secs_f32(),
        began.elapsed().as_secs_f32()
    );
    assert!(run > 0, "no cell matches LOCKGATE_FAIL_POINTS");
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}
