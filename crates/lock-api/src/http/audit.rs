//! The account of who did what to others: one line for each, in the log under the target `lockgate::audit`, written by the node
//! that took the request in, when the outcome is known. What strangers have written stands in it in quotes, and never a secret.

use std::time::Duration;

use axum::http::request::Parts;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::lock_types::{MAX_REASON_BYTES, within};
use super::peer::Peer;
use super::problem::Problem;

/// What lines of the account are found by.
const TARGET: &str = "lockgate::audit";

/// How many refusals are told in a while; the others are counted. Whoever knocks all day fills no disk.
const REFUSALS_TOLD: u32 = 20;

/// The while.
const REFUSALS_EVERY: Duration = Duration::from_secs(10);

/// The longest piece of an address that is told.
const MAX_ADDRESS_CHARS: usize = 200;

/// Something that is being done, and gets its line however that ends.
#[must_use = "the line is written when the outcome is known"]
pub struct Entry {
    peer: Peer,
    action: &'static str,
    what: String,
    is_written: bool,
}

/// What is done, with the reason that was given for it.
pub fn for_reason(what: String, reason: Option<&str>) -> Result<String, Problem> {
    let Some(reason) = reason else { return Ok(what) };
    within("reason", reason, MAX_REASON_BYTES)?;
    Ok(format!("{what}: {reason}"))
}

/// Somebody begins to do something.
pub fn begin(peer: &Peer, action: &'static str, what: String) -> Entry {
    let peer = peer.clone();
    Entry {
        peer,
        action,
        what,
        is_written: false,
    }
}

impl Entry {
    /// With what came of it.
    pub fn end<T, E: Into<Problem>>(mut self, outcome: Result<T, E>) -> Result<T, Problem> {
        let outcome = outcome.map_err(Into::into);
        self.write(match &outcome {
            Ok(_) => "done",
            Err(problem) => problem.code().word(),
        });
        outcome
    }

    fn write(&mut self, outcome: &str) {
        self.is_written = true;
        tracing::info!(
            target: TARGET,
            by = %self.peer.principal(),
            from = %self.peer.shown(),
            action = self.action,
            what = ?self.what,
            outcome,
        );
    }
}

impl Drop for Entry {
    /// Its caller has hung up, and the handler with it: what was asked goes its way all the same.
    fn drop(&mut self) {
        if !self.is_written {
            self.write("caller_gone");
        }
    }
}

/// How many refusals were told lately.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Lately>);

#[derive(Debug, Default)]
struct Lately {
    since: Option<Instant>,
    told: u32,
    left_out: u64,
}

impl Refusals {
    /// Whether one more is told, and how many were not before it.
    fn admit(&self) -> Option<u64> {
        let mut lately = self.0.lock();
        if lately.since.is_none_or(|since| since.elapsed() >= REFUSALS_EVERY) {
            (lately.since, lately.told) = (Some(Instant::now()), 0);
        }
        if lately.told >= REFUSALS_TOLD {
            lately.left_out += 1;
            return None;
        }
        lately.told += 1;
        Some(std::mem::take(&mut lately.left_out))
    }
}

/// Somebody was not let in at the door, who has `shown` this token.
pub fn refused(refusals: &Refusals, peer: &Peer, shown: Option<String>, head: &Parts, problem: &Problem) {
    let Some(left_out) = refusals.admit() else {
        return;
    };
    let address: String = head.uri.path().chars().take(MAX_ADDRESS_CHARS).collect();
    tracing::info!(
        target: TARGET,
        by = %peer.principal(),
        from = %peer.shown(),
        action = "refused",
        what = ?format!("{} {address}", head.method),
        outcome = problem.code().word(),
        shown = shown.as_deref().unwrap_or("no token"),
        why = ?problem.detail(),
        others_not_told = left_out,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_refusals_is_counted_and_not_told() {
        let refusals = Refusals::default();
        for _ in 0..REFUSALS_TOLD {
            assert_eq!(refusals.admit(), Some(0));
        }
        for _ in 0..1000 {
            assert_eq!(refusals.admit(), None);
        }
        tokio::time::advance(REFUSALS_EVERY).await;
        assert_eq!(refusals.admit(), Some(1000));
        assert_eq!(refusals.admit(), Some(0));
    }
}
