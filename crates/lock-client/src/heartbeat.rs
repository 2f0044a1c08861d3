//! What keeps one session alive: a task that renews it every third of its time, turns to other servers when one is
//! silent, and tells when the time is over.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;

use crate::clock::{BootInstant, BootTimer};
use crate::error::{Error, Loss};
use crate::http::Call;
use crate::life::{Standing, TOLD_WITHIN};
use crate::servers::{Pauses, Verdict, read};
use crate::session_core::{Core, Renewed, heartbeat};

/// A session is renewed so often within its time, that two lost heartbeats do not end it.
const BEATS_PER_TTL: u32 = 3;

/// A server that has not answered a heartbeat for this part of the session's time is silent: the next one is asked
/// beside it. ZooKeeper's clients leave theirs when two thirds have passed since they heard of it; so does this.
const SILENT_AFTER: u32 = 6;

/// What one heartbeat came to.
struct Beat {
    server: usize,
    sent: BootInstant,
    verdict: Verdict,
}

/// The locks that a session holds, as the cluster knows them.
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

/// Until the next heartbeat: a third of the session's time, or up to a tenth less, by chance. A change of leaders answers
/// all who wait at the same moment, and they must not come back together ever after.
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
    // When the heartbeat that a server has not answered yet was sent.
    let mut unanswered: Vec<Option<BootInstant>> = vec![None; core.servers.count()];
    let mut suspected = vec![false; core.servers.count()];
    // Heartbeats to servers that are not asked otherwise: one of them leads, perhaps.
    let mut looks = FuturesUnordered::new();
    let mut holdings = FuturesUnordered::new();
    let mut pauses = Pauses::new();
    let mut told_refusal = false;
    // Who leads is told by the answer to a heartbeat.
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
        let doubtful_from = match core.life.look() {
            Standing::Lost(_) => break,
            // It was told already.
            Standing::Uncertain => None,
            Standing::Sure => Some(core.life.doubtful_from()),
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
            Some(Beat { server, sent, verdict }) = beats.next() => {
                (unanswered[server], suspected[server]) = (None, false);
                let renewed = match verdict {
                    Verdict::Done(body) => read::<Renewed>(&body),
                    Verdict::Refused(refusal) => Err(refusal.into()),
                    Verdict::NotDone(why) | Verdict::InDoubt(why) => Err(Error::Unavailable(why)),
                    Verdict::Stopped => Err(Error::Stopped),
                };
                match renewed {
                    Ok(renewed) => {
                        core.note_renewed(server, sent, &renewed);
                        let is_asked = server == core.servers.current();
                        if core.servers.is_at_leader() && is_asked && !renewed.leads && looks.is_empty() {
                            let others = (0..core.servers.count()).filter(|&other| other != server);
                            looks.extend(others.map(|other| beat(core.clone(), other, silent_after)));
                        }
                        pauses = Pauses::new();
                        told_refusal = false;
                    }
                    Err(Error::Refused(refusal)) if refusal.ends_session() => {
                        core.life.lose(Loss::Expired);
                        break;
                    }
                    // Every server would say the same. There may be another token by the next time, and the session lives as long
                    // as it would without a network.
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
            // One that has no answer, or none that helps, is in nobody's way.
            Some(Beat { server, sent, verdict }) = looks.next() => {
                if let Verdict::Done(body) = verdict && let Ok(renewed) = read::<Renewed>(&body) {
                    core.note_renewed(server, sent, &renewed);
                }
            }
            Some((asked, held)) = holdings.next() => note_holdings(&core, asked, held),
            woken = timer.until(wake_at) => {
                if let Err(error) = woken {
                    // Nobody could say any more when the time is over.
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
    let verdict = tokio::time::timeout(within, core.servers.send(server, &call)).await;
    Beat {
        server,
        sent,
        verdict: verdict.unwrap_or_else(|_| Verdict::InDoubt("no answer".to_owned())),
    }
}

impl Core {
    /// What follows from the answer of a server to a heartbeat that was sent to it at this time.
    fn note_renewed(&self, server: usize, sent: BootInstant, renewed: &Renewed) {
        self.life.confirm(sent, Duration::from_millis(renewed.ttl_ms));
        self.life.asked(sent, &renewed.revoke_requested);
        if renewed.leads && self.servers.is_at_leader() {
            self.servers.turn_to(server);
        }
    }
}

/// Which locks the session holds: one that was broken is missing.
async fn ask_holdings(core: Arc<Core>) -> (BootInstant, Result<Holdings, Error>) {
    let asked = BootInstant::now();
    let ask = Call::get(format!("/v1/sessions/{}?linearizable=true", core.id));
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
        // What cannot be asked now is asked with the next heartbeat.
        Err(error) => tracing::debug!(session = core.id, %error, "it is not known which locks are held"),
    }
}
