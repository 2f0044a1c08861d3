//! Acquire and release by HTTP, as a careful client does it: under a request id, sent again to other nodes until the
//! cluster has said what came of it.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::answer::Answer;
use super::caller::{Caller, PATIENCE, Reply};

/// How often a request is sent before a client gives its session up. With a time-out each, long enough for an election.
const ATTEMPTS: u32 = 5;

/// Between two attempts.
const BETWEEN: Duration = Duration::from_millis(150);

/// What a client was granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The contender's name.
    pub holder: String,
    /// The fencing token.
    pub token: u64,
}

/// A wish for a lock, as it is sent.
pub struct Acquire<'a> {
    /// Which lock.
    pub lock: &'a str,
    /// On whose behalf.
    pub session: &'a str,
    /// The mode and what belongs to it.
    pub fields: Value,
    /// Not twice in a session.
    pub request_id: &'a str,
}

impl Acquire<'_> {
    fn path(&self) -> String {
        format!("/v1/locks/{}/acquire", self.lock)
    }

    fn body(&self, wait_ms: Option<u64>, retry: u32) -> Value {
        let mut body = self.fields.clone();
        body["session"] = json!(self.session);
        body["request_id"] = json!(self.request_id);
        body["wait_ms"] = json!(wait_ms);
        body["retry"] = json!(retry);
        body
    }

    /// Asks, and waits for so long. Where the outcome is unknown the request is sent again, but waits no more.
    pub async fn send(&self, caller: &mut Caller, wait: Duration) -> Answer<Granted> {
        let wait_ms = u64::try_from(wait.as_millis()).expect("nobody waits for so long");
        let body = self.body(Some(wait_ms), 0);
        let reply = caller
            .call(Method::POST, &self.path(), Some(&body), wait + PATIENCE)
            .await;
        match granted(reply) {
            Answer::Unknown(_) => self.settle(caller).await,
            known => known,
        }
    }

    /// Asks, and waits without end; or for so long, if nobody ever answers. It is not asked again.
    pub async fn send_without_end(&self, caller: &mut Caller, patience: Duration) -> Answer<Granted> {
        let body = self.body(None, 0);
        granted(
            caller
                .call(Method::POST, &self.path(), Some(&body), patience)
                .await,
        )
    }

    /// Asks, waits without end, and hangs up after so long; then asks what became of it.
    pub async fn send_and_hang_up(&self, caller: &mut Caller, after: Duration) -> Answer<Granted> {
        let body = self.body(None, 0);
        let path = self.path();
        let call = caller.call(Method::POST, &path, Some(&body), after + PATIENCE);
        match tokio::time::timeout(after, call).await {
            Ok(reply) => match granted(reply) {
                Answer::Unknown(_) => self.settle(caller).await,
                known => known,
            },
            Err(_) => {
                caller.hang_up();
                // The server may notice it by itself meanwhile.
                tokio::time::sleep(BETWEEN).await;
                self.settle(caller).await
            }
        }
    }

    /// Ends a wait that may go on somewhere, and learns what came of it.
    async fn settle(&self, caller: &mut Caller) -> Answer<Granted> {
        let mut last = Answer::Unknown("not asked again".to_owned());
        for retry in 1..=ATTEMPTS {
            let body = self.body(Some(0), retry);
            last = granted(caller.post(&self.path(), &body).await);
            match last {
                // That this copy was not taken says nothing of the first one.
                Answer::Failed(ref why) if is_undecided(why) => {}
                Answer::Unknown(_) => {}
                Answer::Ok(_) | Answer::Failed(_) => return last,
            }
            tokio::time::sleep(BETWEEN).await;
        }
        match last {
            Answer::Failed(why) => Answer::Unknown(why),
            other => other,
        }
    }
}

/// Gives a lock back. `Ok(false)`: the session holds no such thing.
pub async fn release(
    caller: &mut Caller,
    lock: &str,
    session: &str,
    holder: &str,
    request_id: &str,
) -> Answer<bool> {
    let path = format!("/v1/locks/{lock}/release");
    let body = json!({"session": session, "holder": holder, "request_id": request_id});
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match caller.post(&path, &body).await {
            Reply::Done(_) => return Answer::Ok(true),
            Reply::Refused(code, _) if code == "not_holder" || code == "no_lock" => return Answer::Ok(false),
            Reply::Refused(code, _) => return Answer::Failed(code),
            Reply::NotDone(why) | Reply::Unknown(why) => last = why,
        }
        tokio::time::sleep(BETWEEN).await;
    }
    Answer::Unknown(last)
}

fn granted(reply: Reply) -> Answer<Granted> {
    match reply {
        Reply::NotDone(why) => Answer::Failed(format!("{UNDECIDED}{why}")),
        reply => match reply.done() {
            Answer::Ok(document) => match (document["holder"].as_str(), document["fencing_token"].as_u64()) {
                (Some(holder), Some(token)) => Answer::Ok(Granted {
                    holder: holder.to_owned(),
                    token,
                }),
                _ => Answer::Unknown(format!("a grant that is none: {document}")),
            },
            Answer::Failed(why) => Answer::Failed(why),
            Answer::Unknown(why) => Answer::Unknown(why),
        },
    }
}

/// Begins the reason of what was not decided by the cluster.
const UNDECIDED: &str = "not done: ";

fn is_undecided(why: &str) -> bool {
    why.starts_with(UNDECIDED)
}
