//! How a cluster is brought to take a step that it takes rarely. Most steps need nothing but the load.

use std::time::Duration;

use lockgate::raft_node::NodeId;
use nix::sys::signal::Signal;

use crate::bench::{Bench, within};

/// How the step of a point comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Provocation {
    /// By itself, under load.
    None,
    /// A snapshot is asked for, and with it the purge of the log.
    Snapshot,
    /// The leadership moves.
    Transfer,
    /// The target hears nobody. Where a majority has lost the leader nobody asks for pre-votes: one that is alone does.
    Loneliness,
    /// The same of another one, so that the target is asked.
    LonelinessOfAnother,
    /// A node dies and comes back, and all connections with it.
    Bounce,
    /// The target was away for longer than the log reaches.
    Absence,
    /// Another node was away for longer than the log reaches, and the target leads.
    AbsenceOfAnother,
    /// The leader has entries that nobody else has, and another one is elected.
    Conflict,
    /// Somebody calls every node: the users may all have left one that died, and stay where they are served.
    Call,
    /// A client of ZooKeeper comes to every node, and goes on with its session at the next.
    Reconnect,
}

/// What is needed for a point.
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

/// The log moves on by so much that a node which was away needs a snapshot.
const MOVED_ON: u64 = 150;

/// How long the log may take to move on, under load.
const MOVE_ON_PATIENCE: Duration = Duration::from_secs(15);

/// How long a node may take to start and to catch up by snapshot.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(10);

/// How long a node is alone. It waits for the leader for up to five seconds, because it has heard of the pauses of others; it asks them in
/// vain whether they have lost the leader; and then its election timer runs out.
const ALONE_FOR: Duration = Duration::from_secs(9);

/// How long an election may take.
const ELECTION_PATIENCE: Duration = Duration::from_secs(10);

impl Bench {
    /// Does once what `provocation` needs; `round` counts the attempts. The fault is ordered at `target` already.
    pub async fn provoke(&mut self, provocation: Provocation, target: NodeId, round: usize) {
        match provocation {
            Provocation::None => {}
            Provocation::Snapshot => self.snapshot(target).await,
            Provocation::Transfer => {
                let leader = self.leader().await;
                let others: Vec<NodeId> = self.ids().into_iter().filter(|id| *id != leader).collect();
                // To the target first, so that it stands for election itself; then also past it.
                let to = match round % 3 {
                    0 if target != leader => target,
                    other => others[other % others.len()],
                };
                self.hand_over(leader, to).await;
                within(Duration::from_millis(400), async || self.leader().await == to).await;
            }
            Provocation::Loneliness => self.leave_alone(target).await,
            Provocation::LonelinessOfAnother => {
                let leader = self.leader().await;
                let mut others = self.ids().into_iter().filter(|id| ![leader, target].contains(id));
                let other = others.next().expect("a follower is left");
                self.leave_alone(other).await;
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
            // Ordered with the start, see `come_back`.
            Provocation::Absence => {}
            Provocation::AbsenceOfAnother => {
                let leader = self.leader().await;
                if leader != target {
                    self.hand_over(leader, target).await;
                    within(ELECTION_PATIENCE, async || self.leader().await == target).await;
                }
                let away = self
                    .ids()
                    .into_iter()
                    .find(|id| *id != target)
                    .expect("there are others");
                self.be_away(away).await;
                if self.lives(away) {
                    return;
                }
                self.cluster().start(away).expect("the node can be started");
                // To kill it again would be the end of what is waited for.
                within(CATCH_UP_PATIENCE, async || {
                    !self.lives(target) || self.is_ready(away).await
                })
                .await;
            }
            Provocation::Conflict => self.overrule(target).await,
            Provocation::Call => {
                for id in self.ids() {
                    self.call(id).await;
                }
            }
            Provocation::Reconnect => self.reconnect_everywhere().await,
        }
    }

    /// Kills a node and starts it.
    pub async fn restart(&mut self, id: NodeId, environment: &[(&str, &str)]) {
        self.cluster().kill(id).await.expect("the node can be killed");
        self.cluster()
            .start_with(id, environment)
            .expect("the node can be started");
    }

    /// Kills a node and lets the log move on without it.
    pub async fn be_away(&mut self, id: NodeId) {
        self.cluster().kill(id).await.expect("the node can be killed");
        // Without one the fault has just ended another node: nothing moves on until somebody starts them.
        let Ok(leader) = self.cluster().leader(ELECTION_PATIENCE).await else {
            return;
        };
        let Some(then) = self.view(leader).await else {
            return;
        };
        within(MOVE_ON_PATIENCE, async || {
            let now = self.view(leader).await;
            // Dead or deposed: the attempt is made again.
            now.is_none_or(|now| now.zxid > then.zxid + MOVED_ON)
        })
        .await;
        self.snapshot(leader).await;
        within(Duration::from_secs(2), async || {
            let view = self.cluster().view_of(leader).await.ok().flatten();
            view.is_none_or(|view| view.snapshot_index + 100 > view.applied_index)
        })
        .await;
    }

    /// Lets all other nodes stand still for a while. What it asks them meanwhile they hear when they go on.
    async fn leave_alone(&mut self, lonely: NodeId) {
        let others = self.without(lonely);
        for id in &others {
            self.pause(*id);
        }
        tokio::time::sleep(ALONE_FOR).await;
        for id in others {
            self.go_on(id);
        }
    }

    /// The leader gets entries that it cannot commit, and is deposed meanwhile.
    async fn overrule(&mut self, leader: NodeId) {
        if self.leader().await != leader {
            let now = self.leader().await;
            self.hand_over(now, leader).await;
            within(ELECTION_PATIENCE, async || self.leader().await == leader).await;
            return;
        }
        let others = self.without(leader);
        // Killed, not stopped: what the system has received for a stopped process reaches it later.
        for id in &others {
            self.cluster().kill(*id).await.expect("the node can be killed");
        }
        // The load writes: it stays in the leader's own log.
        tokio::time::sleep(Duration::from_millis(150)).await;
        self.pause(leader);
        for id in &others {
            self.cluster().start(*id).expect("the node can be started");
        }
        within(ELECTION_PATIENCE, async || {
            self.leader_among(&others).await.is_some()
        })
        .await;
        self.go_on(leader);
    }

    fn without(&self, id: NodeId) -> Vec<NodeId> {
        self.ids().into_iter().filter(|other| *other != id).collect()
    }

    /// A leader among these, of a term in which none of the others can lead.
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
        // It may be dead just now: that is what all this is for.
        if self.lives(id) {
            let _dead_meanwhile = self.cluster().signal(id, Signal::SIGSTOP);
        }
    }

    fn go_on(&mut self, id: NodeId) {
        if self.lives(id) {
            let _dead_meanwhile = self.cluster().signal(id, Signal::SIGCONT);
        }
    }
}
