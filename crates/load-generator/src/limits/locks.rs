//! Locks that are held: taken many at a time, by few sessions with heartbeats.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, ensure};
use cli_support::api_client::{KeptSession, request_id};
use serde_json::json;
use tokio::task::JoinSet;

use super::{AT_A_TIME, PATIENCE};
use crate::nodes::Nodes;

/// Locks of one session: half of what it may hold by default.
const EACH: usize = 50_000;

/// Locks of one call: the most that there may be.
const AT_ONCE: usize = 64;

/// How often it is told how far it has come.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How long one call may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// See the module. It needs a `LocalSet` around it.
pub struct Locks {
    nodes: Nodes,
    ttl: Duration,
    run: String,
    sessions: Vec<KeptSession>,
    count: usize,
}

impl Locks {
    /// None yet.
    pub fn new(nodes: Nodes, ttl: Duration) -> Self {
        Self {
            nodes,
            ttl,
            run: request_id(),
            sessions: Vec::new(),
            count: 0,
        }
    }

    /// Takes more, until there are so many.
    pub async fn grow_to(&mut self, count: usize, progress: &mut impl FnMut(usize)) -> anyhow::Result<()> {
        while self.sessions.len() * EACH < count {
            let mut api = self.nodes.client(self.sessions.len(), PATIENCE);
            let session = KeptSession::open(&mut api, self.ttl, "lockgate bench limits").await;
            self.sessions.push(session.context("opening a session")?);
        }
        let next = Rc::new(Cell::new(self.count));
        let taken = Rc::new(Cell::new(self.count));
        let sessions: Rc<[String]> = self
            .sessions
            .iter()
            .map(|session| session.id().to_owned())
            .collect();
        let mut takers = JoinSet::new();
        for number in 0..AT_A_TIME {
            let mut api = self.nodes.client(number, PATIENCE);
            let (next, taken, sessions, run) =
                (next.clone(), taken.clone(), sessions.clone(), self.run.clone());
            takers.spawn_local(async move {
                loop {
                    let first = next.get();
                    // No call is for two sessions.
                    let last = count.min(first + AT_ONCE).min((first / EACH + 1) * EACH);
                    if first >= last {
                        return anyhow::Ok(());
                    }
                    next.set(last);
                    let locks: Vec<_> = (first..last)
                        .map(|lock| json!({ "name": format!("limits/{run}/{lock:08}") }))
                        .collect();
                    let body = json!({
                        "session": sessions[first / EACH], "locks": locks, "wait_ms": 0, "request_id": request_id()
                    });
                    let path = "/v1/multilock/acquire";
                    api.call("POST", path, &body, ANSWER_WITHIN)
                        .await
                        .context("taking locks")?;
                    taken.set(taken.get() + last - first);
                }
            });
        }
        while !takers.is_empty() {
            tokio::select! {
                Some(done) = takers.join_next() => done.context("taking locks")??,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            progress(taken.get());
        }
        self.count = count;
        Ok(())
    }

    /// An error if a session has ended, and its locks with it.
    pub fn check(&self) -> anyhow::Result<()> {
        ensure!(
            !self.sessions.iter().any(KeptSession::is_lost),
            "a session that holds locks is lost"
        );
        Ok(())
    }
}
