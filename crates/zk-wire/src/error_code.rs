//! Error codes of replies, with ZooKeeper's names.

use std::fmt;

/// Field `err` of a reply; 0 means success.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ErrorCode(pub i32);

macro_rules! codes {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        #[allow(missing_docs, reason = "the names are ZooKeeper's own")]
        impl ErrorCode {
            $(pub const $name: Self = Self($code);)*

            /// All error codes.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
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
    SYSTEM_ERROR = -1, "SystemError";
    RUNTIME_INCONSISTENCY = -2, "RuntimeInconsistency";
    DATA_INCONSISTENCY = -3, "DataInconsistency";
    CONNECTION_LOSS = -4, "ConnectionLoss";
    MARSHALLING_ERROR = -5, "MarshallingError";
    UNIMPLEMENTED = -6, "Unimplemented";
    OPERATION_TIMEOUT = -7, "OperationTimeout";
    BAD_ARGUMENTS = -8, "BadArguments";
    UNKNOWN_SESSION = -12, "UnknownSession";
    NEW_CONFIG_NO_QUORUM = -13, "NewConfigNoQuorum";
    RECONFIG_IN_PROGRESS = -14, "ReconfigInProgress";
    API_ERROR = -100, "APIError";
    NO_NODE = -101, "NoNode";
    NO_AUTH = -102, "NoAuth";
    BAD_VERSION = -103, "BadVersion";
    NO_CHILDREN_FOR_EPHEMERALS = -108, "NoChildrenForEphemerals";
    NODE_EXISTS = -110, "NodeExists";
    NOT_EMPTY = -111, "NotEmpty";
    SESSION_EXPIRED = -112, "SessionExpired";
    INVALID_CALLBACK = -113, "InvalidCallback";
    INVALID_ACL = -114, "InvalidACL";
    AUTH_FAILED = -115, "AuthFailed";
    SESSION_MOVED = -118, "SessionMoved";
    NOT_READ_ONLY = -119, "NotReadOnly";
    EPHEMERAL_ON_LOCAL_SESSION = -120, "EphemeralOnLocalSession";
    NO_WATCHER = -121, "NoWatcher";
    REQUEST_TIMEOUT = -122, "RequestTimeout";
    RECONFIG_DISABLED = -123, "ReconfigDisabled";
    SESSION_CLOSED_REQUIRE_SASL_AUTH = -124, "SessionClosedRequireSaslAuth";
    QUOTA_EXCEEDED = -125, "QuotaExceeded";
    THROTTLED_OP = -127, "ThrottledOp";
}
