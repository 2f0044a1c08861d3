//! Health of the nodes' disks, and the measures that follow from it.
//!
//! ```text
//!  every node      checks its own disk: free space, durations of syncs         local.rs
//!  the leader      collects the reports of all members, and decides:           leader/
//!                    without a quorum of voters with space the cluster is read-only
//!                    a voter with a better disk should lead
//!                    problems for operators become alarms
//!  the leader      sends its findings to all members with its next request     tasks.rs
//! ```
//!
//! Only the leader enforces read-only mode, when it packs an entry (`batcher/`). The state decides which requests that
//! concerns (`replicated_state.rs`). A node whose log has no room accepts no entries from its peers (`peers/server/`),
//! and continues when it has room. This module does no file I/O.

pub(crate) mod config;
mod local;
mod leader;
pub(crate) mod report;
mod tasks;

use std::collections::BTreeMap;
use std::time::Duration;

use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::time::Instant;

pub use self::config::DiskConfig;
pub use self::report::{Alarm, AlarmKind, DiskReport, DiskView, MemberNews};
pub(crate) use self::tasks::{watch_local_disk, watch_members};

use self::local::LocalDisk;
use crate::ids::NodeId;
use crate::messages::NotLeader;
use crate::state_machine::Raft;
use raft_log::sync::{Mutex, RwLock};

/// Age at which the leader's findings expire. A lost leader has a successor by then.
const VIEW_AGE: Duration = Duration::from_secs(5);

/// Knowledge of one node about disks: its own report, and the leader's findings about all.
pub struct DiskHealth {
    node: NodeId,
    config: RwLock<DiskConfig>,
    local: LocalDisk,
    view: Mutex<Option<(DiskView, Instant)>>,
    /// Recent reports of the members, including this node's own, while this node leads.
    reports: Mutex<BTreeMap<NodeId, DiskReport>>,
}

impl DiskHealth {
    /// Creates the state without reports.
    pub fn new(node: NodeId, config: DiskConfig) -> Self {
        Self {
            node,
            local: LocalDisk::new(config.clone()),
            config: RwLock::new(config),
            view: Mutex::default(),
            reports: Mutex::default(),
        }
    }

    /// Sets the thresholds for the next check.
    pub fn reconfigure(&self, config: DiskConfig) {
        self.local.reconfigure(config.clone());
        *self.config.write() = config;
    }

    fn config(&self) -> DiskConfig {
        self.config.read().clone()
    }

    /// Returns the last report about this node's own disk.
    pub fn report(&self) -> DiskReport {
        self.local.report()
    }

    /// Records the members' reports to this node as their leader.
    fn reported(&self, reports: BTreeMap<NodeId, DiskReport>) {
        *self.reports.lock() = reports;
    }

    /// Returns the condition of the members, if this node leads.
    pub fn members(&self, raft: &Raft) -> Result<Vec<MemberNews>, NotLeader> {
        let metrics = raft.metrics().borrow_watched().clone();
        let Some(replication) = metrics
            .replication
            .filter(|_| metrics.state == ServerState::Leader)
        else {
            let leader = metrics.current_leader;
            return Err(NotLeader { leader });
        };
        let last = metrics.last_log_index.unwrap_or(0);
        let reports = self.reports.lock();
        let news = metrics.membership_config.nodes().map(|(id, _)| {
            let matched = replication.get(id).map(|at| at.map_or(0, |at| at.index));
            MemberNews {
                node_id: *id,
                matched_index: matched,
                lag: matched.map(|matched| last.saturating_sub(matched)),
                disk: reports.get(id).cloned(),
            }
        });
        Ok(news.collect())
    }

    /// Records a leader's findings. Older ones than the known ones are ignored.
    pub fn learn(&self, view: DiskView) {
        let mut known = self.view.lock();
        if known.as_ref().is_none_or(|(known, _)| known.term <= view.term) {
            *known = Some((view, Instant::now()));
        }
    }

    /// Returns the leader's findings, unless they have expired.
    pub fn view(&self) -> Option<DiskView> {
        let known = self.view.lock();
        let (view, when) = known.as_ref()?;
        (when.elapsed() <= VIEW_AGE).then(|| view.clone())
    }

    /// Returns why the cluster accepts only commands that shrink the state; `None` if it accepts all.
    pub fn read_only(&self) -> Option<String> {
        let known = self.view.lock();
        let (view, when) = known.as_ref()?;
        view.read_only.clone().filter(|_| when.elapsed() <= VIEW_AGE)
    }

    /// Returns alarms for operators: the leader's, or, as long as there are none, this node's own.
    pub fn alarms(&self) -> Vec<Alarm> {
        match self.view() {
            Some(view) => view.alarms,
            None => leader::alarms_of(self.node, &self.report(), &self.config()),
        }
    }
}
