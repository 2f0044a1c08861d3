//! Heartbeats of one session: a task that renews it every third of its TTL, changes to another server if one does not answer, and
//! reports the end of the TTL.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde::Deserialize;

use crate::clock::{BootInstant, BootTimer};
use crate::error::{Error, Loss};
use crate::http::ApiRequest;
use crate::life::{SessionState, TOLD_WITHIN};
use crate::servers::{Outcome, Pauses, read};
use crate::session_core::{Core, Renewed, heartbeat};

/// Heartbeats per TTL: two lost heartbeats in a row do not end the session.
const BEATS_PER_TTL: u32 = 3;

/// Part of the TTL after which a server without an answer to a heartbeat is suspected: then the next server gets a heartbeat too.
/// ZooKeeper's clients change servers two thirds of the timeout after the last answer; this client does the same.
const SILENT_AFTER: u32 = 6;

/// Answer to one heartbeat.
struct Beat {
    server: usize,
    sent: BootInstant,
    outcome: Outcome,
}

/// Locks that a session holds, according to the cluster.
#[derive(Deserialize)]
struct Holdings {
    held: Vec<Holding>,
}

#[derive(Deserialize)]
struct Holding {
    holder: String,
}

impl Holdings {
    fn holders(&self) -> Vec<&str> {
        self.held.iter().map(|holding| holding.holder.as_str()).collect()
    }
}

/// Returns the time to the next heartbeat: a third of the TTL, or at random up to a tenth less. After a change of leaders all waiting
/// clients get their answers at the same moment, and their heartbeats should spread out again.
fn interval(ttl: Duration) -> Duration {
    let mut bits = [0; 1];
    getrandom::fill(&mut bits).expect("the operating system has random numbers");
    let longest = ttl / BEATS_PER_TTL;
    longest - longest / 10 * u32::from(bits[0]) / 255
}

/// Renews the session until it is lost.
pub(crate) async fn keep_alive(core: Arc<Core>, timer: BootTimer) {
    let mut renewal = Renewal::new(core.clone());
    while let Some(wake_at) = renewal.wake_at() {
        tokio::select! {
            biased;
            Some(beat) = renewal.beats.next() => renewal.note_answer(beat),
            Some(beat) = renewal.leader_probes.next() => renewal.note_probe(beat),
            Some((asked, held)) = renewal.holdings.next() => note_holdings(&core, asked, held),
            woken = timer.until(wake_at) => match woken {
                Ok(()) => renewal.send_due(),
                // Without a timer the end of the TTL would not be reported.
                Err(error) => {
                    tracing::error!(session = core.id, %error, "the timer has failed, the session is given up");
                    core.life.lose(Loss::NoHeartbeat);
                }
            }
        }
    }
    tracing::debug!(session = core.id, loss = ?core.life.loss(), "the session is not renewed any more");
}

/// State of the task that renews a session.
struct Renewal {
    core: Arc<Core>,
    next_beat: BootInstant,
    /// Heartbeats without an answer yet.
    beats: FuturesUnordered<BoxFuture<'static, Beat>>,
    /// Time of the unanswered heartbeat to each server.
    unanswered: Vec<Option<BootInstant>>,
    /// Servers whose unanswered heartbeats are too old.
    suspected: Vec<bool>,
    /// Heartbeats to the other servers, to find the leader.
    leader_probes: FuturesUnordered<BoxFuture<'static, Beat>>,
    /// Question for the locks that the session holds.
    holdings: FuturesUnordered<BoxFuture<'static, (BootInstant, Result<Holdings, Error>)>>,
    pauses: Pauses,
    /// True if the log has a warning about refusals since the last renewal.
    told_refusal: bool,
}

impl Renewal {
    fn new(core: Arc<Core>) -> Self {
        // The answer to a heartbeat says whether the server leads.
        let first_after = match core.servers.is_at_leader() {
            true => Duration::ZERO,
            false => interval(core.ttl),
        };
        Self {
            next_beat: BootInstant::now() + first_after,
            beats: FuturesUnordered::new(),
            unanswered: vec![None; core.servers.count()],
            suspected: vec![false; core.servers.count()],
            leader_probes: FuturesUnordered::new(),
            holdings: FuturesUnordered::new(),
            pauses: Pauses::new(),
            told_refusal: false,
            core,
        }
    }

    /// Time after which a server without an answer is suspected.
    fn silent_after(&self) -> Duration {
        self.core.ttl / SILENT_AFTER
    }

    /// Returns the time of the next step that no answer causes; `None` if the session is lost.
    fn wake_at(&self) -> Option<BootInstant> {
        let life = &self.core.life;
        let doubtful_from = match life.refresh() {
            SessionState::Lost(_) => return None,
            // Reported already.
            SessionState::Uncertain => None,
            SessionState::Confirmed => Some(life.doubtful_from()),
        };
        let silences = self.unanswered.iter().zip(&self.suspected);
        let next_silence = silences
            .filter_map(|(sent, suspected)| sent.filter(|_| !suspected))
            .map(|sent| sent + self.silent_after())
            .min();
        let steps = [
            Some(self.next_beat),
            next_silence,
            doubtful_from,
            Some(life.valid_until()),
        ];
        steps.into_iter().flatten().min()
    }

    fn note_answer(&mut self, answer: Beat) {
        let Beat {
            server,
            sent,
            outcome,
        } = answer;
        (self.unanswered[server], self.suspected[server]) = (None, false);
        let renewed = match outcome {
            Outcome::Executed(body) => read::<Renewed>(&body),
            Outcome::Refused(refusal) => Err(refusal.into()),
            Outcome::NotExecuted(why) | Outcome::Uncertain(why) => Err(Error::Unavailable(why)),
            Outcome::Stopped => Err(Error::Stopped),
        };
        let core = &self.core;
        match renewed {
            Ok(renewed) => {
                core.note_renewed(server, sent, &renewed);
                let is_asked = server == core.servers.current();
                if core.servers.is_at_leader() && is_asked && !renewed.leads && self.leader_probes.is_empty()
                {
                    let others = (0..core.servers.count()).filter(|&other| other != server);
                    let within = self.silent_after();
                    let probes = others.map(|other| beat(core.clone(), other, within).boxed());
                    self.leader_probes.extend(probes);
                }
                self.pauses = Pauses::new();
                self.told_refusal = false;
            }
            Err(Error::Refused(refusal)) if refusal.ends_session() => core.life.lose(Loss::Expired),
            // Every server would refuse. The token may be replaced before the next heartbeat, and the session lives on until its
            // TTL is over.
            Err(Error::Refused(refusal)) if refusal.is_of_the_caller() => {
                if !std::mem::replace(&mut self.told_refusal, true) {
                    let why = refusal.detail;
                    tracing::warn!(
                        session = core.id,
                        why,
                        "heartbeats are refused, and the session ends with its time"
                    );
                }
            }
            Err(error) => {
                tracing::debug!(session = core.id, %error, "a heartbeat has failed");
                core.servers.suspect(server);
                self.next_beat = self.next_beat.min(BootInstant::now() + self.pauses.next());
            }
        }
    }

    /// Takes the answer to a probe. A failed one changes nothing.
    fn note_probe(&self, beat: Beat) {
        if let Outcome::Executed(body) = beat.outcome
            && let Ok(renewed) = read::<Renewed>(&body)
        {
            self.core.note_renewed(beat.server, beat.sent, &renewed);
        }
    }

    /// Suspects servers that have not answered for too long, and sends the heartbeats that are due.
    fn send_due(&mut self) {
        for (server, sent) in self.unanswered.iter().enumerate() {
            let silent = sent.is_some_and(|sent| (sent + self.silent_after()).has_passed());
            if silent && !self.suspected[server] {
                self.suspected[server] = true;
                self.core.servers.suspect(server);
                self.next_beat = BootInstant::now();
            }
        }
        if !self.next_beat.has_passed() {
            return;
        }
        let core = &self.core;
        self.next_beat = BootInstant::now() + interval(core.ttl);
        let waited_at =
            (0..core.waits.len()).filter(|&server| core.waits[server].load(Ordering::Relaxed) > 0);
        for server in waited_at.chain([core.servers.current()]) {
            if self.unanswered[server].is_none() {
                self.unanswered[server] = Some(BootInstant::now());
                self.beats.push(beat(core.clone(), server, core.ttl).boxed());
            }
        }
        if self.holdings.is_empty() && core.life.holds_any() {
            self.holdings.push(ask_holdings(core.clone()).boxed());
        }
    }
}

async fn beat(core: Arc<Core>, server: usize, within: Duration) -> Beat {
    let sent = BootInstant::now();
    let call = heartbeat(&core.id, core.servers.is_at_leader());
    core.servers.counts.add(|stats| stats.heartbeats += 1);
    let outcome = tokio::time::timeout(within, core.servers.send(server, &call)).await;
    Beat {
        server,
        sent,
        outcome: outcome.unwrap_or_else(|_| Outcome::Uncertain("no answer".to_owned())),
    }
}

impl Core {
    /// Applies the answer of a server to a heartbeat that was sent at this time.
    fn note_renewed(&self, server: usize, sent: BootInstant, renewed: &Renewed) {
        self.life.confirm(sent, Duration::from_millis(renewed.ttl_ms));
        self.life.note_release_requests(sent, &renewed.release_requested);
        if renewed.leads && self.servers.is_at_leader() {
            self.servers.turn_to(server);
        }
    }
}

/// Reads which locks the session holds. A broken lock is missing.
async fn ask_holdings(core: Arc<Core>) -> (BootInstant, Result<Holdings, Error>) {
    let asked = BootInstant::now();
    let ask = ApiRequest::get(format!("/v1/sessions/{}?linearizable=true", core.id)).in_background();
    let answered = core
        .servers
        .call_within(&ask, core.ttl / BEATS_PER_TTL, core.ttl / BEATS_PER_TTL);
    let held: Result<Holdings, Error> = answered.await.and_then(|body| read(&body));
    if let Ok(holdings) = &held
        && core.life.is_followed()
        && core.life.misses_any(asked, &holdings.holders())
    {
        tokio::time::sleep(TOLD_WITHIN.min(core.ttl / BEATS_PER_TTL)).await;
    }
    (asked, held)
}

fn note_holdings(core: &Core, asked: BootInstant, held: Result<Holdings, Error>) {
    match held {
        Ok(holdings) => core.life.holds_only(asked, &holdings.holders()),
        Err(Error::Refused(refusal)) if refusal.ends_session() => core.life.lose(Loss::Expired),
        // The next heartbeat asks again.
        Err(error) => tracing::debug!(session = core.id, %error, "it is not known which locks are held"),
    }
}
