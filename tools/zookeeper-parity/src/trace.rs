//! Trace of a run, in a form that means the same on both sides.
//!
//! Zxids, times and session ids are specific to a server. A zxid becomes the number of the step that it was
//! assigned to (`#3`), a session id the number of the session, and a time is compared only with the other
//! times of its zxid. Lists without a defined order are sorted, and so are the notifications of a session's
//! end, which deletes its ephemeral znodes in no defined order.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

use crate::program::{Program, Root, Step};
use crate::show::{Acl, Data, Text};
use crate::wire::{
    ErrorCode, MultiResult, Notification, Outcome, Reply, Request, Stat, event_type, keeper_state, op_code,
};

/// Result of one step on one side, in that side's own numbers.
#[derive(Debug)]
pub struct StepResult {
    /// Effect of the step.
    pub effect: Effect,
    /// Notifications by session: those of the acting session before its reply, those of the others until all
    /// was quiet.
    pub received: Vec<(usize, Vec<Notification>)>,
}

/// Effect of a step.
#[derive(Debug)]
pub enum Effect {
    /// None: the step made no sense.
    Skipped,
    /// A new session.
    Opened {
        /// Session id.
        session_id: i64,
        /// Granted timeout.
        timeout_ms: i32,
    },
    /// The session has a new connection.
    Resumed {
        /// Session id.
        session_id: i64,
        /// Granted timeout.
        timeout_ms: i32,
    },
    /// The session has ended, or the password was wrong.
    Refused,
    /// The client ended the connection.
    Dropped,
    /// A reply to the request.
    Replied {
        /// Zxid of the header.
        zxid: i64,
        /// Body or error.
        outcome: Outcome,
        /// True if the server then closed the connection.
        closed: bool,
    },
    /// The server closed the connection without a reply.
    Closed,
}

/// Trace of a run: for each step the lines that must be equal on the other side.
#[derive(PartialEq, Eq, Debug, Default)]
pub struct Trace(pub Vec<Vec<String>>);

/// Value of `ephemeralOwner` in containers.
const CONTAINER: i64 = i64::MIN;

/// Highest byte of an `ephemeralOwner` that is a time to live.
const TTL_MARK: u8 = 0xff;

/// Converter of results to lines.
pub struct Recorder {
    root: Root,
    sort_acl: bool,
    /// Step that each zxid was assigned to.
    zxids: BTreeMap<i64, usize>,
    /// Time of each zxid.
    times: HashMap<i64, i64>,
    sessions: HashMap<i64, usize>,
}

impl Recorder {
    /// Creates a recorder for one run.
    pub fn new(program: &Program, root: &Root) -> Self {
        Self {
            root: root.clone(),
            sort_acl: program.has_relative_acl(),
            zxids: BTreeMap::new(),
            times: HashMap::new(),
            sessions: HashMap::new(),
        }
    }

    /// Returns the lines of a step.
    pub fn record(&mut self, number: usize, step: &Step, step_result: StepResult) -> Vec<String> {
        let mut lines = Vec::new();
        match step_result.effect {
            Effect::Skipped => lines.push("skipped".to_owned()),
            Effect::Opened {
                session_id,
                timeout_ms,
            } => {
                self.sessions.insert(session_id, step.session());
                lines.push(format!("opened, timeout {timeout_ms} ms"));
            }
            Effect::Resumed {
                session_id,
                timeout_ms,
            } => {
                let session = self.owner(session_id);
                lines.push(format!("resumed {session}, timeout {timeout_ms} ms"));
            }
            Effect::Refused => lines.push("refused".to_owned()),
            Effect::Dropped => lines.push("dropped".to_owned()),
            Effect::Replied {
                zxid,
                outcome,
                closed,
            } => {
                self.learn_from(&outcome);
                if is_change(step) && is_success(&outcome) {
                    self.zxids.insert(zxid, number);
                }
                let reply = self.outcome(&outcome);
                let seen = self.floor(zxid);
                let closed = if closed { ", connection closed" } else { "" };
                lines.push(format!("{reply} (seen {seen}{closed})"));
            }
            Effect::Closed => lines.push("connection closed".to_owned()),
        }
        for (session, mut notifications) in step_result.received {
            if step.ends_session() {
                notifications.sort();
            }
            for notification in notifications {
                lines.push(format!(
                    "session {session} receives {}",
                    self.notification(&notification)
                ));
            }
        }
        lines
    }

    /// Returns a line about a znode that was read after a step.
    pub fn survey(&self, path: &str, request: &Request, outcome: &Outcome) -> String {
        let name = match request {
            Request::GetData { .. } => "data",
            Request::GetChildren2 { .. } => "children",
            _ => "acl",
        };
        format!("{} {name}: {}", self.path(path), self.outcome(outcome))
    }

    /// Records the times of a stat's zxids, before lines about them are written.
    fn learn(&mut self, stat: &Stat) {
        self.times.entry(stat.czxid).or_insert(stat.ctime);
        self.times.entry(stat.mzxid).or_insert(stat.mtime);
    }

    /// Records the times in all stats of an outcome.
    pub fn learn_from(&mut self, outcome: &Outcome) {
        match outcome {
            Ok(
                Reply::Created(_, stat)
                | Reply::Stat(stat)
                | Reply::Data(_, stat)
                | Reply::NamesAndStat(_, stat)
                | Reply::Acl(_, stat),
            ) => self.learn(stat),
            Ok(Reply::Results(results)) => {
                for result in results {
                    self.learn_from(&alone(result));
                }
            }
            _ => {}
        }
    }

    fn outcome(&self, outcome: &Outcome) -> String {
        let reply = match outcome {
            Err(code) => return code.to_string(),
            Ok(reply) => reply,
        };
        match reply {
            Reply::Done => "done".to_owned(),
            Reply::Path(path) => self.path(path),
            Reply::Created(path, stat) => format!("{} {}", self.path(path), self.stat(stat)),
            Reply::Stat(stat) => self.stat(stat),
            Reply::Data(data, stat) => format!("{} {}", Data(data.as_deref()), self.stat(stat)),
            Reply::Names(names) => self.names(names),
            Reply::NamesAndStat(names, stat) => format!("{} {}", self.names(names), self.stat(stat)),
            Reply::Acl(entries, stat) => {
                let mut entries = entries.clone();
                if self.sort_acl {
                    entries.sort();
                }
                format!("{} {}", Acl(Some(&entries)), self.stat(stat))
            }
            Reply::Number(number) => number.to_string(),
            Reply::Paths(paths) => self.names(paths),
            Reply::Identities(identities) => format!("{identities:?}"),
            Reply::Results(results) => {
                let mut text = format!("results of {}", results.len());
                for result in results {
                    let kind = op_code::name(result.op_code()).expect("only known results are decoded");
                    write!(text, "\n         - {kind}: {}", self.outcome(&alone(result)))
                        .expect("a String takes everything");
                }
                text
            }
            Reply::Token(_) => unreachable!("programs do not request a token"),
        }
    }

    fn path(&self, path: &str) -> String {
        Text(&self.root.written_from(path)).to_string()
    }

    fn names(&self, names: &[String]) -> String {
        let mut names = names
            .iter()
            .map(|name| self.root.written_from(name))
            .collect::<Vec<_>>();
        names.sort();
        format!("{names:?}")
    }

    fn notification(&self, Notification { kind, state, path }: &Notification) -> String {
        let kind = match *kind {
            event_type::NODE_CREATED => "NodeCreated",
            event_type::NODE_DELETED => "NodeDeleted",
            event_type::NODE_DATA_CHANGED => "NodeDataChanged",
            event_type::NODE_CHILDREN_CHANGED => "NodeChildrenChanged",
            other => return format!("event {other} in state {state} of {path:?}"),
        };
        let path = self.path(path);
        if *state == keeper_state::SYNC_CONNECTED {
            format!("{kind} {path}")
        } else {
            format!("{kind} {path} in state {state}")
        }
    }

    fn stat(&self, stat: &Stat) -> String {
        let mut text = format!(
            "{{czxid={} mzxid={} pzxid={} version={} cversion={} aversion={} length={} children={}",
            self.exact(stat.czxid),
            self.exact(stat.mzxid),
            self.exact(stat.pzxid),
            stat.version,
            stat.cversion,
            stat.aversion,
            stat.data_length,
            stat.num_children,
        );
        if stat.ephemeral_owner != 0 {
            write!(text, " owner={}", self.owner(stat.ephemeral_owner)).expect("a String takes everything");
        }
        for (name, zxid, time) in [
            ("ctime", stat.czxid, stat.ctime),
            ("mtime", stat.mzxid, stat.mtime),
        ] {
            if self.times.get(&zxid).is_some_and(|known| *known != time) {
                write!(text, " {name} differs from that of its zxid").expect("a String takes everything");
            }
        }
        text.push('}');
        text
    }

    fn owner(&self, owner: i64) -> String {
        if let Some(session) = self.sessions.get(&owner) {
            return format!("session {session}");
        }
        if owner == CONTAINER {
            return "container".to_owned();
        }
        let bytes = owner.to_be_bytes();
        if bytes[0] == TTL_MARK {
            let ttl_ms = owner & 0x00ff_ffff_ffff_ffff;
            return format!("ttl {ttl_ms} ms");
        }
        format!("{owner:#x}")
    }

    /// Returns the step that a zxid was assigned to. All zxids from before the program have the same text.
    fn exact(&self, zxid: i64) -> String {
        match self.zxids.get(&zxid) {
            Some(step) => format!("#{step}"),
            None if self
                .zxids
                .first_key_value()
                .is_none_or(|(first, _)| zxid < *first) =>
            {
                "before".to_owned()
            }
            None => "unknown".to_owned(),
        }
    }

    /// Returns the last change up to a zxid. A rejected request has a zxid of its own on both sides, but that
    /// of a request rejected without a transaction is specific to a server.
    fn floor(&self, zxid: i64) -> String {
        match self.zxids.range(..=zxid).next_back() {
            Some((_, step)) => format!("#{step}"),
            None if zxid == 0 => "nothing".to_owned(),
            None => "before".to_owned(),
        }
    }
}

/// Returns the outcome of an item of a multi as that of a separate request.
pub(crate) fn alone(result: &MultiResult) -> Outcome {
    Ok(match result.clone() {
        MultiResult::Create(path) => Reply::Path(path),
        MultiResult::Create2(path, stat) => Reply::Created(path, stat),
        MultiResult::Delete | MultiResult::Check => Reply::Done,
        MultiResult::SetData(stat) => Reply::Stat(stat),
        MultiResult::GetData(data, stat) => Reply::Data(data, stat),
        MultiResult::GetChildren(names) => Reply::Names(names),
        MultiResult::Error(code) => return Err(code),
    })
}

fn is_change(step: &Step) -> bool {
    match step {
        Step::Close { .. } | Step::End { .. } => true,
        Step::Call { request, .. } => matches!(
            request,
            Request::Create { .. }
                | Request::Delete { .. }
                | Request::SetData { .. }
                | Request::SetAcl { .. }
                | Request::Multi(_)
                | Request::CloseSession
        ),
        _ => false,
    }
}

fn is_success(outcome: &Outcome) -> bool {
    match outcome {
        Ok(Reply::Results(results)) => !results
            .iter()
            .any(|result| matches!(result, MultiResult::Error(_))),
        Ok(_) => true,
        Err(ErrorCode(_)) => false,
    }
}
