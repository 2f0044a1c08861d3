//! Double barrier: a number of members begin together, and end together.

use crate::error::{Code, Error};
use crate::session::LockSession;
use crate::znodes::{CreateMode, WatchKind, Znodes};

/// Prefix of the members' znodes; a number follows.
const MEMBER: &str = "member-";

/// Name of the znode that exists once all members have entered.
const READY: &str = "ready";

/// Double barrier for one round of work. Use another path for another round: a fast member could otherwise begin again while a slow one
/// waits for the end of the last round.
#[derive(Debug, Clone)]
pub struct DoubleBarrier {
    session: LockSession,
    path: String,
    members: usize,
}

/// Member that has entered a double barrier.
#[derive(Debug)]
#[must_use = "a member that does not leave keeps the others waiting"]
pub struct Entered {
    znodes: Znodes,
    path: String,
    /// Path of its znode.
    member: String,
}

impl DoubleBarrier {
    /// Returns the barrier at `path` for this number of `members`, each with a session of its own. The end of a member's session counts as
    /// leaving.
    pub fn new(session: LockSession, path: &str, members: usize) -> Self {
        let path = path.to_owned();
        Self {
            session,
            path,
            members,
        }
    }

    /// Waits until all members have entered. To give up, close the session.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the member counts as entered until its session ends.
    pub async fn enter(&self) -> Result<Entered, Error> {
        let (znodes, ready) = (self.session.znodes(), format!("{}/{READY}", self.path));
        let own = format!("{}/{MEMBER}", self.path);
        let (member, _) = znodes
            .create(&own, "", CreateMode::EphemeralSequential, true)
            .await?;
        // Each member counts after it has created its znode, so the last one counts all.
        if count_members(&znodes, &self.path).await? >= self.members {
            let created = znodes.create(&ready, "", CreateMode::Persistent, false).await;
            super::done_or(Code::NodeExists, created.map(drop))?;
        } else {
            // From the first log position on: a znode that exists already is reported at once.
            znodes.watch_after(&ready, WatchKind::Exists, 0).await?;
        }
        let path = self.path.clone();
        Ok(Entered { znodes, path, member })
    }
}

impl Entered {
    /// Waits until all members have left.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the member has left, or leaves when its session ends.
    pub async fn leave(self) -> Result<(), Error> {
        let Self { znodes, path, member } = self;
        super::done_or(Code::NoZnode, znodes.delete(&member, None, false).await)?;
        // The parent is deleted when all is over; then no member is left either.
        while let Some(barrier) = znodes.find(&path).await? {
            if count_members(&znodes, &path).await? == 0 {
                let ready = format!("{path}/{READY}");
                return super::done_or(Code::NoZnode, znodes.delete(&ready, None, false).await);
            }
            let watched = znodes.watch_after(&path, WatchKind::Children, barrier.stat.pzxid);
            super::done_or(Code::NoZnode, watched.await.map(drop))?;
        }
        Ok(())
    }
}

async fn count_members(znodes: &Znodes, path: &str) -> Result<usize, Error> {
    match znodes.children(path).await {
        Ok(children) => Ok(children
            .iter()
            .filter(|child| child.name.starts_with(MEMBER))
            .count()),
        Err(error) if error.is(Code::NoZnode) => Ok(0),
        Err(error) => Err(error),
    }
}
