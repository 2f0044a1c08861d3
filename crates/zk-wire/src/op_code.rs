//! Codes of operations, with ZooKeeper's names. A server need not support all of them.

macro_rules! op_codes {
    ($($constant:ident = $code:literal, $name:literal;)*) => {
        $(#[doc = concat!("ZooKeeper's `", $name, "`.")] pub const $constant: i32 = $code;)*

        /// All codes.
        pub const ALL: &[i32] = &[$($code,)*];

        /// Returns ZooKeeper's name of an operation, for logs and metrics; `None` for an unknown code.
        pub fn name(op: i32) -> Option<&'static str> {
            match op {
                $($code => Some($name),)*
                _ => None,
            }
        }
    };
}

op_codes! {
    NOTIFICATION = 0, "notification";
    CREATE = 1, "create";
    DELETE = 2, "delete";
    EXISTS = 3, "exists";
    GET_DATA = 4, "getData";
    SET_DATA = 5, "setData";
    GET_ACL = 6, "getACL";
    SET_ACL = 7, "setACL";
    GET_CHILDREN = 8, "getChildren";
    SYNC = 9, "sync";
    PING = 11, "ping";
    GET_CHILDREN2 = 12, "getChildren2";
    CHECK = 13, "check";
    MULTI = 14, "multi";
    CREATE2 = 15, "create2";
    RECONFIG = 16, "reconfig";
    CHECK_WATCHES = 17, "checkWatches";
    REMOVE_WATCHES = 18, "removeWatches";
    CREATE_CONTAINER = 19, "createContainer";
    DELETE_CONTAINER = 20, "deleteContainer";
    CREATE_TTL = 21, "createTTL";
    MULTI_READ = 22, "multiRead";
    AUTH = 100, "auth";
    SET_WATCHES = 101, "setWatches";
    SASL = 102, "sasl";
    GET_EPHEMERALS = 103, "getEphemerals";
    GET_ALL_CHILDREN_NUMBER = 104, "getAllChildrenNumber";
    SET_WATCHES2 = 105, "setWatches2";
    ADD_WATCH = 106, "addWatch";
    WHO_AM_I = 107, "whoAmI";
    CREATE_SESSION = -10, "createSession";
    CLOSE_SESSION = -11, "closeSession";
    ERROR = -1, "error";
}
