//! One workload with so many clients: closed loops, each with one request on its way at a time.

use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};
use zk_wire::Request;

use super::ZookeeperReport;
use super::session::{Session, refused};
use super::tree::Tree;
use super::workload::{Cycle, Workload};
use crate::bench::nodes::Nodes;
use crate::bench::processes;
use crate::bench::report::Durations;

/// A load to put on servers.
pub(super) struct Load<'a> {
    /// What the clients do.
    pub workload: Workload,
    /// Where the servers listen; clients are spread over them.
    pub servers: &'a Nodes,
    /// Where what they need is created.
    pub tree: &'a Tree,
    /// How many clients.
    pub clients: usize,
    /// How much data a znode has.
    pub data_bytes: usize,
    /// How long to run before measuring.
    pub warmup: Duration,
    /// How long to measure.
    pub measured: Duration,
}

/// What one client saw.
#[derive(Default)]
struct Seen {
    operations: Durations,
    error: Option<anyhow::Error>,
}

impl Load<'_> {
    /// Runs it, between making what it needs and taking that away. All clients share this thread.
    pub async fn run(&self) -> anyhow::Result<ZookeeperReport> {
        let data = Bytes::from(vec![b'x'; self.data_bytes]);
        let servers = self.servers;
        self.tree
            .make(servers, self.workload, self.clients, &data)
            .await?;
        let mut clients = Vec::new();
        for number in 0..self.clients {
            let home = self.workload.home(self.tree, number);
            let mut session = Session::open(self.servers, number).await?;
            // Its server may not have heard of what was made at another one.
            let sync = Request::Sync { path: home.clone() };
            session.call(&sync).await?.map(drop).or_else(refused)?;
            clients.push((session, Cycle::new(self.workload, &home, data.clone())));
        }

        let begin = Instant::now() + self.warmup;
        let end = begin + self.measured;
        let spent = tokio::task::spawn_local(cpu_time_between(begin, end));
        let loops: Vec<_> = clients
            .into_iter()
            .map(|(session, cycle)| tokio::task::spawn_local(client(session, cycle, begin, end)))
            .collect();
        let mut seen = Seen::default();
        let mut errors = 0;
        for client in loops {
            let (session, one) = client.await.context("a client of the load")?;
            seen.operations.add(&one.operations);
            match one.error {
                None => session.close().await?,
                Some(error) => {
                    errors += 1;
                    seen.error.get_or_insert(error);
                }
            }
        }
        let spent = spent.await.context("looking at the clock")??;
        self.tree.remove(servers).await?;

        let operation = seen.operations.percentiles();
        Ok(ZookeeperReport {
            workload: self.workload,
            clients: self.clients,
            servers: self.servers.count(),
            seconds: self.measured.as_secs_f64(),
            operations_per_second: operation.count as f64 / self.measured.as_secs_f64(),
            operation,
            errors,
            first_error: seen.error.map(|error| format!("{error:#}")),
            client_cpu_us: spent.as_secs_f64() * 1e6 / operation.count.max(1) as f64,
        })
    }
}

/// One client. A failed operation ends it: what follows would not be comparable.
async fn client(mut session: Session, mut cycle: Cycle, begin: Instant, end: Instant) -> (Session, Seen) {
    let mut seen = Seen::default();
    let mut start = Instant::now();
    while start < end {
        if let Err(error) = cycle.once(&mut session).await {
            seen.error = Some(error);
            break;
        }
        let now = Instant::now();
        // Operations count where they end: what began in the warm-up and ended after it had its work measured.
        if (begin..end).contains(&now) {
            seen.operations.record(now - start);
        }
        start = now;
    }
    (session, seen)
}

/// The time that this program spends on the processor from `begin` to `end`.
async fn cpu_time_between(begin: Instant, end: Instant) -> anyhow::Result<Duration> {
    sleep_until(begin).await;
    let before = processes::cpu_time(Pid::this())?;
    sleep_until(end).await;
    Ok(processes::cpu_time(Pid::this())?.saturating_sub(before))
}
