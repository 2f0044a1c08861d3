//! The target `http`: arbitrary bytes as requests to a node's HTTP routes, in sequence. The node of a cluster
//! of one responds to them without a socket. After each input the target checks the node's state and empties
//! it.
//!
//! Properties: nothing panics; every body has the announced content type; every failure is a documented
//! problem with the documented status; and no lock has more holders than its mode allows.

pub mod script;
pub mod seeds;

pub(crate) mod response;
pub(crate) mod server;

use std::cell::RefCell;

use lock_api::http::HttpConfig;

use self::response::{Facts, Response};
use self::script::Script;
use self::server::Server;

thread_local! {
    /// One node for all inputs of a thread: starting one for each input would take most of the time. The node
    /// and its directory are dropped with the thread; a `static` would leave the directory behind.
    static SERVER: RefCell<Server> = RefCell::new(Server::start(HttpConfig::default()));
}

/// Sends the requests of the input. Returns the number of requests that succeeded.
pub fn run(bytes: &[u8]) -> usize {
    let Some(script) = Script::of(bytes) else {
        return 0;
    };
    SERVER.with_borrow_mut(|server| execute(&script, server))
}

fn execute(script: &Script, server: &mut Server) -> usize {
    let mut facts = Facts::default();
    let mut succeeded = 0;
    for request in script.requests() {
        let Some(request) = request.build(&facts) else {
            continue;
        };
        let response = server.send(request);
        response::check(&response, &mut facts);
        succeeded += usize::from(matches!(&response, Some(Response { status, .. }) if status.is_success()));
    }
    server.check_and_empty();
    succeeded
}
