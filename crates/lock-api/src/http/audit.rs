//! Audit log: one line in the log, under the target `lockgate::audit`, for each change that one caller makes to others.
//! The node that received the request writes it when the outcome is known. Text of unauthenticated callers is quoted in
//! it, and it never contains a secret.

use std::sync::Arc;

use axum::http::request::Parts;
use listener::{LogLimit, abridged};

use super::http_request_id::HttpRequestId;
use super::lock_types::{MAX_REASON_BYTES, within};
use super::peer::Peer;
use super::problem::{Code, Problem};
use super::url::without_secret;

/// Target of the audit lines in the log.
const TARGET: &str = "lockgate::audit";

/// Target of the lines about callers without valid proof, which a directive of `log.level` can leave out.
const REFUSED_TARGET: &str = "lockgate::audit::refused";

/// Writer of audit lines. A completed change always gets its line. A rejected request, or one whose caller disconnected
/// before the outcome was known, gets a line unless the caller has had too many lately: a caller that repeats a
/// forbidden request all day does not fill the disk.
#[derive(Debug, Clone, Default)]
pub struct AuditLog {
    refused: Arc<LogLimit<String>>,
}

impl AuditLog {
    /// Begins the audit of an action of `peer`.
    pub fn begin(&self, peer: &Peer, action: &'static str, what: String) -> AuditEntry {
        AuditEntry {
            log: self.clone(),
            peer: peer.clone(),
            action,
            what,
            http_request: HttpRequestId::current(),
            is_written: false,
        }
    }

    /// Logs the rejection of a caller that has `shown` this token.
    pub fn refused(&self, peer: &Peer, shown: Option<String>, head: &Parts, problem: &Problem) {
        let Some(others_left_out) = self.refused.admit(peer.shared_by()) else {
            return;
        };
        tracing::info!(
            target: REFUSED_TARGET,
            by = %peer.principal(),
            from = %peer.shown(),
            action = "refused",
            what = ?format!("{} {}", head.method, abridged(&without_secret(head.uri.path()))),
            outcome = problem.code().word(),
            shown = shown.as_deref().unwrap_or("no token"),
            why = ?problem.detail(),
            others_left_out,
            http_request = HttpRequestId::current(),
        );
    }
}

/// Audited action in progress. It gets its line however it ends.
#[must_use = "the line is written when the outcome is known"]
pub struct AuditEntry {
    log: AuditLog,
    peer: Peer,
    action: &'static str,
    what: String,
    http_request: String,
    is_written: bool,
}

/// Returns the description of an action, with the reason that was given for it.
pub fn with_reason(what: String, reason: Option<&str>) -> Result<String, Problem> {
    let Some(reason) = reason else { return Ok(what) };
    within("reason", reason, MAX_REASON_BYTES)?;
    Ok(format!("{what}: {reason}"))
}

impl AuditEntry {
    /// Writes the line with the outcome.
    pub fn end<T, E: Into<Problem>>(mut self, outcome: Result<T, E>) -> Result<T, Problem> {
        let outcome = outcome.map_err(Into::into);
        match &outcome {
            Ok(_) => self.write("done"),
            // The change may have been made.
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
            http_request = self.http_request,
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
            http_request = self.http_request,
        );
    }
}

impl Drop for AuditEntry {
    /// Writes a line for a caller that disconnected. Its handler is gone, but the request may still take effect.
    fn drop(&mut self) {
        if !self.is_written {
            self.write_if_admitted("caller_gone");
        }
    }
}
