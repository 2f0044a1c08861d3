//! Exit codes of the commands. docs/reference/command-line.md repeats this table.

/// Wrong arguments, or a wrong environment variable.
pub const USAGE: u8 = 2;
/// The node that was run is no longer a member of its cluster; a supervisor need not restart it.
pub const REMOVED: u8 = 3;
/// No server was available, and nothing was done.
pub const UNAVAILABLE: u8 = 69;
/// The outcome is unknown: the command may have been executed, or may still be.
pub const UNKNOWN: u8 = 70;
/// The lock was not free, or not in time, or is drained.
pub const NOT_FREE: u8 = 75;
/// The caller is not authenticated, or lacks the permission.
pub const NOT_ALLOWED: u8 = 77;
/// The lock was lost while the command ran under it.
pub const LOST: u8 = 79;
/// `lockgate migrate`: the trees differ, or the switch was rejected.
pub const NOT_THE_SAME: u8 = 80;
/// The command cannot be executed, as in shells.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as in shells.
pub const NOT_FOUND: u8 = 127;
/// Offset that shells add to the number of the signal that ended a command.
pub const BY_SIGNAL: u8 = 128;
