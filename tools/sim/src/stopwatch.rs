//! Real time, to report the duration of a run. This process's clocks are paused by mad-turmoil for the
//! simulation, so this reads the kernel's uptime.

/// Running stopwatch.
pub struct Stopwatch {
    began_ms: u64,
}

impl Stopwatch {
    /// Starts a stopwatch.
    pub fn start() -> Self {
        Self {
            began_ms: uptime_ms(),
        }
    }

    /// Returns the elapsed milliseconds, with a precision of ten; 0 if the kernel does not tell.
    pub fn elapsed_ms(&self) -> u64 {
        uptime_ms().saturating_sub(self.began_ms)
    }

    /// Returns the elapsed time in seconds.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed_ms() as f64 / 1000.0
    }
}

fn uptime_ms() -> u64 {
    let uptime = std::fs::read_to_string("/proc/uptime").ok();
    let seconds = uptime.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    seconds.map_or(0, |seconds| (seconds * 1000.0) as u64)
}
