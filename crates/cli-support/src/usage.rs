//! Usage errors: wrong arguments and environment variables, which end a command with exit code 2 before it
//! calls a node.

/// Error in the arguments or in a variable of the environment. Errors that clap reports have the same exit code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// Fails with a [`UsageError`] unless the condition holds.
#[macro_export]
macro_rules! ensure_usage {
    ($holds:expr, $($message:tt)+) => {
        if !$holds {
            return Err($crate::usage::UsageError(format!($($message)+)).into());
        }
    };
}
