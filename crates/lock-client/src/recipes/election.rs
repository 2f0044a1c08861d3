//! Leader election: whoever holds the lock leads, and those who wait in its queue follow in their turn.

use crate::client::LockClient;
use crate::error::{Error, Loss};
use crate::guard::{FencingToken, LockGuard};
use crate::options::AcquireOptions;
use crate::session::LockSession;

/// An election among all who name the same lock.
#[derive(Debug, Clone)]
pub struct Election {
    session: LockSession,
    lock: String,
}

/// To lead, for as long as it is not lost. Dropped, it is resigned in the background.
#[derive(Debug)]
pub struct Leadership(LockGuard);

/// Somebody who leads, or wants to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// What it says of itself: its address, perhaps.
    pub name: String,
    /// Its session.
    pub session: String,
    /// Its term: of two leaders the later one has the larger number.
    pub term: FencingToken,
}

impl Election {
    /// Takes part in the election `lock`, on behalf of `session`.
    pub fn new(session: LockSession, lock: &str) -> Self {
        let lock = lock.to_owned();
        Self { session, lock }
    }

    /// Waits until this candidate leads. `name` is what others see of it. Dropped, it does not want to any more.
    pub async fn campaign(&self, name: &str) -> Result<Leadership, Error> {
        let options = AcquireOptions::exclusive().note(name);
        self.session.acquire(&self.lock, options).await.map(Leadership)
    }

    /// Who leads, and those who follow in their turn: asked by anybody.
    pub async fn candidates(client: &LockClient, lock: &str) -> Result<Vec<Candidate>, Error> {
        let Some(view) = client.lock(lock).await? else {
            return Ok(Vec::new());
        };
        let contenders = view.holders.into_iter().chain(view.queue);
        let candidates = contenders.map(|contender| Candidate {
            name: contender.note,
            session: contender.session,
            term: FencingToken(contender.fencing_token),
        });
        Ok(candidates.collect())
    }
}

impl Leadership {
    /// The term of this leader: what it writes should carry it, and what has seen a larger one should refuse it.
    pub fn term(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// The term, if this candidate surely leads at this moment. To be asked before every step that only a leader makes.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.0.check()
    }

    /// Waits until it does not lead, or not surely, any more: before another can.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        self.0.lost()
    }

    /// The lock that it leads by.
    pub fn guard(&self) -> &LockGuard {
        &self.0
    }

    /// Lets the next one lead.
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await.map(drop)
    }
}
