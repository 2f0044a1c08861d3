//! Acquire and release over HTTP as a careful client does it: with a request id, and repeated on other nodes
//! until the outcome is known.

use std::time::Duration;

use hyper::Method;
use serde_json::{Value, json};

use super::caller::{Caller, Reply, TIMEOUT};
use super::result::CallResult;

/// Number of times a request is sent before a client abandons its session. With a timeout each, long enough
/// for an election.
const ATTEMPTS: u32 = 5;

/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(150);

/// Grant of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Granted {
    /// The contender's name.
    pub holder: String,
    /// The fencing token.
    pub token: u64,
}

/// Acquire request.
pub struct Acquire<'a> {
    /// Name of the lock.
    pub lock: &'a str,
    /// Session that acquires it.
    pub session: &'a str,
    /// The mode and its parameters.
    pub fields: Value,
    /// Request id, unique within the session.
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

    /// Sends the request and waits up to `wait` for the grant. While the outcome is unknown the request is
    /// repeated, without a further wait.
    pub async fn send(&self, caller: &mut Caller, wait: Duration) -> CallResult<Granted> {
        let wait_ms = u64::try_from(wait.as_millis()).expect("the wait fits into 64 bits of milliseconds");
        let body = self.body(Some(wait_ms), 0);
        let reply = caller
            .call(Method::POST, &self.path(), Some(&body), wait + TIMEOUT)
            .await;
        match granted(reply) {
            CallResult::Unknown(_) => self.resolve(caller).await,
            known => known,
        }
    }

    /// Sends the request with an unlimited wait, and gives up without a retry if no answer arrives within
    /// `timeout`.
    pub async fn send_unbounded(&self, caller: &mut Caller, timeout: Duration) -> CallResult<Granted> {
        let body = self.body(None, 0);
        granted(
            caller
                .call(Method::POST, &self.path(), Some(&body), timeout)
                .await,
        )
    }

    /// Sends the request with an unlimited wait, closes the connection after `after`, and then repeats the
    /// request to learn its outcome.
    pub async fn send_and_disconnect(&self, caller: &mut Caller, after: Duration) -> CallResult<Granted> {
        let body = self.body(None, 0);
        let path = self.path();
        let call = caller.call(Method::POST, &path, Some(&body), after + TIMEOUT);
        match tokio::time::timeout(after, call).await {
            Ok(reply) => match granted(reply) {
                CallResult::Unknown(_) => self.resolve(caller).await,
                known => known,
            },
            Err(_) => {
                caller.disconnect();
                // Gives the server time to notice the closed connection.
                tokio::time::sleep(RETRY_DELAY).await;
                self.resolve(caller).await
            }
        }
    }

    /// Repeats the request without a wait, which withdraws a pending contender, until the outcome is known.
    async fn resolve(&self, caller: &mut Caller) -> CallResult<Granted> {
        let mut last = CallResult::Unknown("not repeated".to_owned());
        for retry in 1..=ATTEMPTS {
            let body = self.body(Some(0), retry);
            last = granted(caller.post(&self.path(), &body).await);
            match last {
                // A rejected copy says nothing about the first request.
                CallResult::Failed(ref why) if is_undecided(why) => {}
                CallResult::Unknown(_) => {}
                CallResult::Ok(_) | CallResult::Failed(_) => return last,
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        match last {
            CallResult::Failed(why) => CallResult::Unknown(why),
            other => other,
        }
    }
}

/// Releases a lock. `Ok(false)` means that the session does not hold it.
pub async fn release(
    caller: &mut Caller,
    lock: &str,
    session: &str,
    holder: &str,
    request_id: &str,
) -> CallResult<bool> {
    let path = format!("/v1/locks/{lock}/release");
    let body = json!({"session": session, "holder": holder, "request_id": request_id});
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match caller.post(&path, &body).await {
            Reply::Done(_) => return CallResult::Ok(true),
            Reply::Refused(code, _) if code == "not_holder" || code == "no_lock" => {
                return CallResult::Ok(false);
            }
            Reply::Refused(code, _) => return CallResult::Failed(code),
            Reply::NotDone(why) | Reply::Unknown(why) => last = why,
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    CallResult::Unknown(last)
}

fn granted(reply: Reply) -> CallResult<Granted> {
    match reply {
        Reply::NotDone(why) => CallResult::Failed(format!("{UNDECIDED}{why}")),
        reply => match reply.done() {
            CallResult::Ok(document) => {
                match (document["holder"].as_str(), document["fencing_token"].as_u64()) {
                    (Some(holder), Some(token)) => CallResult::Ok(Granted {
                        holder: holder.to_owned(),
                        token,
                    }),
                    _ => CallResult::Unknown(format!("a malformed grant: {document}")),
                }
            }
            CallResult::Failed(why) => CallResult::Failed(why),
            CallResult::Unknown(why) => CallResult::Unknown(why),
        },
    }
}

/// Prefix of reasons for calls that the cluster has not decided.
const UNDECIDED: &str = "not done: ";

fn is_undecided(why: &str) -> bool {
    why.starts_with(UNDECIDED)
}
