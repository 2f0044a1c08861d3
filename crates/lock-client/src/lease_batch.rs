//! Many leases at once, by batches of requests. Each lease has a result of its own.

use std::time::Duration;

use hyper::Method;
use serde_json::Map;
use tokio::sync::oneshot;
use tracing::{Instrument as _, debug_span};

use crate::acquire_lease::{lease_request, opened};
use crate::client::LockClient;
use crate::clock::BootInstant;
use crate::error::{Code, Error};
use crate::http::NO_RUNTIME;
use crate::lease::{Lease, ended, still_waits};
use crate::options::AcquireOptions;
use crate::servers::{BatchRequest, read};

/// Leases that the caller does not have yet. They are released in the background when this is dropped.
struct Unclaimed {
    client: LockClient,
    leases: Vec<Result<Lease, Error>>,
}

impl LockClient {
    /// Acquires many locks for `ttl` each, by one request for each 128. Does not wait. The results are in the order of the locks, and each
    /// is independent of the others; [`acquire_all`](crate::LockSession::acquire_all) acquires all locks or none.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the leases are released in the background.
    pub async fn acquire_leases(
        &self,
        locks: impl IntoIterator<Item = impl Into<String>>,
        ttl: Duration,
        options: AcquireOptions,
    ) -> Vec<Result<Lease, Error>> {
        let locks: Vec<String> = locks.into_iter().map(Into::into).collect();
        let (client, count) = (self.clone(), locks.len());
        let (claim, claimed) = oneshot::channel();
        // The cluster may receive the requests from now on, even if this future is dropped.
        let acquire = async move {
            let leases = client.acquire_at_once(&locks, ttl, &options).await;
            // Without a receiver the leases are unclaimed.
            let _ = claim.send(Unclaimed { client, leases });
        };
        let acquire = acquire.instrument(debug_span!("lockgate.acquire", locks = count));
        let failed = |error: Error| (0..count).map(|_| Err(error.clone())).collect();
        if let Err(error) = self.servers.background.spawn(acquire) {
            return failed(Error::Unavailable(format!("{NO_RUNTIME}: {error}")));
        }
        match claimed.await {
            Ok(mut unclaimed) => std::mem::take(&mut unclaimed.leases),
            Err(_) => failed(Error::Unknown("the runtime of the client has ended".to_owned())),
        }
    }

    async fn acquire_at_once(
        &self,
        locks: &[String],
        ttl: Duration,
        options: &AcquireOptions,
    ) -> Vec<Result<Lease, Error>> {
        let requests: Vec<_> = locks
            .iter()
            .map(|lock| lease_request(lock, ttl, options))
            .collect();
        let sent = BootInstant::now();
        let answers = self.servers.batch(&requests).await;
        let leases = answers.into_iter().zip(locks).map(|(answer, lock)| {
            let (handle, sent, view) = opened(self, lock, sent, &answer?)?;
            let held = handle.held(sent, view);
            held.ok_or_else(|| Error::Unknown("a grant without a fencing token".to_owned()))
        });
        let mut leases: Vec<Result<Lease, Error>> = leases.collect();
        let (acquired, refused): (Vec<_>, Vec<_>) = leases.iter_mut().partition(|lease| lease.is_ok());
        let not_free = refused
            .iter()
            .filter(|lease| lease.as_ref().is_err_and(Error::is_not_free))
            .count();
        self.servers.counts.add(|stats| {
            stats.acquired += acquired.len() as u64;
            stats.not_free += not_free as u64;
        });
        if BootInstant::now() - sent > ttl / 4 {
            // After several attempts.
            let keys: Vec<String> = acquired
                .iter()
                .flat_map(|lease| lease.iter())
                .map(|lease| lease.key().to_owned())
                .collect();
            let renewed = self.renew_leases(keys, None).await;
            acquired
                .into_iter()
                .zip(renewed)
                .for_each(|(lease, renewed)| *lease = renewed);
        }
        leases
    }

    /// Renews the leases with these [keys](Lease::key) for `ttl`, or each for the same time as before, by one request for each 128. The
    /// results are in the order of the keys, as of [`LeaseHandle::renew`](crate::LeaseHandle::renew).
    ///
    /// # Cancel safety
    ///
    /// If dropped, leases are renewed or not.
    pub async fn renew_leases(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<str>>,
        ttl: Option<Duration>,
    ) -> Vec<Result<Lease, Error>> {
        let handles: Vec<_> = keys.into_iter().map(|key| self.lease(key.as_ref())).collect();
        let requests: Vec<_> = handles.iter().map(|handle| handle.renewal(ttl)).collect();
        let sent = BootInstant::now();
        let answers = self.servers.batch(&requests).await;
        let leases = answers.into_iter().zip(handles).map(|(answer, handle)| {
            let view = read(&answer.map_err(ended)?)?;
            handle
                .held(sent, view)
                .ok_or_else(|| still_waits(Code::NotHolder))
        });
        leases.collect()
    }

    /// Releases the leases with these [keys](Lease::key), by one request for each 128. May be repeated. The results are in the order of the
    /// keys, as of [`LeaseHandle::release`](crate::LeaseHandle::release).
    ///
    /// # Cancel safety
    ///
    /// If dropped, the locks are released, or are when their time is over.
    pub async fn release_leases(
        &self,
        keys: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Vec<Result<(), Error>> {
        let handles = keys.into_iter().map(|key| self.lease(key.as_ref()));
        let requests: Vec<_> = handles
            .map(|handle| BatchRequest::new(Method::DELETE, handle.path(), Map::new()))
            .collect();
        let answers = self.servers.batch(&requests).await;
        answers
            .into_iter()
            .map(|answer| answer.map(drop).map_err(ended))
            .collect()
    }
}

impl Drop for Unclaimed {
    fn drop(&mut self) {
        let leases = self.leases.iter().flatten();
        let keys: Vec<String> = leases.map(|lease| lease.key().to_owned()).collect();
        if keys.is_empty() {
            return;
        }
        let client = self.client.clone();
        let release = async move {
            for error in client
                .release_leases(keys)
                .await
                .into_iter()
                .filter_map(Result::err)
            {
                tracing::warn!(%error, "a lease of a cancelled acquire was not released");
            }
        };
        if let Err(error) = self.client.servers.background.spawn(release) {
            tracing::warn!(%error, "no thread for releasing the leases of a cancelled acquire");
        }
    }
}
