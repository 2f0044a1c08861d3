//! Follower of one session's event stream: a task that reads events from one server, and continues at the next server after the last
//! event. It is an optimization: without a stream the heartbeats read which locks are held.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Code, Loss, Refusal};
use crate::http::{Opened, SendError};
use crate::life::{ReleaseRequest, RequestedRelease};
use crate::servers::Pauses;
use crate::session_core::Core;
use crate::sse::{Block, Blocks};

/// Maximum silence of a stream. A server writes at least every 15 s and every third of the TTL, so a longer silence means that it failed.
const LONGEST_SILENCE: Duration = Duration::from_secs(45);

/// Pause before the next attempt if no server gives a stream: it is too old, has too many streams, or refuses the client, or this process
/// has no file descriptor to spare. Heartbeats continue.
const NO_STREAM_PAUSE: Duration = Duration::from_secs(10);

/// Maximum size of an event: the `state` of a session with many thousand locks.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// Reason why a stream ended.
enum StreamEnd {
    /// The session has ended.
    Session,
    /// The server asks the client to reopen the stream.
    Reopen,
    /// The server failed, for this reason.
    NextServer(String),
    /// The server gives no stream, for this reason.
    NoStream(String),
}

/// Event `state`.
#[derive(Deserialize)]
struct StateNews {
    zxid: u64,
    held: Vec<Contender>,
    awaited: Vec<Contender>,
    release_requested: Vec<RequestedRelease>,
}

#[derive(Deserialize)]
struct Contender {
    holder: String,
}

/// Event `lost`.
#[derive(Deserialize)]
struct LostNews {
    holder: String,
    ended: String,
    by: Option<String>,
    reason: Option<String>,
}

/// Event `release_requested`.
#[derive(Deserialize)]
struct RequestNews {
    holder: String,
    #[serde(flatten)]
    request: ReleaseRequest,
}

/// Event `stream_ended`.
#[derive(Deserialize)]
struct EndNews {
    reason: String,
}

/// Follows the session until it is lost.
pub(crate) async fn follow(core: Arc<Core>) {
    let life = &core.life;
    tokio::select! {
        _ = life.lost() => {}
        () = follow_on(&core) => {}
    }
}

async fn follow_on(core: &Core) {
    // A session without locks has no events to follow. Fencing tokens are log positions, so no event after the grant is missed.
    let mut last = core.life.first_token().await.to_string();
    let (mut server, mut pauses) = (core.servers.current(), Pauses::new());
    loop {
        let before = last.clone();
        let over = listen(core, server, &mut last).await;
        core.life.set_followed(false);
        if last != before {
            pauses = Pauses::new();
        }
        let pause = match over {
            StreamEnd::Session => return,
            StreamEnd::Reopen => pauses.next(),
            StreamEnd::NextServer(why) => {
                tracing::debug!(
                    session = core.id,
                    why,
                    "the events of a session are followed elsewhere"
                );
                server = (server + 1) % core.servers.count();
                pauses.next()
            }
            StreamEnd::NoStream(why) => {
                tracing::debug!(
                    session = core.id,
                    why,
                    "the events of a session cannot be followed"
                );
                server = (server + 1) % core.servers.count();
                NO_STREAM_PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Follows the session at one server, from the event after `last`.
async fn listen(core: &Core, server: usize, last: &mut String) -> StreamEnd {
    let mut suspicions = core.servers.suspicions(server);
    let silence = core.ttl.min(LONGEST_SILENCE);
    let path = format!("/v1/sessions/{}/events?heartbeat=false&zxid={last}", core.id);
    let mut chunks = match tokio::time::timeout(silence, core.servers.open(server, &path)).await {
        Ok(Ok(Opened::Stream(chunks))) => chunks,
        Ok(Ok(Opened::Answer(answer))) => return refused(core, answer.status, &answer.body),
        Ok(Err(SendError::NotSent(why) | SendError::Broken(why))) => return StreamEnd::NextServer(why),
        Ok(Err(SendError::NoDescriptor(why))) => return StreamEnd::NoStream(why),
        Err(_) => return StreamEnd::NextServer(format!("no answer in {silence:?}")),
    };
    core.life.set_followed(true);
    let mut blocks = Blocks::default();
    loop {
        let chunk = tokio::select! {
            chunk = tokio::time::timeout(silence, chunks.next()) => chunk,
            // Heartbeats to the server get no answer. (The sender lives as long as the servers.)
            _ = suspicions.changed() => return StreamEnd::NextServer("it does not answer".to_owned()),
            () = core.servers.descriptor_needed() => {
                return StreamEnd::NoStream("a request needs its file descriptor".to_owned());
            }
        };
        let bytes = match chunk {
            Ok(Some(Ok(bytes))) => bytes,
            Ok(Some(Err(why))) => return StreamEnd::NextServer(why),
            Ok(None) => return StreamEnd::NextServer("the stream has ended".to_owned()),
            Err(_) => return StreamEnd::NextServer(format!("nothing was said for {silence:?}")),
        };
        for block in blocks.take(&bytes) {
            if let Some(over) = handle_event(core, &block) {
                return over;
            }
            // Only now: the next server repeats an event that was not understood.
            if let Some(id) = block.id {
                *last = id;
            }
        }
        if blocks.waiting() > MAX_EVENT_BYTES {
            return StreamEnd::NextServer("an event without an end".to_owned());
        }
    }
}

/// Applies an event to the session. Returns `Some` if the stream ends with it.
fn handle_event(core: &Core, block: &Block) -> Option<StreamEnd> {
    let read = match block.event.as_str() {
        "state" => serde_json::from_str(&block.data).map(|news: StateNews| {
            let contenders = news.held.iter().chain(&news.awaited);
            let holders: Vec<_> = contenders.map(|contender| contender.holder.as_str()).collect();
            core.life.holds_at(news.zxid, &holders);
            for asked in &news.release_requested {
                core.life
                    .release_is_requested(asked.holder(), asked.release_request());
            }
            None
        }),
        "lost" => serde_json::from_str(&block.data).map(|news: LostNews| {
            if let Some(loss) = loss(&news) {
                core.life.lose_holder(&news.holder, &loss);
            }
            None
        }),
        "release_requested" => serde_json::from_str(&block.data).map(|news: RequestNews| {
            core.life.release_is_requested(&news.holder, &news.request);
            None
        }),
        "session_ended" => {
            core.life.lose(Loss::Expired);
            return Some(StreamEnd::Session);
        }
        "stream_ended" => serde_json::from_str(&block.data).map(|news: EndNews| {
            Some(match news.reason.as_str() {
                "renew" | "too_slow" | "state_replaced" => StreamEnd::Reopen,
                // Every server would refuse. The heartbeats find out whether the session lives on.
                "access_lost" => StreamEnd::NoStream("the caller may not follow it any more".to_owned()),
                other => StreamEnd::NextServer(other.to_owned()),
            })
        }),
        // Known already, not needed, or from a newer server.
        _ => return None,
    };
    read.unwrap_or_else(|error| {
        Some(StreamEnd::NextServer(format!(
            "an event that makes no sense: {error}"
        )))
    })
}

/// Returns why a lock is lost; `None` if its session ended, which the next event reports.
fn loss(news: &LostNews) -> Option<Loss> {
    let by = news.by.clone();
    Some(match news.ended.as_str() {
        "session_closed" | "session_expired" => return None,
        "broken" => Loss::Broken {
            by,
            reason: news.reason.clone().unwrap_or_default(),
        },
        "deleted" => Loss::Deleted { by },
        "released" => Loss::Released,
        "max_hold" => Loss::MaxHold,
        _ => Loss::TakenAway,
    })
}

fn refused(core: &Core, status: u16, body: &[u8]) -> StreamEnd {
    match Refusal::read(status, body) {
        Some(refusal) if refusal.ends_session() => {
            core.life.lose(Loss::Expired);
            StreamEnd::Session
        }
        Some(refusal)
            if matches!(
                refusal.code,
                Code::NoRoute
                    | Code::TooManyRequests
                    | Code::BadRequest
                    | Code::Unauthenticated
                    | Code::Forbidden
            ) =>
        {
            StreamEnd::NoStream(refusal.detail)
        }
        Some(refusal) => StreamEnd::NextServer(refusal.detail),
        None => StreamEnd::NextServer(format!("status {status}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(ended: &str) -> Option<Loss> {
        let text = format!(
            r#"{{"holder": "h", "ended": "{ended}", "by": "ip:1.2.3.4", "reason": "stuck", "lock": "a"}}"#
        );
        loss(&serde_json::from_str(&text).unwrap())
    }

    #[test]
    fn a_loss_says_how_and_by_whom() {
        let by = Some("ip:1.2.3.4".to_owned());
        let reason = "stuck".to_owned();
        assert_eq!(
            lost("broken"),
            Some(Loss::Broken {
                by: by.clone(),
                reason
            })
        );
        assert_eq!(lost("deleted"), Some(Loss::Deleted { by }));
        assert_eq!(lost("released"), Some(Loss::Released));
        assert_eq!(lost("max_hold"), Some(Loss::MaxHold));
        assert_eq!(lost("something_new"), Some(Loss::TakenAway));
        assert_eq!(lost("session_expired"), None);
    }
}
