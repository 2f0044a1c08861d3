//! The target `doors`: arbitrary bytes as requests to a node of a secured cluster, by callers with few
//! permissions or none.
//!
//! Besides the properties of `http`: no response contains anything that its caller may not see, and no
//! request changes anything that its caller may not change.

pub mod seeds;

mod house;

use std::cell::RefCell;

use self::house::House;
use crate::http::answer::{self, Answered};
use crate::http::script::Script;

thread_local! {
    /// One node for all inputs of a thread, as in `http`.
    static HOUSE: RefCell<House> = RefCell::new(House::open());
}

/// Sends the requests of the input. Returns the number of requests that succeeded.
pub fn run(bytes: &[u8]) -> usize {
    let Some(script) = Script::of(bytes) else {
        return 0;
    };
    HOUSE.with_borrow_mut(|house| carry_out(&script, bytes, house))
}

fn carry_out(script: &Script, bytes: &[u8], house: &mut House) -> usize {
    house.furnish();
    let knows_secret = house.is_known_to(bytes);
    let before = house.not_theirs();
    let mut facts = house.facts();
    let mut carried_out = 0;
    for request in script.requests() {
        let Some(request) = request.build(&facts) else {
            continue;
        };
        let asked = format!("{} {}", request.method(), request.uri());
        let answered = house.server.ask(request);
        answer::check(&answered, &mut facts);
        if let Some(answered) = &answered
            && !knows_secret
        {
            house.tells_no_secret(&asked, answered);
        }
        let after = house.not_theirs();
        assert!(
            before == after,
            "{asked} changed what its caller may not change: {}",
            house::difference(&before, &after)
        );
        carried_out += usize::from(matches!(&answered, Some(Answered { status, .. }) if status.is_success()));
    }
    house.server.look_and_empty();
    carried_out
}
