//! Client of etcd's lock service: grants a lease, calls `lock` under it, then `unlock`. etcd's documentation
//! says that each write has to check the key that `lock` returned. This client believes `lock` without that
//! check, as most do.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::Nanos;
use serde_json::json;

use super::{call, call_within, encoded, number};
use crate::client::caller::{Caller, TIMEOUT};
use crate::client::mutex::Mutex;
use crate::client::result::CallResult;
use crate::client::session::nanos;
use crate::world::World;

/// Requested TTL of leases, in seconds.
const TTL_SECONDS: u64 = 2;

const TTL: Duration = Duration::from_secs(TTL_SECONDS);

/// Interval between two keep-alive calls.
const KEEPALIVE_INTERVAL: Duration = Duration::from_millis(400);

/// One client of the lock service.
pub struct EtcdMutex {
    caller: Caller,
    /// Sends keep-alives while `caller` waits for a lock.
    heartbeats: Caller,
    world: World,
    lease: Option<String>,
    held: Option<String>,
    believed_until: Nanos,
}

impl EtcdMutex {
    /// Creates a client that holds nothing. Both callers reach the same servers.
    pub fn new(caller: Caller, heartbeats: Caller, world: World) -> Self {
        Self {
            caller,
            heartbeats,
            world,
            lease: None,
            held: None,
            believed_until: 0,
        }
    }

    async fn lease(&mut self) -> CallResult<String> {
        if let Some(lease) = &self.lease
            && self.believed_until > self.world.now()
        {
            return CallResult::Ok(lease.clone());
        }
        let sent = self.world.now();
        let answer = call(
            &mut self.caller,
            "/v3/lease/grant",
            &json!({"TTL": TTL_SECONDS.to_string()}),
        )
        .await;
        let granted = answer.map(|document| document["ID"].as_str().unwrap_or_default().to_owned());
        if let CallResult::Ok(lease) = &granted {
            self.believed_until = sent + nanos(TTL);
            self.lease = Some(lease.clone());
        }
        granted
    }
}

/// Keeps a lease alive until that fails; raises `believed_until` after each keep-alive.
async fn keep_alive(heartbeats: &mut Caller, world: &World, lease: &str, believed_until: &mut Nanos) {
    while *believed_until > world.now() {
        tokio::time::sleep(KEEPALIVE_INTERVAL).await;
        let sent = world.now();
        let answer = call_within(
            heartbeats,
            "/v3/lease/keepalive",
            &json!({"ID": lease}),
            KEEPALIVE_INTERVAL,
        )
        .await;
        let renewal = answer
            .ok()
            .map_or(0, |document| number(&document["result"]["TTL"]));
        if renewal > 0 && world.now() < *believed_until {
            *believed_until = (*believed_until).max(sent + nanos(TTL));
        }
    }
}

impl Mutex for EtcdMutex {
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, CallResult<u64>> {
        async move {
            let lease = match self.lease().await {
                CallResult::Ok(lease) => lease,
                CallResult::Failed(why) => return CallResult::Failed(why),
                CallResult::Unknown(why) => return CallResult::Unknown(why),
            };
            let body = json!({"name": encoded(name), "lease": lease});
            let locking = tokio::time::timeout(
                wait,
                call_within(&mut self.caller, "/v3/lock/lock", &body, wait + TIMEOUT),
            );
            let renewal = keep_alive(
                &mut self.heartbeats,
                &self.world,
                &lease,
                &mut self.believed_until,
            );
            let answer = tokio::select! {
                biased;
                answer = locking => answer,
                () = renewal => Ok(CallResult::Unknown("the lease is lost".to_owned())),
            };
            match answer {
                Ok(CallResult::Ok(document)) => {
                    self.held = document["key"].as_str().map(str::to_owned);
                    CallResult::Ok(number(&document["header"]["revision"]))
                }
                Ok(CallResult::Failed(why)) => {
                    self.crash();
                    CallResult::Failed(why)
                }
                // The request ends with the lease.
                Ok(CallResult::Unknown(why)) => {
                    self.crash();
                    CallResult::Unknown(why)
                }
                Err(_) => {
                    self.crash();
                    CallResult::Unknown(
                        "the lock was not granted in time, and the connection was closed".to_owned(),
                    )
                }
            }
        }
        .boxed()
    }

    fn stay_alive(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        async move {
            let Some(lease) = self.lease.clone() else {
                return;
            };
            let renewal = keep_alive(
                &mut self.heartbeats,
                &self.world,
                &lease,
                &mut self.believed_until,
            );
            // The timeout is the requested end.
            tokio::time::timeout(time, renewal).await.ok();
        }
        .boxed()
    }

    fn believed_until(&self) -> Nanos {
        self.believed_until
    }

    fn unlock(&mut self) -> BoxFuture<'_, CallResult<()>> {
        async move {
            let Some(key) = self.held.take() else {
                return CallResult::Failed("this client holds nothing".to_owned());
            };
            let answer = call(&mut self.caller, "/v3/lock/unlock", &json!({"key": key})).await;
            if !matches!(answer, CallResult::Ok(_)) {
                self.crash();
            }
            answer.map(drop)
        }
        .boxed()
    }

    fn crash(&mut self) {
        self.caller.disconnect();
        self.lease = None;
        self.held = None;
    }
}
