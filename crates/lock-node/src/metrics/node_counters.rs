//! Counters of a node besides those of locks: proposals, applied entries, sessions.

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
    /// It was applied.
    Done,
    /// The state refused it.
    Refused,
    /// Nothing was done.
    Unavailable,
    /// Nobody knows.
    Unknown,
    /// Nobody waited any more.
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

    /// In a word.
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

/// See the module. One for each node, shared by all its tasks.
#[derive(Debug)]
pub struct NodeCounters {
    /// Commands that were applied here.
    pub applied: Counter,
    /// Duration of applying an entry.
    pub applying: Histogram,
    /// The longest of them lately.
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
    /// Nothing is counted yet.
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

    /// A proposal of this node's is over.
    pub fn ended(&self, how: Ended, times: Option<&Times>) {
        self.ended[how as usize].up();
        if let Some(times) = times {
            self.queued.took(times.queued());
            self.committed.took(times.committing());
            self.replied.took(times.replying());
            self.all.took(times.in_all());
        }
    }

    /// Writes all counters, those of the replication among them.
    pub fn write(&self, sheet: &mut Sheet<'_>, raft: &RaftCounters) -> fmt::Result {
        let help = "How often this node stood for election";
        sheet.counter("raft_elections", help, raft.elections.get())?;
        let help = "How often this node learnt of another leader";
        sheet.counter("raft_leader_changes", help, raft.leader_changes.get())?;
        let help = "Commands in one entry of the log, of those that this node proposed as the leader";
        sheet.histogram("raft_entry_commands", help, &raft.entry_commands.measured())?;
        let help = "Bytes of all these entries";
        sheet.counter("raft_proposed_bytes", help, raft.proposed_bytes.get())?;
        let help = "Commands that were applied here";
        sheet.counter("raft_applied_commands", help, self.applied.get())?;
        let help = "How long it takes to apply an entry";
        sheet.histogram("raft_apply_duration_seconds", help, &self.applying.measured())?;
        let help = "Longest time in the last one to two minutes that one read of the state, or the commands of one entry, took: \
                    the node does nothing else meanwhile";
        let longest = [("read", &self.read_longest), ("apply", &self.applied_longest)];
        let longest =
            longest.map(|(word, longest)| ([("by", word)], longest.get(Instant::now()).as_secs_f64()));
        sheet.gauges("longest_hold_seconds", help, longest)?;
        let help = "Snapshots that this node has made, or could not make";
        let made = [("made", &raft.snapshots.made), ("failed", &raft.snapshots.failed)];
        let made = made.map(|(word, counter)| ([("outcome", word)], counter.get()));
        sheet.counters("snapshots", help, made)?;

        let help = "Requests to change something that this node took in and that are over, by how they ended";
        let ended = Ended::ALL.map(|how| ([("outcome", how.word())], self.ended[how as usize].get()));
        sheet.counters("proposals_ended", help, ended)?;
        let help = "Duration of proposals that were applied or refused by the state, until their caller had the answer";
        sheet.histogram("proposal_duration_seconds", help, &self.all.measured())?;
        let help = "Stages of that duration: until it was sent to the leader, until it was committed, until its caller ran";
        let stages = [
            ("queue", &self.queued),
            ("commit", &self.committed),
            ("reply", &self.replied),
        ];
        let stages = stages.map(|(stage, times)| ([("stage", stage)], times.measured()));
        sheet.histograms("proposal_stage_duration_seconds", help, stages)
    }
}
