//! Encoding of operations in the log. The layout of operations was fixed before null data existed, and has no place for it. So an operation
//! with null data has a kind of its own, since version 3 of the commands. The bytes of all other operations are unchanged.

use alloc::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::model::acl::Acl;
use crate::model::command::{CreateMode, Op};
use crate::model::data::{Data, bytes_alone};
use crate::model::ids::Zxid;
use crate::model::mirrored::{MirrorStep, Mirrored};
use crate::model::path::{CreatePath, LockName, ZPath};

/// Encoded [`Op`].
#[derive(Serialize, Deserialize)]
#[serde(rename = "Op")]
pub(crate) enum WrittenOp<'a> {
    Create {
        path: Cow<'a, CreatePath>,
        data: Bytes<'a>,
        acl: Cow<'a, Acl>,
        mode: CreateMode,
        parents: bool,
    },
    Delete {
        path: Cow<'a, ZPath>,
        version: i32,
    },
    DeleteRecursive {
        path: Cow<'a, ZPath>,
    },
    Set {
        path: Cow<'a, ZPath>,
        data: Bytes<'a>,
        version: i32,
    },
    SetAcl {
        path: Cow<'a, ZPath>,
        acl: Cow<'a, Acl>,
        aversion: i32,
    },
    Check {
        path: Cow<'a, ZPath>,
        version: i32,
    },
    Held {
        lock: Cow<'a, LockName>,
        fencing_token: Zxid,
    },
    /// Creation with null data.
    CreateNull {
        path: Cow<'a, CreatePath>,
        acl: Cow<'a, Acl>,
        mode: CreateMode,
        parents: bool,
    },
    /// Replaces the data by null.
    SetNull {
        path: Cow<'a, ZPath>,
        version: i32,
    },
}

/// Encoded [`MirrorStep`].
#[derive(Serialize, Deserialize)]
#[serde(rename = "MirrorStep")]
pub(crate) enum WrittenStep<'a> {
    Put(Cow<'a, Mirrored>),
    Remove {
        path: Cow<'a, ZPath>,
    },
    /// Copy of a znode whose data is null, which is written as no bytes.
    PutNull(Cow<'a, Mirrored>),
}

/// Data that is not null.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
pub(crate) struct Bytes<'a>(#[serde(with = "cow_bytes_alone")] Cow<'a, Data>);

mod cow_bytes_alone {
    use super::*;

    pub(crate) fn serialize<S: Serializer>(data: &Data, serializer: S) -> Result<S::Ok, S::Error> {
        bytes_alone::serialize(data, serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Cow<'static, Data>, D::Error> {
        bytes_alone::deserialize(deserializer).map(Cow::Owned)
    }
}

impl<'a> From<&'a Op> for WrittenOp<'a> {
    fn from(op: &'a Op) -> Self {
        use Cow::Borrowed as It;
        match op {
            Op::Create {
                path,
                data,
                acl,
                mode,
                parents,
            } => {
                let (path, acl, mode, parents) = (It(path), It(acl), *mode, *parents);
                match data.is_null() {
                    false => Self::Create {
                        path,
                        data: Bytes(It(data)),
                        acl,
                        mode,
                        parents,
                    },
                    true => Self::CreateNull {
                        path,
                        acl,
                        mode,
                        parents,
                    },
                }
            }
            Op::Delete { path, version } => Self::Delete {
                path: It(path),
                version: *version,
            },
            Op::DeleteRecursive { path } => Self::DeleteRecursive { path: It(path) },
            Op::Set { path, data, version } => match data.is_null() {
                false => Self::Set {
                    path: It(path),
                    data: Bytes(It(data)),
                    version: *version,
                },
                true => Self::SetNull {
                    path: It(path),
                    version: *version,
                },
            },
            Op::SetAcl { path, acl, aversion } => Self::SetAcl {
                path: It(path),
                acl: It(acl),
                aversion: *aversion,
            },
            Op::Check { path, version } => Self::Check {
                path: It(path),
                version: *version,
            },
            Op::Held { lock, fencing_token } => Self::Held {
                lock: It(lock),
                fencing_token: *fencing_token,
            },
        }
    }
}

impl From<WrittenOp<'_>> for Op {
    fn from(written: WrittenOp<'_>) -> Self {
        match written {
            WrittenOp::Create {
                path,
                data: Bytes(data),
                acl,
                mode,
                parents,
            } => Self::Create {
                path: path.into_owned(),
                data: data.into_owned(),
                acl: acl.into_owned(),
                mode,
                parents,
            },
            WrittenOp::Delete { path, version } => Self::Delete {
                path: path.into_owned(),
                version,
            },
            WrittenOp::DeleteRecursive { path } => Self::DeleteRecursive {
                path: path.into_owned(),
            },
            WrittenOp::Set {
                path,
                data: Bytes(data),
                version,
            } => Self::Set {
                path: path.into_owned(),
                data: data.into_owned(),
                version,
            },
            WrittenOp::SetAcl { path, acl, aversion } => Self::SetAcl {
                path: path.into_owned(),
                acl: acl.into_owned(),
                aversion,
            },
            WrittenOp::Check { path, version } => Self::Check {
                path: path.into_owned(),
                version,
            },
            WrittenOp::Held { lock, fencing_token } => Self::Held {
                lock: lock.into_owned(),
                fencing_token,
            },
            WrittenOp::CreateNull {
                path,
                acl,
                mode,
                parents,
            } => Self::Create {
                path: path.into_owned(),
                data: Data::null(),
                acl: acl.into_owned(),
                mode,
                parents,
            },
            WrittenOp::SetNull { path, version } => Self::Set {
                path: path.into_owned(),
                data: Data::null(),
                version,
            },
        }
    }
}

impl<'a> From<&'a MirrorStep> for WrittenStep<'a> {
    fn from(step: &'a MirrorStep) -> Self {
        match step {
            MirrorStep::Put(znode) if znode.data.is_null() => Self::PutNull(Cow::Borrowed(znode)),
            MirrorStep::Put(znode) => Self::Put(Cow::Borrowed(znode)),
            MirrorStep::Remove { path } => Self::Remove {
                path: Cow::Borrowed(path),
            },
        }
    }
}

impl From<WrittenStep<'_>> for MirrorStep {
    fn from(written: WrittenStep<'_>) -> Self {
        match written {
            WrittenStep::Put(znode) => Self::Put(znode.into_owned()),
            WrittenStep::Remove { path } => Self::Remove {
                path: path.into_owned(),
            },
            // Null has no bytes, so bytes in the record are ignored.
            WrittenStep::PutNull(znode) => Self::Put(Mirrored {
                data: Data::null(),
                ..znode.into_owned()
            }),
        }
    }
}

impl Serialize for Op {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenOp::from(self).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Op {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WrittenOp::deserialize(deserializer).map(Self::from)
    }
}

impl<'de> Deserialize<'de> for MirrorStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        WrittenStep::deserialize(deserializer).map(Self::from)
    }
}

impl Serialize for MirrorStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        WrittenStep::from(self).serialize(serializer)
    }
}
