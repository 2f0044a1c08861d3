//! Watches of few clients for very many znodes that there are not, at one node.

use std::time::Duration;

use anyhow::Context;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use zk_wire::{ErrorCode, Request};

use crate::nodes::Nodes;
use crate::zookeeper::session::{Session, refused};

/// Watches of one client: what a node keeps of it by default.
const EACH: usize = 100_000;

/// So many are asked for before their answers are looked at.
const AT_A_TIME: usize = 1_000;

/// So long one thousand may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Some of them to be set, and who is to know.
type Order = (Vec<Request>, oneshot::Sender<()>);

/// See the module. It needs a `LocalSet` around it.
pub struct Watches {
    server: Nodes,
    clients: Vec<mpsc::Sender<Order>>,
    tasks: JoinSet<anyhow::Result<()>>,
    count: usize,
}

impl Watches {
    /// None yet, at this server.
    pub fn new(server: Nodes) -> Self {
        Self {
            server,
            clients: Vec::new(),
            tasks: JoinSet::new(),
            count: 0,
        }
    }

    /// Sets more, until there are so many.
    pub async fn grow_to(&mut self, count: usize, progress: &mut impl FnMut(usize)) -> anyhow::Result<()> {
        while self.count < count {
            let client = self.count / EACH;
            if client == self.clients.len() {
                let session = Session::open(&self.server, client).await?;
                // One order at a time: whoever gives it waits for it.
                let (orders, taken) = mpsc::channel(1);
                self.clients.push(orders);
                self.tasks.spawn_local(keep(session, taken));
            }
            let last = count.min(self.count + AT_A_TIME).min((client + 1) * EACH);
            let requests = (self.count..last)
                .map(|number| Request::Exists {
                    path: format!("/limits/watched-{number:08}"),
                    watch: true,
                })
                .collect();
            let (done, is_done) = oneshot::channel();
            let ordered = self.clients[client].send((requests, done)).await;
            let set = tokio::time::timeout(PATIENCE, is_done).await;
            if ordered.is_err() || !matches!(set, Ok(Ok(()))) {
                // The client has failed, and says of what.
                match tokio::time::timeout(PATIENCE, self.tasks.join_next()).await {
                    Ok(Some(failed)) => failed.context("a client that watches")??,
                    _ => anyhow::bail!("watches were not set in {} s", PATIENCE.as_secs()),
                }
            }
            self.count = last;
            progress(last);
        }
        Ok(())
    }
}

/// Sets watches when it is told to, and keeps its session alive meanwhile.
async fn keep(mut session: Session, mut orders: mpsc::Receiver<Order>) -> anyhow::Result<()> {
    loop {
        tokio::select! {
            order = orders.recv() => {
                let Some((requests, done)) = order else { return session.close().await };
                for outcome in session.call_all(&requests).await? {
                    match outcome {
                        // Not being there is what is watched.
                        Ok(_) | Err(ErrorCode::NO_NODE) => {}
                        Err(code) => refused(code)?,
                    }
                }
                // Nobody waits any more if the run is over.
                done.send(()).ok();
            }
            // Nothing happens to what is watched; this pings.
            fired = session.notified() => drop(fired?),
        }
    }
}
