//! Table of all settings: name, type, meaning, and whether a reload applies changes. It is the only source: settings are checked against
//! it, and the sample files and docs/reference/configuration.md are printed from it (`reference.rs`).
//!
//! The default of a setting as a value is defined where it is used; a test compares it with the table.

mod bounds;
mod consensus;
mod front_ends;
mod node;
mod observation;
mod protection;

use super::{MAX_SEGMENT_BYTES, MAX_WORKERS, MIN_SEGMENT_BYTES};

/// Prefix of environment variables that override settings.
pub const ENVIRONMENT_PREFIX: &str = "LOCKGATE_";

/// No bound but that of the type: integers of TOML are signed.
const UNBOUNDED: u64 = i64::MAX as u64;

/// Maximum time. Longer ones are mistakes in the unit, and would overflow clocks.
const MAX_TIME_MS: u64 = 365 * 24 * 3_600_000;

/// Maximum age of kept records, which may be long.
const MAX_AGE_MS: u64 = 10 * MAX_TIME_MS;

/// Maximum number of connections: each costs a file descriptor, and the kernel's bound (`fs.nr_open`) is this.
const MAX_CONNECTIONS: u64 = 1_048_576;

/// Section of the file: `[raft]`. The settings of the node itself have none.
#[derive(Debug)]
pub struct Section {
    /// Name; empty for the node itself.
    pub name: &'static str,
    /// Subject, if its settings do not explain it.
    pub meaning: &'static str,
    /// Settings, in display order.
    pub settings: &'static [Setting],
}

/// Setting.
#[derive(Debug)]
pub struct Setting {
    /// Name with its section: `raft.heartbeat_ms`.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Default.
    pub default: DefaultValue,
    /// Form in the sample files.
    pub sample: SampleForm,
    /// Time at which a change is applied.
    pub reload: Reload,
    /// Meaning, and the cost of a change.
    pub meaning: &'static str,
}

/// Type of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Any text, which neither logs nor answers repeat.
    Secret,
    /// Texts, separated by commas.
    List,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// File or directory, relative to the directory of the configuration.
    Path,
    /// `HOST:PORT`.
    Address,
    /// `HOST:PORT`, or `off`.
    AddressOrOff,
    /// `ADDRESS:PORT`, where the address is no name.
    SocketAddress,
    /// `true` or `false`.
    Flag,
    /// Integer.
    Number {
        /// Minimum.
        least: u64,
        /// Maximum.
        most: u64,
    },
    /// Integer of milliseconds, at least one.
    Milliseconds {
        /// Maximum time.
        most: u64,
    },
    /// Share from 0 to 1.
    Ratio,
    /// Integer from 1, or `hostname`.
    NodeId,
}

/// Default of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DefaultValue {
    /// Value, as it is written in the file.
    Literal(&'static str),
    /// Depends on other things; in words.
    Described(&'static str),
    /// None.
    Required,
}

/// Form of a setting in the sample files. `{N}` is the node's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SampleForm {
    /// The default, commented out.
    Default,
    /// An example, commented out.
    Example(&'static str),
    /// Set to this.
    Set(&'static str),
}

/// Time at which a change is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At a reload.
    Live,
    /// At the next start.
    Restart,
}

/// Description of `[members]`, which is a table of tables and not a setting.
pub const MEMBERS: &str = "All nodes at the cluster's first start, this one included, with their addresses for peers and for clients. \
    The cluster forms from these once; afterwards `lockgate member add` and its siblings change the members. Two things are still read \
    here: this node's own addresses, which it reports to the cluster if they have changed (so a node that moves needs nothing else), and \
    other addresses for a node that does not answer at the known one.";

/// All sections, in the order of the sample files.
pub const SECTIONS: [&Section; 21] = [
    &node::NODE,
    &consensus::RAFT,
    &consensus::SNAPSHOTS,
    &consensus::DISK,
    &consensus::SESSIONS,
    &consensus::LEASES,
    &bounds::LIMITS,
    &consensus::SWEEPS,
    &bounds::WATCHES,
    &bounds::EVENTS,
    &bounds::LOAD,
    &bounds::HISTORY,
    &front_ends::HTTP,
    &front_ends::ADMIN,
    &front_ends::ZOOKEEPER,
    &front_ends::REDIS,
    &protection::TLS,
    &protection::ACCESS,
    &protection::LOG,
    &observation::TRACES,
    &observation::METRICS,
];

/// Returns all settings.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.into_iter().flat_map(|section| section.settings)
}

/// Returns the setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

/// Returns the environment variable of a setting: `raft.heartbeat_ms` is `LOCKGATE_RAFT_HEARTBEAT_MS`.
pub fn variable(name: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", name.replace('.', "_").to_uppercase())
}

impl Setting {
    /// Returns the name within the section.
    pub fn key(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, key)| key)
    }
}

impl Kind {
    /// Returns the bounds of a number; `None` for other types.
    pub fn bounds(self) -> Option<(u64, u64)> {
        match self {
            Self::Number { least, most } => Some((least, most)),
            Self::Milliseconds { most } => Some((1, most)),
            Self::NodeId => Some((1, UNBOUNDED)),
            _ => None,
        }
    }

    /// Returns the allowed values for people, to follow "must be".
    pub fn allowed(self) -> String {
        let range = |least: u64, most: u64| match (least, most) {
            (0, UNBOUNDED) => String::new(),
            (least, UNBOUNDED) => format!(", at least {least}"),
            (least, most) => format!(", {least} to {most}"),
        };
        match self {
            Self::Text | Self::Secret => "a text in quotes".to_owned(),
            Self::List => "a text in quotes, its parts separated by commas".to_owned(),
            Self::OneOf(texts) => {
                let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
                let (last, others) = quoted.split_last().expect("a choice has values");
                format!("{} or {last}", others.join(", "))
            }
            Self::Path => "a path in quotes".to_owned(),
            Self::Address => "\"HOST:PORT\"".to_owned(),
            Self::AddressOrOff => "\"HOST:PORT\" or \"off\"".to_owned(),
            Self::SocketAddress => "\"ADDRESS:PORT\", and no name".to_owned(),
            Self::Flag => "true or false".to_owned(),
            Self::Number { least, most } => format!("a whole number{}", range(least, most)),
            Self::Milliseconds { most } => format!("a whole number of milliseconds{}", range(1, most)),
            Self::Ratio => "a number from 0 to 1".to_owned(),
            Self::NodeId => "a whole number, at least 1, or \"hostname\"".to_owned(),
        }
    }
}
