//! Sessions without connections of their own: opened and kept alive over a few connections, as a gateway does it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail};
use cli_support::api_client::CallError;
use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::nodes::Nodes;
use crate::report::{Durations, Percentiles};

/// A heartbeat is sent so often within a session's ttl, as the client library does.
const BEATS: u32 = 3;

/// Whoever has opened more than a node lets one address tries again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// How long a call is retried on all nodes.
const PATIENCE: Duration = Duration::from_secs(30);

/// Those that one connection keeps.
type Kept = Rc<RefCell<Vec<String>>>;

/// See the module. It needs a `LocalSet` around it.
pub struct Sessions {
    nodes: Nodes,
    ttl: Duration,
    at_a_time: usize,
    count: usize,
    kept: Vec<Kept>,
    beats: Rc<RefCell<Durations>>,
    late: Rc<Cell<u64>>,
    keepers: JoinSet<anyhow::Result<()>>,
}

impl Sessions {
    /// None yet. So many are opened at a time, each over a connection of its own, which keeps them then.
    pub fn new(nodes: Nodes, ttl: Duration, at_a_time: usize) -> Self {
        Self {
            nodes,
            ttl,
            at_a_time,
            count: 0,
            kept: Vec::new(),
            beats: Rc::default(),
            late: Rc::default(),
            keepers: JoinSet::new(),
        }
    }

    /// Opens more, until there are so many. All are kept alive from then on.
    pub async fn grow_to(&mut self, count: usize, progress: &mut impl FnMut(usize)) -> anyhow::Result<()> {
        let wanted = Rc::new(Cell::new(count.saturating_sub(self.count)));
        let opened = Rc::new(Cell::new(self.count));
        let mut openers = JoinSet::new();
        for number in 0..self.at_a_time {
            let (wanted, opened) = (wanted.clone(), opened.clone());
            let kept = Kept::default();
            self.kept.push(kept.clone());
            let keeper = Keeper {
                nodes: self.nodes.clone(),
                number,
                ttl: self.ttl,
                sessions: kept.clone(),
                beats: self.beats.clone(),
                late: self.late.clone(),
            };
            // Each begins with its heartbeats at once: the opening of the others takes longer than a session lives.
            self.keepers.spawn_local(keeper.run().boxed_local());
            let (nodes, ttl) = (self.nodes.clone(), self.ttl);
            openers.spawn_local(
                async move {
                    let mut api = nodes.client(number, PATIENCE);
                    while let Some(left) = wanted.get().checked_sub(1) {
                        wanted.set(left);
                        let session = loop {
                            match api.open_session(ttl, "lockgate bench").await {
                                Ok(session) => break session,
                                Err(CallError::Rejected { status: 429, .. }) => sleep(AGAIN).await,
                                Err(error) => return Err(error).context("opening a session"),
                            }
                        };
                        kept.borrow_mut().push(session);
                        opened.set(opened.get() + 1);
                    }
                    Ok(())
                }
                .boxed_local(),
            );
        }
        while !openers.is_empty() {
            tokio::select! {
                Some(done) = openers.join_next() => done.context("opening sessions")??,
                failed = failed(&mut self.keepers) => return Err(failed),
                () = sleep(AGAIN) => {}
            }
            progress(opened.get());
        }
        self.count = count;
        Ok(())
    }

    /// Ends them all.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.keepers.shutdown().await;
        let mut closers = JoinSet::new();
        for (number, kept) in self.kept.into_iter().enumerate() {
            let mut api = self.nodes.client(number, PATIENCE);
            closers.spawn_local(
                async move {
                    for session in kept.take() {
                        api.close_session(&session).await.context("closing a session")?;
                    }
                    anyhow::Ok(())
                }
                .boxed_local(),
            );
        }
        while let Some(closed) = closers.join_next().await {
            closed.context("closing sessions")??;
        }
        Ok(())
    }

    /// What heartbeats took since the last look, and how many were sent later than they were due by a third of their pause.
    pub fn look(&mut self) -> anyhow::Result<(Percentiles, u64)> {
        if let Some(ended) = self.keepers.try_join_next() {
            ended.context("keeping sessions alive")??;
            bail!("sessions are not kept alive any more");
        }
        Ok((self.beats.take().percentiles(), self.late.take()))
    }
}

async fn failed(keepers: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Error {
    match keepers.join_next().await {
        Some(Ok(Err(error))) => error,
        Some(Err(panicked)) => panicked.into(),
        Some(Ok(Ok(()))) => anyhow::anyhow!("sessions are not kept alive any more"),
        None => std::future::pending().await,
    }
}

/// Heartbeats of some sessions over one connection.
struct Keeper {
    nodes: Nodes,
    number: usize,
    ttl: Duration,
    sessions: Kept,
    beats: Rc<RefCell<Durations>>,
    late: Rc<Cell<u64>>,
}

impl Keeper {
    async fn run(self) -> anyhow::Result<()> {
        let mut connection = self.nodes.connect(self.number).await?;
        let pause = self.ttl / BEATS;
        let mut round = Instant::now();
        loop {
            let sessions = self.sessions.borrow().clone();
            for (number, session) in sessions.iter().enumerate() {
                let due = round + pause * number as u32 / sessions.len() as u32;
                sleep_until(due).await;
                let sent = Instant::now();
                if sent - due > pause / BEATS {
                    self.late.set(self.late.get() + 1);
                }
                let path = format!("/v1/sessions/{session}/heartbeat");
                let answer = connection.send("POST", &path, "").await.context("a heartbeat")?;
                if answer.status != 200 {
                    bail!("a heartbeat was answered {}: {}", answer.status, answer.json());
                }
                self.beats.borrow_mut().record(sent.elapsed());
            }
            // New ones have come meanwhile; who opened them waits for their first heartbeat a third of the ttl at most.
            round = Instant::now().max(round + if sessions.is_empty() { AGAIN } else { pause });
            sleep_until(round).await;
        }
    }
}
