//! Exit codes of the commands. docs/command-line.md repeats this table.

/// Wrong arguments, or a wrong variable of the environment.
pub const USAGE: u8 = 2;
/// The node that was run is no member of its cluster any more: whoever starts processes need not start it again.
pub const REMOVED: u8 = 3;
/// No server could serve: nothing was done.
pub const UNAVAILABLE: u8 = 69;
/// It may have been done, or may yet be.
pub const UNKNOWN: u8 = 70;
/// The lock was not free, or not in time, or takes nobody just now.
pub const NOT_FREE: u8 = 75;
/// Who called is nobody who counts here, or has not the right to it.
pub const NOT_ALLOWED: u8 = 77;
/// The lock was lost while the command ran under it.
pub const LOST: u8 = 79;
/// Of `lockgate migrate`: the trees differ, or the switch was refused.
pub const NOT_THE_SAME: u8 = 80;
/// The command cannot be executed, as shells say it.
pub const NOT_EXECUTABLE: u8 = 126;
/// The command was not found, as shells say it.
pub const NOT_FOUND: u8 = 127;
/// What shells add to the number of the signal that ended a command.
pub const BY_SIGNAL: u8 = 128;
