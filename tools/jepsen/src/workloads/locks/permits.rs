//! Check that all permits of the semaphores are available after the run: those of crashed clients must have
//! been released.

use std::time::Duration;

use anyhow::{Context, Result};
use lockgate_check::holds::Mode;

use super::mix::{Mix, fields, limit};
use crate::client::{Acquire, CallResult, Session};
use crate::systems::caller;
use crate::world::World;

/// Session TTL, longer than it takes to acquire all permits.
const TTL: Duration = Duration::from_secs(20);

/// Acquires the permits of each free semaphore one by one; describes those that are not granted.
pub async fn lost(world: &World, mix: Mix, names: &[String]) -> Result<Vec<String>> {
    if mix != Mix::Semaphore {
        return Ok(Vec::new());
    }
    let mut caller = caller(world, 0);
    let session = Session::open(world, 0, &mut caller, TTL).await;
    let session = session.ok().context("opening a session to acquire permits")?;
    let mut lost = Vec::new();
    for (lock, name) in names.iter().enumerate() {
        let limit = limit(lock);
        for number in 1..=limit {
            let acquire = Acquire {
                lock: name,
                session: session.id(),
                fields: fields(Mode::Permits { permits: 1, limit }),
                request_id: &format!("permit-{lock}-{number}"),
            };
            match acquire.send(&mut caller, Duration::ZERO).await {
                CallResult::Ok(_) => {}
                CallResult::Failed(why) if why == "lock_busy" => {
                    lost.push(format!(
                        "lock {name} has no holder, but permit {number} of {limit} is not granted"
                    ));
                    break;
                }
                CallResult::Failed(why) | CallResult::Unknown(why) => {
                    anyhow::bail!("permit {number} of lock {name}: {why}")
                }
            }
        }
    }
    session.close(&mut caller).await;
    Ok(lost)
}
