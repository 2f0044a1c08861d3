//! What lines of the log begin with: the simulated time, and the machine whose process runs.

use std::cell::Cell;
use std::fmt;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::agenda::{Micros, SECOND};

thread_local! {
    static NOW: Cell<Micros> = const { Cell::new(0) };
    static MACHINE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Simulated time goes on to here.
pub fn set_now(now: Micros) {
    NOW.set(now);
}

/// The process of this machine runs, or none.
pub fn set_machine(machine: Option<usize>) {
    MACHINE.set(machine);
}

/// Writes ` 107.650000s node 2`.
pub struct LogPrefix;

impl FormatTime for LogPrefix {
    fn format_time(&self, line: &mut Writer<'_>) -> fmt::Result {
        let now = NOW.get();
        write!(line, "{:>4}.{:06}s", now / SECOND, now % SECOND)?;
        match MACHINE.get() {
            Some(machine) => write!(line, " node {}", machine + 1),
            None => write!(line, "       "),
        }
    }
}
