//! Sessions without connections of their own: a few connections open them and send their heartbeats, as a
//! gateway does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use cli_support::api_client::ApiClient;
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use crate::nodes::Nodes;
use crate::report::{Durations, Percentiles};

/// Number of heartbeats within a session's TTL, as in the client library.
const HEARTBEATS_PER_TTL: u32 = 3;

/// Pause before a retry when the limit of new sessions per address is reached.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Total time for which a call is retried on all nodes.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// Number of locks that one request acquires.
const LOCKS_IN_BATCH: usize = 128;

/// Sessions that one connection renews.
type SessionIds = Rc<RefCell<Vec<String>>>;

/// Sessions without connections of their own. They need a `LocalSet`.
pub struct Sessions {
    nodes: Nodes,
    ttl: Duration,
    at_a_time: usize,
    /// Number of locks that each session holds.
    locks: usize,
    count: usize,
    groups: Vec<SessionIds>,
    heartbeats: Rc<RefCell<Durations>>,
    late: Rc<Cell<u64>>,
    renewals: JoinSet<anyhow::Result<()>>,
}

impl Sessions {
    /// Creates an empty set of sessions. `at_a_time` connections open sessions in parallel, acquire `locks` locks
    /// for each, and then renew them.
    pub fn new(nodes: Nodes, ttl: Duration, at_a_time: usize, locks: usize) -> Self {
        Self {
            nodes,
            ttl,
            at_a_time,
            locks,
            count: 0,
            groups: Vec::new(),
            heartbeats: Rc::default(),
            late: Rc::default(),
            renewals: JoinSet::new(),
        }
    }

    /// Opens sessions until there are `count`. All are renewed from then on.
    pub async fn grow_to(&mut self, count: usize, progress: &mut impl FnMut(usize)) -> anyhow::Result<()> {
        let wanted = Rc::new(Cell::new(count.saturating_sub(self.count)));
        let opened = Rc::new(Cell::new(self.count));
        let mut openers = JoinSet::new();
        for number in 0..self.at_a_time {
            let (wanted, opened) = (wanted.clone(), opened.clone());
            let group = SessionIds::default();
            self.groups.push(group.clone());
            let renewal = Renewal {
                nodes: self.nodes.clone(),
                number,
                ttl: self.ttl,
                sessions: group.clone(),
                heartbeats: self.heartbeats.clone(),
                late: self.late.clone(),
            };
            // Heartbeats begin at once, because opening the other sessions takes longer than a TTL.
            self.renewals.spawn_local(renewal.run().boxed_local());
            let (nodes, ttl, locks) = (self.nodes.clone(), self.ttl, self.locks);
            openers.spawn_local(
                async move {
                    let mut api = nodes.client(number, CALL_TIMEOUT);
                    while let Some(left) = wanted.get().checked_sub(1) {
                        wanted.set(left);
                        let session = loop {
                            match api.open_session(ttl, "lockgate bench").await {
                                Ok(session) => break session,
                                Err(error) if error.code() == "too_many_requests" => sleep(RETRY_PAUSE).await,
                                Err(error) => return Err(error).context("opening a session"),
                            }
                        };
                        group.borrow_mut().push(session.clone());
                        acquire(&mut api, &session, locks).await?;
                        opened.set(opened.get() + 1);
                    }
                    Ok(())
                }
                .boxed_local(),
            );
        }
        while !openers.is_empty() {
            tokio::select! {
                Some(done) = openers.join_next() => done.context("opening sessions")??,
                failed = failed(&mut self.renewals) => return Err(failed),
                () = sleep(RETRY_PAUSE) => {}
            }
            progress(opened.get());
        }
        self.count = count;
        Ok(())
    }

    /// Closes all sessions.
    pub async fn close(mut self) -> anyhow::Result<()> {
        self.renewals.shutdown().await;
        let mut closers = JoinSet::new();
        for (number, group) in self.groups.into_iter().enumerate() {
            let mut api = self.nodes.client(number, CALL_TIMEOUT);
            closers.spawn_local(
                async move {
                    for session in group.take() {
                        api.close_session(&session).await.context("closing a session")?;
                    }
                    anyhow::Ok(())
                }
                .boxed_local(),
            );
        }
        while let Some(closed) = closers.join_next().await {
            closed.context("closing sessions")??;
        }
        Ok(())
    }

    /// Returns the durations of heartbeats since the last call, and how many were sent too late by more than
    /// a third of their interval.
    pub fn take_report(&mut self) -> anyhow::Result<(Percentiles, u64)> {
        if let Some(ended) = self.renewals.try_join_next() {
            ended.context("renewing sessions")??;
            bail!("the renewal of sessions has ended");
        }
        Ok((self.heartbeats.take().percentiles(), self.late.take()))
    }
}

/// Acquires locks of the session's own.
async fn acquire(api: &mut ApiClient, session: &str, locks: usize) -> anyhow::Result<()> {
    let numbers: Vec<usize> = (0..locks).collect();
    for batch in numbers.chunks(LOCKS_IN_BATCH) {
        let request = |number: &usize| {
            json!({
                "path": format!("/v1/locks/bench%2Fidle%2F{session}%2F{number}/acquire"),
                "body": { "session": session, "request_id": format!("{session}-{number}") },
            })
        };
        let body = json!({ "requests": batch.iter().map(request).collect::<Vec<_>>() });
        let response = api
            .call("POST", "/v1/batch", &body, CALL_TIMEOUT)
            .await
            .context("acquiring locks")?
            .json();
        let results = response["results"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        if let Some(refused) = results.iter().find(|result| result["status"] != 200) {
            bail!("a lock was not acquired: {refused}");
        }
        ensure!(
            results.len() == batch.len(),
            "{} results for {} locks",
            results.len(),
            batch.len()
        );
    }
    Ok(())
}

async fn failed(renewals: &mut JoinSet<anyhow::Result<()>>) -> anyhow::Error {
    match renewals.join_next().await {
        Some(Ok(Err(error))) => error,
        Some(Err(panicked)) => panicked.into(),
        Some(Ok(Ok(()))) => anyhow::anyhow!("the renewal of sessions has ended"),
        None => std::future::pending().await,
    }
}

/// Heartbeats of a group of sessions over one connection.
struct Renewal {
    nodes: Nodes,
    number: usize,
    ttl: Duration,
    sessions: SessionIds,
    heartbeats: Rc<RefCell<Durations>>,
    late: Rc<Cell<u64>>,
}

impl Renewal {
    async fn run(self) -> anyhow::Result<()> {
        let mut connection = self.nodes.connect(self.number).await?;
        let pause = self.ttl / HEARTBEATS_PER_TTL;
        let mut round = Instant::now();
        loop {
            let sessions = self.sessions.borrow().clone();
            for (number, session) in sessions.iter().enumerate() {
                let due = round + pause * number as u32 / sessions.len() as u32;
                sleep_until(due).await;
                let sent = Instant::now();
                if sent - due > pause / HEARTBEATS_PER_TTL {
                    self.late.set(self.late.get() + 1);
                }
                let path = format!("/v1/sessions/{session}/heartbeat");
                let response = connection.send("POST", &path, "").await.context("a heartbeat")?;
                if response.status != 200 {
                    bail!(
                        "the response to a heartbeat was {}: {}",
                        response.status,
                        response.json()
                    );
                }
                self.heartbeats.borrow_mut().record(sent.elapsed());
            }
            // New sessions may have been opened meanwhile; they wait for their first heartbeat a third of the
            // TTL at most.
            round = Instant::now().max(round + if sessions.is_empty() { RETRY_PAUSE } else { pause });
            sleep_until(round).await;
        }
    }
}
