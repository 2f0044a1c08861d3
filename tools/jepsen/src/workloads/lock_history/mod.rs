//! The servers' record of the holders of all locks after a run, compared with what the clients know: the
//! part of the checks that all workloads of locks have in common.

mod accounts;
mod gaps;

use std::collections::HashSet;

use anyhow::Result;
use lockgate_check::{Nanos, Verdict, holds};

use self::gaps::Gaps;
use crate::world::World;

/// Grant that a client received.
#[derive(Clone, Debug)]
pub struct KnownGrant {
    /// Name of the client in reports.
    pub client: String,
    /// Name of the lock.
    pub lock: String,
    /// The contender's name.
    pub holder: String,
    /// The fencing token.
    pub token: u64,
    /// Time at which the grant was received.
    pub begin: Nanos,
    /// Time of the release, if there was one.
    pub released: Option<Nanos>,
}

/// Waits until the locks are free, and checks the record of each node. Returns every checker's verdict with
/// its name.
pub async fn check(world: &World, locks: &[String], grants: &[KnownGrant]) -> Result<Vec<(String, Verdict)>> {
    let left = accounts::all_free(world, locks).await?;
    let accounts = accounts::of_all_nodes(world, locks).await?;
    let (history, differences) = holds::merge(&accounts);
    let gaps = Gaps::of(&history);
    Ok(vec![
        check_holds(world, &history, &gaps),
        ("accounts agree".to_owned(), Verdict::of(differences)),
        (
            "grants are in the log".to_owned(),
            unrecorded(world, grants, &history, &gaps),
        ),
        ("all locks free at the end".to_owned(), Verdict::of(left)),
    ])
}

/// Checks the servers' record of holds. For gaps in all records only the clients' beliefs count, provided
/// that the gaps are not most of the run; the checker's name says how long they are.
fn check_holds(world: &World, history: &holds::History, gaps: &Gaps) -> (String, Verdict) {
    match gaps.of_run_ms(world) {
        0 => ("holds".to_owned(), holds::check(history)),
        missing if gaps.leave_enough(world) => (
            format!("holds, except for {missing} ms without a history on any node"),
            holds::check_known(history),
        ),
        missing => {
            let why = format!("no node has a history for {missing} ms");
            let verdict = holds::check_known(history).and(Verdict::Undecided(why));
            ("holds".to_owned(), verdict)
        }
    }
}

/// Checks that every grant that a client received is in the servers' record.
fn unrecorded(world: &World, grants: &[KnownGrant], history: &holds::History, gaps: &Gaps) -> Verdict {
    let recorded: HashSet<_> = history
        .holds
        .iter()
        .map(|hold| (hold.lock.as_str(), hold.contender.as_str(), hold.token))
        .collect();
    let missing = grants.iter().filter(|grant| {
        !recorded.contains(&(grant.lock.as_str(), grant.holder.as_str(), grant.token))
            && !gaps.excuse(world, grant)
    });
    let lines = missing.map(|grant| {
        format!(
            "{} was granted lock {} as {} with token {}, which no server has recorded",
            grant.client, grant.lock, grant.holder, grant.token
        )
    });
    Verdict::of(lines.collect())
}
