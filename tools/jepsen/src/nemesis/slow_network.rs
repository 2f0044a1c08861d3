//! A network that delays, loses, resets and reorders the traffic between peers, through the proxy.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use super::{Kind, Nemesis, Testbed};
use crate::network::detour;
use crate::proxy::{Counts, LinkConditions};

/// Returns the nemesis.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "slow-network",
        about: "traffic between peers is 10 to 500 ms late, 1 to 20 % lost, reordered, with resets",
        nodes: 3,
        needs: &[],
        make: || Box::new(SlowNetwork::default()),
    }]
}

#[derive(Default)]
struct SlowNetwork {
    before: ProxyTotals,
}

/// Totals of the proxy's counters.
#[derive(Clone, Copy, Default)]
struct ProxyTotals {
    delayed: u64,
    lost: u64,
    reset: u64,
}

impl ProxyTotals {
    fn now(testbed: &Testbed) -> Self {
        let sum = |of: fn(&Counts) -> &AtomicU64| testbed.proxy.sum(of);
        Self {
            delayed: sum(|counts| &counts.delayed),
            lost: sum(|counts| &counts.lost),
            reset: sum(|counts| &counts.reset),
        }
    }
}

/// Draws the conditions: mostly a bad network, sometimes one on which elections cannot end.
fn draw(rng: &mut Rng) -> LinkConditions {
    let (delay, jitter) = match rng.u8(0..4) {
        0 => (rng.u64(100..300), rng.u64(100..500)),
        _ => (rng.u64(10..50), rng.u64(10..100)),
    };
    LinkConditions {
        delay: Duration::from_millis(delay),
        jitter: Duration::from_millis(jitter),
        loss_per_million: rng.u32(10_000..200_000),
        reset_per_million: rng.u32(0..5_000),
        cut: false,
    }
}

impl Nemesis for SlowNetwork {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            self.before = ProxyTotals::now(testbed);
            let conditions = draw(rng);
            for link in testbed.proxy.links() {
                // No two links are alike, and one in four is good.
                let own = LinkConditions {
                    delay: conditions.delay.mul_f64(0.5 + rng.f64()),
                    ..conditions
                };
                let fine = rng.u8(0..4) == 0;
                testbed
                    .proxy
                    .set(link, if fine { LinkConditions::default() } else { own });
            }
            if testbed.cluster.network.has_namespaces() {
                detour::begin(&testbed.cluster.network, &testbed.proxy).await?;
            }
            Ok(format!(
                "{} ms + up to {} ms, {:.1} % lost, {:.2} % reset",
                conditions.delay.as_millis(),
                conditions.jitter.as_millis(),
                f64::from(conditions.loss_per_million) / 10_000.0,
                f64::from(conditions.reset_per_million) / 10_000.0
            ))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(4000..7000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            for link in testbed.proxy.links() {
                testbed.proxy.set(link, LinkConditions::default());
            }
            if testbed.cluster.network.has_namespaces() {
                detour::end(&testbed.cluster.network, &testbed.proxy).await?;
            }
            let (before, now) = (self.before, ProxyTotals::now(testbed));
            let [delayed, lost, reset] = [
                now.delayed - before.delayed,
                now.lost - before.lost,
                now.reset - before.reset,
            ];
            Ok((delayed > 0 && lost > 0)
                .then(|| format!("{delayed} portions delayed, {lost} losses, {reset} connections reset")))
        }
        .boxed()
    }
}
