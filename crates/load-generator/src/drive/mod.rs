//! What is common to all loads: clients that do the same again and again, what is counted of that, and when. What they do, and whom
//! they ask, is the business of whoever gives them.
//!
//! A load is a *closed loop*: each client begins anew as soon as it is done. Or it is an *open loop*: there is a time at which each
//! operation is due, whatever became of those before, and that is where its latency begins. So a server that stands still for a
//! second is seen to have made a second's worth of callers wait, and not only those who happened to be on the way (coordinated
//! omission).

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

/// One client of a load: a connection or a few, and what it does with them.
pub trait Client: Sized + 'static {
    /// Does it once. `moments` hears when a lock was granted, and when it begins to be given back.
    fn once(&mut self, moments: &mut Moments) -> impl Future<Output = anyhow::Result<()>>;

    /// Ends it: sessions are closed, so that nothing waits for them.
    fn close(self) -> impl Future<Output = anyhow::Result<()>>;
}

/// How clients are driven.
#[derive(Debug, Clone)]
pub struct Drive {
    /// What it is called in what tells of its progress.
    pub label: String,
    /// How long they run before anything counts.
    pub warmup: Duration,
    /// How long what they do counts.
    pub measured: Duration,
    /// Operations in a second that are due; none: closed loops.
    pub rate: Option<f64>,
    /// All clients want the same lock, of which one has it at a time: hand-overs are measured.
    pub one_lock: bool,
    /// Whether progress is told also to who is no terminal.
    pub progress: bool,
    /// The processes whose time on the processor is told, too.
    pub processes: Vec<Pid>,
}

/// What came of it.
#[derive(Debug)]
pub struct Driven {
    /// Operations that ended while it counted.
    pub ended: u64,
    /// How long they took. In an open loop: all that were due while it counted, from when they were due.
    pub operations: Durations,
    /// From the beginning of an operation until its lock was granted.
    pub grants: Durations,
    /// From when one client began to give the lock back until the next one knew that it had it.
    pub hand_overs: Durations,
    /// What an open loop has offered.
    pub offered: Option<Offered>,
    /// Operations that failed. Each ended its client.
    pub errors: u64,
    /// What the first of them failed of.
    pub first_error: Option<String>,
    /// Time that this program spent on the processor while it counted.
    pub cpu: Duration,
    /// The same of the processes that were named, all together.
    pub processes_cpu: Option<Duration>,
}

/// The moments within one operation that are looked at beside its end.
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

    /// For who looks at none of them.
    pub fn unwatched() -> Self {
        Self::new(Instant::now(), None)
    }

    /// The lock has just been granted.
    pub fn granted(&mut self) {
        let now = Instant::now();
        self.granted = Some(now);
        // Who asked only after the lock was given back has not waited for that.
        let released = self.baton.as_ref().and_then(|baton| baton.take());
        self.hand_over = released
            .filter(|released| *released > self.begun)
            .map(|released| now - released);
    }

    /// The lock is about to be given back.
    pub fn releasing(&self) {
        if let Some(baton) = &self.baton {
            baton.set(Some(Instant::now()));
        }
    }
}

/// What is seen so far. All clients share one thread, and so this.
#[derive(Default)]
struct Seen {
    ended: u64,
    operations: Durations,
    grants: Durations,
    hand_overs: Durations,
    offered: Offered,
    errors: u64,
    first_error: Option<String>,
}

/// When it counts.
#[derive(Debug, Clone, Copy)]
struct Window {
    begin: Instant,
    end: Instant,
}

impl Drive {
    /// Drives the clients, and ends them. All share this thread, which has to be in a `LocalSet`.
    pub async fn run<C: Client>(&self, clients: Vec<C>) -> anyhow::Result<Driven> {
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
        let seen = Rc::new(RefCell::new(Seen::default()));
        let baton = self.one_lock.then(|| Rc::new(Cell::new(None)));
        let progress = progress::tell(self, window, seen.clone());
        let spent = tokio::task::spawn_local(cpu_time_in(window, self.processes.clone()).boxed_local());
        let mut loops = Vec::with_capacity(clients.len());
        for client in clients {
            let one = One {
                client,
                window,
                seen: seen.clone(),
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
        let (cpu, processes_cpu) = spent.await.context("looking at the clock")??;
        for client in clients {
            client.close().await?;
        }
        let mut seen = seen.take();
        if let Some(arrivals) = arrivals {
            arrivals.count_unsent(window.begin, window.end, |waited| {
                seen.operations.record(waited);
                seen.offered.not_sent += 1;
            });
        }
        let offered = self.rate.map(|rate| {
            let all = seen.operations.count();
            Offered {
                wanted_per_second: rate,
                due_per_second: all as f64 / self.measured.as_secs_f64(),
                ..seen.offered
            }
        });
        Ok(Driven {
            ended: seen.ended,
            operations: seen.operations,
            grants: seen.grants,
            hand_overs: seen.hand_overs,
            offered,
            errors: seen.errors,
            first_error: seen.first_error,
            cpu,
            processes_cpu: (!self.processes.is_empty()).then_some(processes_cpu),
        })
    }
}

/// A client with what it tells to.
struct One<C> {
    client: C,
    window: Window,
    seen: Rc<RefCell<Seen>>,
    baton: Option<Rc<Cell<Option<Instant>>>>,
}

impl<C: Client> One<C> {
    /// Begins anew whenever it is done. None: it has failed.
    async fn closed(mut self) -> Option<C> {
        let mut start = Instant::now();
        while start < self.window.end {
            let mut moments = Moments::new(start, self.baton.clone());
            if let Err(error) = self.client.once(&mut moments).await {
                self.failed(&error);
                return None;
            }
            let now = Instant::now();
            // Operations count where they end: what began in the warm-up and ended after it had its work measured.
            if self.window.has(now) {
                let mut seen = self.seen.borrow_mut();
                seen.ended += 1;
                seen.operations.record(now - start);
                seen.count(&moments, start);
            }
            start = now;
        }
        Some(self.client)
    }

    /// Begins whenever the next operation is due, or later if it is not done by then. None: it has failed.
    async fn open(mut self, arrivals: Rc<Arrivals>) -> Option<C> {
        while let Some(arrival) = arrivals.next().await {
            let start = Instant::now();
            let mut moments = Moments::new(start, self.baton.clone());
            if let Err(error) = self.client.once(&mut moments).await {
                self.failed(&error);
                return None;
            }
            let now = Instant::now();
            let mut seen = self.seen.borrow_mut();
            seen.ended += u64::from(self.window.has(now));
            // Here they count where they were due: the schedule is what is answered for.
            if self.window.has(arrival.due) {
                seen.operations.record(now - arrival.due);
                seen.offered.late_for_want_of_clients += u64::from(arrival.waited_for_a_client);
                seen.offered.generator_late_us_max = seen
                    .offered
                    .generator_late_us_max
                    .max(arrival.generator_late(start));
                seen.count(&moments, arrival.due);
            }
        }
        Some(self.client)
    }

    fn failed(&self, error: &anyhow::Error) {
        tracing::warn!(error = format!("{error:#}"), "an operation of the load failed");
        let mut seen = self.seen.borrow_mut();
        seen.errors += 1;
        seen.first_error.get_or_insert(format!("{error:#}"));
    }
}

impl Seen {
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

/// The time that this program, and that other processes spend on the processor within the window.
async fn cpu_time_in(window: Window, others: Vec<Pid>) -> anyhow::Result<(Duration, Duration)> {
    let look = || {
        let times = others.iter().map(|pid| processes::cpu_time(*pid));
        let others = times.sum::<anyhow::Result<Duration>>()?;
        anyhow::Ok((processes::cpu_time(Pid::this())?, others))
    };
    sleep_until(window.begin).await;
    let (own, theirs) = look()?;
    sleep_until(window.end).await;
    let (own_then, theirs_then) = look()?;
    Ok((own_then.saturating_sub(own), theirs_then.saturating_sub(theirs)))
}

#[cfg(test)]
mod tests {
    use tokio::task::LocalSet;

    use super::*;

    /// A client whose operations take so long.
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

    async fn run(rate: Option<f64>, takes: &[Duration]) -> Driven {
        let clients = takes.iter().copied().map(Takes).collect();
        let drive = drive(rate);
        LocalSet::new()
            .run_until(drive.run::<Takes>(clients))
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn a_closed_loop_does_not_see_those_that_it_did_not_send() {
        let slow = Duration::from_millis(100);
        let driven = run(None, &[slow]).await;
        assert!((1..=5).contains(&driven.ended), "{driven:?}");
        assert!(driven.operations.percentiles().p50_us >= 100_000);
        assert!(driven.offered.is_none() && driven.processes_cpu.is_some());
        assert_eq!(driven.grants.count(), driven.ended);
    }

    #[tokio::test]
    async fn an_open_loop_counts_from_when_it_was_due() {
        // Fifty are due while one client does at most five.
        let driven = run(Some(100.0), &[Duration::from_millis(100)]).await;
        let offered = driven.offered.as_ref().unwrap();
        assert_eq!(driven.operations.count(), 50, "{driven:?}");
        assert!(offered.not_sent >= 44, "{offered:?}");
        assert!(offered.late_for_want_of_clients >= 1, "{offered:?}");
        // The first that was never sent had waited for more than half of the time.
        assert!(driven.operations.percentiles().max_us >= 300_000, "{driven:?}");
    }

    #[tokio::test]
    async fn what_is_due_is_sent_if_somebody_is_free() {
        let driven = run(Some(400.0), &[Duration::from_millis(1); 16]).await;
        assert_eq!(driven.operations.count(), 200, "{driven:?}");
        assert_eq!(driven.errors, 0);
    }

    #[test]
    fn a_hand_over_begins_with_the_release_that_somebody_waited_for() {
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
