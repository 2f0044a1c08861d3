//! ZooKeeper's lock recipe: each contender creates an ephemeral sequential znode, the lowest one holds, and
//! every other contender watches its predecessor. A client that loses its connection no longer believes that
//! it holds, as Curator recommends.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lockgate_check::Nanos;
use zk_wire::{CreateCall, ErrorCode, Reply, Request};

use super::store::{create, ensure, flags, number};
use super::{Client, Lost, unexpected};
use crate::client::answer::Answer;
use crate::client::mutex::Mutex;
use crate::client::session::nanos;
use crate::world::World;

/// Interval between two pings.
const PING_EVERY: Duration = Duration::from_millis(250);

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
    async fn call(&mut self, request: &Request) -> Answer<Result<Reply, ErrorCode>> {
        let sent = self.world.now();
        let answer = self.client.call(request).await;
        match (&answer, self.client.current()) {
            (Answer::Ok(_), Some(connection)) => {
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

    async fn enter(&mut self, lock: &str) -> Answer<(String, u64)> {
        let path = format!("{lock}/n-");
        let request = create(CreateCall::Create2, path, "", flags::EPHEMERAL_SEQUENTIAL);
        for _ in 0..2 {
            match self.call(&request).await {
                Answer::Ok(Ok(Reply::Created(path, stat))) => {
                    return Answer::Ok((path, u64::try_from(stat.czxid).unwrap_or(0)));
                }
                Answer::Ok(Err(ErrorCode::NO_NODE)) => {
                    if let Answer::Failed(why) | Answer::Unknown(why) = ensure(&mut self.client, lock).await {
                        return Answer::Failed(why);
                    }
                }
                Answer::Ok(other) => return unexpected(other),
                Answer::Failed(why) => return Answer::Failed(why),
                Answer::Unknown(why) => return Answer::Unknown(why),
            }
        }
        Answer::Failed("the lock's znode cannot be created".to_owned())
    }

    /// Returns the predecessor of the client's own znode, with a watch; `None` if the own znode is the
    /// lowest.
    async fn predecessor(&mut self, lock: &str, own: &str) -> Answer<Option<String>> {
        let (path, watch) = (lock.to_owned(), false);
        let names = match self.call(&Request::GetChildren { path, watch }).await {
            Answer::Ok(Ok(Reply::Names(names))) => names,
            Answer::Ok(other) => return unexpected(other),
            Answer::Failed(why) | Answer::Unknown(why) => return Answer::Unknown(why),
        };
        let mine = number(own);
        if !names.iter().any(|name| number(name) == mine) {
            return Answer::Unknown("the client's own znode no longer exists".to_owned());
        }
        let before = names.into_iter().filter(|name| number(name) < mine);
        Answer::Ok(before.max_by_key(|name| number(name)))
    }

    /// Waits until the client's own znode is the lowest; returns `false` on timeout.
    async fn queue(&mut self, lock: &str, own: &str, until: Nanos) -> Answer<bool> {
        loop {
            let before = match self.predecessor(lock, own).await {
                Answer::Ok(None) => return Answer::Ok(true),
                Answer::Ok(Some(before)) => before,
                Answer::Failed(why) | Answer::Unknown(why) => return Answer::Unknown(why),
            };
            let (path, watch) = (format!("{lock}/{before}"), true);
            match self.call(&Request::Exists { path, watch }).await {
                Answer::Ok(Ok(_)) => {}
                // The predecessor has been deleted in the meantime.
                Answer::Ok(Err(ErrorCode::NO_NODE)) => continue,
                Answer::Ok(other) => return unexpected(other),
                Answer::Failed(why) | Answer::Unknown(why) => return Answer::Unknown(why),
            }
            loop {
                if self.world.now() >= until {
                    return Answer::Ok(false);
                }
                match self.listen().await {
                    Ok(true) => break,
                    Ok(false) => {}
                    Err(Lost(why)) => return Answer::Unknown(why),
                }
                if let Answer::Failed(why) | Answer::Unknown(why) = self.call(&Request::Ping).await {
                    return Answer::Unknown(why);
                }
            }
        }
    }

    async fn listen(&mut self) -> Result<bool, Lost> {
        match self.client.current() {
            Some(connection) => connection.listen(PING_EVERY).await,
            None => Err(Lost("no connection".to_owned())),
        }
    }

    async fn delete(&mut self, path: String) -> Answer<()> {
        match self.call(&Request::Delete { path, version: -1 }).await {
            Answer::Ok(Ok(_) | Err(ErrorCode::NO_NODE)) => Answer::Ok(()),
            Answer::Ok(other) => unexpected(other),
            Answer::Failed(why) => Answer::Failed(why),
            Answer::Unknown(why) => Answer::Unknown(why),
        }
    }
}

impl Mutex for ZooKeeperMutex {
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, Answer<u64>> {
        async move {
            self.held = None;
            let until = self.world.now() + nanos(wait);
            let (own, czxid) = match self.enter(name).await {
                Answer::Ok(entered) => entered,
                Answer::Failed(why) => return Answer::Failed(why),
                Answer::Unknown(why) => {
                    self.die();
                    return Answer::Unknown(why);
                }
            };
            match self.queue(name, &own, until).await {
                Answer::Ok(true) => {
                    self.held = Some(own);
                    Answer::Ok(czxid)
                }
                Answer::Ok(false) => {
                    if self.delete(own).await.ok().is_none() {
                        self.die();
                    }
                    Answer::Failed("not granted in time".to_owned())
                }
                // The znode ends with the session.
                Answer::Failed(why) | Answer::Unknown(why) => {
                    self.die();
                    Answer::Unknown(why)
                }
            }
        }
        .boxed()
    }

    fn keep(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        async move {
            let until = self.world.now() + nanos(time);
            while self.world.now() < until.min(self.believed_until) {
                let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
                tokio::time::sleep(left.min(PING_EVERY)).await;
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

    fn unlock(&mut self) -> BoxFuture<'_, Answer<()>> {
        async move {
            let Some(own) = self.held.take() else {
                return Answer::Failed("this client holds nothing".to_owned());
            };
            let answer = self.delete(own).await;
            if !matches!(answer, Answer::Ok(())) {
                self.die();
            }
            answer
        }
        .boxed()
    }

    fn die(&mut self) {
        self.client.leave();
        self.held = None;
    }
}
