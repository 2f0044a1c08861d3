//! Schedule of an open loop. Operations are due at equal intervals. The next free client takes the next
//! operation, waits until it is due, or starts at once if it is overdue.
//!
//! The runtime's timers have a resolution of a millisecond, longer than most measured durations. A thread
//! that sleeps until the next operation is due is about fifty microseconds late.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use cli_support::ensure_usage;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Maximum rate: more than a single-threaded program can send.
const MAX_RATE: f64 = 10_000_000.0;

/// Operation of the schedule.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// Time at which it is due.
    pub due: Instant,
    /// True if no client was free when it was due.
    pub waited_for_a_client: bool,
}

impl Arrival {
    /// Returns the delay caused by this program in microseconds; 0 if the operation had to wait for a client.
    pub fn generator_late(&self, begun: Instant) -> u64 {
        match self.waited_for_a_client {
            true => 0,
            false => begun.saturating_duration_since(self.due).as_micros() as u64,
        }
    }
}

/// Schedule of a whole load.
pub(super) struct Arrivals {
    first: Instant,
    end: Instant,
    rate: f64,
    next: Cell<u64>,
    /// Channel to the thread that wakes the clients. The due times of the entries increase.
    waiting: mpsc::Sender<(Instant, oneshot::Sender<()>)>,
}

impl Arrivals {
    /// Starts a schedule of `rate` operations per second.
    pub fn start(first: Instant, end: Instant, rate: f64) -> anyhow::Result<Rc<Self>> {
        ensure_usage!(
            rate > 0.0 && rate <= MAX_RATE,
            "the rate has to be more than 0 and at most {MAX_RATE} per second"
        );
        let waiting = pacer().context("starting the thread of the schedule")?;
        Ok(Rc::new(Self {
            first,
            end,
            rate,
            next: Cell::new(0),
            waiting,
        }))
    }

    fn due(&self, number: u64) -> Instant {
        self.first + Duration::from_secs_f64(number as f64 / self.rate)
    }

    /// Waits until the next operation is due and returns it; `None` at the end of the schedule.
    pub async fn next(&self) -> Option<Arrival> {
        let number = self.next.get();
        let due = self.due(number);
        let now = Instant::now();
        if due >= self.end || now >= self.end {
            return None;
        }
        self.next.set(number + 1);
        let waited_for_a_client = due <= now;
        if !waited_for_a_client {
            let (wake, woken) = oneshot::channel();
            // The thread lives as long as `self`.
            self.waiting.send((due, wake)).ok()?;
            woken.await.ok()?;
        }
        Some(Arrival {
            due,
            waited_for_a_client,
        })
    }

    /// Calls `record` for each operation that was due within the interval and was never sent, with the time
    /// that it had waited by the end of the interval.
    pub fn count_unsent(&self, from: Instant, to: Instant, mut record: impl FnMut(Duration)) {
        for number in self.next.get().. {
            let due = self.due(number);
            if due >= to {
                return;
            }
            if due >= from {
                record(to - due);
            }
        }
    }
}

/// Starts the thread that wakes each client when its operation is due. One thread suffices for all clients,
/// because their due times increase. It ends when the sender is dropped; nothing has to wait for it.
fn pacer() -> io::Result<mpsc::Sender<(Instant, oneshot::Sender<()>)>> {
    let (waiting, clients) = mpsc::channel::<(Instant, oneshot::Sender<()>)>();
    let name = std::thread::Builder::new().name("arrivals".to_owned());
    name.spawn(move || {
        for (due, wake) in clients {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // The client may have been cancelled.
            let _ = wake.send(());
        }
    })?;
    Ok(waiting)
}
