//! Leases: acquire in one command, renew, release, get. A lease is a session of its own with one lock. Any caller that knows
//! its secret may renew and release it, and no session has to be kept alive beside it.

use std::time::Duration;

use lock_node::HeartbeatError;
use tokio::time::Instant;
use znode_store::{
    Command, ContenderState, HoldBounds, LeaseContender, LeaseKey, LeaseView, LockCommand, LockWish,
    Password, Place, Refusal, Reply, Request, RequestId, SessionFate, SessionId,
};

use super::call::{CallKind, Lease};
use super::{LockError, Locks, Started, WaitFor, only};

/// Renewals of a lease in the time in which it would end. A call that waits on a connection renews its lease itself.
const RENEWALS_PER_TIMEOUT: u32 = 3;

/// Pause after a renewal that failed.
const RENEWAL_PAUSE: Duration = Duration::from_millis(200);

/// A lease as its holder sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The lease in this node's state.
    pub view: LeaseView,
    /// Minimum time until it ends. `None` on nodes that do not lead, unless it was just renewed.
    pub expires_in: Option<Duration>,
}

/// Result of an acquire by a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leased {
    /// The lease.
    pub lease: Lease,
    /// The grant, or the place in the queue.
    pub contender: LeaseContender,
    /// Minimum time until the lease ends.
    pub expires_in: Duration,
}

impl Locks {
    /// Acquires a lock by a lease of its own, which lives for `ttl` after each renewal, within the bounds of the configuration. While
    /// the call waits, it renews the lease. A call that fails leaves nothing behind.
    pub async fn acquire_lease(
        &self,
        ttl: Duration,
        wish: LockWish,
        bounds: HoldBounds,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Leased, LockError> {
        let begun = Instant::now();
        let started = self.begin_lease(ttl, wish, bounds, wait, request_id, retry);
        let (lease, started) = started.await?;
        let (grants, renewed) = self.keep_while(&lease, begun, started.granted()).await?;
        Ok(Leased {
            lease,
            contender: LeaseContender::Holds(only(grants)?),
            expires_in: lease.timeout.saturating_sub(renewed.elapsed()),
        })
    }

    /// Acquires a lock by a lease as [`Locks::acquire_lease`] does, but does not wait: the lease may have a place in the queue, and
    /// keeps it as long as it is renewed. [`Locks::wait_for_grant`] waits for the grant.
    pub async fn queue_for_lease(
        &self,
        ttl: Duration,
        wish: LockWish,
        bounds: HoldBounds,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<Leased, LockError> {
        let begun = Instant::now();
        let started = self.begin_lease(ttl, wish, bounds, WaitFor::Forever, request_id, retry);
        let (lease, started) = started.await?;
        let contender = match self.place_of(&started) {
            Some(place) => {
                started.stay_in_queue();
                LeaseContender::Waits(place)
            }
            None => LeaseContender::Holds(only(started.granted().await?)?),
        };
        Ok(Leased {
            lease,
            contender,
            expires_in: lease.timeout.saturating_sub(begun.elapsed()),
        })
    }

    /// Returns the place of a call in the queue; `None` if its contender has been granted the lock or is gone.
    pub(crate) fn place_of(&self, started: &Started) -> Option<Place> {
        let (lock, holder) = started.queued_contender()?;
        match self.shared.node.read(|store| store.contender_state(lock, holder)) {
            Some(ContenderState::Waits(place)) => Some(place),
            _ => None,
        }
    }

    /// Opens a lease and acquires its lock, or enters the queue, in one command. A refused call leaves nothing behind.
    pub(crate) async fn begin_lease(
        &self,
        ttl: Duration,
        wish: LockWish,
        bounds: HoldBounds,
        wait: WaitFor,
        request_id: Option<RequestId>,
        retry: u16,
    ) -> Result<(Lease, Started), LockError> {
        let attempt = self.new_attempt(retry);
        let kind = CallKind::Acquire(vec![wish.lock.clone()]);
        let node = &self.shared.node;
        let key = LeaseKey {
            session: SessionId::from_random(u64::from_le_bytes(node.random_bytes())),
            password: Password(node.random_bytes()),
        };
        let command = LockCommand::AcquireBounded {
            wish,
            guid: self.new_guid(),
            attempt,
            wait: wait.may_wait(),
            bounds,
            lease: Some(znode_store::NewLease {
                key,
                timeout_ms: self.shared.node.lease_timeout_ms(ttl),
            }),
        };
        let call = self.call(key.session, command, kind, wait, request_id, attempt);
        let (call, granted) = call.await?;
        let lease = call.lease.ok_or_else(|| {
            LockError::OutcomeUnknown("the cluster granted a lease without a key".to_owned())
        })?;
        Ok((lease, Started::from((call, granted))))
    }

    /// Waits for `granted` and renews the lease meanwhile. Returns the outcome, and the time from which on the lease
    /// lives for its whole timeout: `begun` if nothing was waited for.
    pub(crate) async fn keep_while<T>(
        &self,
        lease: &Lease,
        begun: Instant,
        granted: impl Future<Output = Result<T, LockError>>,
    ) -> Result<(T, Instant), LockError> {
        let interval = lease.timeout / RENEWALS_PER_TIMEOUT;
        let node = &self.shared.node;
        let mut renewed = begun;
        let renewals = async {
            let mut next = begun + interval;
            loop {
                tokio::time::sleep_until(next).await;
                let now = Instant::now();
                next = match node.heartbeat(lease.key.session).await {
                    Ok(_) => {
                        renewed = now;
                        now + interval
                    }
                    // If the lease has ended, so has the wait.
                    Err(_) => Instant::now() + RENEWAL_PAUSE,
                };
            }
        };
        let granted = tokio::select! {
            biased;
            granted = granted => granted.map_err(as_lease_error)?,
            () = renewals => unreachable!("renewals have no end"),
        };
        if begun.elapsed() < interval {
            return Ok((granted, renewed));
        }
        // The holder gets its whole time. If the renewal fails it has at least what is left.
        let now = Instant::now();
        Ok(match node.heartbeat(lease.key.session).await {
            Ok(_) => (granted, now),
            Err(_) => (granted, renewed),
        })
    }

    /// Renews a lease, with another timeout if `ttl` names one. Such a change should have a request id: without it a copy of the request
    /// that arrives late takes a later change back.
    pub async fn renew_lease(
        &self,
        key: LeaseKey,
        ttl: Option<Duration>,
        request_id: Option<RequestId>,
    ) -> Result<LeaseStatus, LockError> {
        // A renewal counts from its arrival, also if this node has to catch up first.
        let arrived = Instant::now();
        let view = self.known_lease(&key).await?;
        let node = &self.shared.node;
        let wanted = ttl.map(|ttl| Duration::from_millis(node.lease_timeout_ms(ttl).into()));
        let known = Duration::from_millis(view.timeout_ms.into());
        let current = match wanted.is_none_or(|wanted| wanted == known) {
            true => {
                let renewed = node.heartbeat_received_at(key.session, arrived).await;
                renewed.map_err(as_end_of_lease)?
            }
            false => known,
        };
        // The leader may know of another change.
        let changed = wanted.filter(|wanted| *wanted != current);
        if let Some(wanted) = changed {
            let timeout_ms = wanted.as_millis().try_into().unwrap_or(u32::MAX);
            let lease = key;
            let command = Command::RenewLease { lease, timeout_ms };
            self.propose_for_lease(command, request_id).await?;
        }
        // The lock may have been granted meanwhile.
        let view = node.read(|store| store.lease(&key));
        let timeout = changed.unwrap_or(current);
        Ok(LeaseStatus {
            view: view.ok_or(Refusal::LeaseExpired)?,
            expires_in: Some(timeout.saturating_sub(arrived.elapsed())),
        })
    }

    /// Releases the lock of a lease, or leaves its queue, and ends the lease. A repetition succeeds as well.
    pub async fn release_lease(&self, key: LeaseKey, request_id: Option<RequestId>) -> Result<(), LockError> {
        let command = Command::ReleaseLease { lease: key };
        self.propose_for_lease(command, request_id).await.map(drop)
    }

    /// Returns a lease in this node's state.
    pub async fn lease(&self, key: LeaseKey) -> Result<LeaseStatus, LockError> {
        let view = self.known_lease(&key).await?;
        let timeout = Duration::from_millis(u64::from(view.timeout_ms));
        let silence = self.shared.node.silence(key.session);
        Ok(LeaseStatus {
            view,
            expires_in: silence.map(|silence| timeout.saturating_sub(silence)),
        })
    }

    /// Looks a lease up. If this node does not know its session yet, it catches up first.
    async fn known_lease(&self, key: &LeaseKey) -> Result<LeaseView, LockError> {
        let node = &self.shared.node;
        if node.read_facts(|store| store.session_fate(key.session)) == SessionFate::Unknown {
            node.read_barrier().await?;
        }
        Ok(node.read(|store| store.lease(key)).ok_or(Refusal::LeaseExpired)?)
    }

    async fn propose_for_lease(
        &self,
        command: Command,
        request_id: Option<RequestId>,
    ) -> Result<Reply, LockError> {
        let request = Request {
            session: None,
            request_id,
            caller: self.caller.clone(),
            command,
        };
        Ok(self.shared.node.propose(request).await?.outcome?)
    }
}

fn as_end_of_lease(error: HeartbeatError) -> LockError {
    match error {
        HeartbeatError::Unavailable(unavailable) => LockError::Unavailable(unavailable),
        HeartbeatError::SessionEnded | HeartbeatError::NoSession => Refusal::LeaseExpired.into(),
    }
}

/// Reports the end of a lease's session as the end of the lease.
fn as_lease_error(error: LockError) -> LockError {
    match error {
        LockError::Refused(Refusal::SessionEnded(_) | Refusal::NoSession(_)) => Refusal::LeaseExpired.into(),
        other => other,
    }
}
