//! What a client learns of a call: done, certainly not done, or nobody knows.

use lockgate_check::Outcome;

/// The result of a call, with the reason where it is none. The three never mix: a checker believes a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    /// Carried out.
    Ok(T),
    /// Certainly not carried out, now or later; why, in a few words.
    Failed(String),
    /// Perhaps carried out, perhaps later; why nobody knows, in a few words.
    Unknown(String),
}

impl<T> Answer<T> {
    /// The same of something else.
    pub fn map<U>(self, to: impl FnOnce(T) -> U) -> Answer<U> {
        match self {
            Self::Ok(value) => Answer::Ok(to(value)),
            Self::Failed(why) => Answer::Failed(why),
            Self::Unknown(why) => Answer::Unknown(why),
        }
    }

    /// What came back, if anything did.
    pub fn ok(self) -> Option<T> {
        match self {
            Self::Ok(value) => Some(value),
            Self::Failed(_) | Self::Unknown(_) => None,
        }
    }

    /// For something that changes nothing: without an answer it is as if it had not been asked.
    #[must_use]
    pub fn of_read(self) -> Self {
        match self {
            Self::Unknown(why) => Self::Failed(why),
            known => known,
        }
    }

    /// As a checker wants it.
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
