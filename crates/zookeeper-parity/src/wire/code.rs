//! Error codes as replies carry them, with ZooKeeper's names.

use std::fmt;

/// A reply's `err`; 0 stands for no error, which only happens inside the results of a failed multi.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ErrorCode(pub i32);

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are ZooKeeper's own")]
        impl ErrorCode {
            $(pub const $name: Self = Self($code);)*
        }

        impl fmt::Display for ErrorCode {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($code => f.write_str($text),)*
                    other => write!(f, "error {other}"),
                }
            }
        }
    };
}

codes! {
    OK = 0, "ok";
    RUNTIME_INCONSISTENCY = -2, "RuntimeInconsistency";
    MARSHALLING_ERROR = -5, "MarshallingError";
    UNIMPLEMENTED = -6, "Unimplemented";
    BAD_ARGUMENTS = -8, "BadArguments";
    NO_NODE = -101, "NoNode";
    NO_AUTH = -102, "NoAuth";
    BAD_VERSION = -103, "BadVersion";
    NO_CHILDREN_FOR_EPHEMERALS = -108, "NoChildrenForEphemerals";
    NODE_EXISTS = -110, "NodeExists";
    NOT_EMPTY = -111, "NotEmpty";
    SESSION_EXPIRED = -112, "SessionExpired";
    INVALID_ACL = -114, "InvalidACL";
    AUTH_FAILED = -115, "AuthFailed";
    NO_WATCHER = -121, "NoWatcher";
    QUOTA_EXCEEDED = -125, "QuotaExceeded";
}
