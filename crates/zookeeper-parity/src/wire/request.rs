//! The requests of ZooKeeper 3.8 that clients send, and how they are written.

use super::jute::Writer;

/// A right, and who has it. All of it is as it stands on the wire; nothing is checked.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct AclEntry {
    pub perms: i32,
    pub scheme: String,
    pub id: String,
}

/// Which of the four requests that create is sent: they differ in what they return, and in what they may make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateCall {
    /// Returns the path.
    Create,
    /// Returns path and stat.
    Create2,
    /// For containers; returns path and stat.
    Container,
    /// For nodes with a time to live, in milliseconds; returns path and stat.
    Ttl(i64),
}

/// What a client that comes back asks to be watched again.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub struct SetWatches {
    pub data: Vec<String>,
    pub exist: Vec<String>,
    pub child: Vec<String>,
    pub persistent: Vec<String>,
    pub persistent_recursive: Vec<String>,
}

/// A request. Fields that are enumerations in ZooKeeper's client are plain numbers, for wrong ones to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are ZooKeeper's own")]
pub enum Request {
    Create {
        call: CreateCall,
        path: String,
        data: Option<Vec<u8>>,
        acl: Vec<AclEntry>,
        flags: i32,
    },
    Delete {
        path: String,
        version: i32,
    },
    SetData {
        path: String,
        data: Option<Vec<u8>>,
        version: i32,
    },
    SetAcl {
        path: String,
        acl: Vec<AclEntry>,
        version: i32,
    },
    Check {
        path: String,
        version: i32,
    },
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
    GetEphemerals {
        prefix: String,
    },
    MultiRead(Vec<Request>),
    Sync {
        path: String,
    },
    WhoAmI,
    Auth {
        scheme: String,
        auth: String,
    },
    AddWatch {
        path: String,
        mode: i32,
    },
    CheckWatches {
        path: String,
        kind: i32,
    },
    RemoveWatches {
        path: String,
        kind: i32,
    },
    SetWatches2 {
        relative_zxid: i64,
        watches: SetWatches,
    },
    Ping,
    CloseSession,
}

/// Stands in an exchange of a multi where no item follows.
const NO_MORE: i32 = -1;

impl Request {
    /// ZooKeeper's number of the operation.
    pub fn op_code(&self) -> i32 {
        match self {
            Request::Create {
                call: CreateCall::Create,
                ..
            } => 1,
            Request::Delete { .. } => 2,
            Request::Exists { .. } => 3,
            Request::GetData { .. } => 4,
            Request::SetData { .. } => 5,
            Request::GetAcl { .. } => 6,
            Request::SetAcl { .. } => 7,
            Request::GetChildren { .. } => 8,
            Request::Sync { .. } => 9,
            Request::Ping => 11,
            Request::GetChildren2 { .. } => 12,
            Request::Check { .. } => 13,
            Request::Multi(_) => 14,
            Request::Create {
                call: CreateCall::Create2,
                ..
            } => 15,
            Request::CheckWatches { .. } => 17,
            Request::RemoveWatches { .. } => 18,
            Request::Create {
                call: CreateCall::Container,
                ..
            } => 19,
            Request::Create {
                call: CreateCall::Ttl(_),
                ..
            } => 21,
            Request::MultiRead(_) => 22,
            Request::Auth { .. } => 100,
            Request::GetEphemerals { .. } => 103,
            Request::GetAllChildrenNumber { .. } => 104,
            Request::SetWatches2 { .. } => 105,
            Request::AddWatch { .. } => 106,
            Request::WhoAmI => 107,
            Request::CloseSession => -11,
        }
    }

    /// Writes the body, without the header.
    pub(super) fn write(&self, to: &mut Writer) {
        match self {
            Request::Create {
                call,
                path,
                data,
                acl,
                flags,
            } => {
                to.text(path);
                to.buffer(data.as_deref());
                write_acl(to, acl);
                to.int(*flags);
                if let CreateCall::Ttl(ttl_ms) = call {
                    to.long(*ttl_ms);
                }
            }
            Request::Delete { path, version } | Request::Check { path, version } => {
                to.text(path);
                to.int(*version);
            }
            Request::SetData { path, data, version } => {
                to.text(path);
                to.buffer(data.as_deref());
                to.int(*version);
            }
            Request::SetAcl { path, acl, version } => {
                to.text(path);
                write_acl(to, acl);
                to.int(*version);
            }
            Request::Multi(items) | Request::MultiRead(items) => {
                for item in items {
                    write_multi_header(to, item.op_code(), false);
                    item.write(to);
                }
                write_multi_header(to, NO_MORE, true);
            }
            Request::Exists { path, watch }
            | Request::GetData { path, watch }
            | Request::GetChildren { path, watch }
            | Request::GetChildren2 { path, watch } => {
                to.text(path);
                to.bool(*watch);
            }
            Request::GetAcl { path }
            | Request::GetAllChildrenNumber { path }
            | Request::GetEphemerals { prefix: path }
            | Request::Sync { path } => to.text(path),
            Request::Auth { scheme, auth } => {
                to.int(0);
                to.text(scheme);
                to.text(auth);
            }
            Request::AddWatch { path, mode: number }
            | Request::CheckWatches { path, kind: number }
            | Request::RemoveWatches { path, kind: number } => {
                to.text(path);
                to.int(*number);
            }
            Request::SetWatches2 {
                relative_zxid,
                watches,
            } => {
                to.long(*relative_zxid);
                let SetWatches {
                    data,
                    exist,
                    child,
                    persistent,
                    persistent_recursive,
                } = watches;
                for paths in [data, exist, child, persistent, persistent_recursive] {
                    to.vector(paths, |to, path| to.text(path));
                }
            }
            Request::WhoAmI | Request::Ping | Request::CloseSession => {}
        }
    }
}

fn write_acl(to: &mut Writer, acl: &[AclEntry]) {
    to.vector(acl, |to, entry| {
        to.int(entry.perms);
        to.text(&entry.scheme);
        to.text(&entry.id);
    });
}

fn write_multi_header(to: &mut Writer, op_code: i32, done: bool) {
    to.int(op_code);
    to.bool(done);
    to.int(-1);
}
