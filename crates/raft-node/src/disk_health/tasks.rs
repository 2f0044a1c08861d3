//! Tasks of the disk health check. Every node checks its own disk, and frees space if it can. The leader
//! collects all members' reports, evaluates them, and acts on the result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::DiskHealth;
use super::leader::{ClusterDisks, HandOverReason};
use super::local::DiskSample;
use super::report::{DiskReport, DiskView};
use crate::blocking;
use crate::compaction::SnapshotRequests;
use crate::ids::NodeId;
use crate::peers::wire::{PeerRequest, PeerResponse};
use crate::peers::{Peers, Purpose};
use crate::state_machine::Raft;
use crate::storage::Storage;
use crate::wall_clock;

/// Minimum interval at which a node with a nearly full disk truncates its log, since each time it writes its
/// whole state.
const RELIEF_PAUSE: Duration = Duration::from_secs(5);

/// Number of rounds without an answer after which a member's report expires.
const ROUNDS_COUNTED: u32 = 3;

/// Checks this node's disk until `stop`. While it is nearly full, the log is truncated as far as a snapshot
/// allows, and one snapshot is kept instead of two.
pub(crate) async fn watch_local_disk(
    disks: Arc<DiskHealth>,
    storage: Arc<Storage>,
    raft: Raft,
    snapshots: SnapshotRequests,
    stop: CancellationToken,
) {
    let mut relieved: Option<Instant> = None;
    let mut check: Option<JoinHandle<std::io::Result<Option<u64>>>> = None;
    loop {
        // A file system that does not answer blocks only one thread of the blocking pool.
        let mut answer = check.take().unwrap_or_else(|| {
            let (storage, low) = (storage.clone(), disks.report().low);
            tokio::spawn(blocking::run(move || free_space(&storage, low)))
        });
        let free_bytes = match tokio::time::timeout(disks.config().check_interval, &mut answer).await {
            Ok(Ok(Ok(free_bytes))) => free_bytes,
            Ok(_) => None,
            Err(_) => {
                check = Some(answer);
                None
            }
        };
        let wal = &storage.wal;
        let (was_low, was_full) = (disks.report().low, disks.report().log_full);
        let report = disks.local.record(DiskSample {
            free_bytes,
            snapshot_bytes: storage.snapshots.latest().map_or(0, |latest| latest.bytes()),
            log_full: wal.is_full(),
            starved: wal.is_starved(),
            sync: wal.fsync_stats().median(),
            working: wal.fsync_stats().current_write_time(),
        });
        if was_low != report.low {
            let (free, mark) = (report.free_bytes, report.low_water_bytes);
            match report.low {
                true => tracing::warn!(?free, low_water = mark, "disk: nearly full"),
                false => tracing::info!(?free, low_water = mark, "disk: has space again"),
            }
        }
        if was_full != report.log_full {
            match report.log_full {
                true => tracing::error!(
                    "disk: the log has no room, and this node accepts no entries until it has"
                ),
                false => tracing::info!("disk: the log has room again"),
            }
        }
        if report.low && wal.segments() > 1 {
            let due = relieved.is_none_or(|last| last.elapsed() >= RELIEF_PAUSE);
            if shorten_log(&raft, &storage, due.then_some(&snapshots)).await {
                relieved = Some(Instant::now());
            }
        }
        tokio::select! {
            () = tokio::time::sleep(disks.config().check_interval) => {}
            () = stop.cancelled() => return,
        }
    }
}

/// Queries the file system. Blocks.
fn free_space(storage: &Storage, low: bool) -> Option<u64> {
    if let Err(error) = storage.snapshots.set_space_low(low) {
        tracing::warn!(%error, "disk: the older snapshot could not be removed");
    }
    match storage.dir.free_space() {
        Ok(free) => Some(free),
        Err(error) => {
            tracing::warn!(%error, "disk: the free space could not be determined");
            None
        }
    }
}

/// Purges the log up to the newest snapshot, and requests a newer snapshot through `snapshot_requests`.
/// Returns whether it did.
async fn shorten_log(raft: &Raft, storage: &Storage, snapshot_requests: Option<&SnapshotRequests>) -> bool {
    let (covered, applied) = {
        let metrics = raft.metrics();
        let now = metrics.borrow_watched();
        let index = |id: Option<crate::types::LogId>| id.map_or(0, |id| id.index);
        (index(now.snapshot), index(now.last_applied))
    };
    // Only a stopped Raft fails here, and then the node stops, too.
    if covered > storage.wal.purged().map_or(0, |purged| purged.index) {
        let _ = raft.trigger().purge_log(covered).await;
    }
    applied > covered && snapshot_requests.is_some_and(SnapshotRequests::begin)
}

/// State of the leader during its term.
struct Term {
    term: u64,
    /// Time before which leadership is not handed over.
    no_hand_over_before: Instant,
    reported: BTreeMap<NodeId, (DiskReport, Instant)>,
}

/// Collects the disk reports of all members while this node leads, sends them its findings, and hands
/// leadership over if another voter's disk is better. Runs until `stop`.
pub(crate) async fn watch_members(
    disks: Arc<DiskHealth>,
    peers: Arc<Peers>,
    raft: Raft,
    stop: CancellationToken,
) {
    let mut term_state: Option<Term> = None;
    loop {
        tokio::select! {
            () = tokio::time::sleep(disks.config().check_interval) => {}
            () = stop.cancelled() => return,
        }
        let Some(seen) = LeaderMetrics::by_leader(&raft) else {
            term_state = None;
            continue;
        };
        let now = Instant::now();
        let term_state = match &mut term_state {
            Some(term_state) if term_state.term == seen.term => term_state,
            other => other.insert(Term {
                term: seen.term,
                no_hand_over_before: now + disks.config().hand_over_pause,
                reported: BTreeMap::new(),
            }),
        };
        let others = seen.others(disks.node);
        let asked = tokio::select! {
            asked = collect_reports(&disks, &peers, &others) => asked,
            () = stop.cancelled() => return,
        };
        let now = Instant::now();
        term_state
            .reported
            .extend(asked.into_iter().map(|(id, report)| (id, (report, now))));
        let counted = disks.config().check_interval * ROUNDS_COUNTED * 2;
        term_state
            .reported
            .retain(|id, (_, when)| now - *when <= counted && seen.members.contains(id));

        let reported = term_state.reported.iter();
        let mut reports: BTreeMap<NodeId, DiskReport> =
            reported.map(|(id, (report, _))| (*id, report.clone())).collect();
        reports.insert(disks.node, disks.report());
        disks.reported(reports.clone());
        let cluster_disks = ClusterDisks {
            me: disks.node,
            voters: seen.voters,
            reports,
            lag: seen.lag,
        };
        let before = disks.view();
        let view = cluster_disks.view(seen.term, before.as_ref(), wall_clock::now_ms(), &disks.config());
        log_changes(before.as_ref(), &view);
        disks.learn(view);

        if now >= term_state.no_hand_over_before
            && let Some((heir, motive)) = cluster_disks.hand_over(&disks.config())
        {
            match motive {
                HandOverReason::Full => {
                    tracing::warn!(to = heir, "disk: nearly full, handing over leadership")
                }
                HandOverReason::Slow => tracing::warn!(to = heir, "disk: slow, handing over leadership"),
            }
            term_state.no_hand_over_before = now + disks.config().hand_over_pause;
            // If Raft has stopped, the node stops anyway.
            let _ = raft.trigger().transfer_leader(heir).await;
        }
    }
}

/// Metrics of Raft that the leader uses.
struct LeaderMetrics {
    term: u64,
    members: BTreeSet<NodeId>,
    voters: Vec<BTreeSet<NodeId>>,
    lag: BTreeMap<NodeId, u64>,
}

impl LeaderMetrics {
    fn by_leader(raft: &Raft) -> Option<Self> {
        let metrics = raft.metrics();
        let now = metrics.borrow_watched();
        if now.state != ServerState::Leader {
            return None;
        }
        let last = now.last_log_index.unwrap_or(0);
        let matched = now.replication.iter().flatten();
        Some(Self {
            term: now.current_term,
            members: now.membership_config.nodes().map(|(id, _)| *id).collect(),
            voters: now.membership_config.membership().get_joint_config().clone(),
            lag: matched
                .map(|(id, matched)| {
                    (
                        *id,
                        last.saturating_sub(matched.map_or(0, |matched| matched.index)),
                    )
                })
                .collect(),
        })
    }

    fn others(&self, me: NodeId) -> Vec<NodeId> {
        self.members.iter().copied().filter(|id| *id != me).collect()
    }
}

/// Requests the reports of all members once. Members that do not answer in time are missing in the result.
async fn collect_reports(disks: &DiskHealth, peers: &Peers, members: &[NodeId]) -> Vec<(NodeId, DiskReport)> {
    let view = disks.view();
    let asked = members.iter().map(|id| {
        let (connection, view) = (peers.connection(*id, Purpose::Control), view.clone());
        async move {
            match connection
                .request(PeerRequest::Disk { view }, disks.config().check_interval)
                .await
            {
                Ok(PeerResponse::Disk(report)) => Some((*id, report)),
                // The member is unreachable or busy; Raft logs that already.
                Ok(_) | Err(_) => None,
            }
        }
    });
    join_all(asked).await.into_iter().flatten().collect()
}

/// Logs alarms that begin and end.
fn log_changes(before: Option<&DiskView>, now: &DiskView) {
    let alarms = |view: &DiskView| view.alarms.clone();
    let before = before.map(alarms).unwrap_or_default();
    let missing = |alarm: &super::Alarm, list: &[super::Alarm]| {
        !list
            .iter()
            .any(|other| (other.node_id, other.kind) == (alarm.node_id, alarm.kind))
    };
    for alarm in now.alarms.iter().filter(|alarm| missing(alarm, &before)) {
        tracing::warn!(
            kind = alarm.kind.word(),
            node = alarm.node_id,
            "alarm: {}",
            alarm.detail
        );
    }
    for alarm in before.iter().filter(|alarm| missing(alarm, &now.alarms)) {
        tracing::info!(
            kind = alarm.kind.word(),
            node = alarm.node_id,
            "the alarm has ended"
        );
    }
}
