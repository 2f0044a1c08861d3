//! Counts of each outcome by kind of step. A comparison of programs in which nothing succeeds, or nothing
//! fails, would prove little.

use std::collections::BTreeMap;
use std::fmt;

use crate::program::Step;
use crate::trace::{Effect, StepResult, alone};
use crate::wire::{CreateCall, ErrorCode, MultiResult, Outcome, Reply, Request, event_type};

/// Counts of steps, outcomes and notifications.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// By kind of step and outcome.
    steps: BTreeMap<(&'static str, String), u64>,
    /// By kind of event.
    notifications: BTreeMap<&'static str, u64>,
}

impl Tally {
    /// Counts one step.
    pub(crate) fn note(&mut self, step: &Step, step_result: &StepResult) {
        let outcome = match &step_result.effect {
            Effect::Skipped => "skipped",
            Effect::Opened { .. } | Effect::Resumed { .. } | Effect::Dropped => "ok",
            Effect::Refused => "refused",
            Effect::Closed => "closed",
            Effect::Replied { outcome, .. } => {
                if let (
                    Step::Call {
                        request: Request::Multi(items),
                        ..
                    },
                    Ok(Reply::Results(results)),
                ) = (step, outcome)
                {
                    for (item, result) in items.iter().zip(results) {
                        self.count(in_multi(item), &alone(result));
                    }
                }
                self.count(kind(step), outcome);
                ""
            }
        };
        if !outcome.is_empty() {
            *self.steps.entry((kind(step), outcome.to_owned())).or_default() += 1;
        }
        for notification in step_result
            .received
            .iter()
            .flat_map(|(_, notifications)| notifications)
        {
            let kind = match notification.kind {
                event_type::NODE_CREATED => "NodeCreated",
                event_type::NODE_DELETED => "NodeDeleted",
                event_type::NODE_DATA_CHANGED => "NodeDataChanged",
                event_type::NODE_CHILDREN_CHANGED => "NodeChildrenChanged",
                _ => "others",
            };
            *self.notifications.entry(kind).or_default() += 1;
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, other: &Tally) {
        for ((kind, outcome), count) in &other.steps {
            *self.steps.entry((kind, outcome.clone())).or_default() += count;
        }
        for (kind, count) in &other.notifications {
            *self.notifications.entry(kind).or_default() += count;
        }
    }

    /// Returns the number of notifications.
    pub fn notifications(&self) -> u64 {
        self.notifications.values().sum()
    }

    /// Returns how often a kind of step had an outcome.
    pub fn met(&self, kind: &'static str, outcome: &str) -> u64 {
        self.steps
            .get(&(kind, outcome.to_owned()))
            .copied()
            .unwrap_or_default()
    }

    fn count(&mut self, kind: &'static str, outcome: &Outcome) {
        let name = match outcome {
            Ok(Reply::Results(results)) => {
                let failed = results
                    .iter()
                    .any(|result| matches!(result, MultiResult::Error(_)));
                if failed { "failed" } else { "ok" }.to_owned()
            }
            Ok(_) => "ok".to_owned(),
            Err(ErrorCode::OK) => "undone".to_owned(),
            Err(code) => code.to_string(),
        };
        *self.steps.entry((kind, name)).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut last = "";
        for ((kind, outcome), count) in &self.steps {
            if *kind != last {
                write!(f, "{}  {kind:<22}", if last.is_empty() { "" } else { "\n" })?;
                last = kind;
            }
            write!(f, " {outcome} {count},")?;
        }
        write!(f, "\n  notifications         ")?;
        for (kind, count) in &self.notifications {
            write!(f, " {kind} {count},")?;
        }
        writeln!(f)
    }
}

fn kind(step: &Step) -> &'static str {
    match step {
        Step::Open { .. } => "open a session",
        Step::Call { request, .. } => name(request),
        Step::Rewatch { .. } => "setWatches2",
        Step::Drop { .. } => "drop a connection",
        Step::Resume { .. } => "resume a session",
        Step::Close { .. } | Step::End { .. } => "closeSession",
    }
}

fn name(request: &Request) -> &'static str {
    match request {
        Request::Create { call, flags, .. } => match (call, flags) {
            (CreateCall::Container, _) => "createContainer",
            (CreateCall::Ttl(_), _) => "createTTL",
            (_, 1) => "create ephemeral",
            (_, 2) => "create sequential",
            (_, 3) => "create eph. seq.",
            _ => "create",
        },
        Request::Delete { .. } => "delete",
        Request::SetData { .. } => "setData",
        Request::SetAcl { .. } => "setACL",
        Request::Check { .. } => "check",
        Request::Multi(_) => "multi",
        Request::Exists { .. } => "exists",
        Request::GetData { .. } => "getData",
        Request::GetAcl { .. } => "getACL",
        Request::GetChildren { .. } => "getChildren",
        Request::GetChildren2 { .. } => "getChildren2",
        Request::GetAllChildrenNumber { .. } => "getAllChildrenNumber",
        Request::GetEphemerals { .. } => "getEphemerals",
        Request::MultiRead(_) => "multiRead",
        Request::Sync { .. } => "sync",
        Request::WhoAmI => "whoAmI",
        Request::Auth { .. } => "auth",
        Request::AddWatch { .. } => "addWatch",
        Request::CheckWatches { .. } => "checkWatches",
        Request::RemoveWatches { .. } => "removeWatches",
        Request::SetWatches { .. } => "setWatches",
        Request::SetWatches2 { .. } => "setWatches2",
        Request::Sasl { .. } => "sasl",
        Request::Reconfig { .. } => "reconfig",
        Request::Ping => "ping",
        Request::CloseSession => "closeSession",
    }
}

fn in_multi(item: &Request) -> &'static str {
    match item {
        Request::Create { .. } => "  multi: create",
        Request::Delete { .. } => "  multi: delete",
        Request::SetData { .. } => "  multi: setData",
        _ => "  multi: check",
    }
}
