//! Facts that a log entry states for all commands in it.

/// Facts that a log entry states for all commands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryContext {
    /// The proposing leader's clock, in milliseconds since 1970.
    pub time_ms: u64,
    /// The term of the entry.
    pub term: u64,
}

/// Rules by which a command is applied, for commands whose meaning this release changed. The log entry of a command names its rules, so all replicas
/// apply it by the same ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// Rules of former releases: a session ends in one command.
    Former,
    /// Rules of this release: the end of a large session is spread over several entries.
    Current,
}
