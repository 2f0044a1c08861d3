//! What happens to one session's locks, heard as it happens: a task that follows the session's events at one server, and goes on
//! at the next one after what it was told last. It keeps nothing alive, and nothing depends on it: while no server can be followed,
//! the heartbeats ask which locks are held.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;

use crate::error::{Code, Loss, Refusal};
use crate::http::{Opened, SendError};
use crate::life::{Asked, Revocation};
use crate::servers::Pauses;
use crate::session_core::Core;
use crate::sse::{Block, Blocks};

/// A server writes something in every third of the session's time, and every 15 s at least. One that has written nothing for so long
/// is gone, as far as this is concerned.
const LONGEST_SILENCE: Duration = Duration::from_secs(45);

/// When there is no stream for this client (the server is older, or has too many, or does not let the client in; or the process has no
/// file descriptor to spare), so long nobody is asked again. The heartbeats go on.
const DO_WITHOUT: Duration = Duration::from_secs(10);

/// The largest event: how things stand with a session of many thousand locks.
const MAX_EVENT_BYTES: usize = 64 * 1024 * 1024;

/// Why a stream is over.
enum Over {
    /// The session is.
    Session,
    /// The server has said that it ends, and where to go on: here.
    ComeBack,
    /// Something is wrong with this server.
    Elsewhere(String),
    /// It has none to give.
    DoWithout(String),
}

/// `state`
#[derive(Deserialize)]
struct StateNews {
    zxid: u64,
    held: Vec<Contender>,
    awaited: Vec<Contender>,
    revoke_requested: Vec<Asked>,
}

#[derive(Deserialize)]
struct Contender {
    holder: String,
}

/// `lost`
#[derive(Deserialize)]
struct LostNews {
    holder: String,
    ended: String,
    by: Option<String>,
    reason: Option<String>,
}

/// `revoke_requested`
#[derive(Deserialize)]
struct RevokeNews {
    holder: String,
    #[serde(flatten)]
    revocation: Revocation,
}

/// `stream_ended`
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
    // A session without locks has nothing to hear. Tokens are positions, so nothing is missed that happened to a lock since it
    // was granted.
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
            Over::Session => return,
            Over::ComeBack => pauses.next(),
            Over::Elsewhere(why) => {
                tracing::debug!(
                    session = core.id,
                    why,
                    "the events of a session are followed elsewhere"
                );
                server = (server + 1) % core.servers.count();
                pauses.next()
            }
            Over::DoWithout(why) => {
                tracing::debug!(
                    session = core.id,
                    why,
                    "the events of a session cannot be followed"
                );
                server = (server + 1) % core.servers.count();
                DO_WITHOUT
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Follows the session at one server, from after `last` on.
async fn listen(core: &Core, server: usize, last: &mut String) -> Over {
    let mut suspicions = core.servers.suspicions(server);
    let silence = core.ttl.min(LONGEST_SILENCE);
    let path = format!("/v1/sessions/{}/events?heartbeat=false&after={last}", core.id);
    let mut chunks = match tokio::time::timeout(silence, core.servers.open(server, &path)).await {
        Ok(Ok(Opened::Stream(chunks))) => chunks,
        Ok(Ok(Opened::Answer(answer))) => return refused(core, answer.status, &answer.body),
        Ok(Err(SendError::NotSent(why) | SendError::Broken(why))) => return Over::Elsewhere(why),
        Ok(Err(SendError::NoDescriptor(why))) => return Over::DoWithout(why),
        Err(_) => return Over::Elsewhere(format!("no answer in {silence:?}")),
    };
    core.life.set_followed(true);
    let mut blocks = Blocks::default();
    loop {
        let chunk = tokio::select! {
            chunk = tokio::time::timeout(silence, chunks.next()) => chunk,
            // Its heartbeats go unanswered. (The sender lives as long as the servers.)
            _ = suspicions.changed() => return Over::Elsewhere("it does not answer".to_owned()),
            () = core.servers.descriptor_needed() => {
                return Over::DoWithout("a request needs its file descriptor".to_owned());
            }
        };
        let bytes = match chunk {
            Ok(Some(Ok(bytes))) => bytes,
            Ok(Some(Err(why))) => return Over::Elsewhere(why),
            Ok(None) => return Over::Elsewhere("the stream has ended".to_owned()),
            Err(_) => return Over::Elsewhere(format!("nothing was said for {silence:?}")),
        };
        for block in blocks.take(&bytes) {
            if let Some(over) = told(core, &block) {
                return over;
            }
            // Only now: what was not understood is told again by the next server.
            if let Some(id) = block.id {
                *last = id;
            }
        }
        if blocks.waiting() > MAX_EVENT_BYTES {
            return Over::Elsewhere("an event without an end".to_owned());
        }
    }
}

/// What an event means to the session; `Some` if the stream is over with it.
fn told(core: &Core, block: &Block) -> Option<Over> {
    let read = match block.event.as_str() {
        "state" => serde_json::from_str(&block.data).map(|news: StateNews| {
            let contenders = news.held.iter().chain(&news.awaited);
            let holders: Vec<_> = contenders.map(|contender| contender.holder.as_str()).collect();
            core.life.stands_at(news.zxid, &holders);
            for asked in &news.revoke_requested {
                core.life.is_asked(asked.holder(), asked.revocation());
            }
            None
        }),
        "lost" => serde_json::from_str(&block.data).map(|news: LostNews| {
            if let Some(loss) = loss(&news) {
                core.life.lose_holder(&news.holder, &loss);
            }
            None
        }),
        "revoke_requested" => serde_json::from_str(&block.data).map(|news: RevokeNews| {
            core.life.is_asked(&news.holder, &news.revocation);
            None
        }),
        "session_ended" => {
            core.life.lose(Loss::Expired);
            return Some(Over::Session);
        }
        "stream_ended" => serde_json::from_str(&block.data).map(|news: EndNews| {
            Some(match news.reason.as_str() {
                "renew" | "too_slow" | "state_replaced" => Over::ComeBack,
                // It is every server's word. The heartbeats say what comes of the session.
                "access_lost" => Over::DoWithout("the caller may not follow it any more".to_owned()),
                other => Over::Elsewhere(other.to_owned()),
            })
        }),
        // What this client knows already, or does not have to know, or an event of a newer server.
        _ => return None,
    };
    read.unwrap_or_else(|error| Some(Over::Elsewhere(format!("an event that makes no sense: {error}"))))
}

/// Why a lock is lost; `None`: the session is over, which is told next.
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
        _ => Loss::TakenAway,
    })
}

fn refused(core: &Core, status: u16, body: &[u8]) -> Over {
    match Refusal::read(status, body) {
        Some(refusal) if refusal.ends_session() => {
            core.life.lose(Loss::Expired);
            Over::Session
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
            Over::DoWithout(refusal.detail)
        }
        Some(refusal) => Over::Elsewhere(refusal.detail),
        None => Over::Elsewhere(format!("status {status}")),
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
        assert_eq!(lost("something_new"), Some(Loss::TakenAway));
        assert_eq!(lost("session_expired"), None);
    }
}
