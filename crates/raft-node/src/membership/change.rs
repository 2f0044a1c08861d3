//! Leader's side of a change of the membership: collects the facts that [`super::plan`] needs, and carries
//! out its decision. One change at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::errors::{ChangeMembershipError, ClientWriteError, Fatal, RaftError};
use openraft::raft::Precondition;
use openraft::{ChangeMembers, Instant as _, ServerState};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::plan::{MembershipFacts, Next, Step, warnings};
use super::{MembershipChange, MembershipChanged, MembershipOutcome, MembershipRefusal};
use crate::ids::DiskId;
use crate::ids::{MemberAddress, NodeId};
use crate::leader_view::LeaderView;
use crate::messages::NotLeader;
use crate::peers::peer_connection::connect_at;
use crate::peers::{PeerRegistry, Purpose};
use crate::replicated_state::AppliedPosition;
use crate::state_machine::Raft;
use crate::types::{CommittedLeaderId, LogId, Membership, Payload, TypeConfig};

/// Maximum time for another node to take over leadership. A transfer takes milliseconds.
pub const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time to prepare a hand-over, which takes a log entry.
const PREPARE_TIMEOUT: Duration = Duration::from_millis(500);

/// Time, in longest election timeouts, for which the leader waits for silent members before it rejects a
/// change because of them. They answer heartbeats at once unless their machines are overloaded.
const SILENCE_TIMEOUTS: u32 = 5;

/// Interval at which the leader checks for missing answers.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Preparation of the state for another leader, in the given time at most. A hand-over that is not prepared is safe, too.
pub type PrepareHandOver = Box<dyn Fn(Duration) -> BoxFuture<'static, ()> + Send + Sync>;

/// Changes of the membership by this node as the leader.
pub struct MembershipLeader {
    raft: Raft,
    applied: AppliedPosition,
    registry: Arc<PeerRegistry>,
    view: watch::Receiver<LeaderView>,
    /// Silence after which a member counts as unreachable.
    silence: Duration,
    /// Maximum time for a change to be committed before its outcome is reported as unknown.
    timeout: Duration,
    prepare_hand_over: PrepareHandOver,
    change_lock: tokio::sync::Mutex<()>,
}

impl MembershipLeader {
    /// Creates the component. `silence` is the longest election timeout, `timeout` the maximum time to commit
    /// an entry.
    pub fn new(
        raft: Raft,
        applied: AppliedPosition,
        registry: Arc<PeerRegistry>,
        view: watch::Receiver<LeaderView>,
        silence: Duration,
        timeout: Duration,
        prepare_hand_over: PrepareHandOver,
    ) -> Self {
        Self {
            raft,
            applied,
            registry,
            view,
            silence,
            timeout,
            prepare_hand_over,
            change_lock: tokio::sync::Mutex::new(()),
        }
    }

    /// Makes a change if this node leads.
    pub async fn change(&self, change: &MembershipChange) -> Result<MembershipOutcome, NotLeader> {
        let Ok(_turn) = self.change_lock.try_lock() else {
            return Ok(MembershipOutcome::Refused(MembershipRefusal::InProgress));
        };
        let asked = Instant::now();
        let deadline = asked + self.silence * SILENCE_TIMEOUTS;
        loop {
            let Some((membership_facts, base)) = self.membership_facts(asked).await? else {
                return Ok(MembershipOutcome::Refused(MembershipRefusal::InProgress));
            };
            let refusal = match membership_facts.plan(change) {
                Ok(step) => return self.take(step, change, membership_facts, base).await,
                Err(refusal) => refusal,
            };
            // Heartbeats are sent continuously: every live member answers one within moments.
            let may_pass = matches!(
                refusal,
                MembershipRefusal::NoMajority { .. }
                    | MembershipRefusal::NotCaughtUp { .. }
                    | MembershipRefusal::NoSuccessor(_)
            );
            if !may_pass || Instant::now() >= deadline {
                return Ok(MembershipOutcome::Refused(refusal));
            }
            sleep(POLL_INTERVAL).await;
        }
    }

    async fn take(
        &self,
        step: Step,
        change: &MembershipChange,
        membership_facts: MembershipFacts,
        base: Base,
    ) -> Result<MembershipOutcome, NotLeader> {
        match (step, change) {
            (Step::Nothing, _) => Ok(done(false, Vec::new())),
            (Step::MoveLeader { to, then_change }, _) => {
                if let Err(why) = self.move_leader(to).await {
                    return Ok(MembershipOutcome::Refused(MembershipRefusal::NoSuccessor(why)));
                }
                match then_change {
                    true => Err(NotLeader { leader: Some(to) }),
                    false => Ok(done(true, Vec::new())),
                }
            }
            (Step::Call { known }, MembershipChange::Add { node_id, address }) => {
                match (self.call(*node_id, address).await, known) {
                    (Ok(disk), None) => {
                        let next = membership_facts.with_learner(*node_id, address, disk);
                        self.append(next, base, Vec::new()).await
                    }
                    (Ok(disk), Some(known)) if disk == known => Ok(done(false, Vec::new())),
                    (Ok(_), Some(_)) => Ok(MembershipOutcome::Refused(MembershipRefusal::MemberExists {
                        node_id: *node_id,
                        reason: "with another data directory".into(),
                    })),
                    (Err(reason), Some(_)) => {
                        let warning =
                            format!("node {node_id} is already a member, and does not answer now: {reason}");
                        Ok(done(false, vec![warning]))
                    }
                    (Err(reason), None) => Ok(MembershipOutcome::Refused(MembershipRefusal::Unreachable {
                        node_id: *node_id,
                        address: address.peer.clone(),
                        reason,
                    })),
                }
            }
            (Step::Call { .. }, _) => unreachable!("only an added node is connected to"),
            (Step::Append(next), _) => {
                let warnings = match next.voters == membership_facts.voters {
                    true => Vec::new(),
                    false => warnings(next.voters.len()),
                };
                self.append(next, base, warnings).await
            }
            (Step::Readdress(id, member), _) => {
                let nodes = BTreeMap::from([(id, member)]);
                let change =
                    self.raft
                        .change_membership_if(ChangeMembers::SetNodes(nodes), true, base.still_holds());
                self.committed(change, Vec::new()).await
            }
        }
    }

    /// Collects the facts on this node as the leader. Returns `None` if the last change of the membership is
    /// not committed yet. Other members count as alive if they have answered a message sent after `asked`;
    /// otherwise the leader would rely on a node that died a moment ago.
    async fn membership_facts(&self, asked: Instant) -> Result<Option<(MembershipFacts, Base)>, NotLeader> {
        let metrics = self.raft.metrics().borrow_watched().clone();
        let id = self.registry.node();
        if metrics.state != ServerState::Leader {
            return Err(NotLeader {
                leader: metrics.current_leader.filter(|leader| *leader != id),
            });
        }
        // Changes of earlier leaders are known here once an entry of this leader's own term is applied.
        let unknown = NotLeader { leader: None };
        let began = timeout(self.silence, self.applied.wait_for_term(metrics.current_term)).await;
        began.map_err(|_| unknown.clone())?;
        let stored = metrics.membership_config;
        let since = (*stored.log_id()).ok_or(unknown)?;
        if timeout(self.silence, self.applied.wait_for_index(since.index))
            .await
            .is_err()
        {
            return Ok(None);
        }
        let answered = metrics.heartbeat.unwrap_or_default();
        let answered = answered
            .iter()
            .filter(|(_, last)| last.is_some_and(|last| last.elapsed() < asked.elapsed()))
            .map(|(id, _)| *id)
            .chain([id]);
        let last = metrics.last_log_index.unwrap_or(0);
        let replication = metrics.replication.unwrap_or_default();
        let lag = replication
            .iter()
            .filter_map(|(id, matched)| matched.map(|matched| (*id, last.saturating_sub(matched.index))));
        let membership_facts = MembershipFacts {
            leader: id,
            members: stored.nodes().map(|(id, member)| (*id, member.clone())).collect(),
            voters: stored.voter_ids().collect(),
            retired: self.registry.retired(),
            answered: answered.collect(),
            lag: lag.collect(),
        };
        let base = Base {
            since,
            term: metrics.current_term,
        };
        Ok(Some((membership_facts, base)))
    }

    /// Connects to a node that waits to be added, and learns the id of its data directory. From then on the
    /// node belongs to this cluster.
    async fn call(&self, node_id: NodeId, address: &MemberAddress) -> Result<DiskId, String> {
        match connect_at(&self.registry, node_id, &address.peer, Purpose::Control).await {
            Ok((_, _, disk)) => Ok(disk),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Moves leadership to another voter. Returns the reason if that fails.
    ///
    /// A leader that has begun to hand over accepts no more commands, and openraft cannot undo that. So if
    /// the chosen voter does not start an election, the others are asked one by one.
    pub async fn move_leader(&self, to: NodeId) -> Result<(), String> {
        tracing::info!(node = to, "membership: handing over leadership");
        let (term, others) = {
            let metrics = self.raft.metrics();
            let metrics = metrics.borrow_watched();
            let voters: Vec<NodeId> = metrics.membership_config.membership().voter_ids().collect();
            let others = voters.into_iter().filter(|id| ![to, metrics.id].contains(id));
            (metrics.current_term, others.collect::<Vec<_>>())
        };
        (self.prepare_hand_over)(PREPARE_TIMEOUT).await;
        let mut view = self.view.clone();
        let moved = view.wait_for(|view| view.term > term && view.leader.is_some());
        let asked = async {
            for node in std::iter::once(to).chain(others).cycle() {
                if node != to {
                    tracing::info!(
                        node,
                        to,
                        "membership: no voter has taken over leadership, asking another one"
                    );
                }
                self.raft.trigger().transfer_leader(node).await?;
                sleep(self.silence).await;
            }
            Ok::<_, Fatal<TypeConfig>>(())
        };
        let moved = async {
            tokio::select! {
                moved = moved => moved.map(|view| view.leader).map_err(|_| "this node is stopping".to_owned()),
                Err(error) = asked => Err(format!("Raft has stopped: {error}")),
            }
        };
        match timeout(HAND_OVER_TIMEOUT, moved).await {
            Ok(Ok(Some(leader))) if leader == to => Ok(()),
            Ok(Ok(Some(other))) => Err(format!("node {other} became leader instead of node {to}")),
            Ok(Err(why)) => Err(why),
            Ok(Ok(None)) | Err(_) => Err(format!("node {to} did not take over")),
        }
    }

    async fn append(
        &self,
        next: Next,
        base: Base,
        warnings: Vec<String>,
    ) -> Result<MembershipOutcome, NotLeader> {
        let Next { voters, members } = next;
        let membership = match Membership::new(vec![voters], members) {
            Ok(membership) => membership,
            Err(error) => {
                let refusal = MembershipRefusal::Nonsense(error.to_string());
                return Ok(MembershipOutcome::Refused(refusal));
            }
        };
        let change = self
            .raft
            .append_membership(membership, Payload::Blank, base.still_holds());
        self.committed(change, warnings).await
    }

    /// Waits until a change is committed, and returns its outcome.
    async fn committed<T>(
        &self,
        change: impl Future<Output = Result<T, RaftError<TypeConfig, ClientWriteError<TypeConfig>>>>,
        warnings: Vec<String>,
    ) -> Result<MembershipOutcome, NotLeader> {
        let error = match timeout(self.timeout, change).await {
            Ok(Ok(_)) => return Ok(done(true, warnings)),
            Ok(Err(error)) => error,
            Err(_) => {
                let what = format!("it is not committed after {:?}", self.timeout);
                return Ok(MembershipOutcome::Unknown(what));
            }
        };
        match error {
            RaftError::APIError(
                ClientWriteError::ForwardToLeader(forward)
                // The next leader may still commit it; a repeated request to that leader then finds it done.
                | ClientWriteError::LogEntryDiscarded(forward),
            ) => Err(NotLeader {
                leader: forward.leader_id,
            }),
            RaftError::APIError(
                ClientWriteError::PreconditionFailed(_)
                | ClientWriteError::ChangeMembershipError(ChangeMembershipError::InProgress(_)),
            ) => Ok(MembershipOutcome::Refused(MembershipRefusal::InProgress)),
            RaftError::APIError(ClientWriteError::ChangeMembershipError(
                ChangeMembershipError::UncommittedLeaderLog(_),
            ))
            | RaftError::Fatal(_) => Err(NotLeader { leader: None }),
            RaftError::APIError(error) => {
                let refusal = MembershipRefusal::Nonsense(error.to_string());
                Ok(MembershipOutcome::Refused(refusal))
            }
        }
    }
}

/// Facts on which a decision is based.
#[derive(Debug, Clone, Copy)]
struct Base {
    /// Entry that set the membership.
    since: LogId,
    /// Term in which the leader is known to have applied all earlier entries.
    term: u64,
}

impl Base {
    /// Returns the conditions that openraft checks once more when it appends the entry.
    fn still_holds(self) -> [Precondition<TypeConfig>; 2] {
        [
            Precondition::LastMembershipLogId {
                last_membership_log_id: Some(self.since),
            },
            Precondition::CommittedLeaderId {
                committed_leader_id: CommittedLeaderId::new(self.term),
            },
        ]
    }
}

fn done(changed: bool, warnings: Vec<String>) -> MembershipOutcome {
    MembershipOutcome::Done(MembershipChanged { changed, warnings })
}
