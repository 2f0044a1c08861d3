//! The table of all settings: what each is called, takes, means, and whether a reload takes it up. It is the one source: what is
//! read is checked against it, and the sample files and docs/configuration.md are printed from it (`reference.rs`).
//!
//! What a setting does, and its default as a value, stands where it is used; a test holds the defaults here against those.

mod bounds;
mod consensus;
mod front_ends;
mod node;
mod observation;
mod protection;

use super::{MAX_SEGMENT_BYTES, MAX_WORKERS, MIN_SEGMENT_BYTES};

/// The beginning of every environment variable that overrides a setting.
pub const ENVIRONMENT_PREFIX: &str = "LOCKGATE_";

/// No bound but that of the type: TOML's integers are signed.
const ANY: u64 = i64::MAX as u64;

/// Longer times are mistakes in the unit, and would be beyond what clocks can be added to.
const YEAR_MS: u64 = 365 * 24 * 3_600_000;

/// Who remembers something wants to for long.
const TEN_YEARS_MS: u64 = 10 * YEAR_MS;

/// Each costs a file descriptor, and the kernel's own bound (`fs.nr_open`) is this.
const MOST_CONNECTIONS: u64 = 1_048_576;

/// A part of the file: `[raft]`. The settings of the node itself have none.
#[derive(Debug)]
pub struct Section {
    /// Its name; empty for the node itself.
    pub name: &'static str,
    /// What it is about, if its settings do not say that.
    pub meaning: &'static str,
    /// What belongs to it, in the order in which it is told.
    pub settings: &'static [Setting],
}

/// One setting.
#[derive(Debug)]
pub struct Setting {
    /// Its name with its section: `raft.heartbeat_ms`.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// What it is where nobody says anything.
    pub usual: Usual,
    /// How the sample files show it.
    pub sample: Shown,
    /// Whether a reload takes a change up.
    pub reload: Reload,
    /// What it means, and what it costs to change it.
    pub meaning: &'static str,
}

/// What a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Any text, which no log and no answer repeats.
    Secret,
    /// Texts with commas between.
    List,
    /// One of these texts.
    OneOf(&'static [&'static str]),
    /// A file or directory; relative to the directory of the configuration.
    Path,
    /// `HOST:PORT`.
    Address,
    /// `HOST:PORT`, or `off`.
    AddressOrOff,
    /// `ADDRESS:PORT`, where the address is no name.
    SocketAddress,
    /// true or false.
    Flag,
    /// A whole number.
    Number {
        /// The smallest one.
        least: u64,
        /// The largest one.
        most: u64,
    },
    /// A whole number of milliseconds, at least one.
    Milliseconds {
        /// The longest time.
        most: u64,
    },
    /// A part of all: from 0 to 1.
    Ratio,
    /// A number from 1, or `hostname`.
    NodeId,
}

/// What a setting is where nobody says anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usual {
    /// This, as it would be written.
    Is(&'static str),
    /// It depends; in words.
    Said(&'static str),
    /// There is no default.
    Required,
}

/// How the sample files show a setting. `{N}` is the node's id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    /// The default, commented out.
    Usual,
    /// An example, commented out.
    Example(&'static str),
    /// Set to this.
    Set(&'static str),
}

/// When a change is taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reload {
    /// At a reload.
    Live,
    /// At the next start.
    Restart,
}

/// What `[members]` is, which is a table of tables and not a setting.
pub const MEMBERS: &str = "All nodes at the cluster's first start, this one among them: where each is reached by its peers and \
    by clients. The cluster forms from these, once; from then on it knows its members itself, and `lockgate cluster add` and the \
    like change them. Two things are still read here: this node's own addresses, which it tells the cluster if they have changed \
    (so a node that moves needs nothing else), and where else to look for a node that is not where it was.";

/// All of them, in the order of the sample files.
pub const SECTIONS: [&Section; 19] = [
    &node::NODE,
    &consensus::RAFT,
    &consensus::SNAPSHOTS,
    &consensus::DISK,
    &consensus::SESSIONS,
    &bounds::LIMITS,
    &consensus::SWEEPS,
    &bounds::WATCHES,
    &bounds::EVENTS,
    &bounds::LOAD,
    &bounds::HISTORY,
    &front_ends::HTTP,
    &front_ends::ADMIN,
    &front_ends::ZOOKEEPER,
    &protection::TLS,
    &protection::ACCESS,
    &protection::LOG,
    &observation::TRACES,
    &observation::METRICS,
];

/// All settings.
pub fn all() -> impl Iterator<Item = &'static Setting> {
    SECTIONS.into_iter().flat_map(|section| section.settings)
}

/// The setting of this name.
pub fn find(name: &str) -> Option<&'static Setting> {
    all().find(|setting| setting.name == name)
}

/// The environment variable of a setting: `raft.heartbeat_ms` is `LOCKGATE_RAFT_HEARTBEAT_MS`.
pub fn variable(name: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", name.replace('.', "_").to_uppercase())
}

impl Setting {
    /// Its name within its section.
    pub fn key(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(_, key)| key)
    }
}

impl Kind {
    /// The bounds of a number; none: it is no number.
    pub fn bounds(self) -> Option<(u64, u64)> {
        match self {
            Self::Number { least, most } => Some((least, most)),
            Self::Milliseconds { most } => Some((1, most)),
            Self::NodeId => Some((1, ANY)),
            _ => None,
        }
    }

    /// What is allowed, for people, to follow "must be".
    pub fn allowed(self) -> String {
        let range = |least: u64, most: u64| match (least, most) {
            (0, ANY) => String::new(),
            (least, ANY) => format!(", at least {least}"),
            (least, most) => format!(", {least} to {most}"),
        };
        match self {
            Self::Text | Self::Secret => "a text in quotes".to_owned(),
            Self::List => "a text in quotes, with commas between its parts".to_owned(),
            Self::OneOf(texts) => {
                let quoted: Vec<String> = texts.iter().map(|text| format!("{text:?}")).collect();
                let (last, others) = quoted.split_last().expect("there are some to choose from");
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
