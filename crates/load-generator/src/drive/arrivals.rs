//! When the operations of an open loop are due, and who takes which. They are due at equal distances, one after the other; whoever is
//! free takes the next one and waits for its time, or begins at once if that is over.
//!
//! The runtime's own timers are a millisecond wide, which is more than most of what is measured takes: a thread that sleeps until
//! the next one is due is some fifty microseconds late.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context;
use cli_support::ensure_usage;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// More than a program of one thread can send.
const MAX_RATE: f64 = 10_000_000.0;

/// One operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival {
    /// When it is due.
    pub due: Instant,
    /// It was due before a client was free to take it.
    pub waited_for_a_client: bool,
}

impl Arrival {
    /// How late this program was, in microseconds, where a client was free.
    pub fn generator_late(&self, begun: Instant) -> u64 {
        match self.waited_for_a_client {
            true => 0,
            false => begun.saturating_duration_since(self.due).as_micros() as u64,
        }
    }
}

/// All operations of a load.
pub(super) struct Arrivals {
    first: Instant,
    end: Instant,
    rate: f64,
    next: Cell<u64>,
    /// To the thread that wakes clients. Each waits for a later time than the one before it.
    waiting: mpsc::Sender<(Instant, oneshot::Sender<()>)>,
}

impl Arrivals {
    /// So many in a second from now until the end.
    pub fn start(first: Instant, end: Instant, rate: f64) -> anyhow::Result<Rc<Self>> {
        ensure_usage!(
            rate > 0.0 && rate <= MAX_RATE,
            "a rate is more than 0 and at most {MAX_RATE} in a second"
        );
        let waiting = pacer().context("starting a thread that waits")?;
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

    /// The next one, when it is due. None: the time is over.
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
            // The thread lives as long as this.
            self.waiting.send((due, wake)).ok()?;
            woken.await.ok()?;
        }
        Some(Arrival {
            due,
            waited_for_a_client,
        })
    }

    /// Tells of each that was due in that time and was never sent how long it had waited by its end.
    pub fn count_unsent(&self, from: Instant, to: Instant, mut tell: impl FnMut(Duration)) {
        for number in self.next.get().. {
            let due = self.due(number);
            if due >= to {
                return;
            }
            if due >= from {
                tell(to - due);
            }
        }
    }
}

/// A thread that wakes each client when its time has come. One serves all, because they wait in the order of their times. It ends
/// by itself when nobody can ask it any more; there is nothing that anybody would have to wait for.
fn pacer() -> io::Result<mpsc::Sender<(Instant, oneshot::Sender<()>)>> {
    let (waiting, clients) = mpsc::channel::<(Instant, oneshot::Sender<()>)>();
    let name = std::thread::Builder::new().name("arrivals".to_owned());
    name.spawn(move || {
        for (due, wake) in clients {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            // A client that has gone needs nothing.
            let _ = wake.send(());
        }
    })?;
    Ok(waiting)
}
