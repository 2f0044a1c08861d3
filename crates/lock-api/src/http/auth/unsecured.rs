//! A node whose cluster has to be secured and is not yet: it serves nobody but its operator, and says what to do about it.

use super::super::Api;
use super::super::peer::Peer;
use super::super::problem::{Code, Problem};

/// Refuses everybody but the operator until the cluster is secured, where that is asked for.
pub fn refuse(api: &Api, peer: &Peer) -> Result<(), Problem> {
    if !api.config().secured_only || peer.is_operator() || api.node.read_facts(|store| store.is_secured()) {
        return Ok(());
    }
    match api.node.not_ready() {
        // It may be secured, and this node only not have heard of it since it was started: a definite no would be wrong.
        Some(reason) => Err(Problem::not_ready(reason, api.node.status().leader)),
        None => Err(Problem::new(
            Code::Unauthenticated,
            "the cluster is not secured yet, and until it is, this node serves nobody but its operator: secure it with \
             `lockgate access secure` and the token in operator.token of the node's data directory",
        )),
    }
}
