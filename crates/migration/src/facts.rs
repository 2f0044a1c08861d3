//! Properties of a znode that the migration compares, in one form for both sides. Zxids are not among them:
//! each side has its own.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use znode_store::EphemeralOwner;

/// Last millisecond that the HTTP API can represent.
const END_OF_TIME_MS: i64 = 253_402_300_799_999;

/// Permission bits with a meaning. ZooKeeper stores other bits, too, but they have no effect.
const ALL_PERMS: i32 = 31;

/// Znodes by path. A parent sorts before its descendants.
pub type Tree = BTreeMap<String, Facts>;

/// Properties of a znode that both sides can represent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// Kind, which decides when the znode is deleted.
    pub kind: Kind,
    /// SHA-256 of the data; `None` if the data is null.
    pub data_sha256: Option<[u8; 32]>,
    /// Length of the data in bytes.
    pub data_length: u32,
    /// Access control list. Most znodes share a few lists.
    pub acl: AclList,
    /// Number of replacements of the data.
    pub version: i32,
    /// Number of replacements of the list.
    pub aversion: i32,
    /// Creation time in milliseconds since 1970.
    pub created_ms: i64,
    /// Time of the last replacement of the data, in milliseconds since 1970.
    pub modified_ms: i64,
    /// Number of children that were ever created.
    pub creations: u64,
}

/// Entries of an access control list, shared between znodes.
pub type AclList = Arc<[AclEntry]>;

/// Entry of an access control list, as the API writes it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AclEntry {
    /// Permissions, as letters of `cdrwa`.
    pub perms: String,
    /// Scheme that defines the meaning of the id.
    pub scheme: String,
    /// Id of the user or group that has the permissions.
    pub id: String,
}

/// Kind of a znode, which decides when it is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Deleted by clients only.
    Persistent,
    /// Swept after its last child was deleted.
    Container,
    /// Swept this many milliseconds after the last replacement of its data.
    Ttl(u64),
    /// Deleted when its session ends. Such znodes are not copied.
    Ephemeral(i64),
}

impl Kind {
    /// Returns the kind that ZooKeeper's `ephemeralOwner` encodes.
    pub fn of_owner(owner: i64) -> Self {
        match EphemeralOwner::from_wire(owner) {
            Some(known) if known.is_container() => Self::Container,
            Some(known) => match known.ttl_ms() {
                Some(ttl_ms) => Self::Ttl(ttl_ms),
                None if owner == 0 => Self::Persistent,
                None => Self::Ephemeral(owner),
            },
            // Session ids of ensembles with very high server numbers.
            None => Self::Ephemeral(owner),
        }
    }

    /// Returns the API's name of the kind.
    pub fn word(self) -> &'static str {
        match self {
            Self::Persistent => "persistent",
            Self::Container => "container",
            Self::Ttl(_) => "ttl",
            Self::Ephemeral(_) => "ephemeral",
        }
    }

    /// Returns whether a server may sweep the znode, on either side and at different times.
    pub fn is_swept(self) -> bool {
        matches!(self, Self::Container | Self::Ttl(_))
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ttl(ttl_ms) => write!(f, "ttl of {ttl_ms} ms"),
            other => f.write_str(other.word()),
        }
    }
}

/// Interned access control lists: each list that many znodes share is stored once.
#[derive(Debug, Default)]
pub struct AclInterner(HashMap<Vec<AclEntry>, AclList>);

impl AclInterner {
    /// Returns the interned list of these entries.
    pub fn shared(&mut self, entries: Vec<AclEntry>) -> AclList {
        if let Some(list) = self.0.get(&entries) {
            return list.clone();
        }
        let list: AclList = entries.clone().into();
        self.0.insert(entries, list.clone());
        list
    }

    /// Converts a list of ZooKeeper. Duplicate entries are dropped, as in Lockgate.
    pub fn of_zookeeper(&mut self, entries: Vec<zk_wire::AclEntry>) -> AclList {
        let mut list: Vec<AclEntry> = Vec::with_capacity(entries.len());
        for entry in entries {
            let entry = AclEntry {
                perms: letters(entry.perms),
                scheme: entry.scheme,
                id: entry.id,
            };
            if !list.contains(&entry) {
                list.push(entry);
            }
        }
        self.shared(list)
    }
}

/// Returns the letters in the order in which the API shows them.
fn letters(perms: i32) -> String {
    let perms = perms & ALL_PERMS;
    let letters = [(4, 'c'), (8, 'd'), (1, 'r'), (2, 'w'), (16, 'a')];
    let set = letters.iter().filter(|(bit, _)| perms & bit != 0);
    set.map(|(_, letter)| letter).collect()
}

/// Returns the SHA-256.
pub fn hash(data: &[u8]) -> [u8; 32] {
    Sha256::digest(data).into()
}

/// Computes how many children were ever created below a znode from ZooKeeper's stat. `cversion` counts each
/// creation and each deletion, and children that no longer exist were deleted. ZooKeeper's counter has 32
/// bits and ends at 2³¹.
pub fn creations(cversion: i32, num_children: i32) -> u64 {
    u64::from(cversion.wrapping_add(num_children) as u32 / 2)
}

/// Clamps a time to the range that both sides can represent.
pub fn clamp_time(time_ms: i64) -> i64 {
    time_ms.clamp(0, END_OF_TIME_MS)
}

/// Formats a time as the API writes it.
pub fn rfc3339(time_ms: i64) -> String {
    let since = Duration::from_millis(clamp_time(time_ms) as u64);
    humantime::format_rfc3339_millis(UNIX_EPOCH + since).to_string()
}

/// Describes the differences of two znodes.
pub fn differences(source: &Facts, target: &Facts) -> Vec<String> {
    let mut all = Vec::new();
    let mut add = |what: &str, source: String, target: String| {
        if source != target {
            all.push(format!("{what}: {source} at the source, {target} at the target"));
        }
    };
    add("kind", source.kind.to_string(), target.kind.to_string());
    let data = |facts: &Facts| match &facts.data_sha256 {
        Some(hash) => format!("{} bytes ({})", facts.data_length, hex(&hash[..4])),
        None => "null".to_owned(),
    };
    add("data", data(source), data(target));
    let acl = |facts: &Facts| {
        let entry = |entry: &AclEntry| format!("{}:{}:{}", entry.scheme, shown_id(entry), entry.perms);
        facts.acl.iter().map(entry).collect::<Vec<_>>().join(",")
    };
    add("access control list", acl(source), acl(target));
    add("version", source.version.to_string(), target.version.to_string());
    add(
        "aversion",
        source.aversion.to_string(),
        target.aversion.to_string(),
    );
    add("created", rfc3339(source.created_ms), rfc3339(target.created_ms));
    add(
        "modified",
        rfc3339(source.modified_ms),
        rfc3339(target.modified_ms),
    );
    add(
        "children created",
        source.creations.to_string(),
        target.creations.to_string(),
    );
    if all.is_empty() && source != target {
        all.push("access control list: different password hashes".to_owned());
    }
    all
}

/// Password hashes are omitted from reports.
fn shown_id(entry: &AclEntry) -> &str {
    match &*entry.scheme {
        "digest" => entry.id.split(':').next().unwrap_or_default(),
        _ => &entry.id,
    }
}

/// Formats bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Computes one digest of a whole tree, so that operators can compare reports.
pub fn digest<'t>(znodes: impl Iterator<Item = (&'t String, &'t Facts)>, has_counters: bool) -> String {
    let mut sum = Sha256::new();
    for (path, facts) in znodes {
        let acl: Vec<_> = facts
            .acl
            .iter()
            .map(|entry| (&entry.perms, &entry.scheme, &entry.id))
            .collect();
        let line = format!(
            "{path:?} {} {} {acl:?} {} {} {} {} {}\n",
            facts.kind,
            facts
                .data_sha256
                .map_or_else(|| "null".to_owned(), |hash| hex(&hash)),
            facts.version,
            facts.aversion,
            facts.created_ms,
            facts.modified_ms,
            if has_counters { facts.creations } else { 0 }
        );
        sum.update(line.as_bytes());
    }
    hex(&sum.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn creation_counter_is_derived_from_zookeepers_stat() {
        // A new znode; the root of a new ensemble; three created and one deleted; all three deleted; a
        // counter at its end.
        for (cversion, num_children, creations_) in
            [(0, 0, 0), (-1, 1, 0), (4, 2, 3), (6, 0, 3), (-2, 0, 0x7fff_ffff)]
        {
            assert_eq!(
                creations(cversion, num_children),
                creations_,
                "{cversion} {num_children}"
            );
        }
    }

    #[test]
    fn kinds_are_derived_from_the_ephemeral_owner() {
        for (owner, kind) in [
            (0, Kind::Persistent),
            (i64::MIN, Kind::Container),
            (0xff00_0000_0000_03e8_u64 as i64, Kind::Ttl(1_000)),
            (0x0100_0000_0000_0001, Kind::Ephemeral(0x0100_0000_0000_0001)),
            (
                0x8100_0000_0000_0001_u64 as i64,
                Kind::Ephemeral(0x8100_0000_0000_0001_u64 as i64),
            ),
        ] {
            assert_eq!(Kind::of_owner(owner), kind, "{owner:x}");
        }
    }

    #[test]
    fn lists_are_written_as_the_api_writes_them() {
        let mut lists = AclInterner::default();
        let entry = |perms| zk_wire::AclEntry {
            perms,
            scheme: "digest".to_owned(),
            id: "bob:hash".to_owned(),
        };
        let list = lists.of_zookeeper(vec![entry(31), entry(5), entry(31), entry(1 | 64)]);
        let perms: Vec<_> = list.iter().map(|entry| &*entry.perms).collect();
        assert_eq!(perms, ["cdrwa", "cr", "r"]);
    }

    #[test]
    fn differences_show_no_hashes() {
        let mut lists = AclInterner::default();
        let mut facts = |id: &str| Facts {
            kind: Kind::Persistent,
            data_sha256: Some(hash(b"")),
            data_length: 0,
            acl: lists.of_zookeeper(vec![zk_wire::AclEntry {
                perms: 1,
                scheme: "digest".to_owned(),
                id: id.to_owned(),
            }]),
            version: 0,
            aversion: 0,
            created_ms: 0,
            modified_ms: 0,
            creations: 0,
        };
        let (one, other) = (facts("bob:secret1"), facts("bob:secret2"));
        let shown = differences(&one, &other).join("; ");
        assert!(!shown.is_empty() && !shown.contains("secret"), "{shown}");
        assert!(differences(&one, &one.clone()).is_empty());
    }
}
