//! Fail points of requests to peers, one for each kind.

use std::io;

use fault_injection::fail_step;

use super::wire::Ask;

/// Fail point before a request is sent to a peer.
pub(super) async fn asking(ask: &Ask) -> io::Result<()> {
    match ask {
        Ask::Vote(_) => fail_step!(async "vote::before_send", |error| error),
        Ask::PreVote(_) => fail_step!(async "pre_vote::before_send", |error| error),
        Ask::Append(_) => fail_step!(async "heartbeat::before_send", |error| error),
        Ask::TransferLeader { .. } => fail_step!(async "transfer::before_send", |error| error),
        Ask::Forward { .. } => fail_step!(async "forward::before_send", |error| error),
        Ask::Touch { .. } | Ask::Heartbeats { .. } => fail_step!(async "touch::before_send", |error| error),
        Ask::ReadIndex => fail_step!(async "read_index::before_send", |error| error),
        Ask::Disk { .. } => fail_step!(async "disk::before_send", |error| error),
        // Rarer than anything that a run could wait for.
        Ask::ChangeMembership(_) | Ask::Members | Ask::LeaderLost { .. } | Ask::Audit(_) => {}
    }
    Ok(())
}

/// Fail point after a request of a peer arrived, before it is answered.
pub(super) async fn asked(ask: &Ask) -> io::Result<()> {
    match ask {
        Ask::Vote(_) => fail_step!(async "vote::after_receive", |error| error),
        Ask::PreVote(_) => fail_step!(async "pre_vote::after_receive", |error| error),
        Ask::Append(_) => fail_step!(async "heartbeat::after_receive", |error| error),
        Ask::TransferLeader { .. } => fail_step!(async "transfer::after_receive", |error| error),
        Ask::Forward { .. } => fail_step!(async "forward::after_receive", |error| error),
        Ask::Touch { .. } | Ask::Heartbeats { .. } => fail_step!(async "touch::after_receive", |error| error),
        Ask::ReadIndex => fail_step!(async "read_index::after_receive", |error| error),
        Ask::Disk { .. } => fail_step!(async "disk::after_receive", |error| error),
        Ask::ChangeMembership(_) | Ask::Members | Ask::LeaderLost { .. } | Ask::Audit(_) => {}
    }
    Ok(())
}
