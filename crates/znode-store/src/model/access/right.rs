//! The five rights, and sets of them. No right includes another: a writer may have no right to read, and an administrator of locks no right
//! to hold them.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

/// Right at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Right {
    /// To read and watch znodes, and to view locks with their holders and waiters.
    Read,
    /// To take and hold locks.
    Lock,
    /// To create, change and delete znodes.
    Write,
    /// To break the locks of others, or to request their release.
    Break,
    /// To change settings that concern others: access control lists, quotas, the settings of locks. At `/` it is also the right to use and end all
    /// sessions, and to make tokens and roles.
    Administer,
}

/// Error for a name that is not that of a right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the rights are read, lock, write, break and administer")]
pub struct UnknownRight;

impl Right {
    /// All rights.
    pub const ALL: [Self; 5] = [Self::Read, Self::Lock, Self::Write, Self::Break, Self::Administer];

    /// Returns the name of the right.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Lock => "lock",
            Self::Write => "write",
            Self::Break => "break",
            Self::Administer => "administer",
        }
    }

    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Right {
    type Err = UnknownRight;

    fn from_str(text: &str) -> Result<Self, UnknownRight> {
        let named = |right: &Self| right.name() == text;
        Self::ALL.into_iter().find(named).ok_or(UnknownRight)
    }
}

/// A set of rights.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct Rights(u8);

impl Rights {
    /// Every right.
    pub const ALL: Self = Self(0b1_1111);

    /// Returns the set of these rights.
    pub const fn of<const N: usize>(rights: [Right; N]) -> Self {
        let mut bits = 0;
        let mut at = 0;
        while at < N {
            bits |= rights[at].bit();
            at += 1;
        }
        Self(bits)
    }

    /// Returns whether the set contains a right.
    pub fn contains(self, right: Right) -> bool {
        self.0 & right.bit() != 0
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the rights in the set.
    pub fn iter(self) -> impl Iterator<Item = Right> {
        Right::ALL.into_iter().filter(move |right| self.contains(*right))
    }
}

impl FromIterator<Right> for Rights {
    fn from_iter<I: IntoIterator<Item = Right>>(rights: I) -> Self {
        Self(rights.into_iter().fold(0, |bits, right| bits | right.bit()))
    }
}

impl TryFrom<u8> for Rights {
    type Error = UnknownRight;

    fn try_from(bits: u8) -> Result<Self, UnknownRight> {
        match bits & !Self::ALL.0 {
            0 => Ok(Self(bits)),
            _ => Err(UnknownRight),
        }
    }
}

impl From<Rights> for u8 {
    fn from(rights: Rights) -> u8 {
        rights.0
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Right::name).collect();
        f.write_str(if names.is_empty() { "nothing" } else { "" })?;
        f.write_str(&names.join("+"))
    }
}
