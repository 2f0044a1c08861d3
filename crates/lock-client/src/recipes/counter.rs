//! Shared counter, or atomic long, which many clients can change.

use super::{CountError, number};
use crate::error::Code;
use crate::znodes::{CreateMode, Znodes};

/// Number in a znode, initially zero.
#[derive(Debug, Clone)]
pub struct Counter {
    znodes: Znodes,
    path: String,
}

impl Counter {
    /// Returns the counter at `path`.
    pub fn new(znodes: Znodes, path: &str) -> Self {
        let path = path.to_owned();
        Self { znodes, path }
    }

    /// Returns the number.
    pub async fn get(&self) -> Result<i64, CountError> {
        match self.znodes.find(&self.path).await? {
            Some(znode) => number(&self.path, &znode),
            None => Ok(0),
        }
    }

    /// Adds to the number, and returns the sum.
    pub async fn add(&self, difference: i64) -> Result<i64, CountError> {
        let changed = self.update(|value| value.checked_add(difference)).await?;
        changed.ok_or_else(|| CountError::Overflow(self.path.clone()))
    }

    /// Sets the number to `new` if it is `expected`. Returns whether it was.
    pub async fn compare_and_set(&self, expected: i64, new: i64) -> Result<bool, CountError> {
        let changed = self.update(|value| (value == expected).then_some(new)).await?;
        Ok(changed.is_some())
    }

    /// Replaces the number by the result of `change`, and returns that; `None` leaves the number. `change` may be called several times if
    /// other clients change the number meanwhile.
    ///
    /// # Cancel safety
    ///
    /// If dropped, the change is made or not.
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
                // Another client was faster, so one client makes progress in every round.
                Err(error)
                    if matches!(
                        error.code(),
                        Some(Code::BadVersion | Code::NodeExists | Code::NoZnode)
                    ) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
