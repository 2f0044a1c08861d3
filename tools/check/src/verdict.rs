//! What a checker says.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// What a checker found. A run passes only if every one of its checkers says [`Verdict::Valid`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// A correct server could have answered so.
    Valid,
    /// It could not: each line names one contradiction, with the calls or positions that show it.
    Violated(Vec<String>),
    /// It could not be decided, and why: too long a search, a gap in what the server remembers. Never a pass.
    Undecided(String),
}

impl Verdict {
    /// Valid without contradictions, else violated.
    pub fn of(contradictions: Vec<String>) -> Self {
        if contradictions.is_empty() {
            Self::Valid
        } else {
            Self::Violated(contradictions)
        }
    }

    /// The worse of two: a violation outweighs what is undecided, and that outweighs what is valid.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Violated(mut these), Self::Violated(those)) => {
                these.extend(those);
                Self::Violated(these)
            }
            (Self::Violated(these), _) | (_, Self::Violated(these)) => Self::Violated(these),
            (Self::Undecided(why), _) | (_, Self::Undecided(why)) => Self::Undecided(why),
            (Self::Valid, Self::Valid) => Self::Valid,
        }
    }

    /// The same, said about something: a key, a lock, a checker.
    #[must_use]
    pub fn about(self, subject: impl Display) -> Self {
        match self {
            Self::Valid => Self::Valid,
            Self::Violated(lines) => Self::Violated(
                lines
                    .into_iter()
                    .map(|line| format!("{subject}: {line}"))
                    .collect(),
            ),
            Self::Undecided(why) => Self::Undecided(format!("{subject}: {why}")),
        }
    }
}
