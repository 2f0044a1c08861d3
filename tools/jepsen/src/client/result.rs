//! Result of a call as a client knows it: done, certainly not done, or unknown.

use lockgate_check::Outcome;

/// Result of a call, with the reason unless it is `Ok`. The three cases are never mixed up: a checker relies
/// on a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallResult<T> {
    /// Committed, with the result.
    Ok(T),
    /// Certainly not executed, now or later; with a short reason.
    Failed(String),
    /// Perhaps executed, perhaps later; with a short reason.
    Unknown(String),
}

impl<T> CallResult<T> {
    /// Converts the value of `Ok`.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> CallResult<U> {
        match self {
            Self::Ok(value) => CallResult::Ok(to(value)),
            Self::Failed(why) => CallResult::Failed(why),
            Self::Unknown(why) => CallResult::Unknown(why),
        }
    }

    /// Returns the value of `Ok`.
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Ok(value) => Some(value),
            Self::Failed(_) | Self::Unknown(_) => None,
        }
    }

    /// Converts `Unknown` of a read into `Failed`: a call that changes nothing has no effect without its
    /// answer.
    #[must_use]
    pub fn for_read(self) -> Self {
        match self {
            Self::Unknown(why) => Self::Failed(why),
            known => known,
        }
    }

    /// Returns the outcome in the checkers' type.
    pub fn outcome(&self) -> Outcome<T>
    where
        T: Clone,
    {
        match self {
            Self::Ok(value) => Outcome::Ok(value.clone()),
            Self::Failed(_) => Outcome::Failed,
            Self::Unknown(_) => Outcome::Unknown,
        }
    }
}
