//! Tests of the mapping of every refusal and every failure to HTTP.

use std::collections::BTreeSet;

use znode_store::{LockName, ModeStep, NamespaceName, NamespaceQuota, QuotaKind, SessionId, ZPath, Zxid};

use super::*;

async fn document(problem: Problem) -> (StatusCode, Option<String>, Value) {
    let response = problem.into_response();
    assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
    let status = response.status();
    let retry = response
        .headers()
        .get(RETRY_AFTER)
        .map(|value| value.to_str().unwrap().to_owned());
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap();
    (status, retry, serde_json::from_slice(&bytes).unwrap())
}

/// Lists every refusal with its HTTP status, code and facts. The match in `From<Refusal>` is exhaustive; this list
/// shows it.
fn refusals() -> Vec<(Refusal, u16, &'static str, Value)> {
    let path = || ZPath::parse("/a").unwrap();
    let lock = || LockName::parse("orders/42").unwrap();
    let session = SessionId(0x2a);
    let limit_reached = |what| Refusal::LimitReached { what, limit: 7 };
    let in_path = json!({"path": "/a"});
    let in_lock = json!({"lock": "orders/42"});
    vec![
        (Refusal::NoNode(path()), 404, "no_znode", in_path.clone()),
        (Refusal::NodeExists(path()), 409, "node_exists", in_path.clone()),
        (
            Refusal::BadVersion {
                path: path(),
                expected: 1,
                actual: 2,
            },
            409,
            "bad_version",
            json!({"path": "/a", "expected_version": 1, "actual_version": 2}),
        ),
        (Refusal::NotEmpty(path()), 409, "not_empty", in_path.clone()),
        (
            Refusal::NoChildrenForEphemerals(path()),
            409,
            "no_children_for_ephemerals",
            in_path.clone(),
        ),
        (Refusal::Undeletable(path()), 400, "bad_path", in_path.clone()),
        (Refusal::NotMirrored(path()), 409, "not_mirrored", in_path.clone()),
        (Refusal::BadPath("too long".into()), 400, "bad_path", json!({})),
        (
            Refusal::SequenceExhausted(path()),
            409,
            "sequence_exhausted",
            in_path.clone(),
        ),
        (Refusal::NoAuth(path()), 403, "forbidden", in_path.clone()),
        (
            Refusal::InvalidAcl("it is empty".into()),
            400,
            "bad_acl",
            json!({}),
        ),
        (Refusal::BadTtl(0), 400, "bad_request", json!({"ttl_ms": 0})),
        (
            Refusal::QuotaExceeded {
                path: path(),
                what: QuotaKind::Bytes,
                limit: 10,
                would_be: 11,
            },
            409,
            "quota_exceeded",
            json!({"path": "/a", "of": "bytes", "limit": 10, "would_be": 11}),
        ),
        (
            Refusal::NamespaceQuotaExceeded {
                namespace: NamespaceName::parse("a").unwrap(),
                quota: NamespaceQuota::Locks,
                limit: 10,
                would_be: 11,
            },
            409,
            "namespace_quota_exceeded",
            json!({"namespace": "a", "of": "locks", "limit": 10, "would_be": 11}),
        ),
        (
            Refusal::NoNamespace(NamespaceName::parse("a").unwrap()),
            404,
            "no_namespace",
            json!({"namespace": "a"}),
        ),
        (
            limit_reached(Limited::Namespaces),
            409,
            "limit_reached",
            json!({"of": "namespaces", "limit": 7}),
        ),
        (
            limit_reached(Limited::Children(path())),
            409,
            "limit_reached",
            json!({"of": "children", "path": "/a", "limit": 7}),
        ),
        (
            limit_reached(Limited::Ephemerals(session)),
            409,
            "limit_reached",
            json!({"of": "ephemerals", "session": "000000000000002a", "limit": 7}),
        ),
        (
            limit_reached(Limited::LongPaths(path())),
            409,
            "limit_reached",
            json!({"of": "long_paths", "path": "/a", "limit": 7}),
        ),
        (
            limit_reached(Limited::Descendants(path())),
            409,
            "limit_reached",
            json!({"of": "descendants", "path": "/a", "limit": 7}),
        ),
        (
            limit_reached(Limited::Operations),
            409,
            "limit_reached",
            json!({"of": "operations", "limit": 7}),
        ),
        (
            limit_reached(Limited::Sessions),
            409,
            "limit_reached",
            json!({"of": "sessions", "limit": 7}),
        ),
        (
            Refusal::DataTooLarge { bytes: 2, limit: 1 },
            413,
            "too_large",
            json!({"bytes": 2, "limit": 1}),
        ),
        (Refusal::SessionRequired, 400, "bad_request", json!({})),
        (
            Refusal::NoSession(session),
            404,
            "no_session",
            json!({"session": "000000000000002a"}),
        ),
        (
            Refusal::SessionEnded(session),
            410,
            "session_expired",
            json!({"session": "000000000000002a"}),
        ),
        (Refusal::SessionIdTaken(session), 503, "unavailable", json!({})),
        (Refusal::StaleLeader, 503, "unavailable", json!({})),
        (
            Refusal::Multi {
                index: 3,
                refusal: Box::new(Refusal::NotEmpty(path())),
            },
            409,
            "not_empty",
            json!({"index": 3, "path": "/a"}),
        ),
        (Refusal::RequestIdReused, 409, "request_id_reused", json!({})),
        (Refusal::NoLock(lock()), 404, "no_lock", in_lock.clone()),
        (
            Refusal::LockBusy {
                lock: lock(),
                holders: vec!["h".into()],
            },
            409,
            "lock_busy",
            json!({"lock": "orders/42", "holders": ["h"]}),
        ),
        (Refusal::LockTimeout(lock()), 409, "lock_timeout", in_lock.clone()),
        (
            Refusal::ModeConflict {
                lock: lock(),
                in_use: LockMode::Semaphore { limit: 3 },
            },
            409,
            "mode_conflict",
            json!({"lock": "orders/42", "mode": "semaphore", "limit": 3}),
        ),
        (
            Refusal::NotHolder {
                lock: lock(),
                holder: "h".into(),
            },
            409,
            "not_holder",
            json!({"lock": "orders/42", "holder": "h"}),
        ),
        (
            Refusal::NotHeld {
                lock: lock(),
                fencing_token: Zxid(5),
            },
            409,
            "not_holder",
            json!({"lock": "orders/42", "fencing_token": 5}),
        ),
        (
            Refusal::Broken {
                lock: lock(),
                holder: "h".into(),
                by: "10.0.0.7".into(),
                reason: "stuck".into(),
            },
            409,
            "not_holder",
            json!({"lock": "orders/42", "holder": "h", "by": "10.0.0.7", "reason": "stuck"}),
        ),
        (
            Refusal::WouldDeadlock {
                lock: lock(),
                cycle: vec![Owner {
                    session: SessionId(0x2a),
                    owner: "main".into(),
                    has: lock(),
                    awaits: lock(),
                }],
            },
            409,
            "would_deadlock",
            json!({"lock": "orders/42", "cycle": [{
                "session": "000000000000002a", "owner": "main", "has": "orders/42", "awaits": "orders/42",
            }]}),
        ),
        (Refusal::Draining(lock()), 409, "draining", in_lock.clone()),
        (
            Refusal::WrongMode {
                lock: lock(),
                holder: "h".into(),
                mode: LockMode::Shared,
                what: ModeStep::Downgraded,
            },
            409,
            "mode_conflict",
            json!({"lock": "orders/42", "holder": "h", "mode": "shared"}),
        ),
        (
            Refusal::QueueFull(lock()),
            429,
            "too_many_requests",
            in_lock.clone(),
        ),
        (Refusal::TooManyHolds(lock()), 429, "too_many_requests", in_lock),
        (
            Refusal::BadWish("no permits".into()),
            400,
            "bad_request",
            json!({}),
        ),
    ]
}

#[tokio::test]
async fn every_refusal_has_its_status_its_code_and_its_facts() {
    for (refusal, status, code, facts) in refusals() {
        let detail = refusal.to_string();
        let (sent, retry, document) = document(refusal.into()).await;
        assert_eq!(sent.as_u16(), status, "{detail}");
        assert_eq!(document["status"], status, "{detail}");
        assert_eq!(document["code"], code, "{detail}");
        assert_eq!(document["type"], format!("/docs#{code}"), "{detail}");
        assert_eq!(document["detail"], *detail);
        assert_eq!(retry.is_some(), [429, 503].contains(&status), "{detail}");
        let mut rest = document.as_object().unwrap().clone();
        for member in ["type", "title", "status", "detail", "code"] {
            assert!(rest.remove(member).is_some(), "{detail}: {member} is missing");
        }
        assert_eq!(Value::Object(rest), facts, "{detail}");
    }
}

#[test]
fn a_problem_within_an_answer_is_the_document_that_it_would_be_alone() {
    let problem = Problem::from(Refusal::NoNode(ZPath::parse("/a").unwrap()));
    let document = serde_json::to_value(&problem).unwrap();
    assert_eq!(
        document,
        json!({
            "type": "/docs#no_znode",
            "title": "Unknown znode",
            "status": 404,
            "detail": "the znode /a does not exist",
            "code": "no_znode",
            "path": "/a",
        })
    );
}

#[test]
fn code_words_are_unique() {
    let words: BTreeSet<_> = Code::ALL.iter().map(|code| code.word()).collect();
    assert_eq!(words.len(), Code::ALL.len());
}

#[tokio::test]
async fn unavailable_read_only_and_unknown_outcomes_have_statuses_of_their_own() {
    let late = Unavailable {
        read_only: false,
        reason: "no leader".into(),
        retry_after: Duration::from_millis(1200),
    };
    let (status, retry, sent) = document(ProposeError::from(late).into()).await;
    assert_eq!((status.as_u16(), retry.as_deref()), (503, Some("2")));
    assert_eq!(
        (&sent["code"], &sent["detail"]),
        (&json!("unavailable"), &json!("no leader"))
    );

    let full = ProposeError::from(Unavailable::read_only("the disks are nearly full"));
    let (status, retry, sent) = document(full.into()).await;
    assert_eq!((status.as_u16(), retry), (507, None));
    assert_eq!(
        (&sent["code"], &sent["detail"]),
        (&json!("read_only"), &json!("the disks are nearly full"))
    );

    let unknown = ProposeError::OutcomeUnknown("the leader was lost".into());
    let (status, retry, sent) = document(unknown.into()).await;
    assert_eq!((status.as_u16(), retry), (504, None));
    assert_eq!(sent["code"], "outcome_unknown");
}

#[tokio::test]
async fn a_heartbeat_fails_as_any_other_request_of_its_session() {
    let session = SessionId(1);
    for (error, status, code) in [
        (HeartbeatError::SessionEnded, 410, "session_expired"),
        (HeartbeatError::NoSession, 404, "no_session"),
        (
            HeartbeatError::Unavailable(Unavailable::new("no leader")),
            503,
            "unavailable",
        ),
    ] {
        let (sent, _, document) = document(Problem::of_heartbeat(error, session)).await;
        assert_eq!((sent.as_u16(), &document["code"]), (status, &json!(code)));
    }
}

#[tokio::test]
async fn a_callers_own_text_is_repeated_only_in_part() {
    let (_, _, document) = document(Problem::unknown_session(&"x".repeat(100_000))).await;
    assert_eq!(document["session"].as_str().unwrap().len(), MAX_ECHO_CHARS);
}

#[tokio::test]
async fn changes_of_the_membership_that_are_not_made_say_why_and_what_would_do() {
    let refused = [
        (
            MembershipRefusal::Nonsense("ids start at 1".into()),
            400,
            "bad_request",
            json!({}),
        ),
        (
            MembershipRefusal::NoMember(9),
            404,
            "no_member",
            json!({"node_id": 9}),
        ),
        (
            MembershipRefusal::MemberExists {
                node_id: 2,
                reason: "at a:1 and a:2".into(),
            },
            409,
            "member_exists",
            json!({"node_id": 2}),
        ),
        (
            MembershipRefusal::AddressTaken {
                address: "a:1".into(),
                used_by: 2,
            },
            409,
            "member_exists",
            json!({"node_id": 2, "address": "a:1"}),
        ),
        (
            MembershipRefusal::RetiredId {
                node_id: 3,
                next_free: 8,
            },
            409,
            "node_id_retired",
            json!({"node_id": 3, "next_node_id": 8}),
        ),
        (
            MembershipRefusal::TooManyMembers { limit: 32 },
            409,
            "limit_reached",
            json!({"of": "members", "limit": 32}),
        ),
        (
            MembershipRefusal::InProgress,
            409,
            "membership_change_in_progress",
            json!({}),
        ),
        (
            MembershipRefusal::Unreachable {
                node_id: 4,
                address: "a:1".into(),
                reason: "refused".into(),
            },
            409,
            "node_unreachable",
            json!({"node_id": 4, "address": "a:1"}),
        ),
        (
            MembershipRefusal::NotCaughtUp {
                node_id: 4,
                lag: Some(2000),
                limit: 1000,
            },
            409,
            "not_caught_up",
            json!({"node_id": 4, "lag": 2000, "limit": 1000}),
        ),
        (
            MembershipRefusal::NoMajority {
                voters: 2,
                reachable: 1,
            },
            409,
            "no_majority",
            json!({"voters": 2, "reachable": 1}),
        ),
        (
            MembershipRefusal::LastVoter(1),
            409,
            "no_majority",
            json!({"node_id": 1}),
        ),
        (
            MembershipRefusal::NotAVoter(4),
            409,
            "not_a_voter",
            json!({"node_id": 4}),
        ),
        (
            MembershipRefusal::NoSuccessor("nobody answers".into()),
            503,
            "unavailable",
            json!({}),
        ),
    ];
    for (refusal, status, code, facts) in refused {
        let detail = refusal.to_string();
        let (sent, _, document) = document(MembershipError::from(refusal).into()).await;
        assert_eq!((sent.as_u16(), &document["code"]), (status, &json!(code)));
        assert_eq!(document["detail"], detail);
        for (name, value) in facts.as_object().unwrap() {
            assert_eq!(&document[name], value, "{document}");
        }
    }
    let unknown = MembershipError::OutcomeUnknown("not committed".into());
    assert_eq!(document(unknown.into()).await.2["code"], "outcome_unknown");
}
