//! Commands in their envelopes, one file for each kind.

use super::golden;
use super::material::{envelope, later_requests, requests};
use crate::envelope::Envelope;

#[test]
fn golden_commands() {
    for (call, (name, request)) in (1..).zip(requests().into_iter().chain(later_requests())) {
        let expected = envelope(call, request);
        let bytes = golden(
            &format!("commands-{}/{name}", expected.version),
            &raft_node::codec::encode(&expected),
        );
        assert_eq!(Envelope::decode(&bytes).unwrap(), expected, "{name}");
    }
}
