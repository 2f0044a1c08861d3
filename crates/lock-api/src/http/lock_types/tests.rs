//! Valid and invalid requests about locks.

use znode_store::{LockMode, LockName, MAX_NOTE_BYTES, MAX_OWNER_BYTES, SessionId};

use super::acquire::Acquire;
use super::*;
use crate::http::extract::parse;
use crate::http::problem::Code;

fn acquire(body: &str) -> Result<Acquire, Problem> {
    let lock = LockName::parse("orders/42").unwrap();
    parse::<AcquireBody<'_>>(body.as_bytes())?.check(lock, "127.0.0.1:9".into())
}

/// Parses a body with a session and `rest` after it.
fn with(rest: &str) -> Result<Acquire, Problem> {
    acquire(&format!(r#"{{"session": "000000000000002a"{rest}}}"#))
}

#[test]
fn the_defaults_are_those_of_the_contract() {
    let Acquire {
        requester,
        wish,
        bounds,
        wait,
        is_queued,
        request_id,
        retry,
    } = with("").unwrap();
    assert_eq!(requester, Requester::Session(SessionId(0x2a)));
    assert!(!bounds.is_some());
    assert_eq!(
        (wish.mode, wish.permits, wish.reentrant),
        (LockMode::Exclusive, 1, true)
    );
    assert_eq!(
        (&*wish.owner, &*wish.note, wish.address.host()),
        ("", "", "127.0.0.1:9")
    );
    assert!(matches!(wait, WaitFor::Try));
    assert_eq!((is_queued, request_id, retry), (false, None, 0));
}

#[test]
fn wait_in_the_queue_has_no_end_and_excludes_wait_ms() {
    let queued = with(r#", "wait": "queue""#).unwrap();
    assert!(queued.is_queued);
    assert!(matches!(queued.wait, WaitFor::Forever));
    for wrong in [
        r#", "wait": "queue", "wait_ms": 5"#,
        r#", "wait": "queue", "wait_ms": null"#,
        r#", "wait": "there""#,
    ] {
        assert_eq!(
            with(wrong).err().map(|problem| problem.code()),
            Some(Code::BadRequest),
            "{wrong}"
        );
    }
}

#[test]
fn acquire_without_a_session_opens_a_lease() {
    let lease = acquire(r#"{"ttl_ms": 60000, "min_hold_ms": 5, "max_hold_ms": 7}"#).unwrap();
    assert_eq!(lease.requester, Requester::Lease(Duration::from_secs(60)));
    assert!(!lease.wish.reentrant);
    assert_eq!((lease.bounds.min_ms, lease.bounds.max_ms), (5, 7));
    for body in [
        r#"{"ttl_ms": 60000, "owner": "a"}"#,
        r#"{"ttl_ms": 60000, "reentrant": true}"#,
        r#"{"ttl_ms": 60000, "session": "000000000000002a"}"#,
        r#"{"ttl_ms": 60000, "max_hold_ms": 604800001}"#,
        r#"{"ttl_ms": 60000, "mode": "shared", "min_hold_ms": 1}"#,
        r#"{"ttl_ms": -1}"#,
    ] {
        let refused = acquire(body).err().map(|problem| problem.code());
        assert_eq!(refused, Some(Code::BadRequest), "{body}");
    }
}

#[test]
fn wait_ms_tells_absent_zero_number_and_null_apart() {
    let wait = |rest| with(rest).unwrap().wait;
    assert!(matches!(wait(""), WaitFor::Try));
    assert!(matches!(wait(r#", "wait_ms": 0"#), WaitFor::Try));
    assert!(matches!(wait(r#", "wait_ms": 250"#), WaitFor::For(time) if time.as_millis() == 250));
    assert!(matches!(wait(r#", "wait_ms": null"#), WaitFor::Forever));
}

#[test]
fn modes_permits_and_re_entry() {
    let wish = |rest| with(rest).unwrap().wish;
    assert_eq!(
        wish(r#", "mode": "shared", "reentrant": false"#).mode,
        LockMode::Shared
    );
    assert!(!wish(r#", "reentrant": false"#).reentrant);
    let semaphore = wish(r#", "mode": "semaphore", "limit": 3"#);
    assert_eq!(
        (semaphore.mode, semaphore.permits),
        (LockMode::Semaphore { limit: 3 }, 1)
    );
    assert!(!semaphore.reentrant);
    assert_eq!(
        wish(r#", "mode": "semaphore", "limit": 3, "permits": 3"#).permits,
        3
    );
    let own_limit = wish(r#", "mode": "semaphore", "permits": 3"#).mode;
    assert_eq!(own_limit, LockMode::Semaphore { limit: 0 }, "the one in force");
    assert_eq!(wish(r#", "mode": "upgradeable""#).mode, LockMode::Upgradeable);
    assert_eq!(wish(r#", "lock_delay_ms": 5"#).lock_delay_ms, 5);
    assert_eq!(wish(r#", "owner": "a\u0062", "note": "é""#).owner.as_ref(), "ab");
}

#[test]
fn nonsense_is_refused_before_it_reaches_the_log() {
    let long_owner = format!(r#", "owner": "{}""#, "x".repeat(MAX_OWNER_BYTES + 1));
    let long_note = format!(r#", "note": "{}""#, "x".repeat(MAX_NOTE_BYTES + 1));
    let long_wait = format!(r#", "wait_ms": {}"#, MAX_WAIT_MS + 1);
    let long_id = format!(r#", "request_id": "{}""#, "x".repeat(65));
    for rest in [
        r#", "wait": 5"#,
        r#", "lock_delay": 5"#,
        r#", "wait_ms": -1"#,
        r#", "wait_ms": "5""#,
        r#", "wait_ms": 1.5"#,
        r#", "mode": "exclusiv""#,
        r#", "mode": null"#,
        r#", "limit": 3"#,
        r#", "permits": 1"#,
        r#", "mode": "shared", "permits": 1"#,
        r#", "mode": "upgradeable", "permits": 1"#,
        r#", "lock_delay_ms": 60001"#,
        r#", "lock_delay_ms": -1"#,
        r#", "mode": "semaphore", "limit": 0"#,
        r#", "mode": "semaphore", "limit": 1000001"#,
        r#", "mode": "semaphore", "limit": 4294967296"#,
        r#", "mode": "semaphore", "limit": 3, "permits": 0"#,
        r#", "mode": "semaphore", "limit": 3, "permits": 4"#,
        r#", "mode": "semaphore", "limit": 3, "reentrant": true"#,
        r#", "request_id": """#,
        r#", "session": "000000000000002a""#,
        &long_owner,
        &long_note,
        &long_wait,
        &long_id,
    ] {
        assert_eq!(
            with(rest).err().map(|problem| problem.code()),
            Some(Code::BadRequest),
            "{rest}"
        );
    }
    for body in [
        "",
        "{}",
        "[]",
        "null",
        "{",
        "session=x",
        r#"{"session": 42}"#,
        "{\"session\": \"\u{1}\"}",
    ] {
        assert_eq!(
            acquire(body).err().map(|problem| problem.code()),
            Some(Code::BadRequest),
            "{body}"
        );
    }
}

#[test]
fn an_id_that_no_server_gave_names_no_session() {
    for id in [
        "",
        "42",
        "000000000000002A",
        "ffffffffffffffff",
        "0000000000000000",
    ] {
        let refused = acquire(&format!(r#"{{"session": "{id}"}}"#))
            .err()
            .map(|problem| problem.code());
        assert_eq!(refused, Some(Code::NoSession), "{id}");
    }
}
