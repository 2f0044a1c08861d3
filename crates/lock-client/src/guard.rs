//! A lock that is held, or was: who has it asks before it acts, and hears when it is lost.

use std::fmt;
use std::sync::Arc;

use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::acquire::{Acquire, downgrade, release, release_many};
use crate::encode;
use crate::error::{Error, Loss};
use crate::grant::Grant;
use crate::http::Call;
use crate::life::{Entered, Hold, Revocation};
use crate::options::{Mode, Wait};
use crate::servers::request_id;
use crate::session_core::{Core, Inner};
use crate::znodes::{Transaction, Znodes};

/// The proof of a grant: of two conflicting grants of one lock the later one has the larger token.
///
/// A storage that is written to under the lock keeps the largest token that it has seen, and refuses smaller ones: so
/// nothing is written by a holder that was paused, lost its lock, and does not know it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(pub u64);

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> Self {
        token.0
    }
}

impl From<u64> for FencingToken {
    fn from(token: u64) -> Self {
        Self(token)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lock that is held. [`LockGuard::release`] gives it back and says when that is done; dropping the guard gives it back in
/// the background.
///
/// To have a guard is no proof of holding the lock: the session may have been lost meanwhile. [`LockGuard::check`] looks at
/// the clock, and is cheap enough to be asked before every step; [`LockGuard::lost`] tells when it happens.
#[derive(Debug)]
#[must_use = "a guard that is dropped releases its lock"]
pub struct LockGuard {
    inner: Arc<Inner>,
    grant: Grant,
    /// Which of the session's guards it is.
    number: u64,
    hold: Arc<Hold>,
    lost: watch::Receiver<Option<Loss>>,
    asked: watch::Receiver<Option<Revocation>>,
    /// What it is given back under: a release that was dropped half way is repeated, and must not give back the hold of
    /// another guard.
    release_id: String,
    given_back: bool,
}

#[derive(Deserialize)]
struct Checked {
    held: bool,
}

impl LockGuard {
    pub(crate) fn new(inner: Arc<Inner>, grant: Grant) -> Self {
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

    /// The lock's name.
    pub fn lock(&self) -> &str {
        &self.grant.lock
    }

    /// How it is held.
    pub fn mode(&self) -> Mode {
        self.hold.now().0
    }

    /// The proof of the grant. An upgrade is another grant.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken(self.hold.now().1)
    }

    /// The contender that holds the lock, as it is shown to others.
    pub fn holder(&self) -> &str {
        &self.grant.holder
    }

    /// How often the owner had entered when this was granted, this time included.
    pub fn holds(&self) -> u32 {
        self.grant.holds
    }

    /// How many permits of a semaphore it has; else 1.
    pub fn permits(&self) -> u32 {
        self.grant.permits
    }

    /// Why the lock is not held any more, or not surely, as of this moment. `None`: it is held.
    pub fn loss(&self) -> Option<Loss> {
        self.inner.core.life.loss().or_else(|| self.lost.borrow().clone())
    }

    /// Whether the lock is lost, or may be.
    pub fn is_lost(&self) -> bool {
        self.loss().is_some()
    }

    /// The token, if the lock is surely held at this moment. To be asked before every step that needs the lock.
    ///
    /// The process may be paused right after this has returned, for longer than the session lives. Who writes to a
    /// storage that others write to as well should have that check the token.
    pub fn check(&self) -> Result<FencingToken, Error> {
        match self.loss() {
            None => Ok(self.fencing_token()),
            Some(loss) => Err(Error::Lost(loss)),
        }
    }

    /// Makes these changes of the tree if the lock is held at that very position, or else none: a write that cannot come too late, however
    /// long the process was paused before it. Returns what came of each change.
    ///
    /// Without the lock the error is [`Error::Lost`]. If a change is refused, the fact `index` counts the changes from 0.
    pub async fn write(&self, changes: Transaction) -> Result<Vec<Value>, Error> {
        self.check()?;
        let core = &self.inner.core;
        let znodes = Znodes::new(core.servers.clone(), Some(core.clone()));
        let mut error = match znodes.commit(changes.after_held(self)).await {
            // The first one is of the condition.
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

    /// Its session.
    pub(crate) fn session(&self) -> &Arc<Core> {
        &self.inner.core
    }

    /// Asks the cluster whether the lock is held.
    pub async fn verify(&self) -> Result<bool, Error> {
        let name = encode::segment(&self.grant.lock);
        let path = format!("/v1/locks/{name}/check?fencing_token={}", self.fencing_token());
        let checked: Checked = self.inner.core.servers.ask(&Call::get(path)).await?;
        Ok(checked.held)
    }

    /// Waits until the lock is lost, before somebody else can have it: when no heartbeat was confirmed for the session's
    /// time less the margin, and as soon as the cluster says so. That somebody broke the lock, deleted its znode or released
    /// it elsewhere is told at once, and how ([`Loss::Broken`], [`Loss::Deleted`], [`Loss::Released`]); or, while no server can be
    /// followed, within a third of the session's time ([`Loss::TakenAway`]).
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let (core, mut lost) = (self.inner.core.clone(), self.lost.clone());
        async move {
            tokio::select! {
                loss = core.life.lost() => loss,
                // The sender is dropped when the guard has given the lock back; then only the session can be lost.
                Ok(loss) = async { lost.wait_for(Option::is_some).await.map(|loss| loss.clone()) } => {
                    loss.expect("it was waited for")
                }
            }
        }
    }

    /// Holds the lock alone that it has held as upgradeable: waits until those who share it have gone, and lets nobody in
    /// meanwhile. With it comes a new token. If it is not granted, or this call is dropped, the lock stays upgradeable.
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

    /// Goes on as one of those who share the lock, without a gap: those who get along with that are let in at the same moment. The
    /// token stays. Whoever begins this has to do with fewer rights from then on, however it ends, unless it was refused.
    pub async fn downgrade(&mut self) -> Result<(), Error> {
        self.downgrade_to(Mode::Shared).await
    }

    /// Likewise, but as the one who may become exclusive again.
    pub async fn downgrade_to_upgradeable(&mut self) -> Result<(), Error> {
        self.downgrade_to(Mode::Upgradeable).await
    }

    async fn downgrade_to(&mut self, to: Mode) -> Result<(), Error> {
        let _turn = self.hold.turns.clone().lock_owned().await;
        self.check()?;
        let (mode, token) = self.hold.now();
        // From here on others may be let in, also if nobody waits for the answer.
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

    /// Who asks for the lock, if somebody does and has got no [`LockGuard::answer`].
    pub fn revocation(&self) -> Option<Revocation> {
        self.asked.borrow().clone()
    }

    /// Waits until somebody asks that the lock be given up ([`crate::LockClient::revoke`]). It is told at once, or,
    /// while no server can be followed, within a third of the session's time. What comes of it is up to this program.
    pub fn revoke_requested(&self) -> impl Future<Output = Revocation> + Send + use<> {
        let mut asked = self.asked.clone();
        async move {
            let revocation = asked.wait_for(Option::is_some).await.map(|asked| asked.clone());
            match revocation.ok().flatten() {
                Some(revocation) => revocation,
                // The guard has gone, and nobody asks for it any more.
                None => std::future::pending().await,
            }
        }
    }

    /// Says something to whoever asks for the lock: when it will be given up, perhaps.
    pub async fn answer(&self, text: &str) -> Result<(), Error> {
        self.check()?;
        let core = &self.inner.core;
        let body = json!({ "session": core.id, "holder": self.grant.holder, "answer": text, "request_id": request_id() });
        let path = format!("/v1/locks/{}/revoke", encode::segment(&self.grant.lock));
        let answered = core.servers.call(&Call::with(Method::POST, path, &body)).await;
        let answered = answered.map(drop).map_err(|error| core.refused(error));
        core.explained(answered, [&*self.grant.holder]).await
    }

    /// Gives the lock back. Returns when the next one in the queue has it, and how many holds of a re-entered lock are
    /// left.
    ///
    /// An error says that the lock was not held to the end ([`Error::Lost`], for the reason that [`LockGuard::check`] gives), or that it
    /// is not known whether it is released.
    pub async fn release(mut self) -> Result<u32, Error> {
        let loss = self.loss();
        let core = self.inner.core.clone();
        core.life.leave(self.number);
        if loss.as_ref().is_none_or(Loss::may_live) {
            let released = release(&core, &self.grant, &self.release_id).await;
            // Not before: if this future is dropped, the lock is to be released all the same.
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
        // Its session has ended, or will for want of heartbeats.
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

/// Several locks that were granted together: each is a guard of its own. Dropped, all are given back in the background.
#[derive(Debug)]
#[must_use = "guards that are dropped release their locks"]
pub struct LockGuards {
    inner: Arc<Inner>,
    guards: Vec<LockGuard>,
    release_id: String,
}

impl LockGuards {
    pub(crate) fn new(inner: Arc<Inner>, grants: Vec<Grant>) -> Self {
        let guards = grants
            .into_iter()
            .map(|grant| LockGuard::new(inner.clone(), grant));
        Self {
            guards: guards.collect(),
            inner,
            release_id: request_id(),
        }
    }

    /// The guards, in the order in which the locks were asked for.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The guard of this lock, if it is one of them.
    pub fn get(&self, lock: &str) -> Option<&LockGuard> {
        self.guards.iter().find(|guard| guard.lock() == lock)
    }

    /// Whether all are surely held at this moment; see [`LockGuard::check`].
    pub fn check(&self) -> Result<(), Error> {
        self.guards.iter().try_for_each(|guard| guard.check().map(drop))
    }

    /// Waits until one of them is lost; see [`LockGuard::lost`].
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        let losses = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        let first = futures_util::future::select_all(losses);
        async move { first.await.0 }
    }

    /// To give them back one by one.
    pub fn into_guards(mut self) -> Vec<LockGuard> {
        std::mem::take(&mut self.guards)
    }

    /// Gives all back, in one step. An error says that not all were held to the end, or that it is not known whether they
    /// are given back.
    pub async fn release(mut self) -> Result<(), Error> {
        let loss = self.guards.iter().find_map(LockGuard::loss);
        let core = self.inner.core.clone();
        let grants = self.leave();
        let released = match core.life.loss() {
            Some(loss) if !loss.may_live() => Err(Error::Lost(loss)),
            _ => release_many(&core, &grants, &self.release_id).await,
        };
        // Not before: if this future is dropped, the locks are to be released all the same.
        self.guards.clear();
        match loss {
            Some(loss) => Err(Error::Lost(loss)),
            None => {
                core.explained(released, grants.iter().map(|grant| &*grant.holder))
                    .await
            }
        }
    }

    /// From now on the guards do nothing by themselves.
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
        // Its session has ended, or will for want of heartbeats.
        if grants.is_empty() || self.inner.core.life.loss().is_some() {
            return;
        }
        // Under the same request id as a release that was dropped half way: no hold is given back twice.
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
