//! Leader election: the holder of a lock leads, and the waiters in its queue follow in order.

use crate::client::LockClient;
use crate::error::{Error, Loss};
use crate::fencing_token::FencingToken;
use crate::guard::LockGuard;
use crate::options::AcquireOptions;
use crate::session::LockSession;

/// Election among the candidates that name the same lock.
#[derive(Debug, Clone)]
pub struct Election {
    session: LockSession,
    lock: String,
}

/// Leadership of a candidate. Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership(LockGuard);

/// Candidate, leading or waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Text of the candidate: its address, for example.
    pub name: String,
    /// Session.
    pub session: String,
    /// Term: of two leaders the later one has the larger number.
    pub term: FencingToken,
}

impl Election {
    /// Takes part in the election `lock`, on behalf of `session`.
    pub fn new(session: LockSession, lock: &str) -> Self {
        let lock = lock.to_owned();
        Self { session, lock }
    }

    /// Waits until this candidate leads. Other candidates see `name`.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the candidate leaves the queue.
    pub async fn campaign(&self, name: &str) -> Result<Leadership, Error> {
        let options = AcquireOptions::exclusive().note(name);
        self.session.acquire(&self.lock, options).await.map(Leadership)
    }

    /// Returns the leader, and the waiting candidates in order. Any client may call it.
    pub async fn candidates(client: &LockClient, lock: &str) -> Result<Vec<Candidate>, Error> {
        let Some(view) = client.lock(lock).await? else {
            return Ok(Vec::new());
        };
        let contenders = view.holders.into_iter().chain(view.queue);
        let candidates = contenders.map(|contender| Candidate {
            name: contender.note,
            session: contender.session,
            term: contender.fencing_token,
        });
        Ok(candidates.collect())
    }
}

impl Leadership {
    /// Returns the term of this leader. Its writes should carry it, and a storage that has seen a larger one should refuse them.
    pub fn term(&self) -> FencingToken {
        self.0.fencing_token()
    }

    /// Returns the term if this candidate surely leads at this moment. Call it before every step of the leader.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.0.check()
    }

    /// Waits until the candidate does not lead any more, or may not: before another candidate can. Cancel safe.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        self.0.lost()
    }

    /// Returns the guard of the lock.
    pub fn guard(&self) -> &LockGuard {
        &self.0
    }

    /// Resigns, so that the next candidate can lead.
    pub async fn resign(self) -> Result<(), Error> {
        self.0.release().await.map(drop)
    }
}
