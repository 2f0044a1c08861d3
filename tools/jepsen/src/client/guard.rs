//! Client of Lockgate's locks through the Rust client library: sessions, guards, and the guard's own
//! statement at each moment whether it holds.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use lock_client::{AcquireOptions, AddressError, Error, LockClient, LockGuard, LockSession};
use lockgate_check::Nanos;

use super::mutex::Mutex;
use super::result::CallResult;
use super::session::nanos;
use crate::world::World;

/// Session TTL: the shortest that a server grants.
const TTL: Duration = Duration::from_secs(2);

/// Interval at which a holder checks its guard.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// One client of the lock service.
pub struct LockgateMutex {
    client: LockClient,
    world: World,
    session: Option<LockSession>,
    guard: Option<LockGuard>,
    believed_until: Nanos,
}

impl LockgateMutex {
    /// Creates a client that holds nothing and calls the node of its number first.
    pub fn new(world: World, number: usize) -> Result<Self, AddressError> {
        let mut addresses: Vec<_> = world
            .endpoints
            .iter()
            .map(|endpoint| endpoint.http.to_string())
            .collect();
        let first = number % addresses.len();
        addresses.rotate_left(first);
        Ok(Self {
            client: LockClient::new(addresses)?,
            world,
            session: None,
            guard: None,
            believed_until: 0,
        })
    }

    async fn session(&mut self) -> Result<&LockSession, Error> {
        if self.session.as_ref().is_none_or(LockSession::is_lost) {
            self.session = Some(self.client.session().ttl(TTL).open().await?);
        }
        Ok(self.session.as_ref().expect("it was just opened"))
    }

    /// Checks the guard and records the moment before the check: the guard's answer holds at least for that
    /// moment.
    fn check_guard(&mut self) -> bool {
        let now = self.world.now();
        let holds = self.guard.as_ref().is_some_and(|guard| guard.check().is_ok());
        if holds {
            self.believed_until = now;
        }
        holds
    }
}

fn failed<T>(error: &Error) -> CallResult<T> {
    match error {
        Error::Refused(refusal) => CallResult::Failed(refusal.code.word().to_owned()),
        Error::Unavailable(_) => CallResult::Failed("unavailable".to_owned()),
        Error::Unknown(_) => CallResult::Unknown("outcome unknown".to_owned()),
        // The contender, if there is one, ends with the session.
        Error::Lost(_) => CallResult::Failed("lost".to_owned()),
        // The client is not shut down while it is in use.
        other => CallResult::Unknown(other.to_string()),
    }
}

impl Mutex for LockgateMutex {
    fn lock<'a>(&'a mut self, name: &'a str, wait: Duration) -> BoxFuture<'a, CallResult<u64>> {
        async move {
            let name = name.trim_start_matches('/');
            let session = match self.session().await {
                Ok(session) => session,
                Err(error) => return failed(&error),
            };
            let options = AcquireOptions::exclusive().wait_at_most(wait);
            let guard = match session.acquire(name, options).await {
                Ok(guard) => guard,
                Err(error) => return failed(&error),
            };
            let token = guard.fencing_token().0;
            self.guard = Some(guard);
            self.check_guard();
            CallResult::Ok(token)
        }
        .boxed()
    }

    fn stay_alive(&mut self, time: Duration) -> BoxFuture<'_, ()> {
        async move {
            let until = self.world.now() + nanos(time);
            while self.check_guard() && self.world.now() < until {
                let left = Duration::from_nanos(until.saturating_sub(self.world.now()));
                tokio::time::sleep(left.min(POLL_INTERVAL)).await;
            }
        }
        .boxed()
    }

    fn believed_until(&self) -> Nanos {
        self.believed_until
    }

    fn unlock(&mut self) -> BoxFuture<'_, CallResult<()>> {
        async move {
            let Some(guard) = self.guard.take() else {
                return CallResult::Failed("this client holds nothing".to_owned());
            };
            match guard.release().await {
                Ok(_) => CallResult::Ok(()),
                Err(error) => failed(&error),
            }
        }
        .boxed()
    }

    /// The closest that a part of a process can come to a crash: the held lock is released in the background.
    fn crash(&mut self) {
        self.guard = None;
        self.session = None;
    }
}
