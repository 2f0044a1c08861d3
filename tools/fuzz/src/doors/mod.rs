//! The target `doors`: arbitrary bytes as requests to a node of a secured cluster, by callers with few
//! permissions or none.
//!
//! Besides the properties of `http`: no response contains anything that its caller may not see, and no
//! request changes anything that its caller may not change.

pub mod seeds;

mod secured_cluster;

use std::cell::RefCell;

use self::secured_cluster::SecuredCluster;
use crate::http::response::{self, Response};
use crate::http::script::Script;

thread_local! {
    /// One node for all inputs of a thread, as in `http`.
    static CLUSTER: RefCell<SecuredCluster> = RefCell::new(SecuredCluster::open());
}

/// Sends the requests of the input. Returns the number of requests that succeeded.
pub fn run(bytes: &[u8]) -> usize {
    let Some(script) = Script::of(bytes) else {
        return 0;
    };
    CLUSTER.with_borrow_mut(|cluster| execute(&script, bytes, cluster))
}

fn execute(script: &Script, bytes: &[u8], cluster: &mut SecuredCluster) -> usize {
    cluster.create_secrets();
    let knows_secret = cluster.is_part_of(bytes);
    let before = cluster.protected_state();
    let mut facts = cluster.facts();
    let mut succeeded = 0;
    for request in script.requests() {
        let Some(request) = request.build(&facts) else {
            continue;
        };
        let request_line = format!("{} {}", request.method(), request.uri());
        let response = cluster.server.send(request);
        response::check(&response, &mut facts);
        if let Some(response) = &response
            && !knows_secret
        {
            cluster.check_secrecy(&request_line, response);
        }
        let after = cluster.protected_state();
        assert!(
            before == after,
            "{request_line} changed what its caller may not change: {}",
            secured_cluster::difference(&before, &after)
        );
        succeeded += usize::from(matches!(&response, Some(Response { status, .. }) if status.is_success()));
    }
    cluster.server.check_and_empty();
    succeeded
}
