//! Continuous check that all replicas are equal, and exchange of the members' progress.
//!
//! Every few seconds the leader sends each member the digests of its own state at some positions
//! ([`ReplicatedState::digests`]), its records of all members' directories (`witness.rs`), and its last
//! finding. A member with another digest at the same position stops serving at once, and answers with its own
//! digests. The leader compares all answers (`comparison.rs`): the state that more than half of the compared
//! members have is right, even if it is not the leader's. Without such a majority the right state is unknown,
//! and no member that differs serves.
//!
//! The messages also carry the members' wall clocks ([`crate::cluster_clock`]).
//!
//! A node that differs serves no client and does not lead. It continues to append and to vote: its log equals
//! the others' logs, and only its state does not follow from it. It records on its disk that it differs, so
//! that after a restart it serves only once its state, rebuilt from snapshot and log, was found equal.

pub(crate) mod messages;
pub(crate) mod comparison;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fault_injection::planted::{self, Bug};
use futures_util::future::join_all;
use openraft::ServerState;
use openraft::async_runtime::watch::WatchReceiver;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::comparison::{Finding, StateDigest};
use self::comparison::{compare, judge};
use self::messages::{AuditAnswer, AuditQuestion};
use crate::blocking;
use crate::cluster_clock::ClusterClock;
use crate::disk_health::{Alarm, AlarmKind};
use crate::ids::NodeId;
use crate::peers::wire::{PeerRequest, PeerResponse};
use crate::peers::{PeerRegistry, Peers, Purpose};
use crate::replicated_state::ReplicatedState;
use crate::state_machine::Raft;
use crate::wall_clock;
use crate::witness::{Loss, Record, Witness};
use raft_log::sync::Mutex;

/// Maximum time for a member's answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum number of rounds without a pause, while the members do not yet have the findings.
const MAX_ROUNDS_WITHOUT_PAUSE: u32 = 3;

/// Reason why this node does not serve.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Distrust {
    /// Its state differs from the leader's, and the right state is not (yet) known.
    Undecided,
    /// Its state differs from that of the majority, or did when it was last compared.
    Differs,
}

/// This node's part in the audit.
pub struct Audit {
    node: NodeId,
    registry: Arc<PeerRegistry>,
    state: Arc<dyn ReplicatedState>,
    clock: Arc<ClusterClock>,
    raft: Raft,
    /// Reason why this node does not serve, for operators.
    distrust: watch::Sender<Option<String>>,
    known: Mutex<AuditState>,
}

#[derive(Default)]
struct AuditState {
    distrust: Option<Distrust>,
    /// Set if waiting callers were rejected for good: this process never serves again.
    ended: bool,
    finding: Option<Finding>,
    /// Time at which each alarm became known to this node.
    since: BTreeMap<(AlarmKind, Option<NodeId>), u64>,
}

impl Audit {
    /// Creates the state from what the node recorded before its start.
    pub fn new(
        registry: Arc<PeerRegistry>,
        state: Arc<dyn ReplicatedState>,
        clock: Arc<ClusterClock>,
        raft: Raft,
    ) -> Self {
        let audit = Self {
            node: registry.node(),
            registry,
            state,
            clock,
            raft,
            distrust: watch::Sender::new(None),
            known: Mutex::default(),
        };
        if audit.witness().differs() {
            audit.set(Some(Distrust::Differs), "at the comparison before its restart");
        }
        audit
    }

    fn witness(&self) -> &Arc<Witness> {
        self.registry.witness()
    }

    /// Returns the reason why this node does not serve; `None` if it may.
    pub fn distrusted(&self) -> watch::Receiver<Option<String>> {
        self.distrust.subscribe()
    }

    /// Returns whether this node's state is known to be wrong, so that it must not lead.
    pub fn has_wrong_state(&self) -> bool {
        self.registry.has_wrong_state()
    }

    /// Returns alarms for operators.
    pub fn alarms(&self) -> Vec<Alarm> {
        let wrong_clocks = self.clock.wrong(self.node);
        let mut alarms = Vec::new();
        let mut known = self.known.lock();
        if let Some(finding) = &known.finding {
            alarms.extend(finding.differing.iter().map(|node| differs(*node, finding)));
        }
        if known.distrust == Some(Distrust::Differs)
            && !alarms.iter().any(|alarm| alarm.node_id == Some(self.node))
        {
            let reason = self.distrust.borrow().clone();
            alarms.push(alarm(
                self.node,
                AlarmKind::StateDiffers,
                reason.unwrap_or_default(),
            ));
        }
        for (node, reason) in self.registry.rolled_back() {
            let detail =
                format!("node {node} returned with less than it had acknowledged, and is rejected: {reason}");
            alarms.push(alarm(node, AlarmKind::RolledBack, detail));
        }
        for (node, ahead_ms) in wrong_clocks {
            let way = if ahead_ms > 0 { "ahead of" } else { "behind" };
            let by = Duration::from_millis(ahead_ms.unsigned_abs());
            let detail = format!(
                "node {node}'s wall clock is {by:.1?} {way} those of most members, whose time is used"
            );
            alarms.push(alarm(node, AlarmKind::ClockWrong, detail));
        }
        let now = wall_clock::now_ms();
        let keys: Vec<_> = alarms.iter().map(|alarm| (alarm.kind, alarm.node_id)).collect();
        known.since.retain(|key, _| keys.contains(key));
        for alarm in &mut alarms {
            alarm.since_ms = *known.since.entry((alarm.kind, alarm.node_id)).or_insert(now);
        }
        alarms
    }

    /// Answers a request of the node `leader`, which leads, or did when it sent the request.
    pub async fn answer(&self, leader: NodeId, question: AuditQuestion) -> AuditAnswer {
        let AuditQuestion {
            digest_version,
            states: theirs,
            members,
            finding,
            clocks_ahead_ms,
        } = question;
        self.clock.take_over(self.node, leader, &clocks_ahead_ms);
        self.learn(members).await;
        let ours = self.state.digests();
        let compared =
            match digest_version == self.state.digest_version() && !planted::is(Bug::UncomparedState) {
                true => compare(&ours, &theirs),
                false => None,
            };
        let at = compared.map_or(0, |(zxid, _)| zxid);
        match (&finding, compared) {
            (Some(found), _) if found.differing.contains(&self.node) => {
                let distrust = match found.is_undecided() {
                    true => Distrust::Undecided,
                    false => Distrust::Differs,
                };
                self.enter(Some(distrust), &format!("at position {}", found.zxid));
            }
            (Some(found), Some((_, false))) if found.agreeing.contains(&self.node) => self.enter(None, ""),
            (_, Some((_, false))) => self.enter(Some(Distrust::Undecided), &format!("at position {at}")),
            (_, Some((_, true))) => self.enter(None, ""),
            (_, None) => {}
        }
        self.known.lock().finding = finding;
        self.note().await;
        AuditAnswer {
            digest_version: self.state.digest_version(),
            states: ours,
            is_wrong: self.has_wrong_state(),
            clock_ms: self.clock.show_to(leader),
        }
    }

    /// Merges the leader's records of the members, and saves this node's own.
    async fn learn(&self, members: BTreeMap<NodeId, Record>) {
        let registry = self.registry.clone();
        let learnt = blocking::run(move || {
            let about_me = registry.witness().learn(&members, &registry.member_disks())?;
            registry.witness().save()?;
            Ok::<_, raft_log::StorageError>(about_me)
        });
        match learnt.await {
            Ok(Ok(Some(loss))) => self.retire(loss).await,
            Ok(Ok(None)) => self.registry.recheck_connections(),
            Ok(Err(error)) => tracing::warn!(%error, "audit: could not record the members' progress"),
            Err(error) => tracing::debug!(%error, "audit: the node is stopping"),
        }
    }

    async fn retire(&self, loss: Loss) {
        let reason = format!(
            "node {}'s data directory is older than what node {} has acknowledged (reported by its leader): \
             {loss}. Put the newest directory back if it still exists; otherwise replace the member: \
             `lockgate cluster replace {}`",
            self.node, self.node, self.node
        );
        self.registry.retire_directory(reason).await;
    }

    /// Records durably whether this node's state is known to be wrong, if that has changed.
    async fn note(&self) {
        let differs = self.has_wrong_state();
        let witness = self.witness().clone();
        if witness.differs() == differs {
            return;
        }
        let noted = blocking::run(move || witness.set_differs(differs)).await;
        if let Ok(Err(error)) = noted {
            tracing::warn!(%error, "audit: could not record whether this node's state differs");
        }
    }

    /// Starts or stops serving clients.
    fn enter(&self, distrust: Option<Distrust>, when: &str) {
        {
            let known = self.known.lock();
            if known.ended || known.distrust == distrust {
                return;
            }
        }
        let ends = distrust == Some(Distrust::Differs);
        self.set(distrust, when);
        if ends {
            // Waiting callers go to another node. This process never serves again.
            self.known.lock().ended = true;
            self.state.end_waits();
        }
    }

    fn set(&self, distrust: Option<Distrust>, when: &str) {
        self.known.lock().distrust.clone_from(&distrust);
        let reason = match &distrust {
            None => {
                tracing::info!("audit: this node's state equals the others', it serves clients");
                None
            }
            Some(Distrust::Undecided) => Some(format!(
                "this node's state differs from the leader's ({when}), and no majority of the compared \
                 members has the same state. It serves no clients until more members can be compared"
            )),
            Some(Distrust::Differs) => Some(format!(
                "this node's state differs from that of the other members ({when}), so it serves no clients. \
                 Restart it: it serves again if its state is then right. Otherwise replace the member: \
                 `lockgate cluster \
                 replace {}`",
                self.node
            )),
        };
        if let Some(reason) = &reason {
            tracing::error!("{reason}");
        }
        // Raft elects this node only while its state is right.
        self.raft
            .runtime_config()
            .elect(distrust != Some(Distrust::Differs));
        self.registry.set_wrong_state(distrust == Some(Distrust::Differs));
        self.distrust.send_replace(reason);
    }

    /// While this node leads, compares all members every `interval`, until `stop`.
    pub async fn run(self: Arc<Self>, peers: Arc<Peers>, interval: Duration, stop: CancellationToken) {
        loop {
            for _ in 0..MAX_ROUNDS_WITHOUT_PAUSE {
                let is_new_reason = tokio::select! {
                    is_new_reason = self.round(&peers) => is_new_reason,
                    () = stop.cancelled() => return,
                };
                if !is_new_reason {
                    break;
                }
            }
            tokio::select! {
                () = tokio::time::sleep(interval) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Requests the digests of all members once. Returns whether the findings are new, also for the members.
    async fn round(&self, peers: &Peers) -> bool {
        let Some(seen) = LeaderMetrics::by_leader(&self.raft, self.node) else {
            return false;
        };
        let question = AuditQuestion {
            digest_version: self.state.digest_version(),
            states: self.state.digests(),
            members: self.witness().records(
                seen.term,
                seen.own_matched,
                seen.committed,
                self.registry.commands(),
            ),
            finding: self.known.lock().finding.clone(),
            clocks_ahead_ms: self.clock.ahead_of(self.node),
        };
        let ours = question.states.clone();
        // This node's own records are on its disk before other members rely on them.
        self.learn(BTreeMap::new()).await;
        let clock = &self.clock;
        let asked = seen.others.iter().map(|id| {
            let (connection, question) = (peers.connection(*id, Purpose::Control), question.clone());
            async move {
                let began = Instant::now();
                match connection
                    .request(PeerRequest::Audit(Box::new(question)), ANSWER_TIMEOUT)
                    .await
                {
                    Ok(PeerResponse::Audit(answer)) => {
                        clock.measured(*id, answer.clock_ms, began);
                        Some((*id, answer))
                    }
                    // The member is unreachable, or runs an older version without the audit.
                    Ok(_) | Err(_) => None,
                }
            }
        });
        let answers = join_all(asked).await.into_iter().flatten();
        let answers: Vec<(NodeId, AuditAnswer)> = answers
            .filter(|(_, answer)| answer.digest_version == self.state.digest_version())
            .collect();
        let wrong = answers
            .iter()
            .filter(|(_, answer)| answer.is_wrong)
            .map(|(id, _)| *id);
        let mut wrong: BTreeSet<NodeId> = wrong.collect();
        wrong.extend(self.has_wrong_state().then_some(self.node));
        let mut said: BTreeMap<NodeId, Vec<StateDigest>> = answers
            .into_iter()
            .map(|(id, answer)| (id, answer.states))
            .collect();
        let agrees = said
            .values()
            .any(|theirs| compare(&ours, theirs).is_some_and(|(_, same)| same));
        let is_compared = said.values().any(|theirs| compare(&ours, theirs).is_some());
        said.insert(self.node, ours);
        let finding = judge(&said, &wrong).filter(|_| !planted::is(Bug::UncomparedState));
        if !is_compared && finding.is_none() {
            // No member was at the same position: the previous finding still holds.
            return false;
        }
        let is_new_reason = {
            let mut known = self.known.lock();
            let is_new_reason = known.finding.as_ref().map(|found| &found.differing)
                != finding.as_ref().map(|found| &found.differing);
            known.finding.clone_from(&finding);
            is_new_reason
        };
        match &finding {
            Some(found) if is_new_reason => {
                let (nodes, zxid) = (&found.differing, found.zxid);
                tracing::error!(?nodes, zxid, "alarm: replicas differ");
            }
            None if is_new_reason => tracing::info!("the alarm has ended: no replicas differ"),
            Some(_) | None => {}
        }
        match &finding {
            Some(found) if found.differing.contains(&self.node) => {
                let distrust = match found.is_undecided() {
                    true => Distrust::Undecided,
                    false => Distrust::Differs,
                };
                self.enter(Some(distrust), &format!("at position {}", found.zxid));
                let heir = found.agreeing.iter().find(|id| seen.voters.contains(id));
                if let Some(heir) = heir {
                    tracing::warn!(
                        to = heir,
                        "audit: this node's state is wrong, handing over leadership"
                    );
                    // If Raft has stopped, the node stops anyway.
                    let _ = self.raft.trigger().transfer_leader(*heir).await;
                }
            }
            _ if agrees => self.enter(None, ""),
            _ => {}
        }
        self.note().await;
        is_new_reason
    }
}

fn differs(node: NodeId, finding: &Finding) -> Alarm {
    let zxid = finding.zxid;
    let detail = match finding.is_undecided() {
        true => format!(
            "the state of node {node} at position {zxid} differs from that of the other members, and no \
             majority of the compared members has the same state: no member that differs serves clients"
        ),
        false => format!(
            "the state of node {node} at position {zxid} differs from that of the other members: node {node} \
             serves no clients"
        ),
    };
    alarm(node, AlarmKind::StateDiffers, detail)
}

fn alarm(node: NodeId, kind: AlarmKind, detail: String) -> Alarm {
    let action = match kind {
        AlarmKind::RolledBack => format!(
            "put the newest data directory of node {node} back if it still exists; otherwise replace the \
             member: \
             `lockgate cluster replace {node}`"
        ),
        AlarmKind::ClockWrong => {
            format!("check the clock of node {node}'s machine: its time service, its virtual machine")
        }
        _ => format!(
            "restart node {node}: it serves again if its state is then right. Otherwise replace the member: \
             `lockgate cluster replace {node}`. Find the cause: memory errors, or different programs"
        ),
    };
    Alarm {
        node_id: Some(node),
        kind,
        since_ms: 0,
        detail,
        action,
        free_bytes: None,
        low_water_bytes: None,
        sync_us: None,
    }
}

/// Metrics of Raft that the leader uses.
struct LeaderMetrics {
    term: u64,
    own_matched: u64,
    committed: u64,
    others: Vec<NodeId>,
    voters: Vec<NodeId>,
}

impl LeaderMetrics {
    fn by_leader(raft: &Raft, me: NodeId) -> Option<Self> {
        let metrics = raft.metrics();
        let now = metrics.borrow_watched();
        if now.state != ServerState::Leader {
            return None;
        }
        let matched = now
            .replication
            .as_ref()
            .and_then(|all| all.get(&me).copied().flatten());
        let nodes = now.membership_config.nodes().map(|(id, _)| *id);
        Some(Self {
            term: now.current_term,
            own_matched: matched.map_or(0, |at| at.index),
            committed: now.local_committed.map_or(0, |at| at.index),
            others: nodes.filter(|id| *id != me).collect(),
            voters: now.membership_config.voter_ids().filter(|id| *id != me).collect(),
        })
    }
}
