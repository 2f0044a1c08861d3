//! Model of a versioned register, which is what a znode's data is. Each write increments the
//! version, and a write may require a version. A rejection because of the version is a meaningful
//! answer, not a failure.

use std::collections::HashSet;
use std::fmt::{self, Debug, Display, Formatter};

use crate::history::{Call, Outcome};
use crate::linearizable::{self, MAX_CONFIGURATIONS, Model};
use crate::verdict::Verdict;

/// Request to a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Input {
    /// Reads the value and the version.
    Read,
    /// Writes a value unconditionally. A history writes no value twice to one register: otherwise
    /// reads would prove less.
    Write(u64),
    /// Compare-and-set: writes a value if the register has this version.
    Cas {
        /// Required version.
        expected: u64,
        /// New value.
        value: u64,
    },
}

/// Answer of a register.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Output {
    /// Answer to a read.
    Is {
        /// The value.
        value: u64,
        /// Its version.
        version: u64,
    },
    /// Answer to a write that took effect.
    Written {
        /// The new version.
        version: u64,
    },
    /// Answer to a compare-and-set whose required version differs from the current one.
    Refused,
}

/// Register with its state before the first call.
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
            UNSEEN => write!(f, "version {version} of an unread value"),
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

/// Checks the calls to each of many registers, all of which start as `initial`.
pub fn check<K: Ord + Clone + Display>(initial: &Register, calls: &[(K, Call<Input, Output>)]) -> Verdict {
    let calls = without_unseen_values(calls);
    linearizable::check_by_key(&calls, |_| initial.clone(), MAX_CONFIGURATIONS)
}

/// Substitute for all values that no call has read.
const UNSEEN: u64 = u64::MAX;

/// Returns the calls with one common value for all unknown writes whose value no call has read. It
/// then makes no difference which of these writes took effect, and the search need not try all
/// combinations.
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
