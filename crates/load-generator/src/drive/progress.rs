//! What a load tells while it runs: a line that is written over on a terminal, and lines of their own for others who want them.

use std::cell::RefCell;
use std::io::{self, IsTerminal as _, Write as _};
use std::rc::Rc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::task::AbortOnDropHandle;

use super::{Drive, Seen, Window};
use crate::report::ms;

/// How often it is told.
const EVERY: Duration = Duration::from_secs(1);

/// Tells until it is dropped.
pub(super) struct Telling {
    on_terminal: bool,
    _task: AbortOnDropHandle<()>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        if self.on_terminal {
            // Whatever is printed next stands where the line stood.
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// Tells how far a load has come; none if nobody wants to know.
pub(super) fn tell(drive: &Drive, window: Window, seen: Rc<RefCell<Seen>>) -> Option<Telling> {
    let on_terminal = io::stderr().is_terminal();
    if !on_terminal && !drive.progress {
        return None;
    }
    let label = drive.label.clone();
    let task = tokio::task::spawn_local(
        async move {
            let mut every = interval_at(Instant::now() + EVERY, EVERY);
            every.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut before = 0;
            loop {
                let now = every.tick().await;
                let text = {
                    let seen = seen.borrow();
                    let text = line(&label, window, now, &seen, seen.ended - before);
                    before = seen.ended;
                    text
                };
                // Who does not listen does not need to know.
                let _ = match on_terminal {
                    true => write!(io::stderr(), "\r\x1b[K{text}"),
                    false => writeln!(io::stderr(), "{text}"),
                };
            }
        }
        .boxed_local(),
    );
    Some(Telling {
        on_terminal,
        _task: AbortOnDropHandle::new(task),
    })
}

/// `lock, 64 clients: 3 of 10 s, 11432/s just now, p50 5.23 ms, p99 11.90 ms`
fn line(label: &str, window: Window, now: Instant, seen: &Seen, lately: u64) -> String {
    if now < window.begin {
        let left = (window.begin - now).as_secs_f64();
        return format!("{label}: warming up, {left:.0} s left");
    }
    let of = (window.end - window.begin).as_secs_f64();
    let done = (now - window.begin).as_secs_f64().min(of);
    let so_far = seen.operations.percentiles();
    let mut text = format!(
        "{label}: {done:.0} of {of:.0} s, {:.0}/s just now, p50 {} ms, p99 {} ms",
        lately as f64 / EVERY.as_secs_f64(),
        ms(so_far.p50_us),
        ms(so_far.p99_us)
    );
    if seen.errors > 0 {
        text += &format!(", {} errors", seen.errors);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_far_it_is_and_what_it_sees() {
        let begin = Instant::now();
        let window = Window {
            begin,
            end: begin + Duration::from_secs(10),
        };
        let mut seen = Seen::default();
        seen.operations.record(Duration::from_micros(500));
        seen.errors = 2;
        let at = |seconds| begin + Duration::from_secs(seconds);
        assert_eq!(
            line("lock", window, at(3), &seen, 1),
            "lock: 3 of 10 s, 1/s just now, p50 0.50 ms, p99 0.50 ms, 2 errors"
        );
        assert!(line("lock", window, at(12), &seen, 0).starts_with("lock: 10 of 10 s, 0/s"));
        let later = Window {
            begin: at(2),
            end: at(3),
        };
        assert_eq!(line("lock", later, begin, &seen, 0), "lock: warming up, 2 s left");
    }
}
