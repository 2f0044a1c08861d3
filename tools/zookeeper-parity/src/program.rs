//! Programs: the steps of some sessions. `generate` creates them.
//!
//! Programs use paths below `/p`. Each run on a shared server replaces that root by another one, see
//! [`Root`].

use std::fmt;

use crate::wire::{Request, SetWatches};

/// Root of programs in their source form.
pub const WRITTEN_ROOT: &str = "/p";

/// Parent of the limits and usage of subtrees on the server.
pub const QUOTA_ROOT: &str = "/zookeeper/quota";

/// Zxid that a resuming client claims to have seen, in relative form: numbers would mean nothing on the other
/// side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relative {
    /// None at all: everything is new.
    Zero,
    /// A future one: only deletions are new.
    Future,
    /// The zxid of an earlier reply of this session; 0 is the last one.
    Reply(usize),
}

/// One step. A step that makes no sense, such as a call without a connection, is skipped on both sides, so
/// that any part of a program is a program.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the session is the number of the acting one, from 0")]
pub enum Step {
    /// Opens a session on a new connection.
    Open { session: usize },
    /// Sends a request on a session's connection.
    Call { session: usize, request: Request },
    /// Sends setWatches2 with a relative zxid.
    Rewatch {
        session: usize,
        relative: Relative,
        watches: SetWatches,
    },
    /// Ends the connection without closing the session.
    Drop { session: usize },
    /// Resumes the session on a new connection; the server closes an older one that is still open.
    Resume { session: usize, wrong_password: bool },
    /// Closes the session.
    Close { session: usize },
    /// Closes the session, over a new connection if it has none: the end of every session of a program.
    End { session: usize },
}

impl Step {
    /// Returns the acting session.
    pub fn session(&self) -> usize {
        match self {
            Step::Open { session }
            | Step::Call { session, .. }
            | Step::Rewatch { session, .. }
            | Step::Drop { session }
            | Step::Resume { session, .. }
            | Step::Close { session }
            | Step::End { session } => *session,
        }
    }

    /// Returns whether the step may delete ephemeral znodes, whose order ZooKeeper does not define.
    pub fn ends_session(&self) -> bool {
        matches!(self, Step::Close { .. } | Step::End { .. })
            || matches!(
                self,
                Step::Call {
                    request: Request::CloseSession,
                    ..
                }
            )
    }
}

/// Steps of up to `sessions` sessions. Session 0 is open from the start and has created the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// Seed of the program.
    pub seed: u64,
    /// Maximum number of sessions.
    pub sessions: usize,
    /// Steps.
    pub steps: Vec<Step>,
}

impl Program {
    /// Returns a program with other steps, which exclude the ends of sessions that every run appends.
    pub fn with_steps(&self, steps: Vec<Step>) -> Self {
        Self {
            seed: self.seed,
            sessions: self.sessions,
            steps,
        }
    }

    /// Returns whether an ACL refers to the caller: its entries then have no defined order.
    pub fn has_relative_acl(&self) -> bool {
        fn any(request: &Request) -> bool {
            match request {
                Request::Create { acl, .. } | Request::SetAcl { acl, .. } => {
                    acl.iter().flatten().any(|entry| entry.scheme == "auth")
                }
                Request::Multi(items) => items.iter().any(any),
                _ => false,
            }
        }
        self.steps
            .iter()
            .any(|step| matches!(step, Step::Call { request, .. } if any(request)))
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, step) in self.steps.iter().enumerate() {
            writeln!(f, "{:>3}  {step}", index + 1)?;
        }
        Ok(())
    }
}

/// Returns a request that authenticates a client.
pub fn auth(scheme: &str, auth: &str) -> Request {
    Request::Auth {
        kind: 0,
        scheme: scheme.to_owned(),
        auth: Some(auth.to_owned().into()),
    }
}

/// Root of a run, in place of [`WRITTEN_ROOT`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root(String);

impl Root {
    /// Returns the root of the source form.
    pub fn written() -> Self {
        Self(WRITTEN_ROOT.to_owned())
    }

    /// Returns a root that no other run has.
    pub fn numbered(number: u64) -> Self {
        Self(format!("{WRITTEN_ROOT}{number}"))
    }

    /// Returns the path of the root.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// Converts a path of the source form to this run's.
    pub fn placed(&self, written: &str) -> String {
        replaced(written, WRITTEN_ROOT, &self.0)
    }

    /// Converts a path of this run to the source form.
    pub fn written_from(&self, placed: &str) -> String {
        replaced(placed, &self.0, WRITTEN_ROOT)
    }

    /// Converts all paths of a request to this run's.
    pub fn place(&self, request: &Request) -> Request {
        let mut request = request.clone();
        self.place_in(&mut request);
        request
    }

    /// Converts lists of paths to this run's.
    pub fn place_watches(&self, watches: &SetWatches) -> SetWatches {
        let placed = |paths: &[String]| paths.iter().map(|path| self.placed(path)).collect();
        SetWatches {
            data: placed(&watches.data),
            exist: placed(&watches.exist),
            child: placed(&watches.child),
            persistent: placed(&watches.persistent),
            persistent_recursive: placed(&watches.persistent_recursive),
        }
    }

    fn place_in(&self, request: &mut Request) {
        match request {
            Request::Create { path, .. }
            | Request::Delete { path, .. }
            | Request::SetData { path, .. }
            | Request::SetAcl { path, .. }
            | Request::Check { path, .. }
            | Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::GetAcl { path }
            | Request::GetChildren { path, .. }
            | Request::GetChildren2 { path, .. }
            | Request::GetAllChildrenNumber { path }
            | Request::GetEphemerals { prefix: path }
            | Request::Sync { path }
            | Request::AddWatch { path, .. }
            | Request::CheckWatches { path, .. }
            | Request::RemoveWatches { path, .. } => *path = self.placed(path),
            Request::SetWatches { watches, .. } | Request::SetWatches2 { watches, .. } => {
                *watches = self.place_watches(watches);
            }
            Request::Multi(items) | Request::MultiRead(items) => {
                for item in items {
                    self.place_in(item);
                }
            }
            Request::WhoAmI
            | Request::Auth { .. }
            | Request::Sasl { .. }
            | Request::Reconfig { .. }
            | Request::Ping
            | Request::CloseSession => {}
        }
    }
}

/// Replaces a root at the beginning of a path, or of its quota's path.
fn replaced(path: &str, from: &str, to: &str) -> String {
    let (front, rest) = match path.strip_prefix(QUOTA_ROOT) {
        Some(rest) => (QUOTA_ROOT, rest),
        None => ("", path),
    };
    match rest.strip_prefix(from) {
        Some(tail) if tail.is_empty() || tail.starts_with('/') => format!("{front}{to}{tail}"),
        _ => path.to_owned(),
    }
}
