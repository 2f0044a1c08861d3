//! Many sessions that watch one znode, and one that changes it: round after round, each begun when all watches are set again.
//!
//! All of them share this thread. So a round's times have in them what it costs this program to read so many notifications; that is
//! told beside them.

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

/// Sessions that are opened at a time: enough to keep the servers busy, and less than what they refuse.
const AT_A_TIME: usize = 64;

/// So long a round may take. Whoever was not told by then is not told any more: its watch is lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// Any version will do.
const ANY: i32 = -1;

/// When those who were told read what is new, and so set their watches again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// When all were told: their reads do not hold up anybody's notification.
    Together,
    /// Each at once, as programs do.
    AtOnce,
}

/// What one change came to. All times begin with the first byte of the write.
#[derive(Debug, Clone)]
pub struct Told {
    /// Until the last byte of the write's answer.
    pub answered: Duration,
    /// Until each was told, in this order.
    pub told: Vec<Duration>,
    /// Until the last one had read what is new and its watch was set again.
    pub read: Duration,
}

/// What the watchers and the one who changes the znode know of each other.
struct Round {
    watchers: usize,
    again: Again,
    /// When the write was sent.
    changed: Cell<Instant>,
    told: RefCell<Vec<Duration>>,
    armed: Cell<usize>,
    /// The next who are told end.
    over: Cell<bool>,
    /// All were told, or all watches are set.
    all: Notify,
}

/// See the module. It needs a `LocalSet` around it.
pub struct FanOut {
    writer: Session,
    change: Request,
    round: Rc<Round>,
    /// Tells the watchers to read, by the number of the round.
    read: watch::Sender<u64>,
    watchers: JoinSet<anyhow::Result<()>>,
}

impl FanOut {
    /// So many sessions at `servers`, spread over them, that watch the znode `path`, which there is; and one at `writers` that
    /// changes it. Returns when all watches are set.
    pub async fn start(
        servers: &Nodes,
        writers: &Nodes,
        path: &str,
        watchers: usize,
        again: Again,
    ) -> anyhow::Result<Self> {
        let writer = Session::open(writers, 0).await?;
        let round = Rc::new(Round {
            watchers,
            again,
            changed: Cell::new(Instant::now()),
            told: RefCell::new(Vec::with_capacity(watchers)),
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
                        // Its server may not have heard of the znode yet.
                        let heard = session.call(&Request::Sync { path }).await?;
                        heard.map(drop).or_else(refused).map(|()| session)
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
            .all(|| round.armed.get(), "have set their watches")
            .await?;
        Ok(fan_out)
    }

    /// Changes the znode once, and returns when all have been told and have set their watches again.
    pub async fn change(&mut self) -> anyhow::Result<Told> {
        let round = self.round.clone();
        round.told.borrow_mut().clear();
        round.armed.set(0);
        let begin = Instant::now();
        round.changed.set(begin);
        let changed = self.writer.call(&self.change).await?;
        changed.map(drop).or_else(refused).context("changing the znode")?;
        let answered = begin.elapsed();
        self.all(|| round.told.borrow().len(), "were told").await?;
        if round.over.get() {
            return Ok(self.outcome(answered, begin));
        }
        self.read.send_modify(|round| *round += 1);
        self.all(|| round.armed.get(), "have set their watches again")
            .await?;
        Ok(self.outcome(answered, begin))
    }

    fn outcome(&self, answered: Duration, begin: Instant) -> Told {
        Told {
            answered,
            told: self.round.told.borrow().clone(),
            read: begin.elapsed(),
        }
    }

    /// Changes the znode a last time and closes all sessions.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.round.over.set(true);
        self.change().await?;
        while let Some(ended) = self.watchers.join_next().await {
            ended.context("a watcher")??;
        }
        self.writer.close().await
    }

    /// Waits until something is so of all watchers.
    async fn all(&mut self, so_many: impl Fn() -> usize, what: &str) -> anyhow::Result<()> {
        let (of, all) = (self.round.watchers, self.round.clone());
        let wait = async {
            while so_many() < of {
                tokio::select! {
                    () = all.all.notified() => {}
                    Some(ended) = self.watchers.join_next() => {
                        // At the end those who were told are gone when the last one is.
                        let ended = ended.context("a watcher")?;
                        ensure!(self.round.over.get(), "a watcher has ended: {ended:?}");
                        ended?;
                    }
                }
            }
            anyhow::Ok(())
        };
        let waited = timeout(PATIENCE, wait).await;
        waited
            .map_err(|_| anyhow::anyhow!("after {} s {} of {of} {what}", PATIENCE.as_secs(), so_many()))
            .flatten()
    }
}

/// One session that watches.
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
                bail!("instead of a change, {fired:?} was told");
            }
            let told = {
                let mut told = self.round.told.borrow_mut();
                told.push(after);
                told.len()
            };
            ensure!(told <= self.round.watchers, "a watch has fired twice");
            self.wake_if_all(told);
            if self.round.over.get() {
                return self.session.close().await;
            }
            if self.round.again == Again::Together {
                // Only who was told waits here, and the round's number changes when all were.
                self.reads
                    .changed()
                    .await
                    .context("nobody changes the znode any more")?;
            }
        }
    }

    fn wake_if_all(&self, so_many: usize) {
        if so_many == self.round.watchers {
            self.round.all.notify_one();
        }
    }
}
