//! Client of etcd's lock service: grants a lease, calls `lock` under it, then `unlock`. etcd's documentation
//! says that each write has to check the key that `lock` returned. This client believes `lock` without that
//! check, as most do.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::Nanos;
use serde_json::json;

use super::{call, call_patiently, encoded, number};
use crate::client::answer::Answer;
use crate::client::caller::{Caller, PATIENCE};
use crate::client::mutex::Mutex;
use crate::client::session::nanos;
use crate::world::World;

/// Requested TTL of leases, in seconds.
const TTL_SECONDS: u64 = 2;

const TTL: Duration = Duration::from_secs(TTL_SECONDS);

/// Interval between two keep-alive calls.
const KEEP_EVERY: Duration = Duration::from_millis(400);

/// One client of the lock service.
pub struct EtcdMutex {
    caller: Caller,
    /// Sends keep-alives while `caller` waits for a lock.
    keeper: Caller,
    world: World,
    lease: Option<String>,
    held: Option<String>,
    believed_until: Nanos,
}

impl EtcdMutex {
    /// Creates a client that holds nothing. Both callers reach the same servers.
    pub fn new(caller: Caller, keeper: Caller, world: World) -> Self {
        Self {
            caller,
            keeper,
            world,
            lease: None,
            held: None,
            believed_until: 0,
        }
    }

    async fn lease(&mut self) -> Answer<String> {
        if let Some(lease) = &self.lease
            && self.believed_until > self.world.now()
        {
            return Answer::Ok(lease.clone());
        }
        let sent = self.world.now();
        let answer = call(
            &mut self.caller,
            "/v3/lease/grant",
            &json!({"TTL": TTL_SECONDS.to_string()}),
        )
        .await;
        let granted = answer.map(|document| document["ID"].as_str().unwrap_or_default().to_owned());
        if let Answer::Ok(lease) = &granted {
            self.believed_until = sent + nanos(TTL);
            self.lease = Some(lease.clone());
        }
        granted
    }
}

/// Keeps a lease alive until that fails; raises `believed_until` after each keep-alive.
async fn keep_alive(keeper: &mut Caller, world: &World, lease: &str, believed_until: &mut Nanos) {
    while *believed_until > world.now() {
        tokio::time::sleep(KEEP_EVERY).await;
        let sent = world.now();
        let answer = call_patiently(keeper, "/v3/lease/keepalive", &json!({"ID": lease}), KEEP_EVERY).await;
        let kept = answer
            .ok()
            .map_or(0, |document| number(&document["result"]["TTL"]));
        if kept > 0 && world.now() < *believed_until {
            *believed_until = (*believed_until).max(sent + nanos(TTL));
        }
    }
}

impl Mutex for EtcdMutex {
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, Answer<u64>> {
        async move {
            let lease = match self.lease().await {
                Answer::Ok(lease) => lease,
                Answer::Failed(why) => return Answer::Failed(why),
                Answer::Unknown(why) => return Answer::Unknown(why),
            };
            let body = json!({"name": encoded(name), "lease": lease});
            let asked = tokio::time::timeout(
                wait,
                call_patiently(&mut self.caller, "/v3/lock/lock", &body, wait + PATIENCE),
            );
            let kept = keep_alive(&mut self.keeper, &self.world, &lease, &mut self.believed_until);
            let answer = tokio::select! {
                biased;
                answer = asked => answer,
                () = kept => Ok(Answer::Unknown("the lease is lost".to_owned())),
            };
            match answer {
                Ok(Answer::Ok(document)) => {
                    self.held = document["key"].as_str().map(str::to_owned);
                    Answer::Ok(number(&document["header"]["revision"]))
                }
                Ok(Answer::Failed(why)) => {
                    self.die();
                    Answer::Failed(why)
                }
                // The request ends with the lease.
                Ok(Answer::Unknown(why)) => {
                    self.die();
                    Answer::Unknown(why)
                }
                Err(_) => {
                    self.die();
                    Answer::Unknown(
                        "the lock was not granted in time, and the connection was closed".to_owned(),
                    )
                }
            }
        }
        .boxed()
    }

    fn keep(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        async move {
            let Some(lease) = self.lease.clone() else {
                return;
            };
            let kept = keep_alive(&mut self.keeper, &self.world, &lease, &mut self.believed_until);
            // The timeout is the requested end.
            tokio::time::timeout(time, kept).await.ok();
        }
        .boxed()
    }

    fn believed_until(&self) -> Nanos {
        self.believed_until
    }

    fn unlock(&mut self) -> BoxFuture<'_, Answer<()>> {
        async move {
            let Some(key) = self.held.take() else {
                return Answer::Failed("this client holds nothing".to_owned());
            };
            let answer = call(&mut self.caller, "/v3/lock/unlock", &json!({"key": key})).await;
            if !matches!(answer, Answer::Ok(_)) {
                self.die();
            }
            answer.map(drop)
        }
        .boxed()
    }

    fn die(&mut self) {
        self.caller.hang_up();
        self.lease = None;
        self.held = None;
    }
}
