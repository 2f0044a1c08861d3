//! Leader election: the holder of a lock leads, and the waiters in its queue follow in order.
//!
//! # Contract
//!
//! - **One leader.** A candidate leads from [`Election::campaign`]'s return until [`Leadership::lost`] completes. The lock is exclusive, and
//!   its loss is reported before another candidate can get it. So at most one candidate leads at any time, under the conditions of
//!   [the crate's guarantees](crate#guarantees-to-a-holder). Storage that refuses smaller [terms](Leadership::term) needs no conditions.
//! - **Order.** Without a hand-over, candidates lead in the order of their campaigns.
//! - **Hand-over.** After [`Leadership::hand_over`] the named candidate leads next if it campaigns until then. Other candidates that get the
//!   lock before it release it, lead in no term, and enter the queue again at its end. If the named candidate leaves, the next one in the
//!   queue leads. A hand-over is forgotten after 30 s.
//! - **Preference.** [`Election::campaign_as_preferred`] asks each leader to hand over. The leader decides when, or whether.
//! - **Observation.** [`Observer::next`] returns the leader, and each later one. It may miss leaders between two calls, never the last.
//!
//! A hand-over is a znode below `/elections` with the name of the successor. The leader writes it in a transaction that fails if it does not
//! lead any more. So candidates need the right to write there, and names should be unique in an election. The clients for other languages
//! use the same znode.

use std::time::Duration;

use crate::client::LockClient;
use crate::encode;
use crate::error::{Code, Error, Loss};
use crate::fencing_token::FencingToken;
use crate::guard::LockGuard;
use crate::life::ReleaseRequest;
use crate::options::AcquireOptions;
use crate::session::LockSession;
use crate::views::{Contender, LockView};
use crate::znodes::{CreateMode, Transaction, WatchKind};

/// Parent of the znodes that name successors.
const HAND_OVERS: &str = "/elections";

/// Time after which a hand-over is forgotten.
const HAND_OVER_TTL: Duration = Duration::from_secs(30);

/// Pause between two reads of a lock that is closed for a time ([`AcquireOptions::min_hold`], [`AcquireOptions::lock_delay`]): its grant
/// changes no children.
const CLOSED_PAUSE: Duration = Duration::from_secs(1);

/// Election among the candidates that name the same lock.
#[derive(Debug, Clone)]
pub struct Election {
    session: LockSession,
    lock: String,
}

/// Leadership of a candidate. Dropping it resigns in the background.
#[derive(Debug)]
#[must_use = "a leadership that is dropped is resigned"]
pub struct Leadership {
    guard: LockGuard,
    client: LockClient,
}

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

/// Observer of an election; see [`Election::observe`].
#[derive(Debug)]
pub struct Observer {
    views: Views,
    /// Leader that was returned last.
    last: Option<Option<Candidate>>,
}

/// States of a lock, one after each change.
#[derive(Debug)]
struct Views {
    client: LockClient,
    lock: String,
    /// State that the caller has seen.
    seen: Option<Seen>,
}

/// State of a lock's znode.
#[derive(Debug, Clone, Copy)]
enum Seen {
    /// There is none.
    Missing,
    /// Log position of the last change of its children.
    Children(u64),
    /// The same; the lock is free and will be granted without such a change.
    Closed(u64),
}

impl From<Contender> for Candidate {
    fn from(contender: Contender) -> Self {
        Self {
            name: contender.note,
            session: contender.session,
            term: contender.fencing_token,
        }
    }
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
        loop {
            let options = AcquireOptions::exclusive().note(name);
            let guard = self.session.acquire(&self.lock, options).await?;
            let client = self.session.client().clone();
            if leads(&client, &guard, name).await? {
                return Ok(Leadership { guard, client });
            }
            guard.release().await?;
        }
    }

    /// Campaigns, and asks each other leader by a [release request](Leadership::resign_requested) to hand over to this candidate. At most one
    /// candidate of an election should be preferred. It needs the right to break the lock.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the candidate leaves the queue. A leader that was asked may still resign.
    pub async fn campaign_as_preferred(&self, name: &str) -> Result<Leadership, Error> {
        tokio::select! {
            biased;
            elected = self.campaign(name) => elected,
            failed = self.request_leadership(name) => match failed? {},
        }
    }

    /// Asks each leader once, while this candidate waits.
    async fn request_leadership(&self, name: &str) -> Result<std::convert::Infallible, Error> {
        let client = self.session.client();
        let mut views = Views::new(client, &self.lock);
        let mut asked = None;
        loop {
            // Without a majority the campaign waits, and so does this.
            let (seen, view) = match views.next().await {
                Err(Error::Unavailable(_)) => continue,
                other => other?,
            };
            let view = view.filter(|view| view.queue.iter().any(|waiter| waiter.note == name));
            let leader = view.and_then(first_holder).map(|leader| leader.holder);
            if let Some(leader) = leader.filter(|leader| asked.as_ref() != Some(leader)) {
                match client.request_release(&self.lock, Some(&leader), name).await {
                    Err(Error::Unavailable(_) | Error::Unknown(_)) => continue,
                    // It has resigned meanwhile.
                    Err(error) if error.is(Code::NotHolder) || error.is(Code::NoLock) => {}
                    other => drop(other?),
                }
                asked = Some(leader);
            }
            views.seen = Some(seen);
        }
    }

    /// Returns the leader, and the waiting candidates in order. Any client may call it.
    pub async fn candidates(client: &LockClient, lock: &str) -> Result<Vec<Candidate>, Error> {
        let Some(view) = client.lock(lock).await? else {
            return Ok(Vec::new());
        };
        let contenders = view.holders.into_iter().chain(view.queue);
        Ok(contenders.map(Candidate::from).collect())
    }

    /// Observes the leaders of an election. Any client may do so. Sends nothing before the first call of [`Observer::next`].
    pub fn observe(client: &LockClient, lock: &str) -> Observer {
        Observer {
            views: Views::new(client, lock),
            last: None,
        }
    }
}

impl Leadership {
    /// Returns the term of this leader. Its writes should carry it, and a storage that has seen a larger one should refuse them.
    pub fn term(&self) -> FencingToken {
        self.guard.fencing_token()
    }

    /// Returns the term if this candidate surely leads at this moment. Call it before every step of the leader.
    pub fn check(&self) -> Result<FencingToken, Error> {
        self.guard.check()
    }

    /// Waits until the candidate does not lead any more, or may not: before another candidate can. Cancel safe.
    pub fn lost(&self) -> impl Future<Output = Loss> + Send + use<> {
        self.guard.lost()
    }

    /// Returns the guard of the lock.
    pub fn guard(&self) -> &LockGuard {
        &self.guard
    }

    /// Waits for a request to resign. If it is of a [preferred candidate](Election::campaign_as_preferred), its reason is the name to
    /// [hand over](Leadership::hand_over) to; an operator gives another reason. Cancel safe.
    pub fn resign_requested(&self) -> impl Future<Output = ReleaseRequest> + Send + use<> {
        self.guard.release_requested()
    }

    /// Resigns, so that the next candidate can lead.
    pub async fn resign(self) -> Result<(), Error> {
        self.guard.release().await.map(drop)
    }

    /// Resigns in favour of the waiting candidate with this name, which leads next. If none of this name waits, returns the leadership, which
    /// continues.
    ///
    /// An error resigns too. Then the named candidate leads next, or the first one in the queue.
    ///
    /// # Cancel safety
    ///
    /// If dropped, this candidate resigns, as after a failure.
    pub async fn hand_over(self, to: &str) -> Result<Option<Self>, Error> {
        if !waits(&self.client, self.guard.lock(), to).await? {
            return Ok(Some(self));
        }
        let path = hand_over_path(self.guard.lock());
        loop {
            let create = Transaction::new().create(&path, to, CreateMode::Ttl(HAND_OVER_TTL));
            let set = || Transaction::new().set(&path, to, None);
            let error = match self.guard.write(create).await {
                Ok(_) => break,
                // Of an earlier hand-over.
                Err(error) if error.is(Code::NodeExists) => match self.guard.write(set()).await {
                    Ok(_) => break,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !error.is(Code::NoZnode) {
                return Err(error);
            }
            // The parent is missing, or the earlier hand-over was just forgotten.
            let znodes = self.client.znodes();
            let created = znodes.create(HAND_OVERS, "", CreateMode::Persistent, false).await;
            super::done_or(Code::NodeExists, created.map(drop))?;
        }
        self.resign().await?;
        Ok(None)
    }
}

impl Observer {
    /// Returns the leader at the first call, and at each later call waits for another one. `None` means that no candidate leads. After an
    /// error it may be called again.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call returns what this one would have.
    pub async fn next(&mut self) -> Result<Option<Candidate>, Error> {
        loop {
            let (seen, view) = self.views.next().await?;
            if let Some(leader) = self.leader(view).await? {
                // Only now, so that a dropped call misses nothing.
                self.views.seen = Some(seen);
                if self.last.as_ref() != Some(&leader) {
                    self.last = Some(leader.clone());
                    return Ok(leader);
                }
            }
        }
    }

    /// Returns the holder, unless it will release the lock for a named successor. `None` if the holder has changed meanwhile.
    async fn leader(&self, view: Option<LockView>) -> Result<Option<Option<Candidate>>, Error> {
        let Views { client, lock, .. } = &self.views;
        let Some(holder) = view.and_then(first_holder) else {
            return Ok(Some(None));
        };
        let successor = successor(client, lock).await?;
        // The successor is that of this holder only if it holds the lock before and after.
        let Some(view) = client.lock(lock).await? else {
            return Ok(None);
        };
        let yields = successor
            .is_some_and(|(to, _)| to != holder.note && view.queue.iter().any(|waiter| waiter.note == to));
        let is_same = first_holder(view).is_some_and(|now| now.holder == holder.holder);
        Ok(is_same.then(|| (!yields).then(|| holder.into())))
    }
}

fn first_holder(view: LockView) -> Option<Contender> {
    view.holders.into_iter().next()
}

impl Views {
    fn new(client: &LockClient, lock: &str) -> Self {
        Self {
            client: client.clone(),
            lock: lock.to_owned(),
            seen: None,
        }
    }

    /// Returns the lock after a change of its contenders since `seen`, or at once, with the state to be seen then. Cancel safe.
    async fn next(&self) -> Result<(Seen, Option<LockView>), Error> {
        let (znodes, path) = (self.client.znodes(), format!("/locks/{}", self.lock));
        let watched = match self.seen {
            None => Ok(()),
            // From the first log position on: a znode that exists already is reported at once.
            Some(Seen::Missing) => znodes.watch_after(&path, WatchKind::Exists, 0).await.map(drop),
            Some(Seen::Children(seen)) => {
                let changed = znodes.watch_after(&path, WatchKind::Children, seen);
                changed.await.map(drop)
            }
            Some(Seen::Closed(seen)) => {
                let changed = znodes.watch_after(&path, WatchKind::Children, seen);
                let changed = tokio::time::timeout(CLOSED_PAUSE, changed).await;
                changed.map_or(Ok(()), |changed| changed.map(drop))
            }
        };
        super::done_or(Code::NoZnode, watched)?;
        // The position first: a change in between is reported by the next watch.
        let znode = znodes.find(&path).await?;
        let view = self.client.lock(&self.lock).await?;
        let is_closed = view
            .as_ref()
            .is_some_and(|view| view.holders.is_empty() && !view.queue.is_empty());
        let seen = match znode {
            None => Seen::Missing,
            Some(znode) if is_closed => Seen::Closed(znode.stat.pzxid),
            Some(znode) => Seen::Children(znode.stat.pzxid),
        };
        Ok((seen, view))
    }
}

fn hand_over_path(lock: &str) -> String {
    format!("{HAND_OVERS}/{}", encode::segment(lock))
}

/// Returns the named successor, and the version of its znode.
async fn successor(client: &LockClient, lock: &str) -> Result<Option<(String, i32)>, Error> {
    let znode = client.znodes().find(&hand_over_path(lock)).await?;
    let named = znode.map(|znode| {
        let name = String::from_utf8_lossy(&znode.data).into_owned();
        (name, znode.stat.version)
    });
    Ok(named)
}

/// Returns whether a candidate of this name waits.
async fn waits(client: &LockClient, lock: &str, name: &str) -> Result<bool, Error> {
    let view = client.lock(lock).await?;
    Ok(view.is_some_and(|view| view.queue.iter().any(|waiter| waiter.note == name)))
}

/// Returns whether the candidate that holds the lock leads. It does not if the last leader has named another one, which waits.
async fn leads(client: &LockClient, guard: &LockGuard, name: &str) -> Result<bool, Error> {
    let Some((to, version)) = successor(client, guard.lock()).await? else {
        return Ok(true);
    };
    if to != name && waits(client, guard.lock(), &to).await? {
        return Ok(false);
    }
    let forget = Transaction::new().delete(&hand_over_path(guard.lock()), Some(version));
    match guard.write(forget).await {
        Err(error) if error.is(Code::NoZnode) => Ok(true),
        other => other.map(|_| true),
    }
}
