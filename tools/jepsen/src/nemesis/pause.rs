//! Processes that are paused for a while without noticing: SIGSTOP, SIGCONT.

use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

use super::process::Target;
use super::{Kind, Nemesis, Testbed};
use crate::cluster::node_process::Claim;
use crate::network::Slot;

/// Durations of a pause in milliseconds: longer than an election, longer than a short session, longer than
/// every session of the workloads.
const DURATIONS_MS: [u64; 3] = [1000, 5000, 9000];

/// Returns all kinds of pauses.
pub fn kinds() -> Vec<Kind> {
    macro_rules! kind {
        ($name:literal, $target:ident, $about:literal) => {
            Kind {
                name: $name,
                about: $about,
                nodes: 3,
                needs: &[],
                make: || Box::new(Pause::new(Target::$target)),
            }
        };
    }
    vec![
        kind!("pause-one", One, "SIGSTOP to any node for 1, 5 or 9 s"),
        kind!("pause-leader", Leader, "SIGSTOP to the leader for 1, 5 or 9 s"),
        kind!("pause-all", All, "SIGSTOP to all nodes for 1, 5 or 9 s"),
    ]
}

/// Nemesis that sends SIGSTOP, and after a while SIGCONT.
struct Pause {
    target: Target,
    duration: Duration,
    /// Number of faults so far, so that the first three are of each duration.
    round: Option<usize>,
    stopped: Vec<(Slot, Pid, Claim)>,
}

impl Pause {
    fn new(target: Target) -> Self {
        Self {
            target,
            duration: Duration::ZERO,
            round: None,
            stopped: Vec::new(),
        }
    }
}

/// Returns the letter of a process's state: `T` if it is stopped.
fn state(pid: Pid) -> anyhow::Result<char> {
    let path = format!("/proc/{pid}/stat");
    let text = std::fs::read_to_string(&path).context(path)?;
    // The name before the state is in parentheses, and may contain some itself.
    let (_, rest) = text.rsplit_once(") ").context("a line of /proc")?;
    rest.chars().next().context("a state")
}

impl Nemesis for Pause {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let round = self
                .round
                .map_or_else(|| rng.usize(0..DURATIONS_MS.len()), |round| round + 1);
            self.round = Some(round);
            self.duration = Duration::from_millis(DURATIONS_MS[round % DURATIONS_MS.len()]);
            let slots = self.target.pick(testbed, rng).await;
            for slot in &slots {
                let claim = testbed.cluster.process(*slot).claim().await;
                let pid = testbed
                    .cluster
                    .pid(*slot)
                    .context("only the claim's owner ends a claimed node")?;
                self.stopped.push((*slot, pid, claim));
            }
            for slot in &slots {
                testbed.cluster.signal(*slot, Signal::SIGSTOP)?;
            }
            Ok(format!("SIGSTOP to {slots:?} for {} s", self.duration.as_secs()))
        }
        .boxed()
    }

    fn duration(&self, _: &mut Rng) -> Duration {
        self.duration
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let stopped = std::mem::take(&mut self.stopped);
            let mut still = 0;
            for (slot, pid, _) in &stopped {
                still += usize::from(state(*pid)? == 'T');
                testbed.cluster.signal(*slot, Signal::SIGCONT)?;
            }
            let all = !stopped.is_empty() && still == stopped.len();
            Ok(all.then(|| format!("{still} processes were in state T until they were continued")))
        }
        .boxed()
    }
}
