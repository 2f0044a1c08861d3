//! Rejection of callers while the cluster is not secured yet but the configuration requires it. Only the operator is
//! served, and the error tells how to secure the cluster.

use super::super::Api;
use super::super::peer::Peer;
use super::super::problem::{Code, Problem};

/// Rejects all callers but the operator until the cluster is secured, if the configuration requires it.
pub fn refuse(api: &Api, peer: &Peer) -> Result<(), Problem> {
    if !api.config().secured_only || peer.is_operator() || api.node.read_facts(|store| store.is_secured()) {
        return Ok(());
    }
    match api.node.not_ready() {
        // The cluster may be secured without this node knowing it since its start, so a definite rejection would be
        // wrong.
        Some(reason) => Err(Problem::not_ready(reason, api.node.status().leader)),
        None => Err(Problem::new(
            Code::Unauthenticated,
            "the cluster is not secured yet, and this node serves only its operator until it is: secure it with \
             `lockgate access secure` and the token in operator.token of the node's data directory",
        )),
    }
}
