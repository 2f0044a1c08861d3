//! Rate limit of a client: each has its share of a total rate, so that two cores are enough for servers and
//! clients.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::world::World;

/// Pause of a client after a call without an answer; the node would most likely fail to answer again.
const BACK_OFF: Duration = Duration::from_millis(50);

/// Rate limiter of one client.
pub struct Pace {
    ticks: tokio::time::Interval,
    world: World,
}

impl Pace {
    /// Creates the limiter of one of `clients` that together make `per_second` steps; their first steps are
    /// spread over one interval.
    pub fn new(world: &World, number: usize, clients: usize, per_second: f64) -> Self {
        let period = Duration::from_secs_f64(clients as f64 / per_second);
        let begin = Instant::now() + period.mul_f64(number as f64 / clients as f64);
        let mut ticks = tokio::time::interval_at(begin, period);
        // Missed steps are not made up for, so that a cluster that has recovered is not flooded.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            world: world.clone(),
        }
    }

    /// Waits for the next step; returns `false` when the run is over.
    pub async fn next(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.world.stop.cancelled() => false,
            _ = self.ticks.tick() => true,
        }
    }

    /// Pauses after a failure; returns `false` when the run is over.
    pub async fn back_off(&self) -> bool {
        self.sleep(BACK_OFF).await
    }

    /// Pauses for a while; returns `false` when the run is over.
    pub async fn sleep(&self, time: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.world.stop.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }
}
