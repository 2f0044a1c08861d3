//! ZooKeeper's access control lists (<https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#sc_ZooKeeperAccessControl>).
//!
//! Each znode has a list of its own; lists are not inherited. Creating and deleting a child needs a right at the *parent*. The front end
//! authenticates the caller (an address, a user with a password, a certificate) and sends the identities with the command. This module
//! does not know how it does that.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::ops::BitOr;

use serde::{Deserialize, Serialize};

use crate::model::identity::{Identities, Identity};
use crate::model::path::ZPath;
use crate::model::refusal::Refusal;

/// Maximum size of the texts of one list in bytes. Znodes with equal lists share one in memory, but a snapshot contains the list of each znode.
pub const MAX_ACL_BYTES: usize = 16 * 1024;

/// Set of rights. Unknown bits are kept, as ZooKeeper keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Perms(pub u32);

impl Perms {
    /// To read the data, the children and the list.
    pub const READ: Self = Self(1);
    /// To replace the data.
    pub const WRITE: Self = Self(2);
    /// To create children.
    pub const CREATE: Self = Self(4);
    /// To delete children.
    pub const DELETE: Self = Self(8);
    /// To replace the list itself.
    pub const ADMIN: Self = Self(16);
    /// All rights.
    pub const ALL: Self = Self(31);

    fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Perms {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Rights of an identity, as texts. The scheme decides what they mean.
///
/// | scheme | id | matching callers |
/// |---|---|---|
/// | `world` | `anyone` | all callers |
/// | `auth` | (ignored) | identities that the creator of the list has proven |
/// | `digest` | `user:base64(sha1(user:password))` | callers that have shown the password |
/// | `ip` | `address` or `address/bits` | callers from there |
/// | `x509` | the subject of a certificate | callers that have shown the certificate |
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AclEntry {
    /// The rights.
    pub perms: Perms,
    /// Scheme that decides what `id` means.
    pub scheme: Arc<str>,
    /// Identity that has the rights.
    pub id: Arc<str>,
}

/// Access control list of a znode. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Option<Vec<AclEntry>>", into = "Option<Vec<AclEntry>>")]
pub struct Acl(
    /// Entries, or `None` if every caller has all rights, as in the list of nearly all znodes.
    Option<Arc<[AclEntry]>>,
);

impl Acl {
    /// Returns the list that gives every caller all rights.
    pub fn open() -> Self {
        Self(None)
    }

    /// Returns the list that gives every caller the right to read.
    pub fn read_only() -> Self {
        Self::new(Vec::from([AclEntry::world(Perms::READ)]))
    }

    /// Returns the list of `entries`, in their order.
    pub fn new(entries: Vec<AclEntry>) -> Self {
        match &entries[..] {
            [only] if only.perms == Perms::ALL && only.is_world() => Self::open(),
            _ => Self(Some(entries.into())),
        }
    }

    /// Returns the entries of the list.
    pub fn entries(&self) -> Vec<AclEntry> {
        match &self.0 {
            None => Vec::from([AclEntry::world(Perms::ALL)]),
            Some(entries) => entries.to_vec(),
        }
    }

    /// Returns whether every caller has all rights.
    pub fn is_open(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether the caller has one of the rights in `perms`.
    pub fn allows(&self, perms: Perms, caller: &Identities) -> bool {
        let Some(entries) = &self.0 else { return true };
        caller.is_super()
            || entries
                .iter()
                .any(|entry| entry.perms.overlaps(perms) && entry.matches(caller))
    }

    /// Refuses a caller that has none of the rights in `perms` at the znode `path`.
    pub(crate) fn require(&self, perms: Perms, caller: &Identities, path: &ZPath) -> Result<(), Refusal> {
        if self.allows(perms, caller) {
            Ok(())
        } else {
            Err(Refusal::NoAuth(path.clone()))
        }
    }

    /// Returns the list as it is stored when `caller` sets it. `auth` is replaced by the proven identities of the caller, and repeated entries are
    /// removed. Entries that no caller could ever match are refused.
    pub(crate) fn as_set_by(&self, caller: &Identities) -> Result<Acl, Refusal> {
        let Some(entries) = &self.0 else {
            return Ok(self.clone());
        };
        let bad = |why: String| Err(Refusal::InvalidAcl(why));
        let bytes: usize = entries
            .iter()
            .map(|entry| entry.scheme.len() + entry.id.len())
            .sum();
        if bytes > MAX_ACL_BYTES {
            return bad(format!(
                "its {bytes} bytes are more than the {MAX_ACL_BYTES} allowed"
            ));
        }
        if entries.is_empty() {
            return bad("it is empty".into());
        }
        let mut stored: Vec<AclEntry> = Vec::with_capacity(entries.len());
        for (at, entry) in entries.iter().enumerate() {
            if entries[..at].contains(entry) {
                continue;
            }
            if &*entry.scheme == "auth" {
                let before = stored.len();
                stored.extend(caller.proven().map(|(scheme, id)| AclEntry {
                    perms: entry.perms,
                    scheme: scheme.into(),
                    id,
                }));
                if stored.len() == before {
                    return bad("auth stands for what the caller has proven to be, which is nothing".into());
                }
            } else if entry.is_valid() {
                stored.push(entry.clone());
            } else {
                return bad(format!(
                    "nobody is {:?} by the scheme {:?}",
                    entry.id, entry.scheme
                ));
            }
        }
        Ok(Self::new(stored))
    }

    /// Returns the list as it is shown to callers that may not change it: without the hashes of passwords.
    pub(crate) fn masked(&self) -> Acl {
        let masked = self.entries().into_iter().map(|entry| {
            let user = match &*entry.scheme {
                "digest" => entry.id.split_once(':').map(|(user, _)| user),
                _ => None,
            };
            match user {
                Some(user) => AclEntry {
                    id: format!("{user}:x").into(),
                    ..entry
                },
                None => entry,
            }
        });
        Self::new(masked.collect())
    }
}

impl From<Option<Vec<AclEntry>>> for Acl {
    fn from(entries: Option<Vec<AclEntry>>) -> Self {
        entries.map_or(Self::open(), Self::new)
    }
}

impl From<Acl> for Option<Vec<AclEntry>> {
    fn from(acl: Acl) -> Self {
        acl.0.map(|entries| entries.to_vec())
    }
}

impl AclEntry {
    /// Returns an entry for all callers.
    pub fn world(perms: Perms) -> Self {
        Self {
            perms,
            scheme: "world".into(),
            id: "anyone".into(),
        }
    }

    fn is_world(&self) -> bool {
        &*self.scheme == "world" && &*self.id == "anyone"
    }

    /// Returns whether the entry can match any caller.
    fn is_valid(&self) -> bool {
        match &*self.scheme {
            "world" => &*self.id == "anyone",
            "digest" => {
                let mut parts = self.id.split(':');
                matches!((parts.next(), parts.next(), parts.next()), (Some(_), Some(hash), None) if !hash.is_empty())
            }
            "ip" => Network::parse(&self.id).is_some(),
            "x509" => self.id.split(',').all(|part| part.contains('=')),
            _ => false,
        }
    }

    fn matches(&self, caller: &Identities) -> bool {
        self.is_world()
            || caller.iter().any(|identity| match (&*self.scheme, identity) {
                ("ip", Identity::Ip(address)) => {
                    Network::parse(&self.id).is_some_and(|network| network.contains(*address))
                }
                ("digest", Identity::Digest(id)) | ("x509", Identity::X509(id)) => *id == self.id,
                _ => false,
            })
    }
}

/// Network: addresses that share their first bits.
struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |bits| bits.parse().ok())?;
        (bits <= all).then_some(Self { address, bits })
    }

    fn contains(&self, other: IpAddr) -> bool {
        match (self.address, other) {
            (IpAddr::V4(ours), IpAddr::V4(other)) => {
                (ours.to_bits() ^ other.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(ours), IpAddr::V6(other)) => {
                (ours.to_bits() ^ other.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }
}
