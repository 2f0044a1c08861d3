//! Countdown latch: callers wait until something has happened a number of times.

use super::{CountError, number};
use crate::error::{Code, Error};
use crate::znodes::{CreateMode, WatchKind, Znodes};

/// Number in a znode that is counted down to zero, once.
#[derive(Debug, Clone)]
pub struct CountdownLatch {
    znodes: Znodes,
    path: String,
}

impl CountdownLatch {
    /// Returns the latch at `path`, and creates it with `count` unless it exists. So all parties may call this, with the same count.
    pub async fn open(znodes: Znodes, path: &str, count: u64) -> Result<Self, Error> {
        let created = znodes
            .create(path, count.to_string(), CreateMode::Persistent, true)
            .await;
        super::done_or(Code::NodeExists, created.map(drop))?;
        let path = path.to_owned();
        Ok(Self { znodes, path })
    }

    /// Returns the remaining count.
    pub async fn count(&self) -> Result<u64, CountError> {
        number(&self.path, &self.znodes.get(&self.path).await?)
    }

    /// Counts down by one, but not below zero. Returns the remaining count.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the count is reduced or not.
    pub async fn count_down(&self) -> Result<u64, CountError> {
        loop {
            let znode = self.znodes.get(&self.path).await?;
            let count: u64 = number(&self.path, &znode)?;
            let Some(left) = count.checked_sub(1) else {
                return Ok(0);
            };
            match self
                .znodes
                .set(&self.path, left.to_string(), Some(znode.stat.version))
                .await
            {
                Ok(_) => return Ok(left),
                // Another client has counted meanwhile.
                Err(error) if error.is(Code::BadVersion) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the count is zero. Cancel safe.
    pub async fn wait(&self) -> Result<(), CountError> {
        loop {
            let znode = self.znodes.get(&self.path).await?;
            if number::<u64>(&self.path, &znode)? == 0 {
                return Ok(());
            }
            self.znodes
                .watch_after(&self.path, WatchKind::Data, znode.stat.mzxid)
                .await?;
        }
    }

    /// Deletes the latch.
    pub async fn delete(self) -> Result<(), Error> {
        super::done_or(Code::NoZnode, self.znodes.delete(&self.path, None, false).await)
    }
}
