//! A program: what some sessions do, step by step. Where programs come from is in `generate`.
//!
//! Programs speak of paths below `/p`. Each run on a shared server puts another root in its place, see [`Root`].

use std::fmt;

use crate::wire::{Request, SetWatches};

/// The root of programs as they are written.
pub const WRITTEN_ROOT: &str = "/p";

/// Where the server keeps limits and usage of subtrees.
pub const QUOTA_ROOT: &str = "/zookeeper/quota";

/// Which zxid a client that comes back claims to have seen. Numbers would mean nothing on the other side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Relative {
    /// None at all: everything is news.
    Zero,
    /// One that is still to come: nothing is news, but what is gone.
    Future,
    /// The one of this session's reply before so many others; 0 is its last one.
    Reply(usize),
}

/// One thing that happens. A step that makes no sense, as a call without a connection, is skipped on both sides, so
/// that any part of a program is a program.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the session is the number of who does it, from 0")]
pub enum Step {
    /// A new session on a new connection.
    Open { session: usize },
    /// A request on a session's connection.
    Call { session: usize, request: Request },
    /// setWatches2, whose zxid is not a number here.
    Rewatch {
        session: usize,
        relative: Relative,
        watches: SetWatches,
    },
    /// The connection ends without a word; the session goes on.
    Drop { session: usize },
    /// A new connection takes up the session; an older one that is still there is closed by the server.
    Resume { session: usize, wrong_password: bool },
    /// The session is closed by its client.
    Close { session: usize },
    /// The session is closed, over a new connection if it has none: how every program ends for every session.
    End { session: usize },
}

impl Step {
    /// Who does it.
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

    /// Whether ephemeral znodes may end by it, in an order that ZooKeeper does not define.
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

/// Steps of up to `sessions` sessions. Session 0 is there from the start and has made the root.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Program {
    /// What it was generated from.
    pub seed: u64,
    /// How many sessions may be named.
    pub sessions: usize,
    /// What happens.
    pub steps: Vec<Step>,
}

impl Program {
    /// The same, without the sessions' ends that every run appends.
    pub fn with_steps(&self, steps: Vec<Step>) -> Self {
        Self {
            seed: self.seed,
            sessions: self.sessions,
            steps,
        }
    }

    /// Whether an ACL stands for whoever the caller is: its entries then come in no defined order.
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

/// A client shows who it is.
pub fn auth(scheme: &str, auth: &str) -> Request {
    Request::Auth {
        kind: 0,
        scheme: scheme.to_owned(),
        auth: Some(auth.to_owned().into()),
    }
}

/// The root that a run has in place of [`WRITTEN_ROOT`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Root(String);

impl Root {
    /// As it is written.
    pub fn written() -> Self {
        Self(WRITTEN_ROOT.to_owned())
    }

    /// One that no other run has.
    pub fn numbered(number: u64) -> Self {
        Self(format!("{WRITTEN_ROOT}{number}"))
    }

    /// The path of the root.
    pub fn path(&self) -> &str {
        &self.0
    }

    /// A written path as this run has it.
    pub fn placed(&self, written: &str) -> String {
        replaced(written, WRITTEN_ROOT, &self.0)
    }

    /// A path of this run as it is written.
    pub fn written_from(&self, placed: &str) -> String {
        replaced(placed, &self.0, WRITTEN_ROOT)
    }

    /// A request with all its paths as this run has them.
    pub fn place(&self, request: &Request) -> Request {
        let mut request = request.clone();
        self.place_in(&mut request);
        request
    }

    /// Lists of paths as this run has them.
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

/// Replaces a root at the front of a path, and at the front of its quota's path.
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
