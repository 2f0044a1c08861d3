//! A shared counter, or atomic long: a number that many change, each change made once.

use super::{CountError, number};
use crate::error::Code;
use crate::znodes::{CreateMode, Znodes};

/// A number in a znode. It is zero until it is changed first.
#[derive(Debug, Clone)]
pub struct Counter {
    znodes: Znodes,
    path: String,
}

impl Counter {
    /// The counter at `path`.
    pub fn new(znodes: Znodes, path: &str) -> Self {
        let path = path.to_owned();
        Self { znodes, path }
    }

    /// The number.
    pub async fn get(&self) -> Result<i64, CountError> {
        match self.znodes.find(&self.path).await? {
            Some(znode) => number(&self.path, &znode),
            None => Ok(0),
        }
    }

    /// Adds to it, and returns what it is then.
    pub async fn add(&self, difference: i64) -> Result<i64, CountError> {
        let changed = self.update(|value| value.checked_add(difference)).await?;
        changed.ok_or_else(|| CountError::Overflow(self.path.clone()))
    }

    /// Makes it `new` if it is `expected`. Says whether it was.
    pub async fn compare_and_set(&self, expected: i64, new: i64) -> Result<bool, CountError> {
        let changed = self.update(|value| (value == expected).then_some(new)).await?;
        Ok(changed.is_some())
    }

    /// Makes it what `change` makes of it, and returns that; `None` leaves it. `change` may be called several times, if
    /// others change the number meanwhile.
    pub async fn update(
        &self,
        mut change: impl FnMut(i64) -> Option<i64>,
    ) -> Result<Option<i64>, CountError> {
        loop {
            let found = self.znodes.find(&self.path).await?;
            let value = match &found {
                Some(znode) => number(&self.path, znode)?,
                None => 0,
            };
            let Some(new) = change(value) else {
                return Ok(None);
            };
            let text = new.to_string();
            let changed = match found {
                Some(znode) => self
                    .znodes
                    .set(&self.path, text, Some(znode.stat.version))
                    .await
                    .map(drop),
                None => {
                    let created = self.znodes.create(&self.path, text, CreateMode::Persistent, true);
                    created.await.map(drop)
                }
            };
            match changed {
                Ok(()) => return Ok(Some(new)),
                // Somebody else was faster. So at every turn somebody gets on.
                Err(error)
                    if matches!(
                        error.code(),
                        Some(Code::BadVersion | Code::NodeExists | Code::NoNode)
                    ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
