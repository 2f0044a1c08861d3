//! A lock that is held, or was: who has it asks before it acts, and hears when it is lost.

use std::fmt;
use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::watch;

use crate::acquire::{Grant, Mode, release};
use crate::encode;
use crate::error::{Error, Loss};
use crate::http::Call;
use crate::servers::request_id;
use crate::session::Inner;

/// The proof of a grant: of two conflicting grants of one lock the later one has the larger token.
///
/// A storage that is written to under the lock keeps the largest token that it has seen, and refuses smaller ones: so
/// nothing is written by a holder that was paused, lost its lock, and does not know it yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

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
pub struct LockGuard {
    inner: Arc<Inner>,
    grant: Grant,
    /// Which of the session's guards it is.
    number: u64,
    lost: watch::Receiver<Option<Loss>>,
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
        let (number, lost) = inner.core.life.enter(&grant.holder);
        Self {
            inner,
            grant,
            number,
            lost,
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
        self.grant.mode
    }

    /// The proof of the grant.
    pub fn fencing_token(&self) -> FencingToken {
        FencingToken(self.grant.fencing_token)
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

    /// Asks the cluster whether the lock is held.
    pub async fn verify(&self) -> Result<bool, Error> {
        let name = encode::segment(&self.grant.lock);
        let path = format!(
            "/v1/locks/{name}/check?fencing_token={}",
            self.grant.fencing_token
        );
        let checked: Checked = self.inner.core.servers.ask(&Call::get(path)).await?;
        Ok(checked.held)
    }

    /// Waits until the lock is lost, before somebody else can have it: when no heartbeat was confirmed for the session's
    /// time less the margin, and as soon as the cluster says so. That an operator broke the lock is noticed with the next
    /// heartbeat, within a third of the session's time.
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

    /// Gives the lock back. Returns when the next one in the queue has it, and how many holds of a re-entered lock are
    /// left.
    ///
    /// An error says that the lock was not held to the end: [`Error::Lost`], or a refusal (`not_holder`) if it was
    /// taken away; or that it is not known whether it is given back.
    pub async fn release(mut self) -> Result<u32, Error> {
        self.inner.core.life.leave(self.number);
        let released = release(&self.inner.core, &self.grant, &self.release_id).await;
        // Not before: whoever drops this future wants the lock to be given back all the same.
        self.given_back = true;
        released
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
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => {
                runtime.spawn(async move {
                    if let Err(error) = release(&inner.core, &grant, &id).await {
                        tracing::warn!(lock = grant.lock, %error, "a dropped guard's lock was not given back");
                    }
                });
            }
            Err(_) => {
                tracing::warn!(
                    lock = grant.lock,
                    "a guard was dropped outside of the runtime: its lock ends with the session"
                );
            }
        }
    }
}
