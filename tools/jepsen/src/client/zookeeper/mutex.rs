//! ZooKeeper's lock recipe: each contender creates an ephemeral sequential znode, the lowest one holds, and
//! every other contender watches its predecessor. A client that loses its connection no longer believes that
//! it holds, as Curator recommends.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::Nanos;
use zk_wire::{CreateCall, ErrorCode, Reply, Request};

use super::store::{create, ensure, flags, number};
use super::{Client, ConnectionLost, unexpected};
use crate::client::mutex::Mutex;
use crate::client::result::CallResult;
use crate::client::session::nanos;
use crate::world::World;

/// Interval between two pings.
const PING_INTERVAL: Duration = Duration::from_millis(250);

/// One client of the lock recipe.
pub struct ZooKeeperMutex {
    client: Client,
    world: World,
    held: Option<String>,
    believed_until: Nanos,
}

impl ZooKeeperMutex {
    /// Creates a client that holds nothing.
    pub fn new(client: Client, world: World) -> Self {
        Self {
            client,
            world,
            held: None,
            believed_until: 0,
        }
    }

    /// Sends a request. Any reply proves that the session was alive when the request was sent.
    async fn call(&mut self, request: &Request) -> CallResult<Result<Reply, ErrorCode>> {
        let sent = self.world.now();
        let answer = self.client.call(request).await;
        match (&answer, self.client.current()) {
            (CallResult::Ok(_), Some(connection)) => {
                let until = sent + nanos(connection.timeout());
                // A client that was late once has lost the lock, whatever later replies say.
                if self.believed_until > self.world.now() || self.held.is_none() {
                    self.believed_until = self.believed_until.max(until);
                }
            }
            _ => self.believed_until = self.believed_until.min(self.world.now()),
        }
        answer
    }

    async fn enter(&mut self, lock: &str) -> CallResult<(String, u64)> {
        let path = format!("{lock}/n-");
        let request = create(CreateCall::Create2, path, "", flags::EPHEMERAL_SEQUENTIAL);
        for _ in 0..2 {
            match self.call(&request).await {
                CallResult::Ok(Ok(Reply::Created(path, stat))) => {
                    return CallResult::Ok((path, u64::try_from(stat.czxid).unwrap_or(0)));
                }
                CallResult::Ok(Err(ErrorCode::NO_NODE)) => {
                    if let CallResult::Failed(why) | CallResult::Unknown(why) =
                        ensure(&mut self.client, lock).await
                    {
                        return CallResult::Failed(why);
                    }
                }
                CallResult::Ok(other) => return unexpected(other),
                CallResult::Failed(why) => return CallResult::Failed(why),
                CallResult::Unknown(why) => return CallResult::Unknown(why),
            }
        }
        CallResult::Failed("the lock's znode cannot be created".to_owned())
    }

    /// Returns the predecessor of the client's own znode, with a watch; `None` if the own znode is the
    /// lowest.
    async fn predecessor(&mut self, lock: &str, own: &str) -> CallResult<Option<String>> {
        let (path, watch) = (lock.to_owned(), false);
        let names = match self.call(&Request::GetChildren { path, watch }).await {
            CallResult::Ok(Ok(Reply::Names(names))) => names,
            CallResult::Ok(other) => return unexpected(other),
            CallResult::Failed(why) | CallResult::Unknown(why) => return CallResult::Unknown(why),
        };
        let mine = number(own);
        if !names.iter().any(|name| number(name) == mine) {
            return CallResult::Unknown("the client's own znode no longer exists".to_owned());
        }
        let before = names.into_iter().filter(|name| number(name) < mine);
        CallResult::Ok(before.max_by_key(|name| number(name)))
    }

    /// Waits until the client's own znode is the lowest; returns `false` on timeout.
    async fn queue(&mut self, lock: &str, own: &str, until: Nanos) -> CallResult<bool> {
        loop {
            let before = match self.predecessor(lock, own).await {
                CallResult::Ok(None) => return CallResult::Ok(true),
                CallResult::Ok(Some(before)) => before,
                CallResult::Failed(why) | CallResult::Unknown(why) => return CallResult::Unknown(why),
            };
            let (path, watch) = (format!("{lock}/{before}"), true);
            match self.call(&Request::Exists { path, watch }).await {
                CallResult::Ok(Ok(_)) => {}
                // The predecessor has been deleted in the meantime.
                CallResult::Ok(Err(ErrorCode::NO_NODE)) => continue,
                CallResult::Ok(other) => return unexpected(other),
                CallResult::Failed(why) | CallResult::Unknown(why) => return CallResult::Unknown(why),
            }
            loop {
                if self.world.now() >= until {
                    return CallResult::Ok(false);
                }
                match self.listen().await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(ConnectionLost(why)) => return CallResult::Unknown(why),
                }
                if let CallResult::Failed(why) | CallResult::Unknown(why) = self.call(&Request::Ping).await {
                    return CallResult::Unknown(why);
                }
            }
        }
    }

    async fn listen(&mut self) -> Result<bool, ConnectionLost> {
        match self.client.current() {
            Some(connection) => connection.listen(PING_INTERVAL).await,
            None => Err(ConnectionLost("no connection".to_owned())),
        }
    }

    async fn delete(&mut self, path: String) -> CallResult<()> {
        match self.call(&Request::Delete { path, version: -1 }).await {
            CallResult::Ok(Ok(_) | Err(ErrorCode::NO_NODE)) => CallResult::Ok(()),
            CallResult::Ok(other) => unexpected(other),
            CallResult::Failed(why) => CallResult::Failed(why),
            CallResult::Unknown(why) => CallResult::Unknown(why),
        }
    }
}

impl Mutex for ZooKeeperMutex {
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, CallResult<u64>> {
        async move {
            self.held = None;
            let until = self.world.now() + nanos(wait);
            let (own, czxid) = match self.enter(name).await {
                CallResult::Ok(entered) => entered,
                CallResult::Failed(why) => return CallResult::Failed(why),
                CallResult::Unknown(why) => {
                    self.crash();
                    return CallResult::Unknown(why);
                }
            };
            match self.queue(name, &own, until).await {
                CallResult::Ok(true) => {
                    self.held = Some(own);
                    CallResult::Ok(czxid)
                }
                CallResult::Ok(false) => {
                    if self.delete(own).await.ok().is_none() {
                        self.crash();
                    }
                    CallResult::Failed("not granted in time".to_owned())
                }
                // The znode ends with the session.
                CallResult::Failed(why) | CallResult::Unknown(why) => {
                    self.crash();
                    CallResult::Unknown(why)
                }
            }
        }
        .boxed()
    }

    fn stay_alive(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        async move {
            let until = self.world.now() + nanos(time);
            while self.world.now() < until.min(self.believed_until) {
                let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
                tokio::time::sleep(left.min(PING_INTERVAL)).await;
                if self.call(&Request::Ping).await.ok().is_none() {
                    return;
                }
            }
        }
        .boxed()
    }

    fn believed_until(&self) -> Nanos {
        self.believed_until
    }

    fn unlock(&mut self) -> BoxFuture<'_, CallResult<()>> {
        async move {
            let Some(own) = self.held.take() else {
                return CallResult::Failed("this client holds nothing".to_owned());
            };
            let answer = self.delete(own).await;
            if !matches!(answer, CallResult::Ok(())) {
                self.crash();
            }
            answer
        }
        .boxed()
    }

    fn crash(&mut self) {
        self.client.abandon();
        self.held = None;
    }
}
