//! A barrier: all who come to it wait until somebody opens it.

use crate::error::{Code, Error};
use crate::znodes::{CreateMode, WatchKind, Znodes};

/// A znode that keeps others waiting for as long as it exists.
#[derive(Debug, Clone)]
pub struct Barrier {
    znodes: Znodes,
    path: String,
}

impl Barrier {
    /// The barrier at `path`. By itself it is open.
    pub fn new(znodes: Znodes, path: &str) -> Self {
        let path = path.to_owned();
        Self { znodes, path }
    }

    /// From now on those who come wait.
    pub async fn close(&self) -> Result<(), Error> {
        let created = self
            .znodes
            .create(&self.path, "", CreateMode::Persistent, true)
            .await;
        super::done_or(Code::NodeExists, created.map(drop))
    }

    /// Lets all go on, and those who come.
    pub async fn open(&self) -> Result<(), Error> {
        super::done_or(Code::NoNode, self.znodes.delete(&self.path, None, false).await)
    }

    /// Waits until it is open.
    pub async fn wait(&self) -> Result<(), Error> {
        while let Some(znode) = self.znodes.find(&self.path).await? {
            let watched = self
                .znodes
                .watch_after(&self.path, WatchKind::Data, znode.stat.mzxid);
            // That it is gone already is what was waited for.
            super::done_or(Code::NoNode, watched.await.map(drop))?;
        }
        Ok(())
    }
}
