//! A double barrier: so many begin together, and end together.

use crate::error::{Code, Error};
use crate::session::LockSession;
use crate::znodes::{CreateMode, WatchKind, Znodes};

/// What the names of those within begin with; a number follows.
const MEMBER: &str = "member-";

/// Exists from when all were there.
const READY: &str = "ready";

/// One round of work that so many begin and end together. For another round another path is taken: who is fast could
/// otherwise begin again while a slow one still waits for the end of the last round.
#[derive(Debug, Clone)]
pub struct DoubleBarrier {
    session: LockSession,
    path: String,
    members: usize,
}

/// Somebody within a double barrier.
#[derive(Debug)]
pub struct Entered {
    znodes: Znodes,
    path: String,
    /// Its own znode.
    member: String,
}

impl DoubleBarrier {
    /// The barrier at `path` for so many `members`, each of which has a session of its own. Who loses its session has left.
    pub fn new(session: LockSession, path: &str, members: usize) -> Self {
        let path = path.to_owned();
        Self {
            session,
            path,
            members,
        }
    }

    /// Waits until all are there. A member that gives up before that closes its session.
    pub async fn enter(&self) -> Result<Entered, Error> {
        let (znodes, ready) = (self.session.znodes(), format!("{}/{READY}", self.path));
        let own = format!("{}/{MEMBER}", self.path);
        let (member, _) = znodes
            .create(&own, "", CreateMode::EphemeralSequential, true)
            .await?;
        // Each counts after it has come, so the last one counts all.
        if count_members(&znodes, &self.path).await? >= self.members {
            let created = znodes.create(&ready, "", CreateMode::Persistent, false).await;
            super::done_or(Code::NodeExists, created.map(drop))?;
        } else {
            // Since the beginning of time: if it exists already, it is told at once.
            znodes.watch_after(&ready, WatchKind::Exists, 0).await?;
        }
        let path = self.path.clone();
        Ok(Entered { znodes, path, member })
    }
}

impl Entered {
    /// Waits until all have left.
    pub async fn leave(self) -> Result<(), Error> {
        let Self { znodes, path, member } = self;
        super::done_or(Code::NoNode, znodes.delete(&member, None, false).await)?;
        // It is swept when all is over; then there is nobody left either.
        while let Some(barrier) = znodes.find(&path).await? {
            if count_members(&znodes, &path).await? == 0 {
                let ready = format!("{path}/{READY}");
                return super::done_or(Code::NoNode, znodes.delete(&ready, None, false).await);
            }
            let watched = znodes.watch_after(&path, WatchKind::Children, barrier.stat.pzxid);
            super::done_or(Code::NoNode, watched.await.map(drop))?;
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
        Err(error) if error.is(Code::NoNode) => Ok(0),
        Err(error) => Err(error),
    }
}
