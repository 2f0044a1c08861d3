//! Leases: clients acquire locks with a time to live and no session, renew through any node, release by the
//! lease, and repeat requests under their `Idempotency-Key`. Some locks have a minimum time of a hold, some a
//! maximum time that clients try to exceed. A register outside of the cluster checks fencing tokens.

mod client;
mod plan;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::{Verdict, fenced};
use parking_lot::Mutex;

use super::contenders::Contenders;
use super::fenced::Storage;
use super::{Progress, Span, Workload, fill};
use crate::record::write_line;
use crate::systems::System;
use crate::world::World;

/// Clients with leases; one more client monitors the cluster.
const CLIENTS: usize = 32;

/// Leases of all clients per second; each makes at least two calls.
const PER_SECOND: f64 = 260.0;

/// Znode that the monitor of the cluster reads.
const PARENT: &str = "/jepsen/leases";

/// Initial value of the registers.
const FIRST_VALUE: u64 = 0;

/// The workload.
pub struct Leases {
    contenders: Contenders,
    /// Registers that the locks protect, in the order of the locks.
    registers: Vec<Mutex<Storage>>,
    /// Responses that no correct server gives, detected by clients.
    contradictions: Mutex<Vec<String>>,
}

impl Leases {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            contenders: Contenders::new(),
            registers: (0..plan::LOCKS)
                .map(|_| Mutex::new(Storage::holding(FIRST_VALUE)))
                .collect(),
            contradictions: Mutex::default(),
        }
    }
}

impl Workload for Leases {
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
            let mut verdicts = self.contenders.check(world, &names).await?;
            let registers = self.registers.iter();
            let updates = registers.map(|register| fenced::check(FIRST_VALUE, &register.lock().writes));
            verdicts.extend([
                (
                    "no lost update".to_owned(),
                    updates.fold(Verdict::Valid, Verdict::and),
                ),
                (
                    "releases can be repeated".to_owned(),
                    Verdict::of(self.contradictions.lock().clone()),
                ),
            ]);
            self.contenders.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        self.contenders.timeline()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.contenders.write_history(to)?;
        for (register, storage) in self.registers.iter().enumerate() {
            for write in &storage.lock().writes {
                write_line(to, &serde_json::json!({"register": register, "write": write}))?;
            }
        }
        Ok(())
    }
}
