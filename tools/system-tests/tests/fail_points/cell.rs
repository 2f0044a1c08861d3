//! One cell of the matrix: one fault at one point of one node, with the checks afterwards.

use std::fmt;
use std::time::Duration;

use lockgate::lock_node::NodeId;
use lockgate::lock_node::fail_points::table::{Point, Side};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::faulty_cluster::{FaultyCluster, within};
use crate::load::Load;
use crate::provoke::{Provocation, for_point};

/// Time limit within which a provoked step must be reached.
const HIT_WITHIN: Duration = Duration::from_secs(40);

/// Interval between two attempts to provoke a step.
const PROVOKE_EVERY: Duration = Duration::from_millis(500);

/// Time limit within which the cluster must serve after a fault: twice the longest election timeout, a delay
/// of a second, and a margin for a busy machine.
const SERVES_WITHIN: Duration = Duration::from_secs(8);

/// Time limit within which a restarted node must serve, at whatever step it was killed.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// Time limit within which a failed node must drain and exit.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Delay that is longer than an election timeout and shorter than a session's TTL.
const DELAY_MS: u64 = 1000;

/// Number of grants that prove that the cluster serves.
const GRANTS: u64 = 4;

/// Fault to inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The step panics.
    Panic,
    /// The step takes a second longer.
    Delay,
    /// The step fails.
    Error,
}

impl Fault {
    /// Returns the fault in the form of the HTTP route.
    fn order(self) -> Value {
        match self {
            Self::Panic => json!("panic"),
            Self::Delay => json!({ "delay_ms": DELAY_MS }),
            Self::Error => json!("error"),
        }
    }

    /// Returns the fault in the form of the environment variable.
    pub fn spelled(self) -> String {
        match self {
            Self::Panic => "1*panic".to_owned(),
            Self::Delay => format!("1*return(delay {DELAY_MS})"),
            Self::Error => "1*return(error)".to_owned(),
        }
    }
}

/// Node that gets the fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The leader at that moment.
    Leader,
    /// One of the followers.
    Follower,
    /// Any node at its start.
    Starting,
}

/// Cell of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Fail point.
    pub point: &'static Point,
    /// Fault.
    pub fault: Fault,
    /// Target.
    pub target: Target,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.point.name, self.fault, self.target)
    }
}

/// Returns all cells, point by point.
pub fn matrix(points: &'static [Point]) -> Vec<Cell> {
    let mut cells = Vec::new();
    for point in points {
        let targets: &[Target] = match point.side {
            Side::Any => &[Target::Leader, Target::Follower],
            Side::Leader => &[Target::Leader],
            Side::Follower => &[Target::Follower],
            Side::Start | Side::Birth => &[Target::Starting],
        };
        for target in targets {
            for fault in [Fault::Panic, Fault::Delay, Fault::Error] {
                if fault != Fault::Error || point.fails {
                    cells.push(Cell {
                        point,
                        fault,
                        target: *target,
                    });
                }
            }
        }
    }
    cells
}

/// Result of a cell.
#[derive(Debug, Default)]
pub struct Outcome {
    /// True if the node exited.
    pub ended: bool,
    /// Time until locks were granted again.
    pub serves_after: Duration,
    /// Violations and other problems.
    pub problems: Vec<String>,
}

impl Cell {
    /// Injects the fault and checks the consequences. All nodes serve before and, if there is no problem,
    /// after.
    pub async fn run(&self, cluster: &mut FaultyCluster, load: &Load, number: usize) -> Outcome {
        let mut outcome = Outcome::default();
        let leader = cluster.leader().await;
        let followers: Vec<NodeId> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
        let mut target = match self.target {
            Target::Leader => leader,
            Target::Follower | Target::Starting => followers[number % followers.len()],
        };
        let provocation = for_point(self.point.name);
        if provocation == Provocation::Conflict {
            // The node that truncates its log has led and then follows.
            target = leader;
        }
        load.take_longest_gap();
        if !self.reach(cluster, target, provocation).await {
            let tail = cluster.log_tail(target);
            outcome.problems.push(format!(
                "node {target} never reached the fail point; its log ends:\n{tail}"
            ));
        }
        let (hit, grants) = (Instant::now(), load.grants());
        if self.fault == Fault::Panic && !within(ENDS_WITHIN, async || !cluster.is_running(target)).await {
            outcome
                .problems
                .push(format!("node {target} keeps running after a panic"));
        }
        if !within(SERVES_WITHIN, async || load.grants() >= grants + GRANTS).await {
            outcome
                .problems
                .push(format!("no grants within {SERVES_WITHIN:?}"));
        }
        outcome.serves_after = hit.elapsed();
        self.recover(cluster, target, &mut outcome).await;
        outcome.problems.extend(load.take_violations());
        outcome
    }

    /// Injects the fault and makes the node reach the point; returns whether it did.
    async fn reach(&self, cluster: &mut FaultyCluster, target: NodeId, provocation: Provocation) -> bool {
        let name = self.point.name;
        let log = cluster.log_length(target);
        let spelled = format!("{name}={}", self.fault.spelled());
        let environment = [("FAILPOINTS", spelled.as_str())];
        let at_start = self.target == Target::Starting || provocation == Provocation::Absence;
        if provocation == Provocation::Absence {
            cluster.stay_away(target).await;
        }
        let before = if at_start {
            cluster.restart(target, &environment).await;
            0
        } else {
            let before = cluster.view(target).await.map_or(0, |view| view.hits(name));
            cluster.order(target, name, self.fault.order(), 1).await;
            before
        };
        let began = Instant::now();
        let mut provoked: Option<Instant> = None;
        let mut round = 0;
        loop {
            // A failed node cannot be queried, but its log has the reason.
            let said = cluster.log_since(target, log).contains(name);
            let reached = match self.fault {
                Fault::Panic => said && !cluster.is_running(target),
                Fault::Delay | Fault::Error => {
                    said || cluster
                        .view(target)
                        .await
                        .is_some_and(|view| view.hits(name) > before)
                }
            };
            if reached {
                return true;
            }
            if began.elapsed() > HIT_WITHIN {
                return false;
            }
            if provoked.is_none_or(|last| last.elapsed() > PROVOKE_EVERY) {
                if provocation == Provocation::Absence && round > 0 && cluster.is_ready(target).await {
                    // The node caught up without a snapshot.
                    cluster.stay_away(target).await;
                    cluster.restart(target, &environment).await;
                } else if !at_start {
                    cluster.provoke(provocation, target, round).await;
                }
                round += 1;
                provoked = Some(Instant::now());
            }
            tokio::time::sleep(crate::faulty_cluster::POLL_INTERVAL).await;
        }
    }

    /// Starts the nodes that have exited, and waits until all serve.
    async fn recover(&self, cluster: &mut FaultyCluster, target: NodeId, outcome: &mut Outcome) {
        // A node whose log has failed answers no more, but takes a moment to exit.
        let deadline = Instant::now() + BACK_WITHIN + ENDS_WITHIN;
        loop {
            for id in cluster.ids() {
                if !cluster.is_running(id) {
                    outcome.ended |= id == target;
                    if id != target && self.is_unexpected(cluster, id) {
                        outcome.problems.push(format!(
                            "node {id} has exited as well; its log ends:\n{}",
                            cluster.log_tail(id)
                        ));
                    }
                    cluster.cluster().start(id).expect("the node can be started");
                }
            }
            let ids = cluster.ids();
            match cluster.cluster().wait_ready(&ids, BACK_WITHIN).await {
                Ok(()) => return,
                // The node has just exited because of the same fault; it is started again.
                Err(error) if Instant::now() >= deadline => {
                    outcome.problems.push(format!("{error:#}"));
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Returns whether a node has exited unexpectedly; a node that a provocation has killed and not yet
    /// restarted is expected.
    fn is_unexpected(&self, cluster: &FaultyCluster, id: NodeId) -> bool {
        let provocation = for_point(self.point.name);
        let killed = matches!(provocation, Provocation::AbsenceOfAnother | Provocation::Bounce);
        !killed || cluster.log_tail(id).contains("panicked")
    }
}

/// Checks that the states of all nodes are equal and that nothing acknowledged is missing; with
/// `sessions_too`, also that silent sessions have ended.
pub async fn compare(cluster: &FaultyCluster, load: &Load, sessions_too: bool) -> Vec<String> {
    const SETTLED_WITHIN: Duration = Duration::from_secs(10);
    let _quiet = load.pause_clients().await;
    let mut problems = Vec::new();
    if sessions_too {
        problems.extend(load.live_silent_sessions(cluster.address(1)).await);
    }
    let settled = within(SETTLED_WITHIN, async || {
        let mut views = Vec::new();
        for id in cluster.ids() {
            views.push(cluster.view(id).await);
        }
        let Some(views) = views.into_iter().collect::<Option<Vec<_>>>() else {
            return false;
        };
        // Silent sessions may end in the meantime.
        if views.iter().any(|view| view.zxid != views[0].zxid) {
            return false;
        }
        if views.iter().any(|view| view.digest != views[0].digest) {
            problems.push(format!(
                "the states differ at position {}: {views:?}",
                views[0].zxid
            ));
        }
        true
    })
    .await;
    if !settled {
        problems.push(format!(
            "the nodes did not reach the same position within {SETTLED_WITHIN:?}"
        ));
    }
    for address in cluster.addresses() {
        problems.extend(load.missing(&address).await);
    }
    problems
}
