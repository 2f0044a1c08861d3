//! Schedule of faults, drawn from the seed: one fault after the other.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::{Nemesis, Testbed};
use crate::report::Fault;

/// Range of the time between two faults, in milliseconds: sometimes enough to recover, sometimes not quite.
const CALM_MS: std::ops::Range<u64> = 1000..2500;

/// End of a schedule.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Ends after this time. There is at least one fault, and the last one is healed.
    Time(Duration),
    /// Ends after this number of faults.
    Faults(usize),
}

/// Injects faults until the schedule ends. All faults that were begun are in `faults`, even after an error.
pub async fn run(
    name: &str,
    nemesis: &mut dyn Nemesis,
    testbed: &Testbed,
    seed: u64,
    until: Until,
    faults: &mut Vec<Fault>,
) -> anyhow::Result<()> {
    let mut rng = Rng::with_seed(seed);
    let begun = Instant::now();
    loop {
        if !faults.is_empty() {
            let calm = Duration::from_millis(rng.u64(CALM_MS));
            let enough = match until {
                Until::Time(time) => begun.elapsed() + calm >= time,
                Until::Faults(most) => faults.len() >= most,
            };
            if enough {
                break;
            }
            tokio::time::sleep(calm).await;
        }
        one(name, nemesis, testbed, &mut rng, faults).await?;
    }
    if let Until::Time(time) = until {
        // Rates are measured over the whole time, so the rest of it passes without faults.
        tokio::time::sleep_until(begun + time).await;
    }
    Ok(())
}

/// Runs one fault from beginning to end. The fault is healed even if its beginning failed.
async fn one(
    name: &str,
    nemesis: &mut dyn Nemesis,
    testbed: &Testbed,
    rng: &mut Rng,
    faults: &mut Vec<Fault>,
) -> anyhow::Result<()> {
    let begin = testbed.world.now();
    let begun = nemesis.begin(testbed, rng).await;
    if let Ok(what) = &begun {
        eprintln!("{:8.3} s  {name}: {what}", begin as f64 / 1e9);
        tokio::time::sleep(nemesis.duration(rng)).await;
    }
    let healing = testbed.world.now();
    let healed = nemesis.heal(testbed).await;
    let end = testbed.world.now();
    let evidence = match &healed {
        Ok(evidence) => evidence.clone(),
        Err(error) => Some(format!("healing failed: {error:#}")),
    };
    let shown = evidence.as_deref().unwrap_or("NO EVIDENCE OF AN EFFECT");
    eprintln!("{:8.3} s  {name}: over: {shown}", end as f64 / 1e9);
    faults.push(Fault {
        nemesis: name.to_owned(),
        what: begun?,
        begin,
        healing,
        end,
        evidence,
        recovery_ms: None,
        heal_recovery_ms: None,
    });
    healed.map(drop)
}
