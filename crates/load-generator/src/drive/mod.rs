//! Execution of loads: drives clients in loops and records their operations. The caller provides the clients
//! and thereby the operations.
//!
//! In a *closed loop* each client starts its next operation as soon as the previous one ends. In an *open
//! loop* each operation has a due time that does not depend on earlier operations, and its latency is
//! measured from that time. So when a server stalls for a second, a second's worth of operations is recorded
//! as delayed, and not only the few that were in flight (coordinated omission).

mod arrivals;
mod progress;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use cli_support::ensure_usage;
use futures_util::FutureExt as _;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};

use self::arrivals::Arrivals;
use super::processes;
use super::report::{Durations, Offered};

/// Client of a load: one or a few connections and an operation.
pub trait Client: Sized + 'static {
    /// Executes the operation once. It reports to `moments` when a lock is granted and when its release
    /// begins.
    fn once(&mut self, moments: &mut Moments) -> impl Future<Output = anyhow::Result<()>>;

    /// Closes the client and its sessions, so that no session has to expire.
    fn close(self) -> impl Future<Output = anyhow::Result<()>>;
}

/// Parameters of a load.
#[derive(Debug, Clone)]
pub struct Drive {
    /// Label in progress lines.
    pub label: String,
    /// Duration of the load before the measurement.
    pub warmup: Duration,
    /// Duration of the measurement.
    pub measured: Duration,
    /// Operations per second of an open loop; `None` for closed loops.
    pub rate: Option<f64>,
    /// True if all clients compete for one exclusive lock: then hand-overs are measured.
    pub one_lock: bool,
    /// Print progress even if standard error is no terminal.
    pub progress: bool,
    /// Processes whose CPU time is measured, too.
    pub processes: Vec<Pid>,
}

/// Result of a load.
#[derive(Debug)]
pub struct DriveResult {
    /// Operations that ended during the measurement.
    pub ended: u64,
    /// Durations of the operations. In an open loop: of all operations that were due during the measurement,
    /// from their due times.
    pub operations: Durations,
    /// Times from the start of an operation until its lock was granted.
    pub grants: Durations,
    /// Times from the start of a release until the next client received its grant.
    pub hand_overs: Durations,
    /// Load that an open loop has offered.
    pub offered: Option<Offered>,
    /// Number of failed operations. Each failure ends its client.
    pub errors: u64,
    /// Text of the first failure.
    pub first_error: Option<String>,
    /// CPU time of this program during the measurement.
    pub cpu: Duration,
    /// Total CPU time of the given processes during the measurement.
    pub processes_cpu: Option<Duration>,
}

/// Times within one operation beside its end.
#[derive(Debug)]
pub struct Moments {
    begun: Instant,
    granted: Option<Instant>,
    hand_over: Option<Duration>,
    baton: Option<Rc<Cell<Option<Instant>>>>,
}

impl Moments {
    fn new(begun: Instant, baton: Option<Rc<Cell<Option<Instant>>>>) -> Self {
        Self {
            begun,
            granted: None,
            hand_over: None,
            baton,
        }
    }

    /// Creates a recorder whose times are ignored.
    pub fn unwatched() -> Self {
        Self::new(Instant::now(), None)
    }

    /// Records that the lock was granted.
    pub fn granted(&mut self) {
        let now = Instant::now();
        self.granted = Some(now);
        // An operation that started after the release did not wait for it.
        let released = self.baton.as_ref().and_then(|baton| baton.take());
        self.hand_over = released
            .filter(|released| *released > self.begun)
            .map(|released| now - released);
    }

    /// Records that the release begins.
    pub fn releasing(&self) {
        if let Some(baton) = &self.baton {
            baton.set(Some(Instant::now()));
        }
    }
}

/// Observations so far. All clients share one thread and therefore this value.
#[derive(Default)]
struct Observations {
    ended: u64,
    operations: Durations,
    grants: Durations,
    hand_overs: Durations,
    offered: Offered,
    errors: u64,
    first_error: Option<String>,
}

/// Interval of the measurement.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Instant,
    end: Instant,
}

impl Drive {
    /// Drives the clients and closes them. They all share this thread, which needs a `LocalSet`.
    pub async fn run<C: Client>(&self, clients: Vec<C>) -> anyhow::Result<DriveResult> {
        ensure_usage!(!clients.is_empty(), "at least one client is needed");
        let start = Instant::now();
        let begin = start + self.warmup;
        let window = Window {
            begin,
            end: begin + self.measured,
        };
        let arrivals = match self.rate {
            Some(rate) => Some(Arrivals::start(start, window.end, rate)?),
            None => None,
        };
        let observed = Rc::new(RefCell::new(Observations::default()));
        let baton = self.one_lock.then(|| Rc::new(Cell::new(None)));
        let progress = progress::start(self, window, observed.clone());
        let spent = tokio::task::spawn_local(cpu_time_in(window, self.processes.clone()).boxed_local());
        let mut loops = Vec::with_capacity(clients.len());
        for client in clients {
            let one = LoopClient {
                client,
                window,
                observed: observed.clone(),
                baton: baton.clone(),
            };
            loops.push(match &arrivals {
                None => tokio::task::spawn_local(one.closed().boxed_local()),
                Some(arrivals) => tokio::task::spawn_local(one.open(arrivals.clone()).boxed_local()),
            });
        }
        let mut clients = Vec::with_capacity(loops.len());
        for client in loops {
            clients.extend(client.await.context("a client of the load")?);
        }
        drop(progress);
        let (cpu, processes_cpu) = spent.await.context("measuring CPU times")??;
        for client in clients {
            client.close().await?;
        }
        let mut observed = observed.take();
        if let Some(arrivals) = arrivals {
            arrivals.count_unsent(window.begin, window.end, |waited| {
                observed.operations.record(waited);
                observed.offered.not_sent += 1;
            });
        }
        let offered = self.rate.map(|rate| {
            let all = observed.operations.count();
            Offered {
                wanted_per_second: rate,
                due_per_second: all as f64 / self.measured.as_secs_f64(),
                ..observed.offered
            }
        });
        Ok(DriveResult {
            ended: observed.ended,
            operations: observed.operations,
            grants: observed.grants,
            hand_overs: observed.hand_overs,
            offered,
            errors: observed.errors,
            first_error: observed.first_error,
            cpu,
            processes_cpu: (!self.processes.is_empty()).then_some(processes_cpu),
        })
    }
}

/// Client in its loop.
struct LoopClient<C> {
    client: C,
    window: Window,
    observed: Rc<RefCell<Observations>>,
    baton: Option<Rc<Cell<Option<Instant>>>>,
}

impl<C: Client> LoopClient<C> {
    /// Starts an operation whenever the previous one ends. Returns `None` after a failure.
    async fn closed(mut self) -> Option<C> {
        let mut start = Instant::now();
        while start < self.window.end {
            let mut moments = Moments::new(start, self.baton.clone());
            if let Err(error) = self.client.once(&mut moments).await {
                self.failed(&error);
                return None;
            }
            let now = Instant::now();
            // An operation counts if it ends within the interval: one that started during the warm-up was
            // mostly executed before.
            if self.window.has(now) {
                let mut observed = self.observed.borrow_mut();
                observed.ended += 1;
                observed.operations.record(now - start);
                observed.count(&moments, start);
            }
            start = now;
        }
        Some(self.client)
    }

    /// Starts each operation when it is due, or when the previous one has ended. Returns `None` after a
    /// failure.
    async fn open(mut self, arrivals: Rc<Arrivals>) -> Option<C> {
        while let Some(arrival) = arrivals.next().await {
            let start = Instant::now();
            let mut moments = Moments::new(start, self.baton.clone());
            if let Err(error) = self.client.once(&mut moments).await {
                self.failed(&error);
                return None;
            }
            let now = Instant::now();
            let mut observed = self.observed.borrow_mut();
            observed.ended += u64::from(self.window.has(now));
            // In an open loop an operation counts if it is due within the interval, because its latency is
            // measured from the schedule.
            if self.window.has(arrival.due) {
                observed.operations.record(now - arrival.due);
                observed.offered.late_for_want_of_clients += u64::from(arrival.waited_for_a_client);
                observed.offered.generator_late_us_max = observed
                    .offered
                    .generator_late_us_max
                    .max(arrival.generator_late(start));
                observed.count(&moments, arrival.due);
            }
        }
        Some(self.client)
    }

    fn failed(&self, error: &anyhow::Error) {
        tracing::warn!(error = format!("{error:#}"), "bench: an operation failed");
        let mut observed = self.observed.borrow_mut();
        observed.errors += 1;
        observed.first_error.get_or_insert(format!("{error:#}"));
    }
}

impl Observations {
    fn count(&mut self, moments: &Moments, since: Instant) {
        if let Some(granted) = moments.granted {
            self.grants.record(granted - since);
        }
        if let Some(hand_over) = moments.hand_over {
            self.hand_overs.record(hand_over);
        }
    }
}

impl Window {
    fn has(self, moment: Instant) -> bool {
        (self.begin..self.end).contains(&moment)
    }
}

/// Measures the CPU time of this program and of other processes within the interval.
async fn cpu_time_in(window: Window, others: Vec<Pid>) -> anyhow::Result<(Duration, Duration)> {
    let read = || {
        let times = others.iter().map(|pid| processes::cpu_time(*pid));
        let others = times.sum::<anyhow::Result<Duration>>()?;
        anyhow::Ok((processes::cpu_time(Pid::this())?, others))
    };
    sleep_until(window.begin).await;
    let (own, theirs) = read()?;
    sleep_until(window.end).await;
    let (own_then, theirs_then) = read()?;
    Ok((own_then.saturating_sub(own), theirs_then.saturating_sub(theirs)))
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    /// Client whose operations take this long.
    struct Takes(Duration);

    impl Client for Takes {
        async fn once(&mut self, moments: &mut Moments) -> anyhow::Result<()> {
            moments.granted();
            tokio::time::sleep(self.0).await;
            moments.releasing();
            Ok(())
        }

        async fn close(self) -> anyhow::Result<()> {
            Ok(())
        }
    }

    fn drive(rate: Option<f64>) -> Drive {
        Drive {
            label: "test".to_owned(),
            warmup: Duration::ZERO,
            measured: Duration::from_millis(500),
            rate,
            one_lock: false,
            progress: false,
            processes: vec![Pid::this()],
        }
    }

    async fn run(rate: Option<f64>, takes: &[Duration]) -> DriveResult {
        let clients = takes.iter().copied().map(Takes).collect();
        let drive = drive(rate);
        LocalSet::new()
            .run_until(drive.run::<Takes>(clients))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn closed_loop_misses_operations_that_it_could_not_send() {
        let slow = Duration::from_millis(100);
        let driven = run(None, &[slow]).await;
        assert!((1..=5).contains(&driven.ended), "{driven:?}");
        assert!(driven.operations.percentiles().p50_us >= 100_000);
        assert!(driven.offered.is_none() && driven.processes_cpu.is_some());
        assert_eq!(driven.grants.count(), driven.ended);
    }

    #[tokio::test]
    async fn open_loop_measures_latency_from_the_due_time() {
        // Fifty operations are due while one client executes at most five.
        let driven = run(Some(100.0), &[Duration::from_millis(100)]).await;
        let offered = driven.offered.as_ref().unwrap();
        assert_eq!(driven.operations.count(), 50, "{driven:?}");
        assert!(offered.not_sent >= 44, "{offered:?}");
        assert!(offered.late_for_want_of_clients >= 1, "{offered:?}");
        // The first operation that was never sent had waited for more than half of the time.
        assert!(driven.operations.percentiles().max_us >= 300_000, "{driven:?}");
    }

    #[tokio::test]
    async fn due_operations_are_sent_if_a_client_is_free() {
        let driven = run(Some(400.0), &[Duration::from_millis(1); 16]).await;
        assert_eq!(driven.operations.count(), 200, "{driven:?}");
        assert_eq!(driven.errors, 0);
    }

    #[test]
    fn hand_over_is_measured_from_a_release_that_was_waited_for() {
        let baton = Rc::new(Cell::new(None));
        let waiting = Moments::new(Instant::now(), Some(baton.clone()));
        let holder = Moments::new(Instant::now(), Some(baton.clone()));
        std::thread::sleep(Duration::from_millis(2));
        holder.releasing();
        let mut late = Moments::new(Instant::now() + Duration::from_millis(1), Some(baton.clone()));
        let released = baton.get();
        late.granted();
        assert_eq!(late.hand_over, None);
        baton.set(released);
        let mut waiting = waiting;
        waiting.granted();
        assert!(waiting.hand_over.is_some() && baton.get().is_none());
    }
}
