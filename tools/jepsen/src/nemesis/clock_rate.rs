//! Clocks that run at a wrong rate, by libfaketime: all clocks of a process and thereby its timers, as on a
//! machine with a bad quartz.

use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::Value;

use super::clock::{TIMEOUT, environment, set};
use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::START_TIMEOUT;
use crate::cluster::node_process::Claim;
use crate::cluster::software::Node;
use crate::http;
use crate::network::Slot;

/// Length of the wait that a node is asked for, to be measured by our clock.
const WAIT_MS: u64 = 1000;

/// Returns the nemesis.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "clock-rate",
        about: "all clocks of a node run at 0.8 to 1.25 times the rate; the node is restarted for that",
        nodes: 3,
        needs: &[Need::FakeTime, Need::Lockgate],
        make: || Box::new(Rate::default()),
    }]
}

/// Nemesis that restarts one node with clocks of another rate, and later with correct ones.
#[derive(Default)]
struct Rate {
    hit: Option<(Slot, Claim)>,
    rate: f64,
    waited: Option<Duration>,
}

/// Number of waits that are measured. The shortest counts: other load on the machine makes waits longer,
/// never shorter.
const WAITS: usize = 3;

/// Measures by our clock a wait of [`WAIT_MS`] by the node's clock.
async fn wait_by_its_clock(node: &Node) -> anyhow::Result<Duration> {
    let mut shortest = Duration::MAX;
    for _ in 0..WAITS {
        shortest = shortest.min(wait_once(node).await?);
    }
    Ok(shortest)
}

async fn wait_once(node: &Node) -> anyhow::Result<Duration> {
    let path = format!(
        "/v1/watch/no-such-znode-{}?kind=exists&timeout_ms={WAIT_MS}",
        fastrand::u64(..)
    );
    let begun = std::time::Instant::now();
    http::call(node.addresses.http, Method::GET, &path, &Value::Null, TIMEOUT)
        .await?
        .success()?;
    Ok(begun.elapsed())
}

async fn restart(testbed: &Testbed, slot: Slot, rate: f64) -> anyhow::Result<()> {
    let node = testbed.cluster.node(slot);
    testbed.cluster.stop(slot).await?;
    let process = testbed.cluster.process(slot);
    process.set_environment(environment(&node, rate != 1.0)?);
    set(
        &node,
        &if rate == 1.0 {
            "+0".to_owned()
        } else {
            format!("+0 x{rate:.3}")
        },
    )?;
    testbed.cluster.start(slot)?;
    testbed
        .cluster
        .wait_ready(slot, START_TIMEOUT)
        .await
        .context("with another clock rate")
}

impl Nemesis for Rate {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            self.waited = None;
            let slot = if rng.bool() {
                testbed.leader_or_any(rng).await
            } else {
                testbed.any(rng)
            };
            self.hit = Some((slot, testbed.cluster.process(slot).claim().await));
            // Rates near the ends of the range have the largest effect.
            self.rate = if rng.bool() {
                0.8 + 0.1 * rng.f64()
            } else {
                1.15 + 0.1 * rng.f64()
            };
            restart(testbed, slot, self.rate).await?;
            self.waited = Some(wait_by_its_clock(&testbed.cluster.node(slot)).await?);
            Ok(format!(
                "the clocks of {slot} run at {:.2} times the rate",
                self.rate
            ))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(5000..9000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let Some((slot, _claim)) = self.hit.take() else {
                return Ok(None);
            };
            restart(testbed, slot, 1.0).await?;
            let Some(waited) = self.waited.take() else {
                return Ok(None);
            };
            let expected = Duration::from_millis(WAIT_MS).div_f64(self.rate);
            let right = Duration::from_millis(WAIT_MS);
            // The measured wait is nearer to that of the changed rate than to that of the correct rate.
            let took_effect = waited.abs_diff(expected) < waited.abs_diff(right);
            Ok(took_effect.then(|| {
                format!(
                    "a wait of {WAIT_MS} ms by its clock was one of {} ms",
                    waited.as_millis()
                )
            }))
        }
        .boxed()
    }
}
