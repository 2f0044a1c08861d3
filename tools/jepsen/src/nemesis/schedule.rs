//! When faults begin and end: drawn from the seed, one fault after the other.

use std::time::Duration;

use fastrand::Rng;
use tokio::time::Instant;

use super::{Field, Nemesis};
use crate::report::Fault;

/// Between two faults, in milliseconds: time to recover, or not quite.
const CALM_MS: std::ops::Range<u64> = 1000..2500;

/// When there are enough faults.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// When this time is over. There is at least one, and the last one is healed.
    Time(Duration),
    /// When there were so many.
    Faults(usize),
}

/// Has faults happen until there are enough. Those that have begun are in `faults` whatever comes of it.
pub async fn run(
    name: &str,
    nemesis: &mut dyn Nemesis,
    field: &Field,
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
        one(name, nemesis, field, &mut rng, faults).await?;
    }
    if let Until::Time(time) = until {
        // What is left belongs to whoever counts successes.
        tokio::time::sleep_until(begun + time).await;
    }
    Ok(())
}

/// One fault from its beginning to its end. It is healed, however it began.
async fn one(
    name: &str,
    nemesis: &mut dyn Nemesis,
    field: &Field,
    rng: &mut Rng,
    faults: &mut Vec<Fault>,
) -> anyhow::Result<()> {
    let begin = field.world.now();
    let begun = nemesis.begin(field, rng).await;
    if let Ok(what) = &begun {
        eprintln!("{:8.3} s  {name}: {what}", begin as f64 / 1e9);
        tokio::time::sleep(nemesis.lasts(rng)).await;
    }
    let healing = field.world.now();
    let healed = nemesis.heal(field).await;
    let end = field.world.now();
    let evidence = match &healed {
        Ok(evidence) => evidence.clone(),
        Err(error) => Some(format!("it could not be healed: {error:#}")),
    };
    let shown = evidence.as_deref().unwrap_or("NOTHING SHOWS THAT IT HAPPENED");
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
