//! Prefix of log lines: the simulated time, and the node whose process runs.

use std::cell::Cell;
use std::fmt;

use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

use crate::time::{Micros, SECOND};

thread_local! {
    static NOW: Cell<Micros> = const { Cell::new(0) };
    static MACHINE: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Sets the simulated time.
pub fn set_now(now: Micros) {
    NOW.set(now);
}

/// Sets the machine whose process runs, if any.
pub fn set_machine(machine: Option<usize>) {
    MACHINE.set(machine);
}

/// Formatter of the prefix, as in ` 107.650000s node 2`.
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
