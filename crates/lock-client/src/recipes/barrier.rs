//! Barrier: all callers wait until it is opened.

use crate::error::{Code, Error};
use crate::znodes::{CreateMode, WatchKind, Znodes};

/// Barrier, which is closed while a znode exists.
#[derive(Debug, Clone)]
pub struct Barrier {
    znodes: Znodes,
    path: String,
}

impl Barrier {
    /// Returns the barrier at `path`. It is open at first.
    pub fn new(znodes: Znodes, path: &str) -> Self {
        let path = path.to_owned();
        Self { znodes, path }
    }

    /// Closes the barrier: later callers of [`Barrier::wait`] wait.
    pub async fn close(&self) -> Result<(), Error> {
        let created = self
            .znodes
            .create(&self.path, "", CreateMode::Persistent, true)
            .await;
        super::done_or(Code::NodeExists, created.map(drop))
    }

    /// Opens the barrier.
    pub async fn open(&self) -> Result<(), Error> {
        super::done_or(Code::NoZnode, self.znodes.delete(&self.path, None, false).await)
    }

    /// Waits until the barrier is open. Cancel safe.
    pub async fn wait(&self) -> Result<(), Error> {
        while let Some(znode) = self.znodes.find(&self.path).await? {
            let watched = self
                .znodes
                .watch_after(&self.path, WatchKind::Data, znode.stat.mzxid);
            // A znode that is gone means an open barrier.
            super::done_or(Code::NoZnode, watched.await.map(drop))?;
        }
        Ok(())
    }
}
