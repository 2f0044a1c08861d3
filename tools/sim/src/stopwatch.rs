//! Real time, for people: how long a run took. The clocks of this process stand still, as mad-turmoil wants it for the sake of
//! what is simulated, so this asks the kernel in another way.

/// A stopwatch that runs.
pub struct Stopwatch {
    began_ms: u64,
}

impl Stopwatch {
    /// Starts it.
    pub fn start() -> Self {
        Self {
            began_ms: uptime_ms(),
        }
    }

    /// How long it has run. Exact to ten milliseconds; 0 where the kernel does not tell.
    pub fn elapsed_ms(&self) -> u64 {
        uptime_ms().saturating_sub(self.began_ms)
    }

    /// The same in seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed_ms() as f64 / 1000.0
    }
}

fn uptime_ms() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").ok();
    let seconds = uptime.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    seconds.map_or(0, |seconds| (seconds * 1000.0) as u64)
}
