//! Whether all permits of the semaphores can be had when nobody else wants them: those of clients that died have come back.

use std::time::Duration;

use anyhow::{Context, Result};
use lockgate_check::holds::Mode;

use super::mix::{Mix, fields, limit};
use crate::client::{Acquire, Answer, Session};
use crate::systems::caller;
use crate::world::World;

/// Longer than it takes to take them all.
const TTL: Duration = Duration::from_secs(20);

/// Takes the permits of each free semaphore one by one, and names those that are not given.
pub async fn lost(world: &World, mix: Mix, names: &[String]) -> Result<Vec<String>> {
    if mix != Mix::Semaphore {
        return Ok(Vec::new());
    }
    let mut caller = caller(world, 0);
    let session = Session::open(world, 0, &mut caller, TTL).await;
    let session = session.ok().context("a session to take permits with")?;
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
                Answer::Ok(_) => {}
                Answer::Failed(why) if why == "lock_busy" => {
                    lost.push(format!(
                        "of {limit} permits of lock {name}, which nobody holds, number {number} is not given"
                    ));
                    break;
                }
                Answer::Failed(why) | Answer::Unknown(why) => {
                    anyhow::bail!("permit {number} of lock {name}: {why}")
                }
            }
        }
    }
    session.close(&mut caller).await;
    Ok(lost)
}
