//! Progress of a running load on standard error: a changing line on a terminal, otherwise a line per second
//! if requested.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;

use super::{Drive, Observations, Window};
use crate::report::ms;

/// Interval of updates.
const INTERVAL: Duration = Duration::from_secs(1);

/// Progress output, which ends when dropped.
pub(super) struct ProgressOutput {
    on_terminal: bool,
    _task: AbortOnDropHandle<()>,
}

impl Drop for ProgressOutput {
    fn drop(&mut self) {
        if self.on_terminal {
            // Clear the line, so that the next output replaces it.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Starts the progress output; `None` if standard error is no terminal and no progress was requested.
pub(super) fn start(
    drive: &Drive,
    window: Window,
    observed: Rc<RefCell<Observations>>,
) -> Option<ProgressOutput> {
    let on_terminal = io::stderr().is_terminal();
    if !on_terminal && !drive.progress {
        return None;
    }
    let label = drive.label.clone();
    let task = tokio::task::spawn_local(
        async move {
            let mut every = interval_at(Instant::now() + INTERVAL, INTERVAL);
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut before = 0;
            loop {
                let now = every.tick().await;
                let text = {
                    let observed = observed.borrow();
                    let text = line(&label, window, now, &observed, observed.ended - before);
                    before = observed.ended;
                    text
                };
                // A closed standard error is ignored.
                let _ = match on_terminal {
                    true => write!(io::stderr(), "\r\x1b[K{text}"),
                    false => writeln!(io::stderr(), "{text}"),
                };
            }
        }
        .boxed_local(),
    );
    Some(ProgressOutput {
        on_terminal,
        _task: AbortOnDropHandle::new(task),
    })
}

/// `lock, 64 clients: 3 of 10 s, 11432/s just now, p50 5.23 ms, p99 11.90 ms`
fn line(label: &str, window: Window, now: Instant, observed: &Observations, lately: u64) -> String {
    if now < window.begin {
        let left = (window.begin - now).as_secs_f64();
        return format!("{label}: warming up, {left:.0} s left");
    }
    let of = (window.end - window.begin).as_secs_f64();
    let done = (now - window.begin).as_secs_f64().min(of);
    let so_far = observed.operations.percentiles();
    let mut text = format!(
        "{label}: {done:.0} of {of:.0} s, {:.0}/s just now, p50 {} ms, p99 {} ms",
        lately as f64 / INTERVAL.as_secs_f64(),
        ms(so_far.p50_us),
        ms(so_far.p99_us)
    );
    if observed.errors > 0 {
        text += &format!(", {} errors", observed.errors);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_line_shows_time_rate_and_errors() {
        let begin = Instant::now();
        let window = Window {
            begin,
            end: begin + Duration::from_secs(10),
        };
        let mut observed = Observations::default();
        observed.operations.record(Duration::from_micros(500));
        observed.errors = 2;
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(
            line("lock", window, at(3), &observed, 1),
            "lock: 3 of 10 s, 1/s just now, p50 0.50 ms, p99 0.50 ms, 2 errors"
        );
        assert!(line("lock", window, at(12), &observed, 0).starts_with("lock: 10 of 10 s, 0/s"));
        let later = Window {
            begin: at(2),
            end: at(3),
        };
        assert_eq!(
            line("lock", later, begin, &observed, 0),
            "lock: warming up, 2 s left"
        );
    }
}
