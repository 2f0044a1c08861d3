//! Requests of clients, and the dispatch to the modules that encode and decode their records.

use bytes::{Bytes, BytesMut};

use crate::{
    AclEntry, CreateCall, DecodeError, Reader, RequestHeader, SetWatches, Writer, auth, create, frame, multi,
    op_code, read, reconfig, watches, write, xid,
};

/// Request. Fields that are enumerations in ZooKeeper's client are plain numbers, so that invalid values can
/// be sent and answered.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum Request {
    /// create, create2, createContainer and createTTL.
    Create {
        call: CreateCall,
        path: String,
        data: Option<Bytes>,
        acl: Option<Vec<AclEntry>>,
        flags: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Bytes>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Option<Vec<AclEntry>>,
        version: i32,
    },
    /// Only valid inside a multi.
    Check {
        path: String,
        version: i32,
    },
    /// All or none of the items are applied: create, delete, setData and check. Decoding accepts no others,
    /// because ZooKeeper answers them as malformed; encoding accepts any.
    Multi(Vec<Request>),

    Exists {
        path: String,
        watch: bool,
    },
    GetData {
        path: String,
        watch: bool,
    },
    GetAcl {
        path: String,
    },
    GetChildren {
        path: String,
        watch: bool,
    },
    GetChildren2 {
        path: String,
        watch: bool,
    },
    GetAllChildrenNumber {
        path: String,
    },
    /// An empty prefix means `/`.
    GetEphemerals {
        prefix: String,
    },
    /// Items are getData and getChildren, each with a result of its own. ZooKeeper ignores their `watch`.
    MultiRead(Vec<Request>),
    Sync {
        path: String,
    },

    AddWatch {
        path: String,
        /// See [`watch_mode`](crate::watch_mode).
        mode: i32,
    },
    CheckWatches {
        path: String,
        /// See [`watcher_type`](crate::watcher_type).
        kind: i32,
    },
    RemoveWatches {
        path: String,
        /// See [`watcher_type`](crate::watcher_type).
        kind: i32,
    },
    /// Older form without persistent watches: those lists are not sent.
    SetWatches {
        relative_zxid: i64,
        watches: SetWatches,
    },
    SetWatches2 {
        relative_zxid: i64,
        watches: SetWatches,
    },

    Ping,
    CloseSession,
    WhoAmI,
    Auth {
        /// Always 0, and ignored.
        kind: i32,
        scheme: String,
        auth: Option<Bytes>,
    },
    Sasl {
        token: Option<Bytes>,
    },
    Reconfig {
        joining_servers: Option<String>,
        leaving_servers: Option<String>,
        new_members: Option<String>,
        /// Version of the configuration to replace; -1 for any.
        from_config: i64,
    },
}

impl Request {
    /// Returns ZooKeeper's code of the operation.
    pub fn op_code(&self) -> i32 {
        match self {
            Request::Create { call, .. } => call.op_code(),
            Request::Delete { .. } => op_code::DELETE,
            Request::SetData { .. } => op_code::SET_DATA,
            Request::SetAcl { .. } => op_code::SET_ACL,
            Request::Check { .. } => op_code::CHECK,
            Request::Multi(_) => op_code::MULTI,
            Request::Exists { .. } => op_code::EXISTS,
            Request::GetData { .. } => op_code::GET_DATA,
            Request::GetAcl { .. } => op_code::GET_ACL,
            Request::GetChildren { .. } => op_code::GET_CHILDREN,
            Request::GetChildren2 { .. } => op_code::GET_CHILDREN2,
            Request::GetAllChildrenNumber { .. } => op_code::GET_ALL_CHILDREN_NUMBER,
            Request::GetEphemerals { .. } => op_code::GET_EPHEMERALS,
            Request::MultiRead(_) => op_code::MULTI_READ,
            Request::Sync { .. } => op_code::SYNC,
            Request::AddWatch { .. } => op_code::ADD_WATCH,
            Request::CheckWatches { .. } => op_code::CHECK_WATCHES,
            Request::RemoveWatches { .. } => op_code::REMOVE_WATCHES,
            Request::SetWatches { .. } => op_code::SET_WATCHES,
            Request::SetWatches2 { .. } => op_code::SET_WATCHES2,
            Request::Ping => op_code::PING,
            Request::CloseSession => op_code::CLOSE_SESSION,
            Request::WhoAmI => op_code::WHO_AM_I,
            Request::Auth { .. } => op_code::AUTH,
            Request::Sasl { .. } => op_code::SASL,
            Request::Reconfig { .. } => op_code::RECONFIG,
        }
    }

    /// Returns the xid of this kind of request in ZooKeeper's clients, if it is constant. A server must not
    /// rely on it: the Java client numbers setWatches like any other request, while the C client uses a
    /// constant.
    pub fn fixed_xid(&self) -> Option<i32> {
        match self {
            Request::Ping => Some(xid::PING),
            Request::Auth { .. } => Some(xid::AUTH),
            Request::SetWatches { .. } | Request::SetWatches2 { .. } => Some(xid::SET_WATCHES),
            _ => None,
        }
    }

    /// Reads the body of a request whose header has the code `op`.
    pub fn decode(op: i32, from: &mut Reader) -> Result<Self, DecodeError> {
        match op {
            op_code::CREATE => create::decode(CreateCall::Create, from),
            op_code::CREATE2 => create::decode(CreateCall::Create2, from),
            op_code::CREATE_CONTAINER => create::decode(CreateCall::Container, from),
            op_code::CREATE_TTL => create::decode_ttl(from),
            op_code::DELETE => write::decode_delete(from),
            op_code::SET_DATA => write::decode_set_data(from),
            op_code::SET_ACL => write::decode_set_acl(from),
            op_code::CHECK => write::decode_check(from),
            op_code::MULTI => multi::decode(from),
            op_code::EXISTS => read::decode_exists(from),
            op_code::GET_DATA => read::decode_get_data(from),
            op_code::GET_ACL => read::decode_get_acl(from),
            op_code::GET_CHILDREN => read::decode_get_children(from),
            op_code::GET_CHILDREN2 => read::decode_get_children2(from),
            op_code::GET_ALL_CHILDREN_NUMBER => read::decode_get_all_children_number(from),
            op_code::GET_EPHEMERALS => read::decode_get_ephemerals(from),
            op_code::MULTI_READ => multi::decode_read(from),
            op_code::SYNC => read::decode_sync(from),
            op_code::ADD_WATCH => watches::decode_add(from),
            op_code::CHECK_WATCHES => watches::decode_check(from),
            op_code::REMOVE_WATCHES => watches::decode_remove(from),
            op_code::SET_WATCHES => watches::decode_set(from),
            op_code::SET_WATCHES2 => watches::decode_set2(from),
            // Requests without a body.
            op_code::PING => Ok(Request::Ping),
            op_code::CLOSE_SESSION => Ok(Request::CloseSession),
            op_code::WHO_AM_I => Ok(Request::WhoAmI),
            op_code::AUTH => auth::decode(from),
            op_code::SASL => auth::decode_sasl(from),
            op_code::RECONFIG => reconfig::decode(from),
            _ => Err(DecodeError::UnknownOperation(op)),
        }
    }

    /// Appends the body, without the header.
    pub fn encode(&self, to: &mut Writer<'_>) {
        match self {
            Request::Create {
                call,
                path,
                data,
                acl,
                flags,
            } => create::encode(*call, path, data.as_deref(), acl.as_deref(), *flags, to),
            Request::Delete { path, version } | Request::Check { path, version } => {
                write::encode_path_and_version(path, *version, to);
            }
            Request::SetData { path, data, version } => {
                write::encode_set_data(path, data.as_deref(), *version, to);
            }
            Request::SetAcl { path, acl, version } => {
                write::encode_set_acl(path, acl.as_deref(), *version, to);
            }
            Request::Multi(items) | Request::MultiRead(items) => multi::encode(items, to),
            Request::Exists { path, watch }
            | Request::GetData { path, watch }
            | Request::GetChildren { path, watch }
            | Request::GetChildren2 { path, watch } => read::encode_path_and_watch(path, *watch, to),
            Request::GetAcl { path }
            | Request::GetAllChildrenNumber { path }
            | Request::GetEphemerals { prefix: path }
            | Request::Sync { path } => read::encode_path(path, to),
            Request::AddWatch { path, mode: number }
            | Request::CheckWatches { path, kind: number }
            | Request::RemoveWatches { path, kind: number } => {
                watches::encode_path_and_number(path, *number, to);
            }
            Request::SetWatches {
                relative_zxid,
                watches,
            } => watches.encode_three(*relative_zxid, to),
            Request::SetWatches2 {
                relative_zxid,
                watches,
            } => watches.encode_five(*relative_zxid, to),
            Request::Ping | Request::CloseSession | Request::WhoAmI => {}
            Request::Auth { kind, scheme, auth } => auth::encode(*kind, scheme, auth.as_deref(), to),
            Request::Sasl { token } => auth::encode_sasl(token.as_deref(), to),
            Request::Reconfig {
                joining_servers,
                leaving_servers,
                new_members,
                from_config,
            } => reconfig::encode(
                [joining_servers, leaving_servers, new_members].map(Option::as_deref),
                *from_config,
                to,
            ),
        }
    }

    /// Appends the request as a frame, with its header.
    pub fn write_frame(&self, xid: i32, to: &mut BytesMut) {
        let header = RequestHeader {
            xid,
            op: self.op_code(),
        };
        frame::write(to, |to| {
            header.encode(to);
            self.encode(to);
        });
    }
}
