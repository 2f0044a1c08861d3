//! Verdicts: the result of a checker.

use std::fmt::Display;

use serde::{Deserialize, Serialize};

/// Result of one checker. A run passes only if all of its checkers return [`Verdict::Valid`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verdict {
    /// A correct server could have given these answers.
    Valid,
    /// No correct server could: each line names one contradiction, with the calls or positions that
    /// show it.
    Violated(Vec<String>),
    /// Undecided, with the reason: the search was too long, or the server has discarded a part.
    /// Never a pass.
    Undecided(String),
}

impl Verdict {
    /// Returns `Valid` if there are no contradictions, else `Violated`.
    pub fn of(contradictions: Vec<String>) -> Self {
        if contradictions.is_empty() {
            Self::Valid
        } else {
            Self::Violated(contradictions)
        }
    }

    /// Returns the worse of two verdicts: `Violated` outweighs `Undecided`, which outweighs
    /// `Valid`.
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

    /// Prefixes each line with its subject: a key, a lock or a checker.
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
