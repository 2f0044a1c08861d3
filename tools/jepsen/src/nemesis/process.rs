//! Kills of processes, which start again from the state on their disks.

use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::net::TcpStream;

use super::{Kind, Nemesis, Testbed};
use crate::cluster::node_process::Claim;
use crate::network::Slot;

/// Target of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Any one node.
    One,
    /// The leader.
    Leader,
    /// More than half of the nodes.
    Majority,
    /// All nodes.
    All,
}

impl Target {
    /// Draws the slots of the targets.
    pub async fn pick(self, testbed: &Testbed, rng: &mut Rng) -> Vec<Slot> {
        match self {
            Self::One => vec![testbed.any(rng)],
            Self::Leader => vec![testbed.leader_or_any(rng).await],
            Self::Majority => testbed.majority(rng),
            Self::All => testbed.cluster.members(),
        }
    }
}

/// Returns all kinds of kills.
pub fn kinds() -> Vec<Kind> {
    macro_rules! kind {
        ($name:literal, $target:ident, $about:literal) => {
            Kind {
                name: $name,
                about: $about,
                nodes: 3,
                needs: &[],
                make: || Box::new(Kill::new(Target::$target)),
            }
        };
    }
    vec![
        kind!("kill-one", One, "SIGKILL to any node"),
        kind!("kill-leader", Leader, "SIGKILL to the leader"),
        kind!(
            "kill-majority",
            Majority,
            "SIGKILL to more than half of the nodes"
        ),
        kind!("kill-all", All, "SIGKILL to all nodes"),
    ]
}

/// Nemesis that sends SIGKILL, and after a while starts the nodes again.
struct Kill {
    target: Target,
    down: Vec<(Slot, Claim)>,
    /// Number of nodes that refused a connection while they were down.
    refused: usize,
}

impl Kill {
    fn new(target: Target) -> Self {
        Self {
            target,
            down: Vec::new(),
            refused: 0,
        }
    }
}

impl Nemesis for Kill {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let slots = self.target.pick(testbed, rng).await;
            for slot in &slots {
                let claim = testbed.cluster.process(*slot).claim().await;
                self.down.push((*slot, claim));
            }
            // As simultaneously as possible.
            let kills = slots.iter().map(|slot| testbed.cluster.kill(*slot));
            futures_util::future::try_join_all(kills).await?;
            self.refused = 0;
            for slot in &slots {
                let address = testbed.cluster.node(*slot).addresses.http;
                self.refused += usize::from(TcpStream::connect(address).await.is_err());
            }
            Ok(format!("SIGKILL to {slots:?}"))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(1500..4000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let down = std::mem::take(&mut self.down);
            for (slot, _) in &down {
                testbed.cluster.start(*slot)?;
            }
            for (slot, _) in &down {
                testbed
                    .cluster
                    .wait_restarted(*slot)
                    .await
                    .context("after a kill")?;
            }
            let all = !down.is_empty() && self.refused == down.len();
            Ok(all.then(|| format!("{} nodes refused connections until they were started", down.len())))
        }
        .boxed()
    }
}
