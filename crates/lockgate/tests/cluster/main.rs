//! Whole clusters from outside: real processes of the built program, real signals, real HTTP.
//!
//! Every test starts its own nodes, on free ports and in a directory of its own, and leaves nothing. The
//! number of rounds of the fault tests suits every build; LOCKGATE_TEST_ROUNDS multiplies it.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod access;
mod administration;
mod backup;
mod cert;
mod client;
mod command_line;
mod configuration;
mod curator;
mod cut_off;
mod errors;
mod events;
mod graceful;
mod harness;
mod history;
mod identity;
mod idle_sessions;
mod known_bugs;
mod leader_kill;
mod limited_resource;
mod lost_quorum;
mod membership;
mod modes;
mod ordinary;
mod queue;
mod quiet_logs;
mod redis;
mod request_ids;
mod rolled_back;
mod scaling;
mod sessions;
mod stopping;
mod supervisor;
mod tickets;
mod tls;
mod usage_errors;

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate");
