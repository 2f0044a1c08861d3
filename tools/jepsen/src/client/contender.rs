//! Acquires that need no open connection, over HTTP: by a lease, or with a place in the queue. A careful
//! client sends a request with an `Idempotency-Key`, and repeats it on other nodes until the outcome is known.

use std::time::Duration;

use hyper::Method;
use lockgate_check::Nanos;
use lockgate_check::contenders::End;
use serde_json::{Value, json};

use super::caller::{Caller, Reply, TIMEOUT};
use super::result::CallResult;
use crate::world::World;

/// Number of times a request is repeated before a client gives up.
const ATTEMPTS: u32 = 5;

/// Delay between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(150);

const NANOS_PER_MS: u64 = 1_000_000;

/// Request for a lock, by a lease or in a queue.
pub struct Contend<'a> {
    /// Name of the lock.
    pub lock: &'a str,
    /// Session or time to live, wait, and bounds of the hold.
    pub fields: Value,
    /// Id of the request.
    pub key: &'a str,
}

/// Contender as the answer describes it.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Name of the contender.
    pub holder: String,
    /// Fencing token if it holds the lock.
    pub token: Option<u64>,
    /// Lease to which it belongs, with the time until which the server promised to keep it.
    pub lease: Option<(String, Nanos)>,
    /// Time just before the answered copy of the request was sent.
    pub sent: Nanos,
}

impl Contend<'_> {
    /// Sends the request, and repeats it until the outcome is known. A first copy that has no answer after
    /// `cut` loses its connection. A repetition of a request that waits for a time waits no more.
    pub async fn send(
        &self,
        world: &World,
        caller: &mut Caller,
        wait: Duration,
        cut: Option<Duration>,
    ) -> CallResult<Contender> {
        let mut last = match cut {
            None => self.send_copy(world, caller, 0, wait).await,
            Some(after) => {
                let copy = tokio::time::timeout(after, self.send_copy(world, caller, 0, wait)).await;
                copy.unwrap_or_else(|_| CallResult::Unknown("disconnected".to_owned()))
            }
        };
        let CallResult::Unknown(_) = last else { return last };
        for retry in 1..=ATTEMPTS {
            tokio::time::sleep(RETRY_DELAY).await;
            // That a copy was not done says nothing about the copies before.
            match self.send_copy(world, caller, retry, Duration::ZERO).await {
                CallResult::Failed(why) if why.starts_with(NOT_DONE) => last = CallResult::Unknown(why),
                CallResult::Unknown(why) => last = CallResult::Unknown(why),
                known => return known,
            }
        }
        last
    }

    async fn send_copy(
        &self,
        world: &World,
        caller: &mut Caller,
        retry: u32,
        wait: Duration,
    ) -> CallResult<Contender> {
        let path = format!("/v1/locks/{}/acquire", self.lock);
        let mut body = self.fields.clone();
        body["retry"] = json!(retry);
        if retry > 0 && !body["wait_ms"].is_null() {
            body["wait_ms"] = json!(0);
        }
        let sent = world.now();
        let reply = caller
            .call_with_key(Method::POST, &path, Some(&body), Some(self.key), wait + TIMEOUT)
            .await;
        match reply {
            Reply::NotDone(why) => CallResult::Failed(format!("{NOT_DONE}{why}")),
            reply => match reply.done() {
                CallResult::Ok(document) => contender(&document, sent),
                CallResult::Failed(why) => CallResult::Failed(why),
                CallResult::Unknown(why) => CallResult::Unknown(why),
            },
        }
    }

    /// Repeats a request in a session's queue in order to leave the queue. `None`: it has left; otherwise it
    /// holds the lock.
    pub async fn withdraw(&self, world: &World, caller: &mut Caller) -> CallResult<Option<Contender>> {
        let withdrawal = Contend {
            fields: self.fields.clone(),
            ..*self
        };
        let mut withdrawal = withdrawal;
        withdrawal.fields["wait"] = Value::Null;
        withdrawal.fields["wait_ms"] = json!(0);
        let mut last = String::new();
        for retry in 1..=ATTEMPTS {
            match withdrawal
                .send_copy(world, caller, ATTEMPTS + retry, Duration::ZERO)
                .await
            {
                CallResult::Ok(contender) => return CallResult::Ok(Some(contender)),
                CallResult::Failed(why) if why == "lock_timeout" => return CallResult::Ok(None),
                CallResult::Failed(why) if !why.starts_with(NOT_DONE) => return CallResult::Failed(why),
                CallResult::Failed(why) | CallResult::Unknown(why) => last = why,
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        CallResult::Unknown(last)
    }
}

/// Prefix of reasons for copies that the cluster has not executed.
const NOT_DONE: &str = "not done: ";

fn contender(document: &Value, sent: Nanos) -> CallResult<Contender> {
    let lease = document["lease"].as_str().zip(document["expires_in_ms"].as_u64());
    match document["holder"].as_str() {
        Some(holder) => CallResult::Ok(Contender {
            holder: holder.to_owned(),
            token: document["fencing_token"].as_u64(),
            lease: lease.map(|(lease, ms)| (lease.to_owned(), sent + ms * NANOS_PER_MS)),
            sent,
        }),
        None => CallResult::Unknown(format!("a malformed answer: {document}")),
    }
}

/// Answer about a lease, or its absence.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAnswer {
    /// It lives, by the renewal at least until this time; with its fencing token if it holds its lock.
    Lives {
        /// Promised time; `None` in the answer to a read.
        until: Option<Nanos>,
        /// Fencing token.
        token: Option<u64>,
    },
    /// It has ended.
    Ended,
    /// The outcome is unknown, or nothing was done.
    Open,
}

fn lease_answer(reply: &Reply, until: impl Fn(&Value) -> Option<Nanos>) -> LeaseAnswer {
    match reply {
        Reply::Done(document) => LeaseAnswer::Lives {
            until: until(document),
            token: document["fencing_token"].as_u64(),
        },
        Reply::Refused(code, _) if code == "lease_expired" => LeaseAnswer::Ended,
        Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => LeaseAnswer::Open,
    }
}

/// Renews a lease, with another time to live and an `Idempotency-Key` if they are given.
pub async fn renew(
    world: &World,
    caller: &mut Caller,
    lease: &str,
    change: Option<(u64, &str)>,
    timeout: Duration,
) -> (LeaseAnswer, CallResult<()>) {
    let path = format!("/v1/leases/{lease}/renew");
    let body = change.map(|(ttl_ms, _)| json!({"ttl_ms": ttl_ms}));
    let key = change.map(|(_, key)| key);
    let sent = world.now();
    let reply = caller
        .call_with_key(Method::POST, &path, body.as_ref(), key, timeout)
        .await;
    let answer = lease_answer(&reply, |document| {
        Some(sent + document["expires_in_ms"].as_u64()? * NANOS_PER_MS)
    });
    (answer, reply.done().map(drop))
}

/// Reads a lease, linearizably.
pub async fn read_lease(caller: &mut Caller, lease: &str) -> (LeaseAnswer, CallResult<()>) {
    let reply = caller.get(&format!("/v1/leases/{lease}?linearizable=true")).await;
    (lease_answer(&reply, |_| None), reply.done().map(drop))
}

/// Releases a lease, and repeats that until the outcome is known. `Ok(false)` means that it had ended before.
pub async fn release_lease(caller: &mut Caller, lease: &str, key: &str) -> CallResult<bool> {
    let path = format!("/v1/leases/{lease}");
    let mut last = String::new();
    for _ in 0..ATTEMPTS {
        match caller
            .call_with_key(Method::DELETE, &path, None, Some(key), TIMEOUT)
            .await
        {
            Reply::Done(_) => return CallResult::Ok(true),
            Reply::Refused(code, _) if code == "lease_expired" => return CallResult::Ok(false),
            Reply::Refused(code, _) => return CallResult::Failed(code),
            Reply::NotDone(why) | Reply::Unknown(why) => last = why,
        }
        tokio::time::sleep(RETRY_DELAY).await;
    }
    CallResult::Unknown(last)
}

/// Returns the id of a lease's session, which is part of its text.
pub fn session_of(lease: &str) -> Option<&str> {
    lease.split('_').nth(1)
}

/// Outcome of a poll for a grant.
#[derive(Clone, Debug, PartialEq)]
pub enum Polled {
    /// It has been granted the lock with this token.
    Granted(u64),
    /// It still waited when the time was over.
    Waits,
    /// It is gone, for this reason if the server knew it.
    Gone(Option<End>),
    /// No answer.
    Open,
}

/// Waits for the grant of a contender by one poll. If the future is dropped, the connection is cut.
pub async fn poll(caller: &mut Caller, lock: &str, holder: &str, wait: Duration) -> (Polled, CallResult<()>) {
    let path = format!("/v1/locks/{lock}/holders/{holder}?wait_ms={}", wait.as_millis());
    let reply = caller.call(Method::GET, &path, None, wait + TIMEOUT).await;
    let polled = match &reply {
        Reply::Done(Value::Null) => Polled::Waits,
        Reply::Done(document) => document["fencing_token"]
            .as_u64()
            .map_or(Polled::Open, Polled::Granted),
        Reply::Refused(code, document) if code == "holder_gone" => {
            Polled::Gone(document["ended"].as_str().map(end))
        }
        Reply::Refused(..) | Reply::NotDone(_) | Reply::Unknown(_) => Polled::Open,
    };
    let answer = match polled {
        Polled::Gone(_) => CallResult::Ok(()),
        _ => reply.done().map(drop),
    };
    (polled, answer)
}

fn end(word: &str) -> End {
    match word {
        "released" | "withdrawn" | "session_closed" => End::ByClient,
        "session_expired" => End::Expired,
        "max_hold" => End::MaxHold,
        other => End::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_both_kinds_are_parsed() {
        let queued =
            json!({"lock": "a", "holder": "n1", "position": 2, "lease": "ls_1f_07", "expires_in_ms": 1990});
        let CallResult::Ok(queued) = contender(&queued, 5) else {
            panic!("the answer is complete");
        };
        assert_eq!(
            (queued.holder.as_str(), queued.token, queued.sent),
            ("n1", None, 5)
        );
        assert_eq!(queued.lease, Some(("ls_1f_07".to_owned(), 1_990_000_005)));
        let granted = json!({"lock": "a", "holder": "n1", "fencing_token": 17, "mode": "exclusive"});
        let CallResult::Ok(granted) = contender(&granted, 5) else {
            panic!("the answer is complete");
        };
        assert_eq!((granted.token, granted.lease), (Some(17), None));
        assert!(matches!(contender(&json!({}), 5), CallResult::Unknown(_)));
        assert_eq!(session_of("ls_1f_07"), Some("1f"));
    }
}
