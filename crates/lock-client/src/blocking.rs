//! Sessions and guards for programs without a runtime: the same calls, each of which blocks its thread until it is done.
//!
//! Heartbeats are sent by the client's own thread, so a session lives on while the threads of the program compute, wait or sleep.
//!
//! ```no_run
//! use lock_client::AcquireOptions;
//! use lock_client::blocking::LockClient;
//!
//! # fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = LockClient::new(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"])?;
//! let session = client.session().name("invoicing").open()?;
//! let guard = session.acquire("orders/42", AcquireOptions::exclusive())?;
//! for step in 0..3 {
//!     // Before each step, as a thread cannot be woken by a loss while it works.
//!     guard.check()?;
//!     println!("step {step}");
//! }
//! guard.release()?;
//! session.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Panics
//!
//! All calls that block panic on a thread of an asynchronous runtime, which they would stop: there use the types of the crate's root, or
//! `tokio::task::spawn_blocking`.

use std::time::Duration;

use serde_json::Value;

use crate::background::Background;
use crate::http::NO_RUNTIME;
use crate::{
    AcquireOptions, AddressError, Error, FencingToken, LockSet, Loss, Mode, Revocation, Standing,
    Transaction, Wait,
};

/// Client whose calls block; made of a [`LockClient`](crate::LockClient) with whatever that was built with.
#[derive(Debug, Clone)]
pub struct LockClient {
    inner: crate::LockClient,
}

/// Says what session is wanted; see [`LockClient::session`].
#[derive(Debug, Clone)]
pub struct SessionBuilder {
    inner: crate::SessionBuilder,
    background: Background,
}

/// A session; see [`LockSession`](crate::LockSession).
#[derive(Debug, Clone)]
#[must_use = "a session that is dropped is closed"]
pub struct LockSession {
    inner: crate::LockSession,
}

/// A lock that is held; see [`LockGuard`](crate::LockGuard).
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock"]
pub struct LockGuard {
    inner: crate::LockGuard,
}

/// Several locks that were granted together; see [`LockGuards`](crate::LockGuards).
#[derive(Debug)]
#[must_use = "guards that are dropped release their locks"]
pub struct LockGuards {
    inner: crate::LockGuards,
    background: Background,
}

/// Blocks this thread until a call is done.
fn block_on<T>(background: &Background, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let runtime = background.runtime();
    let runtime = runtime.map_err(|error| Error::Unavailable(format!("{NO_RUNTIME}: {error}")))?;
    runtime.block_on(call)
}

impl From<crate::LockClient> for LockClient {
    fn from(inner: crate::LockClient) -> Self {
        Self { inner }
    }
}

impl LockClient {
    /// A client of the cluster whose servers have these addresses; see [`LockClient::new`](crate::LockClient::new). For more options build
    /// that one, and use `LockClient::from`.
    pub fn new(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, AddressError> {
        crate::LockClient::new(addresses).map(Self::from)
    }

    /// A session to be opened.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder {
            inner: self.inner.session(),
            background: self.inner.servers.background.clone(),
        }
    }

    /// Any call of [`LockClient`](crate::LockClient) that has no method here, or several, as one that blocks.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(&crate::LockClient) -> Result<T, Error>,
    ) -> Result<T, Error> {
        block_on(&self.inner.servers.background, call(&self.inner))
    }
}

impl SessionBuilder {
    /// How long the session lives without a heartbeat (10 s).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            inner: self.inner.ttl(ttl),
            ..self
        }
    }

    /// A name for people who look at the list of sessions.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self {
            inner: self.inner.name(name),
            ..self
        }
    }

    /// Opens it.
    pub fn open(self) -> Result<LockSession, Error> {
        let inner = block_on(&self.background, self.inner.open())?;
        Ok(LockSession { inner })
    }
}

impl LockSession {
    fn background(&self) -> &Background {
        &self.inner.inner.core.servers.background
    }

    /// Its id, as the cluster shows it.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// How sure it is at this moment that the session lives.
    pub fn standing(&self) -> Standing {
        self.inner.standing()
    }

    /// Whether it is lost, or may be.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Acquires a lock.
    pub fn acquire(&self, lock: &str, options: AcquireOptions) -> Result<LockGuard, Error> {
        let inner = block_on(self.background(), self.inner.acquire(lock, options))?;
        Ok(LockGuard { inner })
    }

    /// Acquires several locks, or none.
    pub fn acquire_all(&self, set: LockSet) -> Result<LockGuards, Error> {
        let inner = block_on(self.background(), self.inner.acquire_all(set))?;
        Ok(LockGuards {
            inner,
            background: self.background().clone(),
        })
    }

    /// Any call of [`LockSession`](crate::LockSession) that has no method here, or several, as one that blocks.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(&crate::LockSession) -> Result<T, Error>,
    ) -> Result<T, Error> {
        block_on(self.background(), call(&self.inner))
    }

    /// Ends the session, and with it all its locks, places in queues and ephemeral znodes.
    pub fn close(self) -> Result<(), Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.close())
    }
}

impl LockGuard {
    fn background(&self) -> &Background {
        &self.inner.session().servers.background
    }

    /// The lock's name.
    pub fn lock(&self) -> &str {
        self.inner.lock()
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// The proof of the grant.
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// The contender that holds the lock, as it is shown to others.
    pub fn holder(&self) -> &str {
        self.inner.holder()
    }

    /// Why the lock is not held any more, or not surely, as of this moment.
    pub fn loss(&self) -> Option<Loss> {
        self.inner.loss()
    }

    /// Whether the lock is lost, or may be.
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// The token, if the lock is surely held at this moment. To be asked before every step that needs the lock.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.inner.check()
    }

    /// Who asks for the lock.
    pub fn revocation(&self) -> Option<Revocation> {
        self.inner.revocation()
    }

    /// Waits until the lock is lost, for so long at most. `None`: it is held.
    pub fn lost_within(&self, time: Duration) -> Result<Option<Loss>, Error> {
        let lost = self.inner.lost();
        block_on(self.background(), async {
            Ok(tokio::time::timeout(time, lost).await.ok())
        })
    }

    /// Asks the cluster whether the lock is held.
    pub fn verify(&self) -> Result<bool, Error> {
        block_on(self.background(), self.inner.verify())
    }

    /// Makes these changes of the tree if the lock is held at that very position, or else none.
    pub fn write(&self, changes: Transaction) -> Result<Vec<Value>, Error> {
        block_on(self.background(), self.inner.write(changes))
    }

    /// Holds the lock alone that it has held as upgradeable.
    pub fn upgrade(&mut self, wait: Wait) -> Result<(), Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.upgrade(wait))
    }

    /// Goes on as one of those who share the lock, without a gap.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.downgrade())
    }

    /// Releases the lock. Returns how many holds of a re-entered lock are left.
    pub fn release(self) -> Result<u32, Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.release())
    }
}

impl LockGuards {
    /// The guard of this lock, if it is one of them.
    pub fn get(&self, lock: &str) -> Option<&crate::LockGuard> {
        self.inner.get(lock)
    }

    /// Whether all are surely held at this moment.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Releases all, in one step.
    pub fn release(self) -> Result<(), Error> {
        block_on(&self.background, self.inner.release())
    }
}
