//! Simulated time.

/// Simulated time in microseconds since the beginning, independent of every machine's clock.
pub type Micros = u64;

/// One second.
pub const SECOND: Micros = 1_000_000;
/// One millisecond.
pub const MILLI: Micros = 1_000;
