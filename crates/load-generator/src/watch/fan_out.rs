//! Many sessions that watch one znode, and one that changes it: round after round, each begun when all
//! watches are set again.
//!
//! All sessions share this thread. So the times of a round include the cost of reading all notifications
//! in this program, which is reported beside them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bytes::Bytes;
use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use zk_wire::{Request, event_type};

use crate::nodes::Nodes;
use crate::zookeeper::session::{Session, refused};

/// Number of sessions that are opened in parallel: enough to keep the servers busy, and fewer than they
/// reject.
const AT_A_TIME: usize = 64;

/// Timeout of a round. A watch that has not fired by then counts as lost.
const ROUND_TIMEOUT: Duration = Duration::from_secs(30);

/// Version that matches any.
const ANY: i32 = -1;

/// Time at which notified sessions read the new data and thereby set their watches again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rearm {
    /// After all sessions were notified, so that the reads delay no notification.
    Together,
    /// Each session at once, as programs do.
    AtOnce,
}

/// Times of one change, all from the first byte of the write.
#[derive(Debug, Clone)]
pub struct FanOutTimes {
    /// Time until the last byte of the write's reply.
    pub acknowledged: Duration,
    /// Times until each session was notified, in ascending order.
    pub notified: Vec<Duration>,
    /// Time until all sessions had read the new data and set their watches again.
    pub read: Duration,
}

/// State shared by the watchers and the writer.
struct Round {
    watchers: usize,
    rearm: Rearm,
    /// Time of the write.
    changed: Cell<Instant>,
    notified: RefCell<Vec<Duration>>,
    armed: Cell<usize>,
    /// True in the last round: notified sessions end.
    over: Cell<bool>,
    /// Signals that all sessions were notified, or that all watches are set.
    all: Notify,
}

/// Watching sessions and their writer. They need a `LocalSet`.
pub struct FanOut {
    writer: Session,
    change: Request,
    round: Rc<Round>,
    /// Number of the round in which the watchers may read.
    read: watch::Sender<u64>,
    watchers: JoinSet<anyhow::Result<()>>,
}

impl FanOut {
    /// Opens `watchers` sessions at `servers`, spread over them, which watch the existing znode `path`, and a
    /// session at `writers` that changes it. Returns when all watches are set.
    pub async fn start(
        servers: &Nodes,
        writers: &Nodes,
        path: &str,
        watchers: usize,
        rearm: Rearm,
    ) -> anyhow::Result<Self> {
        let writer = Session::open(writers, 0).await?;
        let round = Rc::new(Round {
            watchers,
            rearm,
            changed: Cell::new(Instant::now()),
            notified: RefCell::new(Vec::with_capacity(watchers)),
            armed: Cell::new(0),
            over: Cell::new(false),
            all: Notify::new(),
        });
        let (read, reads) = watch::channel(0);
        let mut fan_out = Self {
            writer,
            change: Request::SetData {
                path: path.to_owned(),
                data: Some(Bytes::from_static(&[b'x'; 100])),
                version: ANY,
            },
            round,
            read,
            watchers: JoinSet::new(),
        };
        let mut number = 0;
        while number < watchers {
            let mut opening = JoinSet::new();
            for number in number..(number + AT_A_TIME).min(watchers) {
                let (servers, path) = (servers.clone(), path.to_owned());
                opening.spawn_local(
                    async move {
                        let mut session = Session::open(&servers, number).await?;
                        // This session's server may not have applied the znode yet.
                        let synced = session.call(&Request::Sync { path }).await?;
                        synced.map(drop).or_else(refused).map(|()| session)
                    }
                    .boxed_local(),
                );
            }
            number += opening.len();
            while let Some(session) = opening.join_next().await {
                let session = session.context("opening a watcher's session")??;
                let watcher = Watcher {
                    session,
                    request: Request::GetData {
                        path: path.to_owned(),
                        watch: true,
                    },
                    round: fan_out.round.clone(),
                    reads: reads.clone(),
                };
                fan_out.watchers.spawn_local(watcher.run().boxed_local());
            }
        }
        let round = fan_out.round.clone();
        fan_out
            .wait_for_all(|| round.armed.get(), "sessions have set their watches")
            .await?;
        Ok(fan_out)
    }

    /// Changes the znode once, and returns when all sessions were notified and have set their watches again.
    pub async fn change(&mut self) -> anyhow::Result<FanOutTimes> {
        let round = self.round.clone();
        round.notified.borrow_mut().clear();
        round.armed.set(0);
        let begin = Instant::now();
        round.changed.set(begin);
        let changed = self.writer.call(&self.change).await?;
        changed.map(drop).or_else(refused).context("changing the znode")?;
        let acknowledged = begin.elapsed();
        self.wait_for_all(|| round.notified.borrow().len(), "sessions were notified")
            .await?;
        if round.over.get() {
            return Ok(self.outcome(acknowledged, begin));
        }
        self.read.send_modify(|round| *round += 1);
        self.wait_for_all(|| round.armed.get(), "sessions have set their watches again")
            .await?;
        Ok(self.outcome(acknowledged, begin))
    }

    fn outcome(&self, acknowledged: Duration, begin: Instant) -> FanOutTimes {
        FanOutTimes {
            acknowledged,
            notified: self.round.notified.borrow().clone(),
            read: begin.elapsed(),
        }
    }

    /// Changes the znode for the last time and closes all sessions.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.round.over.set(true);
        self.change().await?;
        while let Some(ended) = self.watchers.join_next().await {
            ended.context("a watcher")??;
        }
        self.writer.close().await
    }

    /// Waits until `count` equals the number of watchers.
    async fn wait_for_all(&mut self, count: impl Fn() -> usize, what: &str) -> anyhow::Result<()> {
        let (of, all) = (self.round.watchers, self.round.clone());
        let wait = async {
            while count() < of {
                tokio::select! {
                    () = all.all.notified() => {}
                    Some(ended) = self.watchers.join_next() => {
                        // In the last round, notified watchers end before the last one is notified.
                        let ended = ended.context("a watcher")?;
                        ensure!(self.round.over.get(), "a watcher has ended: {ended:?}");
                        ended?;
                    }
                }
            }
            anyhow::Ok(())
        };
        let waited = timeout(ROUND_TIMEOUT, wait).await;
        waited
            .map_err(|_| {
                anyhow::anyhow!(
                    "after {} s only {} of {of} {what}",
                    ROUND_TIMEOUT.as_secs(),
                    count()
                )
            })
            .flatten()
    }
}

/// Watching session.
struct Watcher {
    session: Session,
    request: Request,
    round: Rc<Round>,
    reads: watch::Receiver<u64>,
}

impl Watcher {
    async fn run(mut self) -> anyhow::Result<()> {
        loop {
            let read = self.session.call(&self.request).await?;
            read.map(drop)
                .or_else(refused)
                .context("reading what is watched")?;
            let armed = self.round.armed.get() + 1;
            self.round.armed.set(armed);
            self.wake_if_all(armed);

            let fired = self.session.notified().await?;
            let after = self.round.changed.get().elapsed();
            if fired.kind != event_type::NODE_DATA_CHANGED {
                bail!("unexpected notification {fired:?}");
            }
            let count = {
                let mut notified = self.round.notified.borrow_mut();
                notified.push(after);
                notified.len()
            };
            ensure!(count <= self.round.watchers, "a watch has fired twice");
            self.wake_if_all(count);
            if self.round.over.get() {
                return self.session.close().await;
            }
            if self.round.rearm == Rearm::Together {
                // The round's number changes when all sessions were notified; only these wait here.
                self.reads.changed().await.context("the writer is gone")?;
            }
        }
    }

    fn wake_if_all(&self, count: usize) {
        if count == self.round.watchers {
            self.round.all.notify_one();
        }
    }
}
