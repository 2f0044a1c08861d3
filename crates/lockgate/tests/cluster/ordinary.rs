//! Contents that an ordinary build must not have.

use std::fs;

use crate::harness::LOCKGATE;

fn contains(program: &[u8], text: &str) -> bool {
    memchr::memmem::find(program, text.as_bytes()).is_some()
}

/// Checks the search too: the same program with the feature has all of it.
#[test]
fn fail_points_are_in_a_build_with_their_feature_and_in_no_other() {
    let program = fs::read(LOCKGATE).unwrap();
    assert!(contains(&program, "/v1/cluster"), "this is not the program");
    for text in [
        "log::before_sync",
        "apply::before_acquire",
        "http::before_answer",
        "/v1/debug/fail-points",
        "FAILPOINTS",
    ] {
        let wanted = cfg!(feature = "failpoints");
        assert_eq!(contains(&program, text), wanted, "{text}");
    }
}
