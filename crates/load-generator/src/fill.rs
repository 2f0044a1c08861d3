//! `lockgate bench fill`: creates many znodes as fast as possible over ZooKeeper's protocol, so that any
//! ZooKeeper can be filled, too. The znodes stay, for measurements of a large state afterwards.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use clap::Args;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::output::say;
use futures_util::FutureExt as _;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio::time::Instant;
use zk_wire::{ErrorCode, Request};

use super::Target;
use super::zookeeper::client::create;
use super::zookeeper::session::{Session, refused};

/// Parent of all created znodes.
const TOP: &str = "/lockgate-bench-fill";

/// Number of znodes per parent.
const SIBLINGS: u64 = 1000;

/// Number of sessions that create znodes in parallel, each with 256 pipelined requests.
const FILLERS: usize = 12;

/// Options of `lockgate bench fill`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Number of znodes
    #[arg(long, default_value_t = 1_000_000)]
    znodes: u64,
    /// Number of data bytes of each znode
    #[arg(long, default_value_t = 100)]
    data_bytes: usize,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Result of the measurement.
#[derive(Debug, Clone, Serialize)]
pub struct FillReport {
    /// Number of znodes.
    pub znodes: u64,
    /// Duration in seconds.
    pub seconds: f64,
    /// Created znodes per second.
    pub per_second: f64,
}

impl FillReport {
    /// Creates the report of `znodes` in this time.
    pub fn new(znodes: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64();
        Self {
            znodes,
            seconds,
            per_second: znodes as f64 / seconds,
        }
    }

    /// Prints the report in the form of the other measurements.
    pub fn print(&self, output: Output) -> anyhow::Result<()> {
        if output.is_document() {
            return output.say(&[self], String::new);
        }
        say(format!(
            "{} created in {:.1} s: {:.0}/s",
            self.znodes, self.seconds, self.per_second
        ))
    }
}

/// Creates the znodes and prints the duration. Existing znodes are left unchanged.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.znodes > 0, "at least one znode is needed");
    ensure_usage!(
        args.data_bytes <= super::load::MAX_DATA_BYTES,
        "a request has room for {} bytes of data",
        super::load::MAX_DATA_BYTES
    );
    LocalSet::new().run_until(fill(&args)).await?.print(args.output)
}

async fn fill(args: &Arguments) -> anyhow::Result<FillReport> {
    let servers = args.target.zookeeper_nodes()?;
    let parents = args.znodes.div_ceil(SIBLINGS);
    let mut session = Session::open(&servers, 0).await?;
    let empty = |path| create(path, Bytes::new());
    create_all(&mut session, &[empty(TOP.to_owned())]).await?;
    let all: Vec<Request> = (0..parents)
        .map(|parent| empty(format!("{TOP}/{parent}")))
        .collect();
    create_all(&mut session, &all).await?;
    session.close().await?;

    let data = Bytes::from(vec![b'x'; args.data_bytes]);
    let (next, znodes) = (Rc::new(Cell::new(0)), args.znodes);
    let mut fillers = Vec::new();
    let begin = Instant::now();
    for number in 0..FILLERS {
        let mut session = Session::open(&servers, number).await?;
        let (next, data) = (next.clone(), data.clone());
        fillers.push(tokio::task::spawn_local(
            async move {
                // This session's server may not have applied the parents yet.
                let sync = Request::Sync { path: TOP.to_owned() };
                session.call(&sync).await?.map(drop).or_else(refused)?;
                loop {
                    let first = next.get();
                    let last = (first + SIBLINGS).min(znodes);
                    if first >= last {
                        return session.close().await;
                    }
                    next.set(last);
                    let some: Vec<Request> = (first..last)
                        .map(|number| {
                            let path = format!("{TOP}/{}/{number:012}", number / SIBLINGS);
                            create(path, data.clone())
                        })
                        .collect();
                    create_all(&mut session, &some).await?;
                }
            }
            .boxed_local(),
        ));
    }
    for filler in fillers {
        filler.await.context("a task that fills the tree")??;
    }
    Ok(FillReport::new(znodes, begin.elapsed()))
}

async fn create_all(session: &mut Session, requests: &[Request]) -> anyhow::Result<()> {
    for outcome in session.call_all(requests).await? {
        match outcome {
            Ok(_) | Err(ErrorCode::NODE_EXISTS) => {}
            Err(code) => return refused(code).context("creating a znode"),
        }
    }
    Ok(())
}
