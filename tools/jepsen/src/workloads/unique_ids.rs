//! Unique numbers: sequential znodes below a few parents. Most of them are deleted soon, so that a server
//! that derived the next number from its children would assign one twice.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;

use anyhow::Result;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::{ClientId, Verdict, unique_ids};
use serde::Serialize;

use super::highlights::Highlights;
use super::{Progress, Span, Workload, fill};
use crate::client::CallResult;
use crate::pace::Pace;
use crate::record::{Recorder, bar, map_input};
use crate::systems::System;
use crate::world::World;

const CLIENTS: usize = 20;

/// Calls of all clients per second, deletions included.
const PER_SECOND: f64 = 600.0;

const PARENTS: [&str; 4] = ["/jepsen/ids/0", "/jepsen/ids/1", "/jepsen/ids/2", "/jepsen/ids/3"];

/// Percentage of numbered znodes that their creator deletes at once.
const DELETED_PERCENT: u32 = 60;

/// The workload.
pub struct UniqueIds {
    system: System,
    created: Recorder<Parent, u64>,
    deleted: Recorder<Numbered, ()>,
    highlights: Highlights,
}

/// Parent of a new number: an index into [`PARENTS`].
#[derive(Clone, Debug, Serialize)]
struct Parent {
    create_below: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Numbered {
    delete_below: usize,
    number: u64,
}

impl UniqueIds {
    /// Creates a run.
    pub fn new(system: System) -> Self {
        Self {
            system,
            created: Recorder::default(),
            deleted: Recorder::default(),
            highlights: Highlights::default(),
        }
    }
}

impl Workload for UniqueIds {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        let parents = PARENTS.map(str::to_owned).to_vec();
        fill(self.system, world, parents, "").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut store = self.system.store(&world, number);
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let mut rng = super::rng(&world, number);
            let mut me = ClientId::try_from(number).expect("there are few clients");
            let mut to_delete = None;
            while pace.next().await {
                let failed = match to_delete.take() {
                    Some((parent, number)) => {
                        let call = store.delete_numbered(PARENTS[parent], number);
                        let input = Numbered {
                            delete_below: parent,
                            number,
                        };
                        let answer = self.deleted.call(&world, &mut me, input, call).await;
                        answer.ok().is_none()
                    }
                    None => {
                        let parent = rng.usize(0..PARENTS.len());
                        let call = store.create_numbered(PARENTS[parent]);
                        let input = Parent { create_below: parent };
                        match self.created.call(&world, &mut me, input, call).await {
                            CallResult::Ok(number) => {
                                to_delete = (rng.u32(0..100) < DELETED_PERCENT).then_some((parent, number));
                                false
                            }
                            CallResult::Failed(_) | CallResult::Unknown(_) => true,
                        }
                    }
                };
                if failed {
                    pace.back_off().await;
                }
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.created
            .tally()
            .progress()
            .and(self.deleted.tally().progress())
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        let mut reasons = self.created.tally().reasons();
        for (why, count) in self.deleted.tally().reasons() {
            *reasons.entry(why).or_default() += count;
        }
        reasons
    }

    fn check<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let name = |parent: Parent| PARENTS[parent.create_below].to_owned();
            let calls = self.created.calls().into_iter().map(|call| map_input(call, name));
            let calls: Vec<_> = calls.collect();
            let verdicts = vec![("unique and increasing".to_owned(), unique_ids::check(&calls))];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let created = self.created.calls().into_iter().map(|call| {
            let label = format!("below {} → {:?}", call.input.create_below, call.outcome);
            self.highlights.call(bar(label, &call), &call)
        });
        let deleted = self.deleted.calls().into_iter().map(|call| {
            let label = format!("delete {:?} → {:?}", call.input, call.outcome);
            self.highlights.call(bar(label, &call), &call)
        });
        created.chain(deleted).collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.created.write(to)?;
        self.deleted.write(to)
    }
}
