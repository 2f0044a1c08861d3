//! A versioned register, which is what a znode's data is: each write raises the version by one, and a write may ask for a
//! version. That a write was refused for its version is an answer with a meaning, not a failure.

use std::collections::HashSet;
use std::fmt::{self, Debug, Display, Formatter};

use crate::history::{Call, Outcome};
use crate::linearizable::{self, MAX_CONFIGURATIONS, Model};
use crate::verdict::Verdict;

/// What is asked of a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Input {
    /// Its value and version.
    Read,
    /// A new value, whatever is there. No value is written twice to one register: else reads tell less than they could.
    Write(u64),
    /// A new value if the version is still this one.
    Cas {
        /// The version that it must have.
        expected: u64,
        /// The new value.
        value: u64,
    },
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Output {
    /// To a read.
    Is {
        /// The value.
        value: u64,
        /// Its version.
        version: u64,
    },
    /// To a write that took effect: the version of what was written.
    Written {
        /// The new version.
        version: u64,
    },
    /// To a write that asked for another version than there was.
    Refused,
}

/// A register with what is in it before the first call.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Register {
    /// The value.
    pub value: u64,
    /// Its version.
    pub version: u64,
}

impl Debug for Register {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let version = self.version;
        match self.value {
            UNSEEN => write!(f, "version {version} of a value that nobody has read"),
            value => write!(f, "version {version} of the value {value}"),
        }
    }
}

impl Register {
    fn written(&self, value: u64) -> Self {
        Self {
            value,
            version: self.version + 1,
        }
    }
}

impl Model for Register {
    type State = Register;
    type Input = Input;
    type Output = Output;

    fn initial(&self) -> Register {
        self.clone()
    }

    fn step(&self, now: &Register, input: &Input, output: Option<&Output>) -> Option<Register> {
        let (answer, then) = match input {
            Input::Read => {
                let Register { value, version } = *now;
                (Output::Is { value, version }, now.clone())
            }
            Input::Cas { expected, .. } if *expected != now.version => (Output::Refused, now.clone()),
            Input::Cas { value, .. } | Input::Write(value) => {
                let then = now.written(*value);
                let version = then.version;
                (Output::Written { version }, then)
            }
        };
        output.is_none_or(|output| *output == answer).then_some(then)
    }
}

/// Checks the calls to each of many registers, all of which begin as `initial`.
pub fn check<K: Ord + Clone + Display>(initial: &Register, calls: &[(K, Call<Input, Output>)]) -> Verdict {
    let calls = without_unseen_values(calls);
    linearizable::check_by_key(&calls, |_| initial.clone(), MAX_CONFIGURATIONS)
}

/// Stands for each value that nobody has read.
const UNSEEN: u64 = u64::MAX;

/// The same calls, in which all values of unknown writes that nobody has read are one and the same: which of several such
/// writes took effect makes no difference then, and the search does not try all combinations.
fn without_unseen_values<K: Ord + Clone>(
    calls: &[(K, Call<Input, Output>)],
) -> Vec<(K, Call<Input, Output>)> {
    let seen: HashSet<u64> = calls
        .iter()
        .filter_map(|(_, call)| match call.outcome {
            Outcome::Ok(Output::Is { value, .. }) => Some(value),
            _ => None,
        })
        .collect();
    let mut calls = calls.to_vec();
    for (_, call) in &mut calls {
        if let (Input::Write(value) | Input::Cas { value, .. }, Outcome::Unknown) =
            (&mut call.input, &call.outcome)
            && !seen.contains(value)
        {
            *value = UNSEEN;
        }
    }
    calls
}

#[cfg(test)]
mod tests;
