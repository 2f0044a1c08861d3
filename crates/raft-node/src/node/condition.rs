//! Condition of a node: its knowledge of the cluster, and whether it can serve.

use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, SystemTime};

use openraft::async_runtime::watch::WatchReceiver;
use openraft::{Instant as _, ServerState};

use super::RaftNode;
use crate::disk_health::Alarm;
use crate::disk_health::report::DiskReport;
use crate::ids::{MemberAddress, NodeId};
use crate::membership::MAX_PROMOTE_LAG;
use crate::membership::plan::next_free;
use crate::status::{ClusterStatus, Followers, MemberStatus, NodeIdRange, Role};
use raft_log::FileSizes;

/// Time since the last confirmation of being up to date after which a node is not ready.
const READINESS_AGE: Duration = Duration::from_secs(3);

impl RaftNode {
    /// Returns this node's knowledge of the cluster.
    pub fn status(&self) -> ClusterStatus {
        let inner = &self.inner;
        let metrics = inner.raft.metrics().borrow_watched().clone();
        let view = *inner.leader.borrow();
        let role = match metrics.state {
            ServerState::Leader => Role::Leader,
            ServerState::Candidate => Role::Candidate,
            ServerState::Learner => Role::Learner,
            ServerState::Follower | ServerState::Shutdown => Role::Follower,
        };
        let voters: Vec<NodeId> = metrics.membership_config.voter_ids().collect();
        let index = |id: Option<crate::types::LogId>| id.map_or(0, |id| id.index);
        let last = metrics.last_log_index.unwrap_or(0);
        let members = inner.registry.addresses().into_iter().map(|(node_id, address)| {
            let matched = metrics.replication.as_ref().and_then(|all| all.get(&node_id));
            let matched = matched.map(|matched| index(*matched));
            MemberStatus {
                node_id,
                peer: address.peer,
                http: address.http,
                role: match () {
                    () if view.leader == Some(node_id) => Role::Leader,
                    () if voters.is_empty() || voters.contains(&node_id) => Role::Follower,
                    () => Role::Learner,
                },
                matched_index: matched,
                lag: matched.map(|matched| last.saturating_sub(matched)),
                versions: inner.registry.versions_of(node_id),
            }
        });
        let retired = inner.registry.retired();
        let not_ready = self.not_ready();
        let (log, snapshot) = {
            // `None` once the node has stopped.
            let storage = inner.storage.lock();
            let log = storage.as_ref().map(|storage| storage.wal.clone());
            (
                log,
                storage.as_ref().and_then(|storage| storage.snapshots.latest()),
            )
        };
        ClusterStatus {
            cluster: inner.config.cluster.clone(),
            cluster_id: inner
                .registry
                .cluster_id()
                .map(|id| id.to_string())
                .unwrap_or_default(),
            node_id: self.id(),
            role,
            leader: view.leader,
            term: view.term,
            committed_index: index(metrics.local_committed),
            applied_index: self.applied().get().index,
            applied_zxid: inner.state.zxid(),
            snapshot_index: index(metrics.snapshot),
            snapshot_bytes: snapshot.as_ref().map_or(0, |snapshot| snapshot.bytes()),
            snapshot_age_ms: snapshot.map(|it| crate::wall_clock::now_ms().saturating_sub(it.meta().made_ms)),
            snapshot_failure: inner.snapshots.failure(),
            log_first_index: log.as_ref().map_or(0, |log| log.range().start),
            log_bytes: log.map_or(0, |log| log.bytes_after(0)),
            ready: not_ready.is_none(),
            not_ready_reason: not_ready,
            read_only: inner.disks.view().is_some_and(|view| view.read_only.is_some()),
            alarms: self.alarms(),
            members: members.collect(),
            next_node_id: next_free(inner.registry.addresses().into_keys(), &retired),
            retired_node_ids: retired
                .ranges()
                .map(|(first, last)| NodeIdRange { first, last })
                .collect(),
        }
    }

    /// Returns the alarms for operators: about disks, and about members that have lost data or differ.
    pub fn alarms(&self) -> Vec<Alarm> {
        let mut alarms = self.inner.disks.alarms();
        alarms.extend(self.inner.audit.alarms());
        alarms
    }

    /// Returns the alarms of the whole cluster, if the leader's are known.
    pub fn cluster_alarms(&self) -> Option<Vec<Alarm>> {
        // This node's own alarms cover only its own disk, and would end whenever the leader's are available
        // again.
        let mut alarms = self.inner.disks.view()?.alarms;
        alarms.extend(self.inner.audit.alarms());
        Some(alarms)
    }

    /// Returns the description of the event that a node without a cluster waits for.
    pub(super) fn waits_for(&self) -> String {
        let config = &self.inner.config;
        let (id, cluster) = (config.node_id, &config.cluster);
        match (config.join, config.members.get(&id)) {
            (true, Some(MemberAddress { peer, http })) => format!(
                "node {id} waits to be added to the cluster {cluster:?}: ask any member of it to add node {id} at \
                 peer {peer} and http {http}"
            ),
            _ => format!(
                "node {id} waits for the cluster {cluster:?} to be formed: all its first members must be up"
            ),
        }
    }

    /// Returns the expiry time of the certificate that this node shows to its peers; `None` without TLS.
    pub fn certificate_expiry(&self) -> Option<SystemTime> {
        self.inner.registry.tls()?.reloadable().not_after()
    }

    /// Returns whether this node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.leads_in().is_some()
    }

    /// Returns the term in which this node leads, as far as it knows.
    pub fn leads_in(&self) -> Option<u64> {
        let view = *self.inner.leader.borrow();
        (view.leader == Some(self.id())).then_some(view.term)
    }

    /// Returns the number of followers and how closely they follow; `None` if this node does not lead. A
    /// follower that has not answered for the longest election timeout does not count.
    pub fn followers(&self) -> Option<Followers> {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        if metrics.state != ServerState::Leader {
            return None;
        }
        let voters: Vec<NodeId> = metrics.membership_config.voter_ids().collect();
        let last = metrics.last_log_index.unwrap_or(0);
        let replication = metrics.replication.unwrap_or_default();
        let is_synced = |id: &NodeId| {
            let matched = replication.get(id).copied().flatten();
            matched.is_some_and(|matched| last.saturating_sub(matched.index) <= MAX_PROMOTE_LAG)
        };
        let silence = self.inner.config.timing.election_max;
        let mut followers = Followers::default();
        for (id, answered) in metrics.heartbeat.unwrap_or_default() {
            if id == self.id() || answered.is_none_or(|answered| answered.elapsed() > silence) {
                continue;
            }
            followers.answering += 1;
            match (is_synced(&id), voters.contains(&id)) {
                (true, true) => followers.synced_voters += 1,
                (true, false) => followers.synced_learners += 1,
                (false, _) => {}
            }
        }
        Some(followers)
    }

    /// Returns the time since each other member's last answer to this node; `None` if this node does not
    /// lead. A member that has not answered yet has `None`.
    pub fn silences(&self) -> Option<BTreeMap<NodeId, Option<Duration>>> {
        let metrics = self.inner.raft.metrics().borrow_watched().clone();
        if metrics.state != ServerState::Leader {
            return None;
        }
        let answered = metrics.heartbeat.unwrap_or_default().into_iter();
        let others = answered.filter(|(id, _)| *id != self.id());
        Some(others.map(|(id, at)| (id, at.map(|at| at.elapsed()))).collect())
    }

    /// Returns the directories of this node's log and snapshots with their sizes. Blocks on the disk.
    pub fn file_sizes(&self) -> io::Result<FileSizes> {
        FileSizes::measure(&self.inner.config.data_dir)
    }

    /// Returns the number of the latest start of a member's data directory that this node has recorded on its
    /// disk; 0 if none is recorded.
    pub fn knows_start_of(&self, node: NodeId) -> u64 {
        self.inner.registry.witness().start_of(node)
    }

    /// Returns the last committed entry that a member has acknowledged to this node.
    #[cfg(feature = "simulation")]
    pub fn knows_committed_by(&self, node: NodeId) -> u64 {
        self.inner.registry.witness().committed_by(node)
    }

    /// Returns the index of the last entry of this node's log.
    #[cfg(feature = "simulation")]
    pub fn log_end(&self) -> u64 {
        let metrics = self.inner.raft.metrics();
        metrics.borrow_watched().last_log_index.unwrap_or(0)
    }

    /// Returns this node's report about its own disk.
    pub fn disk_report(&self) -> DiskReport {
        self.inner.disks.report()
    }

    /// Returns the reason why this node cannot serve now; `None` if it can.
    pub fn not_ready(&self) -> Option<String> {
        if let Some(failure) = &*self.inner.failure.borrow() {
            return Some(failure.clone());
        }
        if self.inner.stop.is_cancelled() {
            return Some("this node is stopping".to_owned());
        }
        if let Some(reason) = &*self.inner.distrust.borrow() {
            return Some(reason.clone());
        }
        if !self.inner.registry.is_formed() {
            return Some(self.waits_for());
        }
        if self.leads() && !self.inner.application.has_taken_over() {
            return Some("this node has begun to lead, and accepts no heartbeats yet".to_owned());
        }
        let or_too_old = |reason| self.inner.registry.incompatible().or(Some(reason));
        match *self.inner.confirmed.lock() {
            None => or_too_old("this node has not caught up with a leader yet".to_owned()),
            Some(when) if when.elapsed() > READINESS_AGE => {
                or_too_old(format!("no leader has answered for {:?}", when.elapsed()))
            }
            Some(_) => None,
        }
    }

    /// Returns whether [`RaftNode::end_tasks`] was called or the node has failed. It accepts no more work,
    /// and callers should not retry on it.
    pub fn is_stopping(&self) -> bool {
        self.inner.stop.is_cancelled() || self.inner.failure.borrow().is_some()
    }
}
