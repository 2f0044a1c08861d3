//! Counters of a node besides those of locks: proposals, applied entries, snapshots.

use std::fmt;

use tokio::time::Instant;

use super::config::MetricsConfig;
use crate::pending_proposals::Times;
use crate::slow_log::SlowLog;
use instruments::counters::{Classes, Counter, Histogram, Longest};
use instruments::text_format::Sheet;
use raft_node::counters::RaftCounters;

/// End of a proposal for its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The proposal was applied.
    Done,
    /// The state refused the command.
    Refused,
    /// The proposal was certainly not applied.
    Unavailable,
    /// The outcome is unknown.
    Unknown,
    /// The caller cancelled the proposal.
    Cancelled,
}

impl Ended {
    const ALL: [Self; 5] = [
        Self::Done,
        Self::Refused,
        Self::Unavailable,
        Self::Unknown,
        Self::Cancelled,
    ];

    /// Returns the label of this end in metrics, logs and traces.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
            Self::Unknown => "unknown",
            Self::Cancelled => "given_up",
        }
    }
}

/// Counters of one node, shared by all its tasks.
#[derive(Debug)]
pub struct NodeCounters {
    /// Commands that this node applied.
    pub applied: Counter,
    /// Durations of applying an entry.
    pub applying: Histogram,
    /// Longest recent duration of applying an entry.
    pub applied_longest: Longest,
    /// Longest recent time for which a reader kept the state locked.
    pub read_longest: Longest,
    /// Log of slow requests.
    pub slow: SlowLog,
    ended: [Counter; Ended::ALL.len()],
    queued: Histogram,
    committed: Histogram,
    replied: Histogram,
    all: Histogram,
}

impl Default for NodeCounters {
    fn default() -> Self {
        Self::new(&MetricsConfig::default())
    }
}

impl NodeCounters {
    /// Returns counters that are all 0.
    pub fn new(config: &MetricsConfig) -> Self {
        let latency = || Histogram::new(&Classes::LATENCY);
        Self {
            applied: Counter::default(),
            applying: latency(),
            applied_longest: Longest::default(),
            read_longest: Longest::default(),
            slow: SlowLog::new(config.slow),
            ended: Default::default(),
            queued: latency(),
            committed: latency(),
            replied: latency(),
            all: latency(),
        }
    }

    /// Counts the end of a proposal of this node. `times` are the durations of its steps, if it was applied.
    pub fn ended(&self, how: Ended, times: Option<&Times>) {
        self.ended[how as usize].up();
        if let Some(times) = times {
            self.queued.took(times.queued());
            self.committed.took(times.committing());
            self.replied.took(times.replying());
            self.all.took(times.total());
        }
    }

    /// Writes all counters, including those of the replication.
    pub fn write(&self, sheet: &mut Sheet<'_>, raft: &RaftCounters) -> fmt::Result {
        let help = "Elections in which this node was a candidate";
        sheet.counter("raft_elections", help, raft.elections.get())?;
        let help = "Changes of the leader that this node observed";
        sheet.counter("raft_leader_changes", help, raft.leader_changes.get())?;
        let help = "Commands per log entry that this node proposed as the leader";
        sheet.histogram("raft_entry_commands", help, &raft.entry_commands.measured())?;
        let help = "Bytes of all log entries that this node proposed as the leader";
        sheet.counter("raft_proposed_bytes", help, raft.proposed_bytes.get())?;
        let help = "Commands that this node applied";
        sheet.counter("raft_applied_commands", help, self.applied.get())?;
        let help = "Duration of applying a log entry";
        sheet.histogram("raft_apply_duration_seconds", help, &self.applying.measured())?;
        let help = "Longest duration of one read of the state, or of applying one log entry, in the last one to two minutes; \
                    the node applies nothing else meanwhile";
        let longest = [("read", &self.read_longest), ("apply", &self.applied_longest)];
        let longest =
            longest.map(|(word, longest)| ([("by", word)], longest.get(Instant::now()).as_secs_f64()));
        sheet.gauges("longest_hold_seconds", help, longest)?;
        let help = "Snapshots that this node has made or failed to make";
        let made = [("made", &raft.snapshots.made), ("failed", &raft.snapshots.failed)];
        let made = made.map(|(word, counter)| ([("outcome", word)], counter.get()));
        sheet.counters("snapshots", help, made)?;

        let help = "Proposals of this node that have ended, by outcome";
        let ended = Ended::ALL.map(|how| ([("outcome", how.word())], self.ended[how as usize].get()));
        sheet.counters("proposals_ended", help, ended)?;
        let help = "Duration of proposals that were applied, including those that the state refused, until their caller had the answer";
        sheet.histogram("proposal_duration_seconds", help, &self.all.measured())?;
        let help = "Duration of the stages of a proposal: until it was sent to the leader, until it was committed, until its caller had the answer";
        let stages = [
            ("queue", &self.queued),
            ("commit", &self.committed),
            ("reply", &self.replied),
        ];
        let stages = stages.map(|(stage, times)| ([("stage", stage)], times.measured()));
        sheet.histograms("proposal_stage_duration_seconds", help, stages)
    }
}
