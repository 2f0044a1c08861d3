//! Translation between ZooKeeper's protocol and Lockgate's commands, in both directions. Decisions that the
//! state machine can make are left to it.

use zk_wire::{CreateCall, ErrorCode, MultiResult, Notification, Request, event_type, keeper_state};
use znode_store::{
    Acl, AclEntry, CreateMode, CreatePath, Identities, Identity, Op, Perms, Refusal, Reply, Stat, ZPath,
    ZnodeEventKind,
};

use lock_node::{Notice, WatchKind, WatcherType};

/// Returns the operation of a write request; `in_multi` if it is an item of a multi. An error code means that
/// the request is rejected without an operation.
///
/// # Panics
///
/// If the request is not a write, or is a multi itself.
pub fn op(request: &Request, in_multi: bool) -> Result<Op, ErrorCode> {
    Ok(match request {
        Request::Create {
            call,
            path,
            data,
            acl,
            flags,
        } => {
            let mode = create_mode(*call, *flags, in_multi)?;
            let path = CreatePath::parse(path, mode.is_sequential()).map_err(|_| ErrorCode::BAD_ARGUMENTS)?;
            Op::Create {
                path,
                data: data.as_deref().into(),
                acl: acl_of(acl.as_deref()),
                mode,
                parents: false,
            }
        }
        // ZooKeeper looks up the path of a delete without validating it.
        Request::Delete { path: text, version } => match ZPath::parse(text) {
            Ok(path) => Op::Delete {
                path,
                version: *version,
            },
            Err(_) if text.contains('/') && !text.contains('\0') => return Err(ErrorCode::NO_NODE),
            Err(_) => return Err(ErrorCode::BAD_ARGUMENTS),
        },
        Request::SetData { path, data, version } => Op::Set {
            path: legal(path)?,
            data: data.as_deref().into(),
            version: *version,
        },
        Request::SetAcl { path, acl, version } => Op::SetAcl {
            path: legal(path)?,
            acl: acl_of(acl.as_deref()),
            aversion: *version,
        },
        Request::Check { path, version } => Op::Check {
            path: legal(path)?,
            version: *version,
        },
        other => unreachable!("operation {} is not a write", other.op_code()),
    })
}

fn legal(path: &str) -> Result<ZPath, ErrorCode> {
    ZPath::parse(path).map_err(|_| ErrorCode::BAD_ARGUMENTS)
}

/// Returns an operation that always fails with this code: for an item of a multi that has to be rejected, but
/// not before the items in front of it.
pub fn refused_with(code: ErrorCode) -> Op {
    match code {
        ErrorCode::NO_NODE => Op::Check {
            path: ZPath::parse("/zookeeper/none").expect("the path is valid"),
            version: -1,
        },
        _ => Op::Delete {
            path: ZPath::root(),
            version: -1,
        },
    }
}

/// Returns the mode that the flags encode. Outside a multi, the request itself decides between container and
/// TTL; inside a multi ZooKeeper ignores the request's type, and only the flags count.
fn create_mode(call: CreateCall, flags: i32, in_multi: bool) -> Result<CreateMode, ErrorCode> {
    if !(0..=6).contains(&flags) {
        return Err(ErrorCode::BAD_ARGUMENTS);
    }
    let has_ttl = matches!(flags, 5 | 6);
    if let CreateCall::Ttl(ttl_ms) = call
        && (has_ttl || !in_multi)
    {
        let ttl_ms = u64::try_from(ttl_ms).map_err(|_| ErrorCode::BAD_ARGUMENTS)?;
        return match flags {
            5 => Ok(CreateMode::Ttl { ttl_ms }),
            6 => Ok(CreateMode::TtlSequential { ttl_ms }),
            _ => Err(ErrorCode::BAD_ARGUMENTS),
        };
    }
    if has_ttl {
        return Err(ErrorCode::BAD_ARGUMENTS);
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

/// Form of the reply to one operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Creations are answered with the path alone.
    Path,
    /// Creations are answered with path and stat.
    PathAndStat,
}

impl Shape {
    /// Returns the shape for a single request.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Create { call, .. } if *call != CreateCall::Create => Self::PathAndStat,
            _ => Self::Path,
        }
    }

    /// Returns the shape for an item of a multi: only containers and TTL nodes are answered with a stat.
    pub fn in_multi(request: &Request) -> Self {
        match request {
            Request::Create { flags: 4..=6, .. } => Self::PathAndStat,
            _ => Self::Path,
        }
    }
}

/// Returns the reply to one operation.
///
/// # Panics
///
/// If it is a reply that no ZooKeeper operation has.
pub fn reply(reply: Reply, shape: Shape) -> zk_wire::Reply {
    match reply {
        Reply::Created { path, stat: of } => match shape {
            Shape::Path => zk_wire::Reply::Path(path.into()),
            Shape::PathAndStat => zk_wire::Reply::Created(path.into(), stat(&of)),
        },
        Reply::Set(of) | Reply::AclSet(of) => zk_wire::Reply::Stat(stat(&of)),
        Reply::Deleted | Reply::Checked => zk_wire::Reply::Done,
        other => unreachable!("no ZooKeeper operation has the reply {other}"),
    }
}

/// Returns the result of one item of a multi that was applied.
///
/// # Panics
///
/// If it is a reply that no item of a multi has.
pub fn result(reply: Reply, shape: Shape) -> MultiResult {
    match reply {
        Reply::Created { path, stat: of } => match shape {
            Shape::Path => MultiResult::Create(path.into()),
            Shape::PathAndStat => MultiResult::Create2(path.into(), stat(&of)),
        },
        Reply::Set(of) => MultiResult::SetData(stat(&of)),
        Reply::Deleted => MultiResult::Delete,
        Reply::Checked => MultiResult::Check,
        other => unreachable!("no item of a multi has the reply {other}"),
    }
}

/// Returns the results of a failed multi with this number of items: OK before the item that failed, and what
/// ZooKeeper calls a runtime inconsistency after it. Returns `None` if the multi was rejected as a whole.
pub fn failed_multi(refusal: &Refusal, items: usize) -> Option<Vec<MultiResult>> {
    let Refusal::Multi { index, refusal } = refusal else {
        return None;
    };
    let failed = *index as usize;
    let result = |item: usize| {
        MultiResult::Error(match item.cmp(&failed) {
            std::cmp::Ordering::Less => ErrorCode::OK,
            std::cmp::Ordering::Equal => code(refusal),
            std::cmp::Ordering::Greater => ErrorCode::RUNTIME_INCONSISTENCY,
        })
    };
    Some((0..items).map(result).collect())
}

/// Returns ZooKeeper's error code for a refusal. Refusals that ZooKeeper does not have get the most similar
/// code.
pub fn code(refusal: &Refusal) -> ErrorCode {
    match refusal {
        Refusal::NoNode(_) | Refusal::NoLock(_) => ErrorCode::NO_NODE,
        Refusal::NodeExists(_) | Refusal::NotMirrored(_) => ErrorCode::NODE_EXISTS,
        Refusal::BadVersion { .. } => ErrorCode::BAD_VERSION,
        Refusal::NotEmpty(_) => ErrorCode::NOT_EMPTY,
        Refusal::NoChildrenForEphemerals(_) => ErrorCode::NO_CHILDREN_FOR_EPHEMERALS,
        Refusal::Undeletable(_)
        | Refusal::BadPath(_)
        | Refusal::BadTtl(_)
        | Refusal::DataTooLarge { .. }
        | Refusal::BadWish(_) => ErrorCode::BAD_ARGUMENTS,
        // A client that has not authenticated yet may do so on the same connection.
        Refusal::NoAuth(_) | Refusal::Forbidden { .. } | Refusal::Unauthenticated(_) => ErrorCode::NO_AUTH,
        Refusal::InvalidAcl(_) => ErrorCode::INVALID_ACL,
        // All of these mean that a limit is reached.
        Refusal::QuotaExceeded { .. }
        | Refusal::NamespaceQuotaExceeded { .. }
        | Refusal::LimitReached { .. }
        | Refusal::SequenceExhausted(_)
        | Refusal::QueueFull(_) => ErrorCode::QUOTA_EXCEEDED,
        Refusal::NoSession(_) | Refusal::SessionEnded(_) | Refusal::WrongPassword(_) => {
            ErrorCode::SESSION_EXPIRED
        }
        Refusal::SessionMoved(_) | Refusal::NotYourSession(_) => ErrorCode::SESSION_MOVED,
        Refusal::Multi { refusal, .. } => code(refusal),
        // Refusals of commands that ZooKeeper clients never send.
        Refusal::SessionRequired
        | Refusal::SessionIdTaken(_)
        | Refusal::StaleLeader
        | Refusal::RequestIdReused
        | Refusal::LockBusy { .. }
        | Refusal::LockTimeout(_)
        | Refusal::ModeConflict { .. }
        | Refusal::NotHolder { .. }
        | Refusal::NotHeld { .. }
        | Refusal::WouldDeadlock { .. }
        | Refusal::TooManyHolds(_)
        | Refusal::Draining(_)
        | Refusal::WrongMode { .. }
        | Refusal::Broken { .. }
        | Refusal::OutOfTurn { .. }
        | Refusal::Internal
        | Refusal::LeaseExpired
        | Refusal::NoNamespace(_)
        | Refusal::Access(_) => ErrorCode::SYSTEM_ERROR,
    }
}

/// Converts a stat to ZooKeeper's form.
pub fn stat(of: &Stat) -> zk_wire::Stat {
    zk_wire::Stat {
        czxid: of.czxid.0.cast_signed(),
        mzxid: of.mzxid.0.cast_signed(),
        ctime: of.ctime_ms.cast_signed(),
        mtime: of.mtime_ms.cast_signed(),
        version: of.version,
        cversion: of.cversion,
        aversion: of.aversion,
        // Only sessions: ZooKeeper does not disclose containers and TTLs to clients.
        ephemeral_owner: of
            .ephemeral_owner
            .session()
            .map_or(0, |session| session.0.cast_signed()),
        data_length: of.data_length.cast_signed(),
        num_children: of.num_children.cast_signed(),
        pzxid: of.pzxid.0.cast_signed(),
    }
}

/// Converts an access control list to ZooKeeper's form.
pub fn acl_entries(acl: &Acl) -> Vec<zk_wire::AclEntry> {
    acl.entries()
        .into_iter()
        .map(|AclEntry { perms, scheme, id }| zk_wire::AclEntry {
            perms: perms.0.cast_signed(),
            scheme: scheme.to_string(),
            id: id.to_string(),
        })
        .collect()
}

/// Converts a notice to ZooKeeper's form.
pub fn notification(notice: &Notice) -> Notification {
    Notification {
        kind: match notice.kind {
            ZnodeEventKind::Created => event_type::NODE_CREATED,
            ZnodeEventKind::Deleted => event_type::NODE_DELETED,
            ZnodeEventKind::DataChanged => event_type::NODE_DATA_CHANGED,
            ZnodeEventKind::ChildrenChanged => event_type::NODE_CHILDREN_CHANGED,
        },
        state: keeper_state::SYNC_CONNECTED,
        path: notice.path.as_str().to_owned(),
    }
}

/// Returns the whoAmI answer in ZooKeeper's order, that of a Java hash table of the ids.
pub fn identities(of: &Identities) -> Vec<(String, String)> {
    let mut all: Vec<&Identity> = of.iter().collect();
    // Such a table has 16 buckets, and twice as many whenever it is three quarters full.
    let mut buckets = 16;
    while all.len() >= buckets / 4 * 3 {
        buckets *= 2;
    }
    all.sort_by_key(|identity| {
        let hash = java_hash_of_id(identity);
        (hash ^ hash >> 16) as usize & (buckets - 1)
    });
    all.into_iter().map(identity).collect()
}

/// Returns Java's `hashCode` of the id that ZooKeeper would have for this identity.
fn java_hash_of_id(identity: &Identity) -> u32 {
    let of_text = |text: &str| {
        let add = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(unit.into());
        text.encode_utf16().fold(0, add)
    };
    let (scheme, name) = self::identity(identity);
    let id = match identity {
        // Including the hash of the password.
        Identity::Digest(id) => of_text(id),
        _ => of_text(&name),
    };
    [of_text(&scheme), id]
        .into_iter()
        .fold(17, |hash, part| hash.wrapping_mul(37).wrapping_add(part))
}

/// Returns the whoAmI entry of an identity: its scheme, and a name without secrets.
fn identity(identity: &Identity) -> (String, String) {
    let (scheme, name) = match identity {
        Identity::Ip(address) => ("ip", address.to_string()),
        Identity::Digest(id) => ("digest", id.split(':').next().unwrap_or_default().to_owned()),
        Identity::X509(id) => ("x509", id.to_string()),
        Identity::Super => ("super", String::new()),
        Identity::Token(id) => ("token", id.to_string()),
        Identity::Internal => ("internal", String::new()),
    };
    (scheme.to_owned(), name)
}

/// Returns the kind of watch that an addWatch requests.
pub fn watch_kind(mode: i32) -> Option<WatchKind> {
    match mode {
        zk_wire::watch_mode::PERSISTENT => Some(WatchKind::Persistent),
        zk_wire::watch_mode::PERSISTENT_RECURSIVE => Some(WatchKind::PersistentRecursive),
        _ => None,
    }
}

/// Returns the watches that checkWatches and removeWatches refer to.
pub fn watcher_type(kind: i32) -> Option<WatcherType> {
    match kind {
        zk_wire::watcher_type::CHILDREN => Some(WatcherType::Children),
        zk_wire::watcher_type::DATA => Some(WatcherType::Data),
        zk_wire::watcher_type::ANY => Some(WatcherType::Any),
        zk_wire::watcher_type::PERSISTENT => Some(WatcherType::Persistent),
        zk_wire::watcher_type::PERSISTENT_RECURSIVE => Some(WatcherType::PersistentRecursive),
        _ => None,
    }
}

fn acl_of(entries: Option<&[zk_wire::AclEntry]>) -> Acl {
    let entry = |entry: &zk_wire::AclEntry| AclEntry {
        perms: Perms(entry.perms.cast_unsigned()),
        scheme: entry.scheme.as_str().into(),
        id: entry.id.as_str().into(),
    };
    Acl::new(entries.unwrap_or_default().iter().map(entry).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_have_the_order_of_zookeepers_hash_table() {
        // The answer of ZooKeeper 3.8 with the passwords 1, 2, 3 and passwd1, in any order of authentication.
        let ids = [
            Identity::Ip([127, 0, 0, 1].into()),
            Identity::Digest("c:sDHJ4j5y11CoXndS3/c4J9FhncA=".into()),
            Identity::Digest("a:3om/rwYkUJGnhzKQp5NgRhIwIkc=".into()),
            Identity::Digest("b:zdbHuLwinQKXeWY2Cch1CZ4zJUE=".into()),
            Identity::Digest("user1:5+MFzh0cEq73TnJOg149FWoaj4g=".into()),
        ];
        let expected = [
            ("digest", "a"),
            ("digest", "user1"),
            ("digest", "b"),
            ("ip", "127.0.0.1"),
            ("digest", "c"),
        ]
        .map(|(scheme, name)| (scheme.to_owned(), name.to_owned()));
        assert_eq!(identities(&Identities::new(ids.clone())), expected);
        assert_eq!(identities(&Identities::new(ids.into_iter().rev())), expected);
    }
}
