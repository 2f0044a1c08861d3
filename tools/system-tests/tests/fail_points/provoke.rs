//! Provocations of rare steps. Most steps need only the load.

use std::time::Duration;

use lockgate::lock_node::NodeId;
use nix::sys::signal::Signal;

use crate::faulty_cluster::{FaultyCluster, within};

/// Provocation of a fail point's step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provocation {
    /// None: the step happens under load.
    None,
    /// A snapshot, with the purge of the log.
    Snapshot,
    /// A change of the leader.
    Transfer,
    /// Isolation of the target. Without a leader in the majority no node requests pre-votes; an isolated node
    /// does.
    Loneliness,
    /// Isolation of another node, so that the target receives its requests.
    LonelinessOfAnother,
    /// Restart of a node, which breaks all its connections.
    Bounce,
    /// Absence of the target for longer than the log reaches back.
    Absence,
    /// Absence of another node for longer than the log reaches back, with the target as the leader.
    AbsenceOfAnother,
    /// Entries that only the leader has, and the election of another node.
    Conflict,
    /// Calls to every node: all clients may have left a node that died, and stay where they are served.
    Call,
    /// A ZooKeeper client that connects to every node, and moves its session to the next one.
    Reconnect,
}

/// Returns the provocation that a point needs.
pub fn for_point(name: &str) -> Provocation {
    let (area, step) = name.split_once("::").expect("a name is area::step");
    match (area, step) {
        ("install", "before_send" | "before_send_chunk" | "after_send") => Provocation::AbsenceOfAnother,
        ("install", _) => Provocation::Absence,
        ("snapshot", _) | ("log", "before_purge" | "after_purge") => Provocation::Snapshot,
        ("segment", "before_remove" | "after_remove") => Provocation::Snapshot,
        ("log", "before_truncate" | "after_truncate") => Provocation::Conflict,
        ("pre_vote", "after_receive") => Provocation::LonelinessOfAnother,
        ("pre_vote", _) => Provocation::Loneliness,
        ("vote" | "transfer", _) | ("log", "before_vote") => Provocation::Transfer,
        ("session", "before_take_up" | "after_take_up") => Provocation::Transfer,
        ("apply", "before_set_limits") => Provocation::Transfer,
        ("peer", "before_connect" | "after_connect" | "before_greeting" | "after_greeting") => {
            Provocation::Bounce
        }
        ("submit" | "forward" | "touch" | "read_index", _) => Provocation::Call,
        ("zookeeper", _) | ("apply", "before_reconnect") => Provocation::Reconnect,
        _ => Provocation::None,
    }
}

/// Number of entries after which an absent node needs a snapshot.
const CATCH_UP_WRITES: u64 = 150;

/// Time limit for the log to grow by this, under load.
const CATCH_UP_WRITE_TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit of a node's start and its installation of a snapshot.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// Duration of an isolation. The node waits for the leader for up to five seconds because it knows of the
/// pauses of others. It asks them without an answer whether they have lost the leader, and then its election
/// timeout expires.
const ISOLATION: Duration = Duration::from_secs(9);

/// Time limit of an election.
const ELECTION_TIMEOUT: Duration = Duration::from_secs(10);

impl FaultyCluster {
    /// Provokes the step once; `round` counts the attempts. The fault is already injected at `target`.
    pub async fn provoke(&mut self, provocation: Provocation, target: NodeId, round: usize) {
        match provocation {
            Provocation::None => {}
            Provocation::Snapshot => self.snapshot(target).await,
            Provocation::Transfer => {
                let leader = self.leader().await;
                let others: Vec<NodeId> = self.ids().into_iter().filter(|id| *id != leader).collect();
                // First to the target, so that it becomes a candidate itself; later also to others.
                let to = match round % 3 {
                    0 if target != leader => target,
                    other => others[other % others.len()],
                };
                self.hand_over(leader, to).await;
                within(Duration::from_millis(400), async || self.leader().await == to).await;
            }
            Provocation::Loneliness => self.isolate(target).await,
            Provocation::LonelinessOfAnother => {
                let leader = self.leader().await;
                let mut others = self.ids().into_iter().filter(|id| ![leader, target].contains(id));
                let other = others.next().expect("a follower is left");
                self.isolate(other).await;
            }
            Provocation::Bounce => {
                let leader = self.leader().await;
                let others: Vec<NodeId> = self.ids().into_iter().filter(|id| *id != target).collect();
                let other = match target == leader || round % 2 == 1 {
                    true => others[round / 2 % others.len()],
                    false => leader,
                };
                self.restart(other, &[]).await;
            }
            // Injected at the start, see `stay_away`.
            Provocation::Absence => {}
            Provocation::AbsenceOfAnother => {
                let leader = self.leader().await;
                if leader != target {
                    self.hand_over(leader, target).await;
                    within(ELECTION_TIMEOUT, async || self.leader().await == target).await;
                }
                let away = self
                    .ids()
                    .into_iter()
                    .find(|id| *id != target)
                    .expect("there are others");
                self.stay_away(away).await;
                if self.is_running(away) {
                    return;
                }
                self.cluster().start(away).expect("the node can be started");
                // Killing the node again would undo the step that is provoked.
                within(CATCH_UP_TIMEOUT, async || {
                    !self.is_running(target) || self.is_ready(away).await
                })
                .await;
            }
            Provocation::Conflict => self.replace_leader(target).await,
            Provocation::Call => {
                for id in self.ids() {
                    self.call(id).await;
                }
            }
            Provocation::Reconnect => self.reconnect_everywhere().await,
        }
    }

    /// Kills a node and starts it again.
    pub async fn restart(&mut self, id: NodeId, environment: &[(&str, &str)]) {
        self.cluster().kill(id).await.expect("the node can be killed");
        self.cluster()
            .start_with(id, environment)
            .expect("the node can be started");
    }

    /// Kills a node and lets the log grow without it.
    pub async fn stay_away(&mut self, id: NodeId) {
        self.cluster().kill(id).await.expect("the node can be killed");
        // Without a leader the fault has just ended another node: the log grows only after its restart.
        let Ok(leader) = self.cluster().leader(ELECTION_TIMEOUT).await else {
            return;
        };
        let Some(then) = self.view(leader).await else {
            return;
        };
        within(CATCH_UP_WRITE_TIMEOUT, async || {
            let now = self.view(leader).await;
            // The leader is dead or deposed: the attempt is repeated.
            now.is_none_or(|now| now.zxid > then.zxid + CATCH_UP_WRITES)
        })
        .await;
        self.snapshot(leader).await;
        within(Duration::from_secs(2), async || {
            let view = self.cluster().view_of(leader).await.ok().flatten();
            view.is_none_or(|view| view.snapshot_index + 100 > view.applied_index)
        })
        .await;
    }

    /// Pauses all other nodes for a while. They receive the isolated node's requests when they continue.
    async fn isolate(&mut self, lonely: NodeId) {
        let others = self.without(lonely);
        for id in &others {
            self.pause(*id);
        }
        tokio::time::sleep(ISOLATION).await;
        for id in others {
            self.resume(id);
        }
    }

    /// Lets the leader append entries that it cannot commit, while another leader is elected.
    async fn replace_leader(&mut self, leader: NodeId) {
        if self.leader().await != leader {
            let now = self.leader().await;
            self.hand_over(now, leader).await;
            within(ELECTION_TIMEOUT, async || self.leader().await == leader).await;
            return;
        }
        let others = self.without(leader);
        // Killed, not paused: the kernel would deliver to a paused process later what it has received for it.
        for id in &others {
            self.cluster().kill(*id).await.expect("the node can be killed");
        }
        // The load writes, and the entries stay in the leader's own log.
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.pause(leader);
        for id in &others {
            self.cluster().start(*id).expect("the node can be started");
        }
        within(ELECTION_TIMEOUT, async || {
            self.leader_among(&others).await.is_some()
        })
        .await;
        self.resume(leader);
    }

    fn without(&self, id: NodeId) -> Vec<NodeId> {
        self.ids().into_iter().filter(|other| *other != id).collect()
    }

    /// Returns a leader among these nodes, of a term in which no other node can lead.
    async fn leader_among(&mut self, ids: &[NodeId]) -> Option<NodeId> {
        for id in ids {
            let view = self.cluster().view_of(*id).await.ok().flatten();
            if view.is_some_and(|view| view.leader == Some(*id)) {
                return Some(*id);
            }
        }
        None
    }

    fn pause(&mut self, id: NodeId) {
        // The node may have died just now, as intended by the faults.
        if self.is_running(id) {
            let _dead_meanwhile = self.cluster().signal(id, Signal::SIGSTOP);
        }
    }

    fn resume(&mut self, id: NodeId) {
        if self.is_running(id) {
            let _dead_meanwhile = self.cluster().signal(id, Signal::SIGCONT);
        }
    }
}
