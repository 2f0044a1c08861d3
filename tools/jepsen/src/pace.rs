//! How fast a client goes: never faster than its share of a rate, so that two cores are enough for servers and clients.

use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior};

use crate::world::World;

/// After a call without an answer a client holds back so long: it would only ask again who cannot answer.
const BACK_OFF: Duration = Duration::from_millis(50);

/// One client's rhythm.
pub struct Pace {
    ticks: tokio::time::Interval,
    world: World,
}

impl Pace {
    /// One of `clients` that together do `per_second` steps; they begin spread over the first interval.
    pub fn new(world: &World, number: usize, clients: usize, per_second: f64) -> Self {
        let period = Duration::from_secs_f64(clients as f64 / per_second);
        let begin = Instant::now() + period.mul_f64(number as f64 / clients as f64);
        let mut ticks = tokio::time::interval_at(begin, period);
        // What was missed while nothing was answered is not made up for: a cluster that comes back is not flooded.
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            ticks,
            world: world.clone(),
        }
    }

    /// Waits for the next step; false when the run is over.
    pub async fn next(&mut self) -> bool {
        tokio::select! {
            biased;
            () = self.world.stop.cancelled() => false,
            _ = self.ticks.tick() => true,
        }
    }

    /// Holds back after a failure; false when the run is over.
    pub async fn back_off(&self) -> bool {
        self.sleep(BACK_OFF).await
    }

    /// Does nothing for a while; false when the run is over.
    pub async fn sleep(&self, time: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.world.stop.cancelled() => false,
            () = tokio::time::sleep(time) => true,
        }
    }
}
