//! Heartbeats of one session: a task that renews it every third of its TTL, changes to another server if one does not answer, and
//! reports the end of the TTL.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
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
    let silent_after = core.ttl / SILENT_AFTER;
    let mut beats = FuturesUnordered::new();
    // Time of the unanswered heartbeat to each server.
    let mut unanswered: Vec<Option<BootInstant>> = vec![None; core.servers.count()];
    let mut suspected = vec![false; core.servers.count()];
    // Heartbeats to the other servers, to find the leader.
    let mut leader_probes = FuturesUnordered::new();
    let mut holdings = FuturesUnordered::new();
    let mut pauses = Pauses::new();
    let mut told_refusal = false;
    // The answer to a heartbeat says whether the server leads.
    let first_after = match core.servers.is_at_leader() {
        true => Duration::ZERO,
        false => interval(core.ttl),
    };
    let mut next_beat = BootInstant::now() + first_after;
    loop {
        let silences = unanswered.iter().zip(&suspected);
        let next_silence = silences
            .filter_map(|(sent, suspected)| sent.filter(|_| !suspected))
            .map(|sent| sent + silent_after)
            .min();
        let doubtful_from = match core.life.refresh() {
            SessionState::Lost(_) => break,
            // Reported already.
            SessionState::Uncertain => None,
            SessionState::Confirmed => Some(core.life.doubtful_from()),
        };
        let wake_at = [
            Some(next_beat),
            next_silence,
            doubtful_from,
            Some(core.life.valid_until()),
        ];
        let wake_at = wake_at
            .into_iter()
            .flatten()
            .min()
            .expect("there is always a next heartbeat");
        tokio::select! {
            biased;
            Some(Beat { server, sent, outcome }) = beats.next() => {
                (unanswered[server], suspected[server]) = (None, false);
                let renewed = match outcome {
                    Outcome::Executed(body) => read::<Renewed>(&body),
                    Outcome::Refused(refusal) => Err(refusal.into()),
                    Outcome::NotExecuted(why) | Outcome::Uncertain(why) => Err(Error::Unavailable(why)),
                    Outcome::Stopped => Err(Error::Stopped),
                };
                match renewed {
                    Ok(renewed) => {
                        core.note_renewed(server, sent, &renewed);
                        let is_asked = server == core.servers.current();
                        if core.servers.is_at_leader() && is_asked && !renewed.leads && leader_probes.is_empty() {
                            let others = (0..core.servers.count()).filter(|&other| other != server);
                            leader_probes.extend(others.map(|other| beat(core.clone(), other, silent_after)));
                        }
                        pauses = Pauses::new();
                        told_refusal = false;
                    }
                    Err(Error::Refused(refusal)) if refusal.ends_session() => {
                        core.life.lose(Loss::Expired);
                        break;
                    }
                    // Every server would refuse. The token may be replaced before the next heartbeat, and the session lives on until its
                    // TTL is over.
                    Err(Error::Refused(refusal)) if refusal.is_of_the_caller() => {
                        if !std::mem::replace(&mut told_refusal, true) {
                            let why = refusal.detail;
                            tracing::warn!(session = core.id, why, "heartbeats are refused, and the session ends with its time");
                        }
                    }
                    Err(error) => {
                        tracing::debug!(session = core.id, %error, "a heartbeat has failed");
                        core.servers.suspect(server);
                        next_beat = next_beat.min(BootInstant::now() + pauses.next());
                    }
                }
            }
            // A failed probe changes nothing.
            Some(Beat { server, sent, outcome }) = leader_probes.next() => {
                if let Outcome::Executed(body) = outcome && let Ok(renewed) = read::<Renewed>(&body) {
                    core.note_renewed(server, sent, &renewed);
                }
            }
            Some((asked, held)) = holdings.next() => note_holdings(&core, asked, held),
            woken = timer.until(wake_at) => {
                if let Err(error) = woken {
                    // Without a timer the end of the TTL would not be reported.
                    tracing::error!(session = core.id, %error, "the timer has failed, the session is given up");
                    core.life.lose(Loss::NoHeartbeat);
                    break;
                }
                for (server, sent) in unanswered.iter().enumerate() {
                    let silent = sent.is_some_and(|sent| (sent + silent_after).has_passed());
                    if silent && !suspected[server] {
                        suspected[server] = true;
                        core.servers.suspect(server);
                        next_beat = BootInstant::now();
                    }
                }
                if !next_beat.has_passed() {
                    continue;
                }
                next_beat = BootInstant::now() + interval(core.ttl);
                let waited_at = (0..core.waits.len()).filter(|&server| core.waits[server].load(Ordering::Relaxed) > 0);
                let mut servers: Vec<usize> = waited_at.collect();
                servers.push(core.servers.current());
                for server in servers {
                    if unanswered[server].is_none() {
                        unanswered[server] = Some(BootInstant::now());
                        beats.push(beat(core.clone(), server, core.ttl));
                    }
                }
                if holdings.is_empty() && core.life.holds_any() {
                    holdings.push(ask_holdings(core.clone()));
                }
            }
        }
    }
    tracing::debug!(session = core.id, loss = ?core.life.loss(), "the session is not renewed any more");
}

async fn beat(core: Arc<Core>, server: usize, within: Duration) -> Beat {
    let sent = BootInstant::now();
    let call = heartbeat(&core.id, core.servers.is_at_leader());
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
        self.life.asked(sent, &renewed.revoke_requested);
        if renewed.leads && self.servers.is_at_leader() {
            self.servers.turn_to(server);
        }
    }
}

/// Reads which locks the session holds. A broken lock is missing.
async fn ask_holdings(core: Arc<Core>) -> (BootInstant, Result<Holdings, Error>) {
    let asked = BootInstant::now();
    let ask = ApiRequest::get(format!("/v1/sessions/{}?linearizable=true", core.id));
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
