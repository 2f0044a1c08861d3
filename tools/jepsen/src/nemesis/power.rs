//! Power cuts, which lose everything that was not synced. The disks' images are copied while the processes
//! are paused, which yields the content of a disk whose machine lost power. Then the processes are killed,
//! and start again on the copies.

use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nix::sys::signal::Signal;

use super::process::Target;
use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::node_process::Claim;
use crate::command::run;
use crate::network::Slot;

/// Flag in the superblock of a file system that was not unmounted.
const NOT_UNMOUNTED: &str = "needs_recovery";

/// Returns all kinds of power cuts.
pub fn kinds() -> Vec<Kind> {
    macro_rules! kind {
        ($name:literal, $target:ident, $about:literal) => {
            Kind {
                name: $name,
                about: $about,
                nodes: 3,
                needs: &[Need::Disks],
                make: || Box::new(PowerCut::new(Target::$target)),
            }
        };
    }
    vec![
        kind!("power-cut-one", One, "a node loses power and all unsynced writes"),
        kind!(
            "power-cut-majority",
            Majority,
            "more than half of the nodes lose power at once"
        ),
        kind!("power-cut-all", All, "all nodes lose power at once"),
    ]
}

struct PowerCut {
    target: Target,
    down: Vec<(Slot, Claim)>,
    in_use: usize,
}

impl PowerCut {
    fn new(target: Target) -> Self {
        Self {
            target,
            down: Vec::new(),
            in_use: 0,
        }
    }
}

impl Nemesis for PowerCut {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            self.in_use = 0;
            let cluster = &testbed.cluster;
            let slots = self.target.pick(testbed, rng).await;
            for slot in &slots {
                self.down.push((*slot, cluster.process(*slot).claim().await));
            }
            // The processes are paused so that all copies show the same moment; nothing is synced for that.
            for slot in &slots {
                cluster.signal(*slot, Signal::SIGSTOP)?;
            }
            let mut copies = Vec::new();
            for slot in &slots {
                let copy = cluster.disks.copy(*slot).await?;
                let head = run("dumpe2fs", &["-h", &copy.image.display().to_string()]).await?;
                self.in_use += usize::from(head.contains(NOT_UNMOUNTED));
                copies.push((*slot, copy));
            }
            for (slot, copy) in copies {
                cluster.kill(slot).await?;
                cluster.disks.replace(slot, copy).await?;
            }
            Ok(format!("the power of {slots:?} is cut"))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(1000..3000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let down = std::mem::take(&mut self.down);
            for (slot, _) in &down {
                // A process that still runs was paused by a `begin` that failed.
                testbed.cluster.kill(*slot).await?;
                testbed.cluster.start(*slot)?;
            }
            for (slot, _) in &down {
                testbed
                    .cluster
                    .wait_restarted(*slot)
                    .await
                    .context("after a power cut")?;
            }
            let all = !down.is_empty() && self.in_use == down.len();
            Ok(all.then(|| format!("{} file systems had to recover from their journals", down.len())))
        }
        .boxed()
    }
}
