//! Failures of commands with the exit codes of [`cli_support::exit_code`].

use std::process::ExitCode;

use anyhow::anyhow;
use cli_support::api_client::CallError;
use cli_support::exit_code::{LOST, NOT_ALLOWED, NOT_FREE, REMOVED, UNAVAILABLE, UNKNOWN, USAGE};
use cli_support::output::shown;
use cli_support::usage::UsageError;
use lock_client::{Code, Error};

use crate::serve::Removed;
use crate::snapshot::{NoBackup, SaveError};

/// Failure of a command, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code of the program.
    pub code: ExitCode,
    /// Error message.
    pub error: anyhow::Error,
}

impl Failure {
    /// Creates a failure with this code.
    pub fn new(code: u8, error: anyhow::Error) -> Self {
        let code = ExitCode::from(code);
        Self { code, error }
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        // An error of the cluster without a context.
        let error = match error.chain().count() {
            1 => match error.downcast::<CallError>() {
                Ok(refused) => return refused.into(),
                Err(other) => other,
            },
            _ => error,
        };
        let code = match error.downcast_ref::<SaveError>() {
            _ if error.is::<Removed>() => ExitCode::from(REMOVED),
            _ if error.is::<UsageError>() => ExitCode::from(USAGE),
            _ if error.is::<NoBackup>() => ExitCode::from(UNAVAILABLE),
            Some(SaveError::Refused {
                status: 401 | 403, ..
            }) => ExitCode::from(NOT_ALLOWED),
            _ => ExitCode::FAILURE,
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
            Error::Refused(_) if error.is(Code::BadPath) || error.is(Code::BadLockName) => USAGE,
            // Other errors do not occur: a command does not shut down its client.
            _ => 1,
        };
        // Names, notes and reasons in the message are text of other people.
        Self::new(code, anyhow!("{}", shown(&error.to_string())))
    }
}
