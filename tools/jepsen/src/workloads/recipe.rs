//! Exclusive locks of any system, through the system's own client: the clients' beliefs are checked. This
//! workload is for comparison; `exclusive` checks far more of Lockgate's own API.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::client_view::{self, Belief};
use lockgate_check::holds::Mode;
use lockgate_check::{ClientId, Verdict};
use parking_lot::Mutex;

use super::highlights::Highlights;
use super::{Progress, Span, Tone, Workload};
use crate::client;
use crate::pace::Pace;
use crate::record::{Recorder, write_line};
use crate::systems::System;
use crate::world::World;

const CLIENTS: usize = 24;

const LOCKS: usize = 24;

/// Acquires of all clients per second.
const PER_SECOND: f64 = 250.0;

/// Maximum wait for a lock.
const WAIT: Duration = Duration::from_millis(800);

/// One in this number of holders crashes.
const CRASHES_ONE_IN: u32 = 500;

/// The workload.
pub struct Recipe {
    system: System,
    calls: Recorder<RecipeCall, u64>,
    beliefs: Mutex<Vec<Belief>>,
    highlights: Highlights,
}

#[derive(Clone, Debug, serde::Serialize)]
enum RecipeCall {
    Lock(usize),
    Unlock(usize),
}

impl Recipe {
    /// Creates a run.
    pub fn new(system: System) -> Self {
        Self {
            system,
            calls: Recorder::default(),
            beliefs: Mutex::default(),
            highlights: Highlights::default(),
        }
    }

    async fn lock_once(
        &self,
        world: &World,
        client: &mut dyn client::Mutex,
        me: &mut ClientId,
        number: usize,
        rng: &mut Rng,
    ) -> bool {
        let lock = rng.usize(0..LOCKS);
        let path = name(lock);
        let call = client.lock(&path, WAIT);
        let Some(token) = self
            .calls
            .call(world, me, RecipeCall::Lock(lock), call)
            .await
            .ok()
        else {
            return false;
        };
        let granted = world.now();
        client.stay_alive(hold(rng)).await;
        let crashes = rng.u32(0..CRASHES_ONE_IN) == 0;
        let released = world.now();
        self.beliefs.lock().push(Belief {
            lock: path,
            client: ClientId::try_from(number).expect("there are few clients"),
            mode: Mode::Exclusive,
            token,
            granted,
            released: (!crashes).then_some(released),
            deadline: client.believed_until(),
        });
        if crashes {
            client.crash();
            return true;
        }
        let invoked = world.now();
        let answer = client.unlock().await.map(|()| token);
        self.calls
            .add(world, me, invoked, RecipeCall::Unlock(lock), &answer);
        answer.ok().is_some()
    }
}

fn hold(rng: &mut Rng) -> Duration {
    Duration::from_millis(match rng.u32(0..1000) {
        0..900 => rng.u64(0..5),
        900..996 => rng.u64(5..60),
        _ => rng.u64(60..2000),
    })
}

/// Returns a lock's name, which is a path for the systems that need one.
fn name(lock: usize) -> String {
    format!("/jepsen/lock/{lock}")
}

impl Workload for Recipe {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn prepare<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<()>> {
        // A lock is created by its first acquire.
        async { Ok(()) }.boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        async move {
            let mut client = self.system.mutex(&world, number);
            let mut pace = Pace::new(&world, number, CLIENTS, PER_SECOND);
            let mut rng = super::rng(&world, number);
            let mut me = ClientId::try_from(number).expect("there are few clients");
            while pace.next().await {
                if !self
                    .lock_once(&world, &mut *client, &mut me, number, &mut rng)
                    .await
                {
                    pace.back_off().await;
                }
            }
        }
        .boxed()
    }

    fn progress(&self) -> Progress {
        self.calls.tally().progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.calls.tally().reasons()
    }

    fn check<'a>(&'a self, _world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let verdict = client_view::check(&self.beliefs.lock());
            let verdicts = vec![("no conflicting beliefs".to_owned(), verdict)];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let beliefs = self.beliefs.lock();
        let spans = beliefs.iter().map(|belief| {
            let span = Span {
                row: belief.lock.clone(),
                label: format!("client {} · token {}", belief.client, belief.token),
                begin: belief.granted,
                end: belief
                    .released
                    .unwrap_or(belief.deadline)
                    .min(belief.deadline)
                    .max(belief.granted),
                tone: Tone::Ok,
            };
            self.highlights
                .bar(span, &[&belief.lock, &format!("token {}", belief.token)])
        });
        spans.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.calls.write(to)?;
        self.beliefs
            .lock()
            .iter()
            .try_for_each(|belief| write_line(to, belief))
    }
}
