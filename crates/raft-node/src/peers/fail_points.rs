//! Fail points of requests to peers, one for each kind.

use std::io;

use fault_injection::fail_step;

use super::wire::PeerRequest;

/// Fail point before a request is sent to a peer.
pub(super) async fn before_request(request: &PeerRequest) -> io::Result<()> {
    match request {
        PeerRequest::Vote(_) => fail_step!(async "vote::before_send", |error| error),
        PeerRequest::PreVote(_) => fail_step!(async "pre_vote::before_send", |error| error),
        PeerRequest::Append(_) => fail_step!(async "heartbeat::before_send", |error| error),
        PeerRequest::TransferLeader { .. } => fail_step!(async "transfer::before_send", |error| error),
        PeerRequest::Forward { .. } | PeerRequest::ForwardTraced { .. } => {
            fail_step!(async "forward::before_send", |error| error)
        }
        PeerRequest::Touch { .. } | PeerRequest::Heartbeats { .. } => {
            fail_step!(async "touch::before_send", |error| error)
        }
        PeerRequest::ReadIndex => fail_step!(async "read_index::before_send", |error| error),
        PeerRequest::Disk { .. } => fail_step!(async "disk::before_send", |error| error),
        // Too rare for a test run to wait for.
        PeerRequest::ChangeMembership(_)
        | PeerRequest::Members
        | PeerRequest::LeaderLost { .. }
        | PeerRequest::Audit(_) => {}
    }
    Ok(())
}

/// Fail point after a request of a peer arrived, before it is answered.
pub(super) async fn after_request(request: &PeerRequest) -> io::Result<()> {
    match request {
        PeerRequest::Vote(_) => fail_step!(async "vote::after_receive", |error| error),
        PeerRequest::PreVote(_) => fail_step!(async "pre_vote::after_receive", |error| error),
        PeerRequest::Append(_) => fail_step!(async "heartbeat::after_receive", |error| error),
        PeerRequest::TransferLeader { .. } => fail_step!(async "transfer::after_receive", |error| error),
        PeerRequest::Forward { .. } | PeerRequest::ForwardTraced { .. } => {
            fail_step!(async "forward::after_receive", |error| error)
        }
        PeerRequest::Touch { .. } | PeerRequest::Heartbeats { .. } => {
            fail_step!(async "touch::after_receive", |error| error)
        }
        PeerRequest::ReadIndex => fail_step!(async "read_index::after_receive", |error| error),
        PeerRequest::Disk { .. } => fail_step!(async "disk::after_receive", |error| error),
        PeerRequest::ChangeMembership(_)
        | PeerRequest::Members
        | PeerRequest::LeaderLost { .. }
        | PeerRequest::Audit(_) => {}
    }
    Ok(())
}
