//! One cell of the matrix: one fault at one point of one node, and what must hold afterwards.

use std::fmt;
use std::time::Duration;

use lockgate::raft_node::NodeId;
use lockgate::raft_node::fail_points::table::{Point, Side};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::bench::{Bench, within};
use crate::load::Load;
use crate::provoke::{Provocation, for_point};

/// A step that was provoked has been taken by then.
const HIT_WITHIN: Duration = Duration::from_secs(40);

/// Between two attempts to provoke a step.
const PROVOKE_EVERY: Duration = Duration::from_millis(500);

/// After a fault the cluster serves again: twice the longest election timeout, a delay of a second, and the time of a
/// machine that does other things as well.
const SERVES_WITHIN: Duration = Duration::from_secs(8);

/// A node that was started again serves, whatever it was killed in.
const BACK_WITHIN: Duration = Duration::from_secs(15);

/// A node that cannot go on drains and ends.
const ENDS_WITHIN: Duration = Duration::from_secs(15);

/// Longer than an election timeout, shorter than a session's.
const DELAY_MS: u64 = 1000;

/// So many grants show that the cluster serves.
const GRANTS: u64 = 4;

/// What is ordered.
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
    /// For the route.
    fn order(self) -> Value {
        match self {
            Self::Panic => json!("panic"),
            Self::Delay => json!({ "delay_ms": DELAY_MS }),
            Self::Error => json!("error"),
        }
    }

    /// For the environment.
    pub fn spelled(self) -> String {
        match self {
            Self::Panic => "1*panic".to_owned(),
            Self::Delay => format!("1*return(delay {DELAY_MS})"),
            Self::Error => "1*return(error)".to_owned(),
        }
    }
}

/// Which node it is ordered at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The leader at that moment.
    Leader,
    /// One of the others.
    Follower,
    /// A node at its start, whichever it is.
    Starting,
}

/// A cell of the matrix.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Where.
    pub point: &'static Point,
    /// What.
    pub fault: Fault,
    /// At whom.
    pub target: Target,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {:?}", self.point.name, self.fault, self.target)
    }
}

/// All cells, point by point.
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

/// What came of a cell.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Whether the node ended.
    pub ended: bool,
    /// How long it took until locks were granted again.
    pub serves_after: Duration,
    /// What must not happen and did.
    pub problems: Vec<String>,
}

impl Cell {
    /// Breaks the cluster and looks at what comes of it. All nodes serve before and, if there is no problem, after.
    pub async fn run(&self, bench: &mut Bench, load: &Load, number: usize) -> Outcome {
        let mut outcome = Outcome::default();
        let leader = bench.leader().await;
        let followers: Vec<NodeId> = bench.ids().into_iter().filter(|id| *id != leader).collect();
        let mut target = match self.target {
            Target::Leader => leader,
            Target::Follower | Target::Starting => followers[number % followers.len()],
        };
        let provocation = for_point(self.point.name);
        if provocation == Provocation::Conflict {
            // Whoever truncates has led and follows then.
            target = leader;
        }
        load.take_longest_gap();
        if !self.reach(bench, target, provocation).await {
            let tail = bench.log_tail(target);
            outcome
                .problems
                .push(format!("node {target} never came to it; its log ends:\n{tail}"));
        }
        let (hit, grants) = (Instant::now(), load.grants());
        if self.fault == Fault::Panic && !within(ENDS_WITHIN, async || !bench.lives(target)).await {
            outcome
                .problems
                .push(format!("node {target} lives on after a panic"));
        }
        if !within(SERVES_WITHIN, async || load.grants() >= grants + GRANTS).await {
            outcome
                .problems
                .push(format!("no grants within {SERVES_WITHIN:?}"));
        }
        outcome.serves_after = hit.elapsed();
        self.recover(bench, target, &mut outcome).await;
        outcome.problems.extend(load.take_violations());
        outcome
    }

    /// Orders the fault and brings the node to the point; says whether it came there.
    async fn reach(&self, bench: &mut Bench, target: NodeId, provocation: Provocation) -> bool {
        let name = self.point.name;
        let log = bench.log_length(target);
        let spelled = format!("{name}={}", self.fault.spelled());
        let environment = [("FAILPOINTS", spelled.as_str())];
        let at_start = self.target == Target::Starting || provocation == Provocation::Absence;
        if provocation == Provocation::Absence {
            bench.be_away(target).await;
        }
        let before = if at_start {
            bench.restart(target, &environment).await;
            0
        } else {
            let before = bench.view(target).await.map_or(0, |view| view.acted(name));
            bench.order(target, name, self.fault.order(), 1).await;
            before
        };
        let began = Instant::now();
        let mut provoked: Option<Instant> = None;
        let mut round = 0;
        loop {
            // Whoever has failed for good cannot be asked, but has said why.
            let said = bench.log_since(target, log).contains(name);
            let reached = match self.fault {
                Fault::Panic => said && !bench.lives(target),
                Fault::Delay | Fault::Error => {
                    said || bench
                        .view(target)
                        .await
                        .is_some_and(|view| view.acted(name) > before)
                }
            };
            if reached {
                return true;
            }
            if began.elapsed() > HIT_WITHIN {
                return false;
            }
            if provoked.is_none_or(|last| last.elapsed() > PROVOKE_EVERY) {
                if provocation == Provocation::Absence && round > 0 && bench.is_ready(target).await {
                    // It caught up without a snapshot.
                    bench.be_away(target).await;
                    bench.restart(target, &environment).await;
                } else if !at_start {
                    bench.provoke(provocation, target, round).await;
                }
                round += 1;
                provoked = Some(Instant::now());
            }
            tokio::time::sleep(crate::bench::LOOK_EVERY).await;
        }
    }

    /// Starts what has ended, and waits until all serve.
    async fn recover(&self, bench: &mut Bench, target: NodeId, outcome: &mut Outcome) {
        // A node whose log has failed answers no more, but takes a moment to end.
        let deadline = Instant::now() + BACK_WITHIN + ENDS_WITHIN;
        loop {
            for id in bench.ids() {
                if !bench.lives(id) {
                    outcome.ended |= id == target;
                    if id != target && self.is_unexpected(bench, id) {
                        outcome.problems.push(format!(
                            "node {id} has ended, too; its log ends:\n{}",
                            bench.log_tail(id)
                        ));
                    }
                    bench.cluster().start(id).expect("the node can be started");
                }
            }
            let ids = bench.ids();
            match bench.cluster().wait_ready(&ids, BACK_WITHIN).await {
                Ok(()) => return,
                // It ended just now, of the same fault: it is started again.
                Err(error) if Instant::now() >= deadline => {
                    outcome.problems.push(format!("{error:#}"));
                    return;
                }
                Err(_) => {}
            }
        }
    }

    /// Nodes that a provocation has killed and not started yet are no surprise.
    fn is_unexpected(&self, bench: &Bench, id: NodeId) -> bool {
        let provocation = for_point(self.point.name);
        let killed = matches!(provocation, Provocation::AbsenceOfAnother | Provocation::Bounce);
        !killed || bench.log_tail(id).contains("panicked")
    }
}

/// The states of all nodes are the same, and nothing that was acknowledged is missing; with `sessions_too`, whatever
/// fell silent has ended.
pub async fn compare(bench: &Bench, load: &Load, sessions_too: bool) -> Vec<String> {
    const SETTLED_WITHIN: Duration = Duration::from_secs(10);
    let _quiet = load.quiet().await;
    let mut problems = Vec::new();
    if sessions_too {
        problems.extend(load.undead(bench.address(1)).await);
    }
    let settled = within(SETTLED_WITHIN, async || {
        let mut views = Vec::new();
        for id in bench.ids() {
            views.push(bench.view(id).await);
        }
        let Some(views) = views.into_iter().collect::<Option<Vec<_>>>() else {
            return false;
        };
        // Silent sessions go on to end meanwhile.
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
            "the nodes are not at one position within {SETTLED_WITHIN:?}"
        ));
    }
    for address in bench.addresses() {
        problems.extend(load.missing(&address).await);
    }
    problems
}
