//! Progress output: one changing line on a terminal, otherwise a line every few seconds, or JSON. The module
//! makes no decisions.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use cli_support::output::shown;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::incompatible_znodes::IncompatibleZnodes;
use super::source::ReadZnode;
use super::target::Step;

/// Redraw interval of the line on a terminal.
const REDRAW_INTERVAL: Duration = Duration::from_millis(200);

/// Interval of log lines and JSON lines.
const LINE_INTERVAL: Duration = Duration::from_secs(5);

/// Maximum number of incompatible znodes that are listed: operators who clean up need all of them, and cannot
/// read more.
const MAX_INCOMPATIBLE_LISTED: usize = 1_000;

/// Length of the bar in characters.
const BAR_LENGTH: usize = 24;

/// Form of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One changing line on standard error.
    Terminal,
    /// Lines for people on standard error.
    Lines,
    /// JSON lines for programs on standard output.
    Json,
}

/// Progress of the migration. See the module.
pub struct Progress {
    style: Style,
    phase: &'static str,
    total: Option<u64>,
    done: u64,
    begun: Instant,
    reported: Option<Instant>,
    /// Totals since the start.
    written: Counts,
    behind: usize,
    lag: Duration,
    /// Number of incompatible znodes that were listed.
    incompatible_listed: usize,
    is_line_open: bool,
}

#[derive(Default)]
struct Counts {
    znodes: u64,
    bytes: u64,
    removed: u64,
}

impl Progress {
    /// Creates a progress output: JSON if requested, else for the terminal, if there is one.
    pub fn new(json: bool) -> Self {
        let style = match (json, io::stderr().is_terminal()) {
            (true, _) => Style::Json,
            (false, true) => Style::Terminal,
            (false, false) => Style::Lines,
        };
        Self {
            style,
            phase: "",
            total: None,
            done: 0,
            begun: Instant::now(),
            reported: None,
            written: Counts::default(),
            behind: 0,
            lag: Duration::ZERO,
            incompatible_listed: 0,
            is_line_open: false,
        }
    }

    /// Begins a new phase, of `total` znodes if known.
    pub fn begin(&mut self, phase: &'static str, total: Option<u64>) {
        (self.phase, self.total, self.done) = (phase, total, 0);
        self.begun = Instant::now();
    }

    /// Counts a znode of the source that was read.
    pub fn read(&mut self, _: &ReadZnode) {
        self.done += 1;
    }

    /// Counts a znode of the source that was checked.
    pub fn checked(&mut self) {
        self.done += 1;
    }

    /// Counts executed steps.
    pub fn written(&mut self, steps: &[Step]) {
        for step in steps {
            match step {
                Step::Put(_, _, data) => {
                    self.written.znodes += 1;
                    self.written.bytes += data.len() as u64;
                }
                Step::Remove(_) => self.written.removed += 1,
            }
        }
    }

    /// Sets the number of changes being copied, and the age of the oldest notification among them.
    pub fn behind(&mut self, changes: usize, lag: Duration) {
        (self.behind, self.lag) = (changes, lag);
    }

    /// Reports incompatible znodes. Those in `before` were reported already.
    pub fn incompatible_znodes(&mut self, incompatible: &IncompatibleZnodes, before: &IncompatibleZnodes) {
        if incompatible == before {
            return;
        }
        let mut known = before.clone();
        for (path, why) in incompatible.iter() {
            if known.insert(path, why) {
                self.incompatible_znode(path, why);
            }
        }
        let count = incompatible.len();
        self.event("misfits", json!({ "count": count }));
        if !self.is_json() {
            let more = match self.incompatible_listed >= MAX_INCOMPATIBLE_LISTED {
                true => format!(" (only {MAX_INCOMPATIBLE_LISTED} are listed)"),
                false => String::new(),
            };
            self.say(&format!(
                "{count} znodes of the source exceed the target's limits{more}"
            ));
        }
    }

    /// Reports one incompatible znode, up to a maximum number.
    pub fn incompatible_znode(&mut self, path: &str, why: &str) {
        if self.incompatible_listed >= MAX_INCOMPATIBLE_LISTED {
            return;
        }
        self.incompatible_listed += 1;
        match self.is_json() {
            true => self.event("misfit", json!({ "path": path, "what": why })),
            false => self.say(&format!(
                "  {path:?} is not copied, nor are its descendants: {why}"
            )),
        }
    }

    /// Reports the state if the interval has passed.
    pub fn report(&mut self) {
        let every = match self.style {
            Style::Terminal => REDRAW_INTERVAL,
            Style::Lines | Style::Json => LINE_INTERVAL,
        };
        if self.reported.is_some_and(|at| at.elapsed() < every) {
            return;
        }
        self.reported = Some(Instant::now());
        match self.style {
            Style::Terminal => {
                let line = self.line();
                self.draw(&line);
            }
            Style::Lines => self.say(&self.line()),
            Style::Json => self.event("progress", self.document()),
        }
    }

    /// Prints a note.
    pub fn say(&mut self, text: &str) {
        if self.style == Style::Json {
            return self.event("note", json!({ "text": text }));
        }
        self.close_line();
        // A closed standard error is ignored; the migration continues.
        writeln!(io::stderr(), "{}", shown(text)).ok();
    }

    /// Prints an event for programs.
    pub fn event(&mut self, name: &str, mut document: Value) {
        if self.style == Style::Json {
            document["event"] = name.into();
            writeln!(io::stdout(), "{document}").ok();
        }
    }

    /// Returns whether the output is JSON.
    pub fn is_json(&self) -> bool {
        self.style == Style::Json
    }

    fn draw(&mut self, line: &str) {
        let mut out = io::stderr();
        write!(out, "\r\x1b[K{line}").and_then(|()| out.flush()).ok();
        self.is_line_open = true;
    }

    fn close_line(&mut self) {
        if std::mem::take(&mut self.is_line_open) {
            writeln!(io::stderr()).ok();
        }
    }

    fn rate(&self) -> u64 {
        let millis = self.begun.elapsed().as_millis().max(1) as u64;
        self.done * 1000 / millis
    }

    fn line(&self) -> String {
        let Counts {
            znodes,
            bytes,
            removed,
        } = self.written;
        let so_far = format!("{znodes} written ({}), {removed} removed", size(bytes));
        if self.phase == "following" {
            let lag = self.lag.as_millis();
            return format!("following: {} changes behind, {lag} ms; {so_far}", self.behind);
        }
        let of = match self.total {
            Some(total) => format!("{} of {total} znodes {}", self.done, bar(self.done, total)),
            None => format!("{} znodes", self.done),
        };
        format!("{}: {of}, {} a second; {so_far}", self.phase, self.rate())
    }

    fn document(&self) -> Value {
        json!({
            "phase": self.phase,
            "done": self.done,
            "total": self.total,
            "per_second": self.rate(),
            "written": self.written.znodes,
            "written_bytes": self.written.bytes,
            "removed": self.written.removed,
            "changes_behind": self.behind,
            "lag_ms": self.lag.as_millis() as u64,
        })
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.close_line();
    }
}

/// Formats a share as a bar. The total was counted at the beginning, so it may be exceeded.
fn bar(done: u64, total: u64) -> String {
    let share = done.min(total) * BAR_LENGTH as u64 / total.max(1);
    let full = share as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR_LENGTH - full))
}

fn size(bytes: u64) -> String {
    match bytes {
        0..10_000 => format!("{bytes} bytes"),
        10_000..10_000_000 => format!("{} kB", bytes / 1000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_is_full_at_the_end_and_never_longer() {
        assert_eq!(bar(0, 0), format!("[{}]", "-".repeat(BAR_LENGTH)));
        assert_eq!(
            bar(1, 2),
            format!("[{}{}]", "#".repeat(BAR_LENGTH / 2), "-".repeat(BAR_LENGTH / 2))
        );
        assert_eq!(bar(2, 2), bar(5, 2));
    }
}
