//! Blocking client for programs without a runtime: the same calls, each of which blocks its thread until it is done.
//!
//! The client's own thread sends the heartbeats, so a session lives on while the threads of the program compute, wait or sleep.
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
//!     // A loss cannot interrupt a thread, so check before each step.
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
//! All calls that block panic on a thread of an asynchronous runtime, because they would stop that runtime. There use the types of the
//! crate's root, or `tokio::task::spawn_blocking`.

use std::time::Duration;

use serde_json::Value;

use crate::background::Background;
use crate::http::NO_RUNTIME;
use crate::{
    AcquireOptions, AddressError, Error, FencingToken, LeaseView, LockSet, Loss, Mode, ReleaseRequest,
    SessionState, Transaction, Wait,
};

/// Client whose calls block. Wraps a [`LockClient`](crate::LockClient).
#[derive(Debug, Clone)]
pub struct LockClient {
    inner: crate::LockClient,
}

/// Builder of a session; see [`LockClient::session`].
#[derive(Debug, Clone)]
#[must_use = "a builder opens nothing before `open`"]
pub struct SessionBuilder {
    inner: crate::SessionBuilder,
    background: Background,
}

/// Session; see [`LockSession`](crate::LockSession).
#[derive(Debug, Clone)]
#[must_use = "a session that is dropped is closed"]
pub struct LockSession {
    inner: crate::LockSession,
}

/// Guard of a held lock; see [`LockGuard`](crate::LockGuard).
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock"]
pub struct LockGuard {
    inner: crate::LockGuard,
}

/// Guards of several locks that were granted together; see [`LockGuards`](crate::LockGuards).
#[derive(Debug)]
#[must_use = "guards that are dropped release their locks"]
pub struct LockGuards {
    inner: crate::LockGuards,
    background: Background,
}

/// Access to a lease by its key; see [`LeaseHandle`](crate::LeaseHandle).
#[derive(Debug, Clone)]
pub struct LeaseHandle {
    inner: crate::LeaseHandle,
    background: Background,
}

/// Lease; see [`Lease`](crate::Lease).
#[derive(Debug)]
#[must_use = "a lease that is dropped holds its lock until its time is over"]
pub struct Lease {
    inner: crate::Lease,
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
    /// Creates a client of the cluster with these servers; see [`LockClient::new`](crate::LockClient::new). For more options build a
    /// [`crate::LockClient`], and use `LockClient::from`.
    pub fn new(addresses: impl IntoIterator<Item = impl AsRef<str>>) -> Result<Self, AddressError> {
        crate::LockClient::new(addresses).map(Self::from)
    }

    /// Returns a builder of a session.
    pub fn session(&self) -> SessionBuilder {
        SessionBuilder {
            inner: self.inner.session(),
            background: self.inner.servers.background.clone(),
        }
    }

    /// Acquires a lock for `ttl`, without a session.
    pub fn acquire_lease(&self, lock: &str, ttl: Duration, options: AcquireOptions) -> Result<Lease, Error> {
        let background = self.inner.servers.background.clone();
        let inner = block_on(&background, self.inner.acquire_lease(lock, ttl, options))?;
        Ok(Lease { inner, background })
    }

    /// Acquires a lock by a lease, or takes a place in its queue; see [`queue_lease`](crate::LockClient::queue_lease).
    pub fn queue_lease(
        &self,
        lock: &str,
        ttl: Duration,
        options: AcquireOptions,
    ) -> Result<LeaseHandle, Error> {
        let background = self.inner.servers.background.clone();
        let inner = block_on(&background, self.inner.queue_lease(lock, ttl, options))?;
        Ok(LeaseHandle { inner, background })
    }

    /// Acquires many locks for `ttl` each, without waiting; see [`acquire_leases`](crate::LockClient::acquire_leases).
    pub fn acquire_leases(
        &self,
        locks: impl IntoIterator<Item = impl Into<String>>,
        ttl: Duration,
        options: AcquireOptions,
    ) -> Result<Vec<Result<Lease, Error>>, Error> {
        self.leases(self.inner.acquire_leases(locks, ttl, options))
    }

    /// Renews the leases with these keys; see [`renew_leases`](crate::LockClient::renew_leases).
    pub fn renew_leases(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<str>>,
        ttl: Option<Duration>,
    ) -> Result<Vec<Result<Lease, Error>>, Error> {
        self.leases(self.inner.renew_leases(keys, ttl))
    }

    fn leases(
        &self,
        call: impl Future<Output = Vec<Result<crate::Lease, Error>>>,
    ) -> Result<Vec<Result<Lease, Error>>, Error> {
        let background = &self.inner.servers.background;
        let lease = |inner| Lease {
            inner,
            background: background.clone(),
        };
        let leases = block_on(background, async { Ok(call.await) })?;
        Ok(leases.into_iter().map(|inner| inner.map(lease)).collect())
    }

    /// Releases the leases with these keys; see [`release_leases`](crate::LockClient::release_leases).
    pub fn release_leases(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Vec<Result<(), Error>>, Error> {
        let call = self.inner.release_leases(keys);
        block_on(&self.inner.servers.background, async { Ok(call.await) })
    }

    /// Returns access to the lease with this key, which another process may have acquired. Sends nothing.
    pub fn lease(&self, key: &str) -> LeaseHandle {
        LeaseHandle {
            inner: self.inner.lease(key),
            background: self.inner.servers.background.clone(),
        }
    }

    /// Runs any calls of [`LockClient`](crate::LockClient), and blocks until they are done.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(&crate::LockClient) -> Result<T, Error>,
    ) -> Result<T, Error> {
        block_on(&self.inner.servers.background, call(&self.inner))
    }
}

impl SessionBuilder {
    /// Sets the TTL, which is the time that the session lives without a heartbeat (10 s).
    pub fn ttl(self, ttl: Duration) -> Self {
        Self {
            inner: self.inner.ttl(ttl),
            ..self
        }
    }

    /// Sets the name in the list of sessions.
    pub fn name(self, name: impl Into<String>) -> Self {
        Self {
            inner: self.inner.name(name),
            ..self
        }
    }

    /// Opens the session.
    pub fn open(self) -> Result<LockSession, Error> {
        let inner = block_on(&self.background, self.inner.open())?;
        Ok(LockSession { inner })
    }
}

impl LockSession {
    fn background(&self) -> &Background {
        &self.inner.inner.core.servers.background
    }

    /// Returns the id, as the cluster shows it.
    pub fn id(&self) -> &str {
        self.inner.id()
    }

    /// Returns the state at this moment.
    #[must_use]
    pub fn state(&self) -> SessionState {
        self.inner.state()
    }

    /// Returns whether the session is lost, or may be.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Acquires a lock.
    pub fn acquire(&self, lock: &str, options: AcquireOptions) -> Result<LockGuard, Error> {
        let inner = block_on(self.background(), self.inner.acquire(lock, options))?;
        Ok(LockGuard { inner })
    }

    /// Acquires several locks, all or none.
    pub fn acquire_all(&self, set: LockSet) -> Result<LockGuards, Error> {
        let inner = block_on(self.background(), self.inner.acquire_all(set))?;
        Ok(LockGuards {
            inner,
            background: self.background().clone(),
        })
    }

    /// Runs any calls of [`LockSession`](crate::LockSession), and blocks until they are done.
    pub fn call<T>(
        &self,
        call: impl AsyncFnOnce(&crate::LockSession) -> Result<T, Error>,
    ) -> Result<T, Error> {
        block_on(self.background(), call(&self.inner))
    }

    /// Ends the session with all its locks, contenders and ephemeral znodes.
    pub fn close(self) -> Result<(), Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.close())
    }
}

impl LockGuard {
    fn background(&self) -> &Background {
        &self.inner.session().servers.background
    }

    /// Returns the name of the lock.
    pub fn lock(&self) -> &str {
        self.inner.lock()
    }

    /// Returns the mode of the hold.
    pub fn mode(&self) -> Mode {
        self.inner.mode()
    }

    /// Returns the fencing token.
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// Returns the id of the contender that holds the lock.
    pub fn holder(&self) -> &str {
        self.inner.holder()
    }

    /// Returns why the lock is lost, or may be, as of this moment.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.inner.loss()
    }

    /// Returns whether the lock is lost, or may be.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.inner.is_lost()
    }

    /// Returns the fencing token if the lock is surely held at this moment. Call it before every step that needs the lock.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.inner.check()
    }

    /// Returns the pending release request.
    #[must_use]
    pub fn release_request(&self) -> Option<ReleaseRequest> {
        self.inner.release_request()
    }

    /// Waits until the lock is lost, at most for `time`. Returns `None` if it is held.
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

    /// Changes the tree if the lock is held at that log position; otherwise changes nothing.
    pub fn write(&self, changes: Transaction) -> Result<Vec<Value>, Error> {
        block_on(self.background(), self.inner.write(changes))
    }

    /// Makes an upgradeable hold exclusive.
    pub fn upgrade(&mut self, wait: Wait) -> Result<(), Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.upgrade(wait))
    }

    /// Makes the hold shared, without a gap.
    pub fn downgrade(&mut self) -> Result<(), Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.downgrade())
    }

    /// Releases the lock. Returns the number of holds of a re-entered lock that are left.
    pub fn release(self) -> Result<u32, Error> {
        let background = self.background().clone();
        block_on(&background, self.inner.release())
    }
}

impl LockGuards {
    /// Returns the guard of a lock.
    pub fn get(&self, lock: &str) -> Option<&crate::LockGuard> {
        self.inner.get(lock)
    }

    /// Fails unless all locks are surely held at this moment.
    pub fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    /// Releases all locks in one step.
    pub fn release(self) -> Result<(), Error> {
        block_on(&self.background, self.inner.release())
    }
}

impl LeaseHandle {
    /// Renews the lease for `ttl`, or for the same time as before.
    pub fn renew(&self, ttl: Option<Duration>) -> Result<Lease, Error> {
        let inner = block_on(&self.background, self.inner.renew(ttl))?;
        let background = self.background.clone();
        Ok(Lease { inner, background })
    }

    /// Waits until the lease has its lock, and renews it meanwhile.
    pub fn wait(&self, wait: Wait) -> Result<Lease, Error> {
        let inner = block_on(&self.background, self.inner.wait(wait))?;
        let background = self.background.clone();
        Ok(Lease { inner, background })
    }

    /// Returns the key, by which any process can renew and release the lease. It is a secret.
    pub fn key(&self) -> &str {
        self.inner.key()
    }

    /// Releases the lock. May be repeated.
    pub fn release(&self) -> Result<(), Error> {
        block_on(&self.background, self.inner.release())
    }

    /// Returns the lease, as the cluster shows it.
    pub fn get(&self) -> Result<LeaseView, Error> {
        block_on(&self.background, self.inner.get())
    }
}

impl Lease {
    /// Returns the key, by which any process can renew and release the lease. It is a secret.
    pub fn key(&self) -> &str {
        self.inner.key()
    }

    /// Returns the name of the lock.
    pub fn lock(&self) -> &str {
        self.inner.lock()
    }

    /// Returns the fencing token.
    pub fn fencing_token(&self) -> FencingToken {
        self.inner.fencing_token()
    }

    /// Returns the time in which the lease surely lives, from this moment.
    #[must_use]
    pub fn expires_in(&self) -> Duration {
        self.inner.expires_in()
    }

    /// Returns the fencing token if the time of the lease is not over. Call it before every step that needs the lock.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.inner.check()
    }

    /// Renews the lease for `ttl`, or for the same time as before.
    pub fn renew(&mut self, ttl: Option<Duration>) -> Result<(), Error> {
        block_on(&self.background, self.inner.renew(ttl))
    }

    /// Releases the lock.
    pub fn release(self) -> Result<(), Error> {
        block_on(&self.background, self.inner.release())
    }
}
