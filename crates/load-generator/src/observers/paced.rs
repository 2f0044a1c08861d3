//! Clients that ask at given times, or as fast as they are answered: reads and writes over ZooKeeper's protocol, and reads over HTTP.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use cli_support::http_client::Connection;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use zk_wire::Request;

use crate::report::Durations;
use crate::zookeeper::session::{Session, refused};

/// Whom a client asks, and what.
pub enum Asks {
    /// Over ZooKeeper's protocol.
    Zookeeper(Box<Session>, Box<Request>),
    /// `GET` of this path over HTTP.
    Http(Box<Connection>, String),
}

impl Asks {
    async fn once(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Zookeeper(session, request) => session.call(request).await?.map(drop).or_else(refused),
            Self::Http(connection, path) => {
                let answer = connection.send("GET", path, "").await.context("reading")?;
                ensure!(answer.status == 200, "a read was answered {}", answer.status);
                Ok(())
            }
        }
    }

    async fn close(self) -> anyhow::Result<()> {
        match self {
            Self::Zookeeper(session, _) => session.close().await,
            Self::Http(..) => Ok(()),
        }
    }
}

/// What they have seen.
#[derive(Default)]
struct Counted {
    times: RefCell<Durations>,
    over: Cell<bool>,
}

/// Clients that go on until they are stopped. They need a `LocalSet` around them.
pub struct Paced {
    counted: Rc<Counted>,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Paced {
    /// These clients, so many requests in a second all together; 0: each asks as soon as it is answered.
    pub fn start(clients: Vec<Asks>, per_second: u32) -> Self {
        let counted = Rc::new(Counted::default());
        let mut tasks = JoinSet::new();
        let count = clients.len() as u32;
        let begin = Instant::now();
        for (number, client) in clients.into_iter().enumerate() {
            let pace = (per_second > 0).then(|| {
                let pause = Duration::from_secs(1) * count / per_second;
                // Not all at the same moment.
                Pace {
                    due: begin + pause * number as u32 / count,
                    pause,
                }
            });
            tasks.spawn_local(run(client, pace, counted.clone()));
        }
        Self { counted, tasks }
    }

    /// Forgets what was seen before.
    pub fn begin(&self) {
        self.counted.times.take();
    }

    /// What was seen since.
    pub fn seen(&self) -> Durations {
        self.counted.times.take()
    }

    /// Ends all. An error is one that a client had, at whatever time; it asked for nothing more then.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        self.counted.over.set(true);
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("a client")??;
        }
        Ok(())
    }
}

struct Pace {
    due: Instant,
    pause: Duration,
}

async fn run(mut client: Asks, mut pace: Option<Pace>, counted: Rc<Counted>) -> anyhow::Result<()> {
    while !counted.over.get() {
        let begin = match &mut pace {
            None => Instant::now(),
            Some(pace) => {
                let due = pace.due;
                pace.due += pace.pause;
                let now = Instant::now();
                if now >= due {
                    // Whoever had to wait for its answer before has waited for this one as well.
                    due
                } else {
                    // The timer's own lateness is not the server's.
                    sleep_until(due).await;
                    Instant::now()
                }
            }
        };
        client.once().await?;
        counted.times.borrow_mut().record(begin.elapsed());
    }
    client.close().await
}
