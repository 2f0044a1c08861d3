//! The account of who did what to others: one line for each, in the log under the target `lockgate::audit`, written by the node
//! that took the request in, when the outcome is known. Text of unauthenticated callers is quoted in it, and it never contains a secret.

use std::sync::Arc;

use axum::http::request::Parts;
use listener::{LogLimit, abridged};

use super::lock_types::{MAX_REASON_BYTES, within};
use super::peer::Peer;
use super::problem::{Code, Problem};

/// Target of the audit lines in the log.
const TARGET: &str = "lockgate::audit";

/// The account. What was done always gets its line. What was refused, or was left by its caller before the outcome was known, gets one unless
/// the caller has had too many lately: a caller that repeats a forbidden request all day does not fill the disk.
#[derive(Debug, Clone, Default)]
pub struct AuditLog {
    refused: Arc<LogLimit<String>>,
}

impl AuditLog {
    /// Somebody begins to do something.
    pub fn begin(&self, peer: &Peer, action: &'static str, what: String) -> AuditEntry {
        AuditEntry {
            log: self.clone(),
            peer: peer.clone(),
            action,
            what,
            is_written: false,
        }
    }

    /// Logs the rejection of a caller that has `shown` this token.
    pub fn refused(&self, peer: &Peer, shown: Option<String>, head: &Parts, problem: &Problem) {
        let Some(others_left_out) = self.refused.admit(peer.shared_by()) else {
            return;
        };
        tracing::info!(
            target: TARGET,
            by = %peer.principal(),
            from = %peer.shown(),
            action = "refused",
            what = ?format!("{} {}", head.method, abridged(head.uri.path())),
            outcome = problem.code().word(),
            shown = shown.as_deref().unwrap_or("no token"),
            why = ?problem.detail(),
            others_left_out,
        );
    }
}

/// Something that is being done, and gets its line however that ends.
#[must_use = "the line is written when the outcome is known"]
pub struct AuditEntry {
    log: AuditLog,
    peer: Peer,
    action: &'static str,
    what: String,
    is_written: bool,
}

/// Returns the description of an action, with the reason that was given for it.
pub fn with_reason(what: String, reason: Option<&str>) -> Result<String, Problem> {
    let Some(reason) = reason else { return Ok(what) };
    within("reason", reason, MAX_REASON_BYTES)?;
    Ok(format!("{what}: {reason}"))
}

impl AuditEntry {
    /// Adds the outcome.
    pub fn end<T, E: Into<Problem>>(mut self, outcome: Result<T, E>) -> Result<T, Problem> {
        let outcome = outcome.map_err(Into::into);
        match &outcome {
            Ok(_) => self.write("done"),
            // Nobody knows whether it was done.
            Err(problem) if problem.code() == Code::OutcomeUnknown => self.write(problem.code().word()),
            Err(problem) => self.write_if_admitted(problem.code().word()),
        }
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

    fn write_if_admitted(&mut self, outcome: &str) {
        self.is_written = true;
        let Some(others_left_out) = self.log.refused.admit(self.peer.shared_by()) else {
            return;
        };
        tracing::info!(
            target: TARGET,
            by = %self.peer.principal(),
            from = %self.peer.shown(),
            action = self.action,
            what = ?abridged(&self.what),
            outcome,
            others_left_out,
        );
    }
}

impl Drop for AuditEntry {
    /// Its caller has hung up, and the handler with it: what was asked goes its way all the same.
    fn drop(&mut self) {
        if !self.is_written {
            self.write_if_admitted("caller_gone");
        }
    }
}
