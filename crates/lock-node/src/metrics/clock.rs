//! Metrics of this node's wall clock and of the time of the state, which reveal a wrong clock.

use std::fmt;

use crate::node::Node;
use instruments::text_format::Sheet;
use raft_node::wall_clock;

pub(super) fn write(sheet: &mut Sheet<'_>, node: &Node) -> fmt::Result {
    // The state is read first: an entry that is applied in between could otherwise have a later time than the clock reading.
    let state_ms = node.read(|store| store.time_ms());
    let wall_ms = wall_clock::now_ms();
    let help = "Wall clock of this node, in seconds since 1970";
    sheet.gauge("wall_clock_timestamp_seconds", help, seconds(wall_ms))?;
    let help = "Time by which the newest time in the state is ahead of this node's wall clock, in seconds; 0 if it is not";
    let ahead_ms = state_ms.saturating_sub(wall_ms);
    sheet.gauge("state_time_ahead_seconds", help, seconds(ahead_ms))?;
    let help = "Jumps of this node's wall clock";
    sheet.counter("wall_clock_jumps", help, node.raft().clock().jumps())
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1e3
}
