//! Sessions and their ephemeral znodes: some sessions are closed, others expire, and all clients query all of
//! them. A session must live after a confirmed heartbeat, must expire without one, and no znode or effect of
//! an ended session may remain.

mod client;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::sessions::{self, Evidence, Fact, Rules};
use lockgate_check::{Nanos, Verdict};
use parking_lot::Mutex;

use super::disturbances::{DisturbanceMonitor, Required};
use super::highlights::Highlights;
use super::{Progress, Span, Tone, Workload, fill, final_get};
use crate::client::{CallResult, Caller, Reply, nanos};
use crate::record::{Tally, write_line};
use crate::systems::{System, caller};
use crate::world::World;

/// Clients with sessions; one more client monitors the cluster.
const CLIENTS: usize = 24;

const PARENT: &str = "/jepsen/sessions";

/// Bound for the expiry of a silent session beyond its TTL in an undisturbed cluster: a tick of 50 ms by the
/// rules of docs/concepts/sessions.md, and the delays of an overloaded machine.
const GRACE: Duration = Duration::from_millis(1500);

/// Time limit after the run for the end of the last session and the last ephemeral znode: a TTL, an election,
/// and the TTL again, with a wide margin.
const GONE_WITHIN: Duration = Duration::from_secs(15);

const PAGE: usize = 1000;

/// The workload.
pub struct Sessions {
    known: Mutex<Vec<sessions::Session>>,
    tally: Tally,
    disturbances: DisturbanceMonitor,
    highlights: Highlights,
}

/// Index of a session among all of the run.
type Index = usize;

impl Sessions {
    /// Creates a run.
    pub fn new() -> Self {
        Self {
            known: Mutex::default(),
            tally: Tally::default(),
            disturbances: DisturbanceMonitor::new(Required::All),
            highlights: Highlights::default(),
        }
    }

    fn opened(&self, id: &str, ttl: Duration) -> Index {
        let mut known = self.known.lock();
        known.push(sessions::Session {
            id: id.to_owned(),
            ttl: nanos(ttl),
            evidence: Vec::new(),
        });
        known.len() - 1
    }

    fn learn(&self, session: Index, invoked: Nanos, returned: Nanos, fact: Fact) {
        self.known.lock()[session].evidence.push(Evidence {
            invoked,
            returned,
            fact,
        });
    }

    /// Queries a session and records the evidence; returns whether the session has certainly ended.
    async fn query(&self, world: &World, caller: &mut Caller, session: Index) -> bool {
        let id = self.known.lock()[session].id.clone();
        let invoked = world.now();
        let reply = caller.get(&format!("/v1/sessions/{id}?linearizable=true")).await;
        let returned = world.now();
        let fact = match &reply {
            Reply::Done(_) => Some(Fact::SeenAlive),
            // An end long ago may be forgotten; the session does not exist then either.
            Reply::Refused(code, _) if code == "session_expired" || code == "no_session" => Some(Fact::Ended),
            Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => None,
        };
        let answer = match fact {
            Some(_) => CallResult::Ok(()),
            None => reply.done().map(drop),
        };
        self.tally.count(returned, &answer);
        let ended = fact == Some(Fact::Ended);
        if let Some(fact) = fact {
            self.learn(session, invoked, returned, fact);
        }
        ended
    }

    /// Describes the ephemeral znodes that any node's tree still has.
    async fn orphans(&self, world: &World) -> Result<Vec<String>> {
        let mut orphans = Vec::new();
        for endpoint in world.endpoints.iter() {
            let mut caller = Caller::to_one(endpoint.http);
            let query = format!("/v1/znodes{PARENT}?children=true&limit={PAGE}&linearizable=true");
            let page = final_get(&mut caller, &query).await?;
            for child in page["children"].as_array().context("no children in the answer")? {
                orphans.push(format!("node {} has {child}", endpoint.node));
            }
        }
        Ok(orphans)
    }

    /// Waits until all sessions have ended; describes those that have not.
    async fn wait_all_ended(&self, world: &World) -> Vec<String> {
        let mut caller = caller(world, 0);
        let give_up = tokio::time::Instant::now() + GONE_WITHIN;
        let mut left: Vec<Index> = (0..self.known.lock().len()).collect();
        loop {
            let mut still = Vec::new();
            for session in left {
                let is_known = self.known.lock()[session].has_ended();
                if !is_known && !self.query(world, &mut caller, session).await {
                    still.push(session);
                }
            }
            left = still;
            if left.is_empty() || tokio::time::Instant::now() > give_up {
                let known = self.known.lock();
                let lines = left.into_iter().map(|session| {
                    format!(
                        "session {} has not ended {GONE_WITHIN:?} after the run",
                        known[session].id
                    )
                });
                return lines.collect();
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

trait HasEnded {
    fn has_ended(&self) -> bool;
}

impl HasEnded for sessions::Session {
    fn has_ended(&self) -> bool {
        self.evidence
            .iter()
            .any(|it| matches!(it.fact, Fact::Ended | Fact::Closed))
    }
}

impl Workload for Sessions {
    fn clients(&self) -> usize {
        CLIENTS + 1
    }

    fn prepare<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<()>> {
        fill(System::Lockgate, world, vec![PARENT.to_owned()], "").boxed()
    }

    fn client(self: Arc<Self>, world: World, number: usize) -> BoxFuture<'static, ()> {
        match number {
            CLIENTS => async move { self.disturbances.watch(&world).await }.boxed(),
            _ => client::run(self, world, number).boxed(),
        }
    }

    fn progress(&self) -> Progress {
        self.tally.progress()
    }

    fn reasons(&self) -> BTreeMap<String, u64> {
        self.tally.reasons()
    }

    fn check<'a>(&'a self, world: &'a World) -> BoxFuture<'a, Result<Vec<(String, Verdict)>>> {
        async move {
            let last = world.now();
            let left = self.wait_all_ended(world).await;
            let orphans = self.orphans(world).await?;
            let rules = Rules {
                grace: nanos(GRACE),
                disturbed: self.disturbances.disturbed(last, world.now()),
            };
            let known = self.known.lock().clone();
            let verdicts = vec![
                ("sessions".to_owned(), sessions::check(&known, &rules)),
                ("all sessions ended".to_owned(), Verdict::of(left)),
                ("no orphans".to_owned(), Verdict::of(orphans)),
            ];
            self.highlights.record(&verdicts);
            Ok(verdicts)
        }
        .boxed()
    }

    fn timeline(&self) -> Vec<Span> {
        let known = self.known.lock();
        let spans = known.iter().enumerate().filter_map(|(index, session)| {
            let first = session.evidence.iter().map(|it| it.invoked).min()?;
            let ended = session
                .evidence
                .iter()
                .filter(|it| matches!(it.fact, Fact::Ended | Fact::Closed));
            let last = session.evidence.iter().map(|it| it.returned).max()?;
            let closed = session
                .evidence
                .iter()
                .any(|it| matches!(it.fact, Fact::Closed | Fact::MayClose));
            let span = Span {
                // The sessions of a client follow each other, and expiring ones overlap; a limited number of
                // rows is enough.
                row: format!("sessions {}", index % CLIENTS),
                label: format!("{} · {}", session.id, if closed { "closed" } else { "expired" }),
                begin: first,
                end: ended.map(|it| it.returned).min().unwrap_or(last),
                tone: if closed { Tone::Ok } else { Tone::Failed },
            };
            Some(self.highlights.bar(span, &[&session.id]))
        });
        spans.collect()
    }

    fn write_history(&self, to: &mut dyn Write) -> io::Result<()> {
        self.known
            .lock()
            .iter()
            .try_for_each(|session| write_line(to, session))
    }
}
