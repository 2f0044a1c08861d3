//! The exit codes of the commands that ask a cluster, and of a node that was removed: one table, which docs/command-line.md repeats.

use std::process::ExitCode;

use lock_client::{Code, Error};

use crate::serve::Removed;

/// The node that was run is no member of its cluster any more: whoever starts processes need not start it again.
pub const REMOVED: u8 = 3;
/// No server could serve: nothing was done.
pub const UNAVAILABLE: u8 = 69;
/// It may have been done, or may yet be.
pub const UNKNOWN: u8 = 70;
/// The lock was not free, or not in time, or takes nobody just now.
pub const NOT_FREE: u8 = 75;
/// Who called is nobody who counts here, or has not the right to it.
pub const NOT_ALLOWED: u8 = 77;
/// The lock was lost while the command ran under it.
pub const LOST: u8 = 79;
/// Of `lockgate migrate`: the trees differ, or the switch was refused.
pub const NOT_THE_SAME: u8 = 80;
/// The command cannot be executed, as shells say it.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as shells say it.
pub const NOT_FOUND: u8 = 127;
/// What shells add to the number of the signal that ended a command.
pub const BY_SIGNAL: u8 = 128;

/// A failure with the code that tells programs of it.
#[derive(Debug)]
pub struct Failure {
    /// What the program ends with.
    pub code: ExitCode,
    /// What people are told.
    pub error: anyhow::Error,
}

impl Failure {
    /// With this code.
    pub fn new(code: u8, error: anyhow::Error) -> Self {
        let code = ExitCode::from(code);
        Self { code, error }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        let code = match error.is::<Removed>() {
            true => ExitCode::from(REMOVED),
            false => ExitCode::FAILURE,
        };
        Self { code, error }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Unavailable(_) => UNAVAILABLE,
            Error::Unknown(_) => UNKNOWN,
            Error::Lost(_) => LOST,
            Error::Refused(_) if error.is_not_free() || error.is(Code::Draining) => NOT_FREE,
            Error::Refused(_) if error.is(Code::Unauthenticated) || error.is(Code::Forbidden) => NOT_ALLOWED,
            Error::Refused(_) => 1,
        };
        Self::new(code, error.into())
    }
}
