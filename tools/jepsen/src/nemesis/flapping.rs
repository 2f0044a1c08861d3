//! Partitions that appear and disappear every 50 to 500 ms: elections begin and do not end.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::partition::Shape;
use super::{Kind, Nemesis, Testbed};
use crate::network::cuts::Cut;

const FAULT: &str = "flapping";

/// Range of the time for which the network stays in one state, in milliseconds.
const PERIOD_MS: std::ops::Range<u64> = 50..500;

/// Returns the nemesis.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "flapping",
        about: "a partition that appears and heals every 50 to 500 ms, a different one each time",
        nodes: 3,
        needs: &[],
        make: || Box::new(Flapping::default()),
    }]
}

#[derive(Default)]
struct Flapping {
    stop: CancellationToken,
    task: Option<JoinHandle<anyhow::Result<u32>>>,
    dropped_before: u64,
}

/// Returns all links between all members.
fn everything(testbed: &Testbed) -> BTreeSet<Cut> {
    let members = testbed.cluster.members();
    crate::network::cuts::between(&members, &members)
}

/// Cuts and heals links until `stop` is cancelled; returns the number of partitions.
async fn flap(testbed: Testbed, mut rng: Rng, stop: CancellationToken) -> anyhow::Result<u32> {
    let mut times = 0;
    while !stop.is_cancelled() {
        let leader = testbed.leader_or_any(&mut rng).await;
        let shape = [Shape::Halves, Shape::Leader, Shape::In, Shape::Out][rng.usize(0..4)];
        let (cuts, _) = shape.cuts(&testbed.cluster.members(), leader, &mut rng);
        for cuts in [cuts, BTreeSet::new()] {
            testbed.cuts.set(FAULT, cuts).await?;
            tokio::time::sleep(Duration::from_millis(rng.u64(PERIOD_MS))).await;
        }
        times += 1;
    }
    Ok(times)
}

impl Nemesis for Flapping {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            self.dropped_before = testbed.cuts.dropped(&everything(testbed)).await?;
            self.stop = CancellationToken::new();
            let task = flap(testbed.clone(), rng.fork(), self.stop.clone());
            self.task = Some(tokio::spawn(task));
            Ok("partitions that appear and heal".to_owned())
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            self.stop.cancel();
            let task = self.task.take().context("the fault was started")?;
            let times = task.await.context("the task that flaps")??;
            testbed.cuts.set(FAULT, BTreeSet::new()).await?;
            let dropped = testbed.cuts.dropped(&everything(testbed)).await? - self.dropped_before;
            Ok((dropped > 0).then(|| format!("{times} partitions, {dropped} frames dropped")))
        }
        .boxed()
    }
}
