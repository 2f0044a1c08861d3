//! Guards of locks.

use std::sync::Arc;

use hyper::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::acquire::{Acquire, downgrade, release, release_many};
use crate::encode;
use crate::error::{Error, Loss};
use crate::fencing_token::FencingToken;
use crate::grant::Grant;
use crate::http::ApiRequest;
use crate::life::{Entered, Hold, ReleaseRequest};
use crate::options::{Mode, Wait};
use crate::servers::request_id;
use crate::session_core::{Core, OpenSession};
use crate::znodes::{Transaction, Znodes};

/// Guard of a lock. [`LockGuard::release`] releases the lock and waits until that is done; dropping the guard releases it in the
/// background.
///
/// A guard does not prove that the lock is held, because its session can be lost. [`LockGuard::check`] reads the clock, and is cheap enough
/// to be called before every step; [`LockGuard::lost`] completes at the loss.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock"]
pub struct LockGuard {
    inner: Arc<OpenSession>,
    grant: Grant,
    /// Number among the session's guards.
    number: u64,
    hold: Arc<Hold>,
    lost: watch::Receiver<Option<Loss>>,
    asked: watch::Receiver<Option<ReleaseRequest>>,
    /// Request id of the release. A release that was dropped half way is repeated under it, so that it releases no hold of another guard.
    release_id: String,
    given_back: bool,
}

#[derive(Deserialize)]
struct Checked {
    held: bool,
}

impl LockGuard {
    pub(crate) fn new(inner: Arc<OpenSession>, grant: Grant) -> Self {
        let Entered {
            number,
            hold,
            lost,
            asked,
        } = inner.core.life.enter(&grant);
        Self {
            inner,
            grant,
            number,
            hold,
            lost,
            asked,
            release_id: request_id(),
            given_back: false,
        }
    }

    /// Returns the name of the lock.
    pub fn lock(&self) -> &str {
        &self.grant.lock
    }

    /// Returns the mode of the hold.
    pub fn mode(&self) -> Mode {
        self.hold.now().0
    }

    /// Returns the fencing token. An upgrade changes it.
    pub fn fencing_token(&self) -> FencingToken {
        self.hold.now().1
    }

    /// Returns the id of the contender that holds the lock.
    pub fn holder(&self) -> &str {
        &self.grant.holder
    }

    /// Returns the number of holds that the owner had at this grant, with this one.
    pub fn hold_count(&self) -> u32 {
        self.grant.holds
    }

    /// Returns the number of permits of a semaphore; 1 in other modes.
    pub fn permits(&self) -> u32 {
        self.grant.permits
    }

    /// Returns why the lock is lost, or may be, as of this moment. `None` means that it is held.
    #[must_use]
    pub fn loss(&self) -> Option<Loss> {
        self.inner.core.life.loss().or_else(|| self.lost.borrow().clone())
    }

    /// Returns whether the lock is lost, or may be.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// Returns the fencing token if the lock is surely held at this moment. Call it before every step that needs the lock.
    ///
    /// The process may be paused right after this call, for longer than the session lives. A storage with several writers should check the
    /// token.
    pub fn check(&self) -> Result<FencingToken, Error> {
        match self.loss() {
            None => Ok(self.fencing_token()),
            Some(loss) => Err(Error::Lost(loss)),
        }
    }

    /// Changes the tree if the lock is held at the log position of the change; otherwise changes nothing. So the write cannot be late,
    /// however long the process was paused before it. Returns the result of each change.
    ///
    /// If the lock is not held, the error is [`Error::Lost`]. If a change is refused, the fact `index` is its number, from 0.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the changes are made or not, as after [`Error::Unknown`].
    pub async fn write(&self, changes: Transaction) -> Result<Vec<Value>, Error> {
        self.check()?;
        let core = &self.inner.core;
        let znodes = Znodes::new(core.servers.clone(), Some(core.clone()));
        let mut error = match znodes.commit(changes.after_held(self)).await {
            // The first result belongs to the condition.
            Ok(results) => return Ok(results.into_iter().skip(1).collect()),
            Err(error) => error,
        };
        if let Error::Refused(refusal) = &mut error
            && let Some(index) = refusal.facts.get_mut("index")
            && let Some(failed) = index.as_u64()
        {
            match failed.checked_sub(1) {
                Some(of_caller) => *index = of_caller.into(),
                None => return core.explained(Err(error), [&*self.grant.holder]).await,
            }
        }
        Err(error)
    }

    /// Returns the core of the session.
    pub(crate) fn session(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Asks the cluster whether the lock is held.
    pub async fn verify(&self) -> Result<bool, Error> {
        let name = encode::segment(&self.grant.lock);
        let path = format!("/v1/locks/{name}/check?fencing_token={}", self.fencing_token());
        let checked: Checked = self.inner.core.servers.ask(&ApiRequest::get(path)).await?;
        Ok(checked.held)
    }

    /// Waits until the lock is lost, which is before another contender can get it: when no heartbeat was confirmed within the TTL less the
    /// margin, and as soon as the cluster reports a loss. A break, a deleted znode, or a release elsewhere is reported at once, with its
    /// reason ([`Loss::Broken`], [`Loss::Deleted`], [`Loss::Released`]). While no server can be followed, it takes up to a third of the TTL
    /// ([`Loss::TakenAway`]).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let (core, mut lost) = (self.inner.core.clone(), self.lost.clone());
        async move {
            tokio::select! {
                loss = core.life.lost() => loss,
                // The sender is dropped when the guard releases the lock; then only the session can be lost.
                Ok(loss) = async { lost.wait_for(Option::is_some).await.map(|loss| loss.clone()) } => {
                    loss.expect("it was waited for")
                }
            }
        }
    }

    /// Makes an upgradeable hold exclusive: waits until the other readers have released, and admits no new ones meanwhile. An upgrade
    /// changes the fencing token. If it fails, the lock stays upgradeable.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the call leaves the queue, and an upgrade of the same moment is downgraded again.
    pub async fn upgrade(&mut self, wait: Wait) -> Result<(), Error> {
        let turn = self.hold.turns.clone().lock_owned().await;
        self.check()?;
        let core = self.inner.core.clone();
        let upgraded = Acquire::upgrade(core.clone(), &self.grant, wait, turn)
            .run()
            .await;
        let grants = core.explained(upgraded, [&*self.grant.holder]).await?;
        let grant = &grants[0];
        self.hold.set(grant.mode, grant.fencing_token);
        Ok(())
    }

    /// Makes the hold shared, without a gap. The cluster grants the lock to compatible waiters at the same moment. The fencing token stays.
    /// Use the lock for reads only as soon as this begins, unless it is refused.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the guard counts as downgraded.
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        self.downgrade_to(Mode::Shared).await
    }

    /// Makes an exclusive hold upgradeable, without a gap. Otherwise as [`LockGuard::downgrade`].
    pub async fn downgrade_to_upgradeable(&mut self) -> Result<(), Error> {
        self.downgrade_to(Mode::Upgradeable).await
    }

    async fn downgrade_to(&mut self, to: Mode) -> Result<(), Error> {
        let _turn = self.hold.turns.clone().lock_owned().await;
        self.check()?;
        let (mode, token) = self.hold.now();
        // The cluster may grant the lock to readers from now on, even if this future is dropped.
        self.hold.set(to, token);
        let downgraded = downgrade(&self.inner.core, &self.grant, to).await;
        match &downgraded {
            Ok(grant) => self.hold.set(grant.mode, grant.fencing_token),
            Err(Error::Refused(_) | Error::Unavailable(_)) => self.hold.set(mode, token),
            Err(Error::Unknown(_) | Error::Lost(_) | Error::Stopped) => {}
        }
        let explained = self.inner.core.explained(downgraded, [&*self.grant.holder]);
        explained.await.map(drop)
    }

    /// Returns the pending release request: it was not [answered](LockGuard::answer) yet.
    #[must_use]
    pub fn release_request(&self) -> Option<ReleaseRequest> {
        self.asked.borrow().clone()
    }

    /// Waits for a release request ([`crate::LockClient::request_release`]). It arrives at once, or, while no server can be followed,
    /// within a third of the TTL. This program decides whether to release.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: call it again.
    pub fn release_requested(&self) -> impl Future<Output = ReleaseRequest> + Send + use<> {
        let mut asked = self.asked.clone();
        async move {
            let request = asked.wait_for(Option::is_some).await.map(|asked| asked.clone());
            match request.ok().flatten() {
                Some(request) => request,
                // The guard was released, so there are no more requests.
                None => std::future::pending().await,
            }
        }
    }

    /// Answers a release request, for example with the time of the release.
    pub async fn answer(&self, text: &str) -> Result<(), Error> {
        self.check()?;
        let core = &self.inner.core;
        let body = json!({ "session": core.id, "holder": self.grant.holder, "answer": text, "request_id": request_id() });
        let path = format!(
            "/v1/locks/{}/release-request/reply",
            encode::segment(&self.grant.lock)
        );
        let answered = core
            .servers
            .call(&ApiRequest::with(Method::POST, path, &body))
            .await;
        let answered = answered.map(drop).map_err(|error| core.refused(error));
        core.explained(answered, [&*self.grant.holder]).await
    }

    /// Releases the lock. Returns when the cluster has granted it to the next waiter, with the number of holds of a re-entered lock that
    /// are left.
    ///
    /// An error means that the lock was not held to the end ([`Error::Lost`], with the reason of [`LockGuard::check`]), or that it may not
    /// be released.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the lock is released in the background.
    pub async fn release(mut self) -> Result<u32, Error> {
        let loss = self.loss();
        let core = self.inner.core.clone();
        core.life.leave(self.number);
        if loss.as_ref().is_none_or(Loss::may_live) {
            let released = release(&core, &self.grant, &self.release_id).await;
            // Only now: if this future is dropped, `drop` has to release the lock.
            self.given_back = true;
            return match (loss, released) {
                (None, released) => core.explained(released, [&*self.grant.holder]).await,
                (Some(loss), _) => Err(Error::Lost(loss)),
            };
        }
        self.given_back = true;
        Err(Error::Lost(loss.expect("it was just looked at")))
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if self.given_back {
            return;
        }
        self.inner.core.life.leave(self.number);
        // The session has ended, or will without heartbeats.
        if self.inner.core.life.loss().is_some() {
            return;
        }
        let (inner, grant, id) = (self.inner.clone(), self.grant.clone(), self.release_id.clone());
        self.inner
            .core
            .in_background("releasing the lock of a dropped guard", async move {
                if let Err(error) = release(&inner.core, &grant, &id).await {
                    tracing::warn!(lock = grant.lock, %error, "a dropped guard's lock was not released");
                }
            });
    }
}

/// Guards of several locks that were granted together. Dropping this releases all locks in the background.
#[derive(Debug)]
#[must_use = "guards that are dropped release their locks"]
pub struct LockGuards {
    inner: Arc<OpenSession>,
    guards: Vec<LockGuard>,
    release_id: String,
}

impl LockGuards {
    pub(crate) fn new(inner: Arc<OpenSession>, grants: Vec<Grant>) -> Self {
        let guards = grants
            .into_iter()
            .map(|grant| LockGuard::new(inner.clone(), grant));
        Self {
            guards: guards.collect(),
            inner,
            release_id: request_id(),
        }
    }

    /// Returns the guards, in the order of the request.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// Returns the guard of a lock.
    pub fn get(&self, lock: &str) -> Option<&LockGuard> {
        self.guards.iter().find(|guard| guard.lock() == lock)
    }

    /// Fails unless all locks are surely held at this moment; see [`LockGuard::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.guards.iter().try_for_each(|guard| guard.check().map(drop))
    }

    /// Waits until one of the locks is lost; see [`LockGuard::lost`]. Cancel safe.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let losses = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        let first = futures_util::future::select_all(losses);
        async move { first.await.0 }
    }

    /// Returns the guards, to be released one by one.
    pub fn into_guards(mut self) -> Vec<LockGuard> {
        std::mem::take(&mut self.guards)
    }

    /// Releases all locks in one step. An error means that not all were held to the end, or that they may not be released.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the locks are released in the background.
    pub async fn release(mut self) -> Result<(), Error> {
        let loss = self.guards.iter().find_map(LockGuard::loss);
        let core = self.inner.core.clone();
        let grants = self.leave();
        let released = match core.life.loss() {
            Some(loss) if !loss.may_live() => Err(Error::Lost(loss)),
            _ => release_many(&core, &grants, &self.release_id).await,
        };
        // Only now: if this future is dropped, `drop` has to release the locks.
        self.guards.clear();
        match loss {
            Some(loss) => Err(Error::Lost(loss)),
            None => {
                core.explained(released, grants.iter().map(|grant| &*grant.holder))
                    .await
            }
        }
    }

    /// Makes the guards release nothing when they are dropped.
    fn leave(&mut self) -> Vec<Grant> {
        for guard in &mut self.guards {
            self.inner.core.life.leave(guard.number);
            guard.given_back = true;
        }
        self.guards.iter().map(|guard| guard.grant.clone()).collect()
    }
}

impl Drop for LockGuards {
    fn drop(&mut self) {
        let grants = self.leave();
        // The session has ended, or will without heartbeats.
        if grants.is_empty() || self.inner.core.life.loss().is_some() {
            return;
        }
        // Under the request id of a release that was dropped half way, so that no hold is released twice.
        let (inner, id) = (self.inner.clone(), self.release_id.clone());
        self.inner
            .core
            .in_background("releasing the locks of dropped guards", async move {
                if let Err(error) = release_many(&inner.core, &grants, &id).await {
                    tracing::warn!(%error, "the locks of dropped guards were not released");
                }
            });
    }
}
