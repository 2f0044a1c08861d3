//! Names of contenders' znodes: makes those of Lockgate, and reads the facts in the names of Lockgate and of other clients.
//!
//! | client                   | name                                  | kind      |
//! |--------------------------|---------------------------------------|-----------|
//! | Lockgate                 | `_c_<32 hex>-lock-<10 digits>`        | exclusive, upgradeable |
//! |                          | `_c_<32 hex>-__READ__<10 digits>`     | shared    |
//! |                          | `_c_<32 hex>-lease-<10 digits>`       | lease     |
//! | the same, as Curator's read-write lock | `_c_<32 hex>-__WRIT__<10 digits>` | exclusive, upgradeable |
//! | the same, as kazoo       | `_c_<32 hex>-__lock__<10 digits>`     | exclusive, upgradeable |
//! |                          | `_c_<32 hex>-__rlock__<10 digits>`    | shared    |
//! | Curator's mutex          | `_c_<uuid>-lock-<10 digits>`          | exclusive |
//! | Curator's read-write lock| `…__READ__<10 digits>`, `…__WRIT__…`  | shared, exclusive |
//! | kazoo                    | `<hex>__lock__<10 digits>`, `…__rlock__…` | exclusive, shared |
//! | any other                | `…<10 digits>`                        | exclusive |

use alloc::format;
use alloc::string::String;

use crate::model::digits::{GUID_DIGITS, SEQUENCE_DIGITS, push_guid, push_sequence, sequence_number};
use crate::model::lock::{ContenderNames, LockMode};
use crate::model::path::{BadPath, LockName, ZPath};
use crate::model::refusal::Refusal;

/// Facts in a contender's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContenderName {
    /// The sequence number.
    pub number: u64,
    /// Kind of the request.
    pub kind: Kind,
    /// True if the name has Lockgate's form. Only then the data may be a record of ours.
    pub ours: bool,
}

/// Kind of a request, as far as a name can say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Exclusive, or upgradeable. Other clients cannot tell these apart and wait for both, which is safe.
    Exclusive,
    /// Shared with other readers.
    Shared,
    /// Some permits of a semaphore. The data has their number and the limit.
    Lease,
}

impl Kind {
    /// Returns the kind of name for a mode.
    pub fn of(mode: LockMode) -> Self {
        match mode {
            LockMode::Exclusive | LockMode::Upgradeable => Self::Exclusive,
            LockMode::Shared => Self::Shared,
            LockMode::Semaphore { .. } => Self::Lease,
        }
    }

    /// Returns whether a contender with a name of this kind may have a record with that mode: an exclusive name may have been downgraded
    /// since, a shared name stays shared.
    pub fn fits(self, mode: LockMode) -> bool {
        self == Self::of(mode) || (self, mode) == (Self::Exclusive, LockMode::Shared)
    }

    fn marker(self, names: ContenderNames) -> &'static str {
        match (self, names) {
            (Self::Exclusive, ContenderNames::Mutex) => "-lock-",
            (Self::Exclusive, ContenderNames::ReadWrite) => "-__WRIT__",
            (Self::Exclusive, ContenderNames::Kazoo) => "-__lock__",
            (Self::Shared, ContenderNames::Mutex | ContenderNames::ReadWrite) => "-__READ__",
            (Self::Shared, ContenderNames::Kazoo) => "-__rlock__",
            (Self::Lease, _) => LEASE,
        }
    }
}

/// Text in the names of leases, of Curator's semaphores and of Lockgate's.
const LEASE: &str = "-lease-";

/// Prefix of the random number in Lockgate's names.
const OURS: &str = "_c_";

/// Returns the path of a new contender's znode, with the sequence number of its lock. Fails if the path is not short.
pub(crate) fn make(
    lock: &LockName,
    guid: u128,
    mode: LockMode,
    names: ContenderNames,
    number: u64,
) -> Result<ZPath, BadPath> {
    let (znode, marker) = (lock.znode().as_str(), Kind::of(mode).marker(names));
    let bytes = znode.len() + 1 + OURS.len() + GUID_DIGITS + marker.len() + SEQUENCE_DIGITS;
    let mut path = String::with_capacity(bytes);
    for part in [znode, "/", OURS] {
        path.push_str(part);
    }
    push_guid(&mut path, guid);
    path.push_str(marker);
    push_sequence(&mut path, number);
    lock.contender(path)
}

/// Reads the name of a znode below a lock. Returns `None` if it is not the name of a contender.
pub(crate) fn recognise(name: &str) -> Option<ContenderName> {
    let number = sequence_number(name)?;
    let stem = &name[..name.len() - SEQUENCE_DIGITS];
    let kind = if stem.ends_with("__READ__") || stem.ends_with("__rlock__") {
        Kind::Shared
    } else if stem.ends_with(LEASE) {
        Kind::Lease
    } else {
        // Unknown kinds of names count as exclusive, because an only holder cannot conflict with others.
        Kind::Exclusive
    };
    Some(ContenderName {
        number,
        kind,
        ours: is_ours(stem, kind),
    })
}

/// Returns whether a name has Lockgate's form. Curator writes a UUID with dashes after `_c_`, so its names never have that form.
fn is_ours(stem: &str, kind: Kind) -> bool {
    let Some((guid, marker)) = stem
        .strip_prefix(OURS)
        .and_then(|rest| rest.split_at_checked(GUID_DIGITS))
    else {
        return false;
    };
    let all = [
        ContenderNames::Mutex,
        ContenderNames::ReadWrite,
        ContenderNames::Kazoo,
    ];
    let is_hex = |digits: &str| {
        digits
            .bytes()
            .fold(true, |hex, b| hex & matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    };
    is_hex(guid) && all.into_iter().any(|names| kind.marker(names) == marker)
}

/// Returns whether an ephemeral znode at `path` would look like a contender that the lock protocol made. Only the protocol creates or writes
/// such nodes: their data records permits and calls, and a forged record could hold more permits than there are. Any client may delete
/// them, which ends the contender.
pub(crate) fn is_reserved(path: &ZPath) -> bool {
    LockName::of_contender(path).is_some() && recognise(path.name()).is_some_and(|name| name.ours)
}

/// Returns the lock of which a znode at `path` would be a contender, if it is ephemeral. The parent and the name decide.
pub fn lock_of_contender(path: &ZPath) -> Option<LockName> {
    recognise(path.name())?;
    LockName::of_contender(path)
}

/// Returns the refusal of a write to a znode that [`is_reserved`].
pub(crate) fn written_by_locks_alone(path: &ZPath) -> Refusal {
    Refusal::BadPath(format!(
        "{path} would be a contender that only the lock protocol creates and writes"
    ))
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    #[track_caller]
    fn check(name: &str, expected: Option<(Kind, u64, bool)>) {
        let found = recognise(name).map(|name| (name.kind, name.number, name.ours));
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn made_names_are_recognised() {
        for (mode, kind) in [
            (LockMode::Exclusive, Kind::Exclusive),
            (LockMode::Upgradeable, Kind::Exclusive),
            (LockMode::Shared, Kind::Shared),
            (LockMode::Semaphore { limit: 7 }, Kind::Lease),
        ] {
            for (guid, names) in [
                (0, ContenderNames::Mutex),
                (1, ContenderNames::ReadWrite),
                (u128::MAX, ContenderNames::Kazoo),
            ] {
                let lock = LockName::parse("a").unwrap();
                let path = make(&lock, guid, mode, names, 42).unwrap();
                check(path.name(), Some((kind, 42, true)));
                assert_eq!(LockName::of_contender(&path), Some(lock));
            }
        }
    }

    #[test]
    fn names_of_other_clients() {
        let curator = "_c_7c1e1b2a-5c8f-4f5e-9a53-0d2f6a3c9f11";
        check(
            &format!("{curator}-lock-0000000003"),
            Some((Kind::Exclusive, 3, false)),
        );
        check(
            &format!("{curator}-__READ__0000000003"),
            Some((Kind::Shared, 3, false)),
        );
        check(
            &format!("{curator}-__WRIT__0000000003"),
            Some((Kind::Exclusive, 3, false)),
        );
        check(
            &format!("{curator}-lease-0000000003"),
            Some((Kind::Lease, 3, false)),
        );
        check("lock-0000000000", Some((Kind::Exclusive, 0, false)));
        check(
            "0123456789abcdef0123456789abcdef__lock__0000000009",
            Some((Kind::Exclusive, 9, false)),
        );
        check(
            "0123456789abcdef0123456789abcdef__rlock__0000000009",
            Some((Kind::Shared, 9, false)),
        );
        check("n_9999999999", Some((Kind::Exclusive, 9_999_999_999, false)));
        check("0000000001", Some((Kind::Exclusive, 1, false)));
    }

    #[test]
    fn names_that_stand_in_no_queue() {
        for name in [
            "",
            "config",
            "lock-",
            "lock-000000001",
            "lock-000000000x",
            "é000000001",
            "0000000é001",
        ] {
            check(name, None);
        }
    }

    #[test]
    fn nearly_ours() {
        check("_c_0123-lock-0000000001", Some((Kind::Exclusive, 1, false)));
        check(
            "_c_0123456789ABCDEF0123456789ABCDEF-lock-0000000001",
            Some((Kind::Exclusive, 1, false)),
        );
        check(
            "_c_0123456789abcdef0123456789abcdef__READ__0000000001",
            Some((Kind::Shared, 1, false)),
        );
    }
}
