//! Facts that a log entry states for all commands in it.

/// Facts that a log entry states for all commands in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryContext {
    /// The proposing leader's clock, in milliseconds since 1970.
    pub time_ms: u64,
    /// The term of the entry.
    pub term: u64,
}

/// Version of the meaning of those commands whose meaning this release changed. A command's log entry names its rules, so all replicas
/// apply the command by the same rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rules {
    /// The meaning in former releases: a session ends in one command.
    Former,
    /// This release's: what ends a large session is spread over entries.
    Current,
}
