//! Places in the queue without a connection: clients acquire with `"wait": "queue"`, by a lease or a session,
//! and poll for the grant through any node, on connections that are cut. A place lives exactly as long as its
//! lease or session.

mod client;
mod plan;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::Verdict;

use super::contenders::Contenders;
use super::{Progress, Span, Workload, fill};
use crate::systems::System;
use crate::world::World;

/// Clients in the queues; one more client monitors the cluster.
const CLIENTS: usize = 32;

/// Acquires of all clients per second; each makes at least two calls.
const PER_SECOND: f64 = 220.0;

/// Znode that the monitor of the cluster reads.
const PARENT: &str = "/jepsen/queued";

/// The workload.
pub struct Queued {
    contenders: Contenders,
}

impl Queued {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            contenders: Contenders::new(),
        }
    }
}

impl Workload for Queued {
    fn clients(&self) -> usize {
        CLIENTS + 1
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        fill(System::Lockgate, world, vec![PARENT.to_owned()], "").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        match number {
            CLIENTS => async move { self.contenders.disturbances.watch(&world).await }.boxed(),
            _ => client::run(self, world, number).boxed(),
        }
    }

    fn progress(&self) -> Progress {
        self.contenders.tally.progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.contenders.tally.reasons()
    }

    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let names: Vec<_> = (0..plan::LOCKS).map(plan::lock_name).collect();
            let verdicts = self.contenders.check(world, &names).await?;
            self.contenders.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        self.contenders.timeline()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.contenders.write_history(to)
    }
}
