//! Leader's evaluation of all disks from their nodes' reports. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::config::DiskConfig;
use super::report::{Alarm, AlarmKind, DiskReport, DiskView};
use crate::ids::NodeId;

/// Ratio of a slow disk's syncs to those of the best disk.
const SLOW_FACTOR: u64 = 8;

/// Minimum duration of a slow disk's sync: below it, the network and the scheduler matter as much.
const SLOW_FLOOR_US: u64 = 50_000;

/// Maximum number of entries that the next leader may lack: there is no leader until it has fetched them.
const MAX_LAG_ENTRIES: u64 = 1_024;

/// Facts that the leader has.
#[derive(Debug, Clone, Default)]
pub struct ClusterDisks {
    /// Id of the leader.
    pub me: NodeId,
    /// Voters; two sets during a change of the membership.
    pub voters: Vec<BTreeSet<NodeId>>,
    /// Reports of the last round, including the leader's own. A member that did not answer is missing.
    pub reports: BTreeMap<NodeId, DiskReport>,
    /// Number of entries that each voter lacks, if known.
    pub lag: BTreeMap<NodeId, u64>,
}

/// Reason to move leadership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandOverReason {
    /// The leader's disk is nearly full.
    Full,
    /// The leader's disk is slow.
    Slow,
}

impl ClusterDisks {
    /// Returns the voters without space, if the voters with space are not a quorum.
    ///
    /// A node that does not answer is not counted. If the voters that answer are not a quorum, the problem is
    /// not space.
    pub fn without_space(&self) -> Option<Vec<NodeId>> {
        self.voters.iter().find_map(|voters| {
            let of = |low: bool| {
                let reported = voters.iter().filter(move |id| {
                    let report = self.reports.get(id);
                    report.is_some_and(|report| (report.low || report.log_full) == low)
                });
                reported.copied().collect::<Vec<_>>()
            };
            let (with, without) = (of(false), of(true));
            let quorum = voters.len() / 2 + 1;
            (with.len() < quorum && with.len() + without.len() >= quorum).then_some(without)
        })
    }

    /// Returns the voter to which the leader should hand over because of its own disk, if any.
    pub fn hand_over(&self, config: &DiskConfig) -> Option<(NodeId, HandOverReason)> {
        let own = self.reports.get(&self.me)?;
        let is_voter = |id: &NodeId| self.voters.iter().any(|voters| voters.contains(id));
        let healthy: BTreeMap<NodeId, &DiskReport> = self
            .reports
            .iter()
            .filter(|(id, report)| **id != self.me && is_voter(id) && !is_stalled(report, config))
            .map(|(id, report)| (*id, report))
            .collect();
        let heirs = healthy.iter().filter(|(id, report)| {
            let lag = self.lag.get(id);
            !report.low && !report.log_full && lag.is_some_and(|lag| *lag <= MAX_LAG_ENTRIES)
        });
        let best = heirs.min_by_key(|(id, report)| (report.sync_us.unwrap_or(0), self.lag.get(id).copied()));
        let (heir, report) = best.map(|(id, report)| (*id, *report))?;
        // A node with a slow disk also votes slowly: the other voters must be a quorum.
        let quorum_without_me = self.voters.iter().all(|voters| {
            let others = voters.iter().filter(|id| healthy.contains_key(id)).count();
            others > voters.len() / 2
        });
        if quorum_without_me && (is_stalled(own, config) || is_slow(own, report.sync_us)) {
            Some((heir, HandOverReason::Slow))
        } else if own.low || own.log_full {
            Some((heir, HandOverReason::Full))
        } else {
            None
        }
    }

    /// Returns all findings. `before` are the previous ones, which contain the times at which alarms began.
    pub fn view(&self, term: u64, before: Option<&DiskView>, now_ms: u64, config: &DiskConfig) -> DiskView {
        let without = self.without_space();
        let read_only = without.map(|without| {
            let nodes: Vec<String> = without.iter().map(NodeId::to_string).collect();
            let (disks, are) = match nodes.len() {
                1 => ("the disk of node", "is"),
                _ => ("the disks of nodes", "are"),
            };
            format!(
                "{disks} {} {are} nearly full, so the cluster accepts only commands that shrink the state",
                nodes.join(", ")
            )
        });
        let mut alarms = Vec::new();
        if let Some(reason) = &read_only {
            alarms.push(Alarm {
                action: "free space on these disks; the cluster then resumes automatically. Releases, \
                         deletions, ends of sessions and heartbeats work meanwhile"
                    .to_owned(),
                ..alarm(None, AlarmKind::ReadOnly, reason.clone())
            });
        }
        let best = self.reports.values().filter_map(|report| report.sync_us).min();
        for (id, report) in &self.reports {
            alarms.extend(alarms_of(*id, report, config));
            let known = alarms
                .last()
                .is_some_and(|last| (last.node_id, last.kind) == (Some(*id), AlarmKind::SlowDisk));
            if is_slow(report, best) && !known {
                alarms.push(slow_disk(*id, report));
            }
        }
        for alarm in &mut alarms {
            let mut earlier = before.iter().flat_map(|view| &view.alarms);
            let earlier = earlier.find(|other| (other.node_id, other.kind) == (alarm.node_id, alarm.kind));
            alarm.since_ms = earlier.map_or(now_ms, |earlier| earlier.since_ms);
        }
        DiskView {
            term,
            read_only,
            alarms,
        }
    }
}

fn is_stalled(report: &DiskReport, config: &DiskConfig) -> bool {
    Duration::from_micros(report.working_us) >= config.stall
}

/// Returns whether syncs take much longer than the best disk's. Without another disk for comparison, no disk
/// is slow.
fn is_slow(report: &DiskReport, best_us: Option<u64>) -> bool {
    match (report.sync_us, best_us) {
        (Some(own), Some(best)) => own >= SLOW_FLOOR_US && own / SLOW_FACTOR >= best,
        _ => false,
    }
}

/// Returns the alarms that follow from one node's report alone.
pub fn alarms_of(id: NodeId, report: &DiskReport, config: &DiskConfig) -> Vec<Alarm> {
    let mut alarms = Vec::new();
    let free = report
        .free_bytes
        .map_or("an unknown number of".to_owned(), |free| free.to_string());
    let figures = |alarm: Alarm| Alarm {
        free_bytes: report.free_bytes,
        low_water_bytes: Some(report.low_water_bytes),
        ..alarm
    };
    if report.low {
        let detail = format!(
            "{free} bytes are free on the disk of node {id}, and the low-water mark is {}",
            report.low_water_bytes
        );
        alarms.push(figures(Alarm {
            action: "free space on the disk, or enlarge it; lower disk.low_water_bytes only if the disk is \
                     small on purpose"
                .to_owned(),
            ..alarm(Some(id), AlarmKind::DiskLow, detail)
        }));
    }
    if report.log_full {
        let detail = format!(
            "the log of node {id} has no room for entries: {free} bytes are free on its disk. The node votes, \
             and accepts entries again when it has room"
        );
        alarms.push(figures(Alarm {
            action: "free space on the disk; the node then catches up automatically".to_owned(),
            ..alarm(Some(id), AlarmKind::LogFull, detail)
        }));
    }
    if is_stalled(report, config) {
        alarms.push(slow_disk(id, report));
    }
    alarms
}

fn slow_disk(id: NodeId, report: &DiskReport) -> Alarm {
    let ms = |us: u64| us / 1_000;
    let detail = match (report.sync_us, report.working_us) {
        (_, working) if working >= 1_000_000 => {
            format!(
                "a write to the log of node {id} has lasted for {} ms",
                ms(working)
            )
        }
        (Some(sync), _) => format!("a sync of the log of node {id} takes {} ms", ms(sync)),
        (None, working) => format!(
            "a write to the log of node {id} has lasted for {} ms",
            ms(working)
        ),
    };
    Alarm {
        action: "check the disk for errors, and for other programs that write to it. The cluster continues \
                 without it as long as the others are a quorum"
            .to_owned(),
        sync_us: Some(report.sync_us.unwrap_or(0).max(report.working_us)),
        ..alarm(Some(id), AlarmKind::SlowDisk, detail)
    }
}

fn alarm(node_id: Option<NodeId>, kind: AlarmKind, detail: String) -> Alarm {
    Alarm {
        node_id,
        kind,
        since_ms: 0,
        detail,
        action: String::new(),
        free_bytes: None,
        low_water_bytes: None,
        sync_us: None,
    }
}

#[cfg(test)]
mod tests;
