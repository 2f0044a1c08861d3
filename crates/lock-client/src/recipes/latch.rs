//! A countdown latch: some wait until something has happened so many times.

use super::{CountError, number};
use crate::error::{Code, Error};
use crate::znodes::{CreateMode, WatchKind, Znodes};

/// A number in a znode that goes down to zero, once.
#[derive(Debug, Clone)]
pub struct CountdownLatch {
    znodes: Znodes,
    path: String,
}

impl CountdownLatch {
    /// The latch at `path`, which is created with `count` unless it is there already. So all who take part may call this,
    /// with the same count.
    pub async fn open(znodes: Znodes, path: &str, count: u64) -> Result<Self, Error> {
        let created = znodes
            .create(path, count.to_string(), CreateMode::Persistent, true)
            .await;
        super::done_or(Code::NodeExists, created.map(drop))?;
        let path = path.to_owned();
        Ok(Self { znodes, path })
    }

    /// How many times it still has to happen.
    pub async fn count(&self) -> Result<u64, CountError> {
        number(&self.path, &self.znodes.get(&self.path).await?)
    }

    /// It has happened once. Returns how many times are left; at zero it stays.
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
                // Somebody else has counted meanwhile.
                Err(error) if error.is(Code::BadVersion) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until nothing is left.
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

    /// Deletes it, for all.
    pub async fn delete(self) -> Result<(), Error> {
        super::done_or(Code::NoNode, self.znodes.delete(&self.path, None, false).await)
    }
}
