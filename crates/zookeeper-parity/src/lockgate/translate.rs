//! ZooKeeper's words for Lockgate's, in both directions.

use znode_store::{
    Acl, AclEntry, CreateMode, CreatePath, Identity, Op, Perms, Refusal, Reply, Stat, ZPath, ZnodeEventKind,
};
use znode_watch::Notice;

use crate::wire::{self, CreateCall, ErrorCode, Notification, Outcome, Request};

/// What is refused before there is a command.
pub struct FrontEndRefusal(pub ErrorCode);

const BAD_ARGUMENTS: FrontEndRefusal = FrontEndRefusal(ErrorCode::BAD_ARGUMENTS);

/// The operation of a request that writes; `in_multi` if it is an item of a multi.
pub fn op(request: &Request, in_multi: bool) -> Result<Op, FrontEndRefusal> {
    let path = |text: &str| ZPath::parse(text).map_err(|_| BAD_ARGUMENTS);
    Ok(match request {
        Request::Create {
            call,
            path,
            data,
            acl,
            flags,
        } => {
            let mode = create_mode(*call, *flags, in_multi)?;
            let path = CreatePath::parse(path, mode.is_sequential()).map_err(|_| BAD_ARGUMENTS)?;
            Op::Create {
                path,
                data: bytes(data),
                acl: acl_of(acl),
                mode,
                parents: false,
            }
        }
        // ZooKeeper looks a path up to delete it, and does not ask whether it could be one.
        Request::Delete { path: text, version } => match ZPath::parse(text) {
            Ok(path) => Op::Delete {
                path,
                version: *version,
            },
            Err(_) if text.contains('/') && !text.contains('\0') => {
                return Err(FrontEndRefusal(ErrorCode::NO_NODE));
            }
            Err(_) => return Err(BAD_ARGUMENTS),
        },
        Request::SetData {
            path: text,
            data,
            version,
        } => Op::Set {
            path: path(text)?,
            data: bytes(data),
            version: *version,
        },
        Request::SetAcl {
            path: text,
            acl,
            version,
        } => Op::SetAcl {
            path: path(text)?,
            acl: acl_of(acl),
            aversion: *version,
        },
        Request::Check { path: text, version } => Op::Check {
            path: path(text)?,
            version: *version,
        },
        other => unreachable!("{other} writes nothing"),
    })
}

/// What the flags mean. Alone, the request itself makes a container or gives a time to live; inside of a multi
/// ZooKeeper forgets which request it was, and the flags decide.
fn create_mode(call: CreateCall, flags: i32, in_multi: bool) -> Result<CreateMode, FrontEndRefusal> {
    if !(0..=6).contains(&flags) {
        return Err(BAD_ARGUMENTS);
    }
    let has_ttl = matches!(flags, 5 | 6);
    if let CreateCall::Ttl(ttl_ms) = call
        && (has_ttl || !in_multi)
    {
        let ttl_ms = u64::try_from(ttl_ms).map_err(|_| BAD_ARGUMENTS)?;
        return match flags {
            5 => Ok(CreateMode::Ttl { ttl_ms }),
            6 => Ok(CreateMode::TtlSequential { ttl_ms }),
            _ => Err(BAD_ARGUMENTS),
        };
    }
    if has_ttl {
        return Err(BAD_ARGUMENTS);
    }
    let is_container = if in_multi {
        flags == 4
    } else {
        call == CreateCall::Container
    };
    Ok(match flags {
        _ if is_container => CreateMode::Container,
        1 => CreateMode::Ephemeral,
        2 => CreateMode::PersistentSequential,
        3 => CreateMode::EphemeralSequential,
        _ => CreateMode::Persistent,
    })
}

/// Whether a create in a multi is answered with a stat: only containers and nodes with a time to live are.
pub fn has_stat_in_multi(request: &Request) -> bool {
    matches!(request, Request::Create { flags: 4..=6, .. })
}

/// A reply to one operation.
pub fn reply(reply: Reply, with_stat: bool) -> wire::Reply {
    match reply {
        Reply::Created { path, stat: of } if with_stat => {
            wire::Reply::Created(path.as_str().to_owned(), stat(&of))
        }
        Reply::Created { path, .. } => wire::Reply::Path(path.as_str().to_owned()),
        Reply::Set(of) | Reply::AclSet(of) => wire::Reply::Stat(stat(&of)),
        Reply::Deleted | Reply::Checked => wire::Reply::Done,
        other => unreachable!("no operation of ZooKeeper's is answered by {other:?}"),
    }
}

/// The results of a multi that was not carried out: no error before the item that failed, and what ZooKeeper calls
/// an inconsistency after it.
pub fn failed_multi(refusal: &Refusal, items: usize) -> Vec<Outcome> {
    let Refusal::Multi { index, refusal } = refusal else {
        unreachable!("a multi was refused with {refusal:?}");
    };
    let failed = *index as usize;
    (0..items)
        .map(|item| {
            Err(match item.cmp(&failed) {
                std::cmp::Ordering::Less => ErrorCode::OK,
                std::cmp::Ordering::Equal => code(refusal),
                std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
            })
        })
        .collect()
}

/// ZooKeeper's code for a refusal.
///
/// # Panics
///
/// For what programs do not come to: limits that ZooKeeper does not have, and locks.
pub fn code(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::NoNode(_) => ErrorCode::NO_NODE,
        Refusal::NodeExists(_) => ErrorCode::NODE_EXISTS,
        Refusal::BadVersion { .. } => ErrorCode::BAD_VERSION,
        Refusal::NotEmpty(_) => ErrorCode::NOT_EMPTY,
        Refusal::NoChildrenForEphemerals(_) => ErrorCode::NO_CHILDREN_FOR_EPHEMERALS,
        Refusal::Undeletable(_) | Refusal::BadPath(_) | Refusal::BadTtl(_) => ErrorCode::BAD_ARGUMENTS,
        Refusal::NoAuth(_) => ErrorCode::NO_AUTH,
        Refusal::InvalidAcl(_) => ErrorCode::INVALID_ACL,
        Refusal::QuotaExceeded { .. } => ErrorCode::QUOTA_EXCEEDED,
        Refusal::NoSession(_) | Refusal::SessionEnded(_) => ErrorCode::SESSION_EXPIRED,
        other => panic!("no program should be refused with: {other}"),
    }
}

/// A stat as it stands on the wire.
pub fn stat(of: &Stat) -> wire::Stat {
    let signed = |number: u64| i64::try_from(number).expect("programs are short");
    let small = |number: u32| i32::try_from(number).expect("programs are small");
    wire::Stat {
        czxid: signed(of.czxid.0),
        mzxid: signed(of.mzxid.0),
        ctime: signed(of.ctime_ms),
        mtime: signed(of.mtime_ms),
        version: of.version,
        cversion: of.cversion,
        aversion: of.aversion,
        // Only sessions: ZooKeeper tells no client that a node is a container, or how long it may live.
        ephemeral_owner: of
            .ephemeral_owner
            .session()
            .map_or(0, |session| signed(session.0)),
        data_length: small(of.data_length),
        num_children: small(of.num_children),
        pzxid: signed(of.pzxid.0),
    }
}

/// A list as it stands on the wire.
pub fn acl_entries(acl: &Acl) -> Vec<wire::AclEntry> {
    acl.entries()
        .into_iter()
        .map(|AclEntry { perms, scheme, id }| wire::AclEntry {
            perms: perms.0.cast_signed(),
            scheme: scheme.to_string(),
            id: id.to_string(),
        })
        .collect()
}

/// A notice as it stands on the wire.
pub fn notification(notice: &Notice) -> Notification {
    let kind = match notice.kind {
        ZnodeEventKind::Created => 1,
        ZnodeEventKind::Deleted => 2,
        ZnodeEventKind::DataChanged => 3,
        ZnodeEventKind::ChildrenChanged => 4,
    };
    Notification {
        kind,
        state: crate::trace::SYNC_CONNECTED,
        path: notice.path.as_str().to_owned(),
    }
}

/// What whoAmI says of an identity: its scheme, and a name without secrets.
pub fn identity(identity: &Identity) -> (String, String) {
    match identity {
        Identity::Ip(address) => ("ip".to_owned(), address.to_string()),
        Identity::Digest(id) => (
            "digest".to_owned(),
            id.split(':').next().unwrap_or_default().to_owned(),
        ),
        Identity::X509(id) => ("x509".to_owned(), id.to_string()),
        Identity::Super => ("super".to_owned(), String::new()),
    }
}

fn bytes(data: &Option<Vec<u8>>) -> znode_store::Data {
    data.clone().unwrap_or_default().into()
}

fn acl_of(entries: &[wire::AclEntry]) -> Acl {
    Acl::new(
        entries
            .iter()
            .map(|wire::AclEntry { perms, scheme, id }| AclEntry {
                perms: Perms(perms.cast_unsigned()),
                scheme: scheme.as_str().into(),
                id: id.as_str().into(),
            })
            .collect(),
    )
}
