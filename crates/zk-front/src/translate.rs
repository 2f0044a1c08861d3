//! ZooKeeper's words for Lockgate's, in both directions. Nothing is decided here that the state machine could decide.

use zk_wire::{CreateCall, ErrorCode, MultiResult, Notification, Request, event_type, keeper_state};
use znode_store::{
    Acl, AclEntry, CreateMode, CreatePath, Identities, Identity, Op, Perms, Refusal, Reply, Stat, ZPath,
    ZnodeEventKind,
};

use raft_node::{Notice, WatchKind, WatcherType};

/// The operation of a request that writes; `in_multi` if it is an item of a multi. A code: it is refused before there is an
/// operation.
///
/// # Panics
///
/// If the request writes nothing, or is a multi itself.
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
        // ZooKeeper looks a path up to delete it, and does not ask whether it could be one.
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
        other => unreachable!("operation {} writes nothing", other.op_code()),
    })
}

fn legal(path: &str) -> Result<ZPath, ErrorCode> {
    ZPath::parse(path).map_err(|_| ErrorCode::BAD_ARGUMENTS)
}

/// An operation that is always refused, in a way that becomes this code: for an item of a multi that has to be refused, but
/// not before those in front of it.
pub fn refused_with(code: ErrorCode) -> Op {
    match code {
        ErrorCode::NO_NODE => Op::Check {
            path: ZPath::parse("/zookeeper/none").expect("it is a path"),
            version: -1,
        },
        _ => Op::Delete {
            path: ZPath::root(),
            version: -1,
        },
    }
}

/// What the flags mean. Alone, the request itself makes a container or gives a time to live; inside of a multi
/// ZooKeeper forgets which request it was, and the flags decide.
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

/// What a reply to one operation is made into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Creations answer with the path alone.
    Path,
    /// Creations answer with path and stat.
    PathAndStat,
}

impl Shape {
    /// That of a request alone.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Create { call, .. } if *call != CreateCall::Create => Self::PathAndStat,
            _ => Self::Path,
        }
    }

    /// That of an item of a multi: only containers and nodes with a time to live are answered with a stat.
    pub fn in_multi(request: &Request) -> Self {
        match request {
            Request::Create { flags: 4..=6, .. } => Self::PathAndStat,
            _ => Self::Path,
        }
    }
}

/// The reply to one operation.
///
/// # Panics
///
/// If no operation of ZooKeeper's is answered so.
pub fn reply(reply: Reply, shape: Shape) -> zk_wire::Reply {
    match reply {
        Reply::Created { path, stat: of } => match shape {
            Shape::Path => zk_wire::Reply::Path(path.into()),
            Shape::PathAndStat => zk_wire::Reply::Created(path.into(), stat(&of)),
        },
        Reply::Set(of) | Reply::AclSet(of) => zk_wire::Reply::Stat(stat(&of)),
        Reply::Deleted | Reply::Checked => zk_wire::Reply::Done,
        other => unreachable!("no operation of ZooKeeper's is answered by {other}"),
    }
}

/// The result of one item of a multi that was carried out.
///
/// # Panics
///
/// If no item is answered so.
pub fn result(reply: Reply, shape: Shape) -> MultiResult {
    match reply {
        Reply::Created { path, stat: of } => match shape {
            Shape::Path => MultiResult::Create(path.into()),
            Shape::PathAndStat => MultiResult::Create2(path.into(), stat(&of)),
        },
        Reply::Set(of) => MultiResult::SetData(stat(&of)),
        Reply::Deleted => MultiResult::Delete,
        Reply::Checked => MultiResult::Check,
        other => unreachable!("no item of a multi is answered by {other}"),
    }
}

/// The results of a multi of so many items that was not carried out: no error before the item that failed, and what
/// ZooKeeper calls an inconsistency after it. None: it was refused as a whole.
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

/// ZooKeeper's code for a refusal. What ZooKeeper does not refuse gets the code that is nearest to it.
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
        // Whoever has proven nothing yet may do so on the same connection.
        Refusal::NoAuth(_) | Refusal::Forbidden { .. } | Refusal::Unauthenticated(_) => ErrorCode::NO_AUTH,
        Refusal::InvalidAcl(_) => ErrorCode::INVALID_ACL,
        // All of these are: there are enough of them here.
        Refusal::QuotaExceeded { .. }
        | Refusal::LimitReached { .. }
        | Refusal::SequenceExhausted(_)
        | Refusal::QueueFull(_) => ErrorCode::QUOTA_EXCEEDED,
        Refusal::NoSession(_) | Refusal::SessionEnded(_) | Refusal::WrongPassword(_) => {
            ErrorCode::SESSION_EXPIRED
        }
        Refusal::SessionMoved(_) | Refusal::NotYourSession(_) => ErrorCode::SESSION_MOVED,
        Refusal::Multi { refusal, .. } => code(refusal),
        // Of what clients of ZooKeeper never ask for.
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
        | Refusal::Access(_) => ErrorCode::SYSTEM_ERROR,
    }
}

/// A stat as it stands on the wire.
pub fn stat(of: &Stat) -> zk_wire::Stat {
    zk_wire::Stat {
        czxid: of.czxid.0.cast_signed(),
        mzxid: of.mzxid.0.cast_signed(),
        ctime: of.ctime_ms.cast_signed(),
        mtime: of.mtime_ms.cast_signed(),
        version: of.version,
        cversion: of.cversion,
        aversion: of.aversion,
        // Only sessions: ZooKeeper tells no client that a node is a container, or how long it may live.
        ephemeral_owner: of
            .ephemeral_owner
            .session()
            .map_or(0, |session| session.0.cast_signed()),
        data_length: of.data_length.cast_signed(),
        num_children: of.num_children.cast_signed(),
        pzxid: of.pzxid.0.cast_signed(),
    }
}

/// A list as it stands on the wire.
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

/// A notice as it stands on the wire.
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

/// What whoAmI says of a client, in ZooKeeper's order: that of a Java hash table of its ids.
pub fn identities(of: &Identities) -> Vec<(String, String)> {
    let mut all: Vec<&Identity> = of.iter().collect();
    // Such a table has 16 places, and twice as many whenever they are three quarters full.
    let mut places = 16;
    while all.len() >= places / 4 * 3 {
        places *= 2;
    }
    all.sort_by_key(|identity| {
        let hash = java_hash_of_id(identity);
        (hash ^ hash >> 16) as usize & (places - 1)
    });
    all.into_iter().map(identity).collect()
}

/// What Java's `hashCode` of the id says that ZooKeeper would have of this identity.
fn java_hash_of_id(identity: &Identity) -> u32 {
    let of_text = |text: &str| {
        let add = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(unit.into());
        text.encode_utf16().fold(0, add)
    };
    let (scheme, name) = self::identity(identity);
    let id = match identity {
        // With the hash of the password.
        Identity::Digest(id) => of_text(id),
        _ => of_text(&name),
    };
    [of_text(&scheme), id]
        .into_iter()
        .fold(17, |hash, part| hash.wrapping_mul(37).wrapping_add(part))
}

/// What whoAmI says of an identity: its scheme, and a name without secrets.
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

/// The kind of watch that addWatch asks for.
pub fn watch_kind(mode: i32) -> Option<WatchKind> {
    match mode {
        zk_wire::watch_mode::PERSISTENT => Some(WatchKind::Persistent),
        zk_wire::watch_mode::PERSISTENT_RECURSIVE => Some(WatchKind::PersistentRecursive),
        _ => None,
    }
}

/// Which watches checkWatches and removeWatches mean.
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
    fn identities_come_in_the_order_of_zookeepers_hash_table() {
        // As ZooKeeper 3.8 answers it, with the passwords 1, 2, 3 and passwd1, in whichever order they are shown.
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
