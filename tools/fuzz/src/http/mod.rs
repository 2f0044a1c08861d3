//! The target `http`: any bytes as requests to a node's HTTP routes, one after the other. A node of a cluster of one answers
//! them, without a socket; after each input its state is looked at and emptied.
//!
//! What must hold: nobody panics; every answer is a document of the kind that it says it is, and every failure is one of the
//! table of problems, with its status; and whatever was asked, no lock is held by more than may hold it.

pub mod script;
pub mod seeds;

pub(crate) mod answer;
pub(crate) mod server;

use std::cell::RefCell;

use lock_api::http::HttpConfig;

use self::answer::{Answered, Facts};
use self::script::Script;
use self::server::Server;

thread_local! {
    /// One node for all inputs of a thread: a new one for each would be most of the time. It ends with its thread, and its
    /// directory with it; what is static would leave that behind.
    static SERVER: RefCell<Server> = RefCell::new(Server::start(HttpConfig::default()));
}

/// Asks what the input says; answers how many requests were carried out.
pub fn run(bytes: &[u8]) -> usize {
    let Some(script) = Script::of(bytes) else {
        return 0;
    };
    SERVER.with_borrow_mut(|server| carry_out(&script, server))
}

fn carry_out(script: &Script, server: &mut Server) -> usize {
    let mut facts = Facts::default();
    let mut carried_out = 0;
    for request in script.requests() {
        let Some(request) = request.build(&facts) else {
            continue;
        };
        let answered = server.ask(request);
        answer::check(&answered, &mut facts);
        carried_out += usize::from(matches!(&answered, Some(Answered { status, .. }) if status.is_success()));
    }
    server.look_and_empty();
    carried_out
}
