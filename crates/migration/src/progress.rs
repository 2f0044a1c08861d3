//! What is told while trees are brought: on a terminal one line that changes, else a line now and then, or JSON. It decides
//! nothing.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use cli_support::output::shown;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::misfits::Misfits;
use super::source::Node;
use super::target::Step;

/// A line on a terminal may change so often.
const DRAW_EVERY: Duration = Duration::from_millis(200);

/// A line of a log, or of JSON, is written so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// So many znodes that do not fit are named: whoever cleans up wants to see all of them, and nobody reads more.
const MISFITS_NAMED: usize = 1_000;

/// How wide a bar is.
const BAR: usize = 24;

/// How it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// One line that changes.
    Terminal,
    /// Lines for people.
    Lines,
    /// Lines for programs, on standard output.
    Json,
}

/// See the module.
pub struct Progress {
    style: Style,
    phase: &'static str,
    total: Option<u64>,
    done: u64,
    begun: Instant,
    told: Option<Instant>,
    /// Since the beginning.
    written: Counts,
    behind: usize,
    lag: Duration,
    /// How many znodes that do not fit were named.
    misfits_named: usize,
    is_line_open: bool,
}

#[derive(Default)]
struct Counts {
    znodes: u64,
    bytes: u64,
    removed: u64,
}

impl Progress {
    /// On the terminal, if there is one.
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
            told: None,
            written: Counts::default(),
            behind: 0,
            lag: Duration::ZERO,
            misfits_named: 0,
            is_line_open: false,
        }
    }

    /// Something else begins, which has so much to do.
    pub fn begin(&mut self, phase: &'static str, total: Option<u64>) {
        (self.phase, self.total, self.done) = (phase, total, 0);
        self.begun = Instant::now();
    }

    /// A znode of the source was read.
    pub fn read(&mut self, _: &Node) {
        self.done += 1;
    }

    /// One was looked at.
    pub fn looked(&mut self) {
        self.done += 1;
    }

    /// These were carried out.
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

    /// So many changes are being carried over, the oldest of them so long after it was told of.
    pub fn behind(&mut self, changes: usize, lag: Duration) {
        (self.behind, self.lag) = (changes, lag);
    }

    /// These do not fit; those that did not before were told of.
    pub fn misfits(&mut self, misfits: &Misfits, before: &Misfits) {
        if misfits == before {
            return;
        }
        let mut known = before.clone();
        for (path, why) in misfits.iter() {
            if known.insert(path, why) {
                self.misfit(path, why);
            }
        }
        let count = misfits.len();
        self.event("misfits", json!({ "count": count }));
        if !self.is_json() {
            let more = match self.misfits_named >= MISFITS_NAMED {
                true => format!(" (only {MISFITS_NAMED} are named)"),
                false => String::new(),
            };
            self.say(&format!(
                "{count} znodes of the source do not fit into the target{more}"
            ));
        }
    }

    /// One does not fit. Beyond a number of them they are only counted.
    pub fn misfit(&mut self, path: &str, why: &str) {
        if self.misfits_named >= MISFITS_NAMED {
            return;
        }
        self.misfits_named += 1;
        match self.is_json() {
            true => self.event("misfit", json!({ "path": path, "what": why })),
            false => self.say(&format!(
                "  {path:?} does not fit, and stays behind with all that is below it. {why}"
            )),
        }
    }

    /// How it stands, if it is time for that.
    pub fn tell(&mut self) {
        let every = match self.style {
            Style::Terminal => DRAW_EVERY,
            Style::Lines | Style::Json => LINE_EVERY,
        };
        if self.told.is_some_and(|told| told.elapsed() < every) {
            return;
        }
        self.told = Some(Instant::now());
        match self.style {
            Style::Terminal => {
                let line = self.line();
                self.draw(&line);
            }
            Style::Lines => self.say(&self.line()),
            Style::Json => self.event("progress", self.document()),
        }
    }

    /// Something that happened.
    pub fn say(&mut self, text: &str) {
        if self.style == Style::Json {
            return self.event("note", json!({ "text": text }));
        }
        self.close_line();
        // Whoever reads this may have gone; the work goes on.
        writeln!(io::stderr(), "{}", shown(text)).ok();
    }

    /// Something for programs, with its name.
    pub fn event(&mut self, name: &str, mut document: Value) {
        if self.style == Style::Json {
            document["event"] = name.into();
            writeln!(io::stdout(), "{document}").ok();
        }
    }

    /// Whether programs are told.
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

/// A bar of a share. The whole is what was counted at the beginning, so it may be passed.
fn bar(done: u64, total: u64) -> String {
    let share = done.min(total) * BAR as u64 / total.max(1);
    let full = share as usize;
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full))
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
    fn a_bar_is_full_at_the_end_and_never_longer() {
        assert_eq!(bar(0, 0), format!("[{}]", "-".repeat(BAR)));
        assert_eq!(
            bar(1, 2),
            format!("[{}{}]", "#".repeat(BAR / 2), "-".repeat(BAR / 2))
        );
        assert_eq!(bar(2, 2), bar(5, 2));
    }
}
