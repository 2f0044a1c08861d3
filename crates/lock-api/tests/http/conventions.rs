//! Conventions of all routes: unknown fields, unknown routes, bodies over the limit, invalid JSON.

use lock_api::http::HttpConfig;
use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn unknown_fields_and_parameters_are_refused_everywhere() {
    let server = Server::start().await;
    let session = server.session().await;
    for (method, path, body) in [
        ("POST", "/v1/sessions", json!({"ttl": 5})),
        (
            "POST",
            &*format!("/v1/sessions/{session}/heartbeat"),
            json!({"ttl_ms": 5}),
        ),
        (
            "POST",
            "/v1/locks/a/acquire",
            json!({"session": session, "wait_s": 5}),
        ),
        (
            "POST",
            "/v1/locks/a/acquire",
            json!({"session": session, "lock_delay": 5}),
        ),
        (
            "POST",
            "/v1/locks/a/downgrade",
            json!({"session": session, "holder": "h", "to": "shared"}),
        ),
        (
            "POST",
            "/v1/locks/a/upgrade",
            json!({"session": session, "holder": "h", "mode": "exclusive"}),
        ),
        (
            "POST",
            "/v1/locks/a/release-request",
            json!({"reason": "r", "holders": []}),
        ),
        ("PATCH", "/v1/locks/a", json!({"limits": 3})),
        (
            "POST",
            "/v1/multilock/acquire",
            json!({"session": session, "locks": [{"name": "a", "owner": "x"}]}),
        ),
        (
            "POST",
            "/v1/multilock/release",
            json!({"session": session, "holders": [{"lock": "a", "holder": "h", "token": 1}]}),
        ),
        (
            "POST",
            "/v1/locks/a/release",
            json!({"session": session, "holder": "h", "force": true}),
        ),
        (
            "POST",
            "/v1/locks/a/break",
            json!({"holder": "h", "reason": "r", "session": session}),
        ),
        ("POST", "/v1/znodes/a", json!({"dat": "x"})),
        ("PUT", "/v1/znodes/a", json!({"data": "x", "version": 3})),
        (
            "POST",
            "/v1/txn",
            json!({"ops": [{"check": {"path": "/", "vers": 1}}]}),
        ),
        (
            "POST",
            "/v1/txn",
            json!({"ops": [{"held": {"lock": "a", "fencing_token": 1, "session": session}}]}),
        ),
        ("PUT", "/v1/acl/a", json!({"acl": [], "version": 3})),
        ("POST", "/v1/read", json!({"reads": [], "linearizable": true})),
        (
            "POST",
            "/v1/batch",
            json!({"requests": [{"url": "/v1/locks/a/acquire"}]}),
        ),
    ] {
        let problem = server
            .call(method, path, Some(&body.to_string()))
            .await
            .problem(400, "bad_request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("unknown field"), "{method} {path}: {detail}");
    }
    for (method, path) in [
        ("GET", "/v1/sessions?x=1"),
        ("GET", &*format!("/v1/sessions/{session}?x=1")),
        ("DELETE", &*format!("/v1/sessions/{session}?x=1")),
        ("GET", "/v1/locks?x=1"),
        ("GET", "/v1/locks/a?x=1"),
        ("GET", "/v1/locks/a/check?fencing_token=1&x=1"),
        ("GET", "/v1/znodes?x=1"),
        ("DELETE", "/v1/znodes/a?x=1"),
        ("GET", "/v1/watch/a?kind=data&x=1"),
        ("GET", "/v1/cluster?x=1"),
        ("GET", "/v1/acl/a?x=1"),
        ("PUT", "/v1/acl/a?aversion=1"),
        ("POST", "/v1/read?x=1"),
        ("POST", "/v1/batch?x=1"),
        ("GET", &*format!("/v1/sessions/{session}/ephemerals?x=1")),
        ("POST", "/v1/sessions?ttl_ms=5"),
        ("POST", "/v1/locks/a/acquire?wait_ms=5"),
        ("POST", "/v1/znodes/a?mode=ephemeral"),
        ("POST", "/v1/txn?x=1"),
    ] {
        server.call(method, path, None).await.problem(400, "bad_request");
    }
    // None of the requests had an effect; /zookeeper existed before.
    let children = server.get("/v1/znodes?children=true").await.expect(200)["children"].clone();
    let names = children.as_array().unwrap().iter().map(|child| &child["name"]);
    assert!(names.eq(["zookeeper"]), "{children}");
    server.stop().await;
}

#[tokio::test]
async fn a_body_that_is_not_a_json_object_is_rejected() {
    let server = Server::start().await;
    for body in [
        "{",
        "[]",
        "null",
        "5",
        "\"x\"",
        "ttl_ms=5",
        "{} {}",
        "{\"name\": \"\\ud800\"}",
    ] {
        server
            .call("POST", "/v1/sessions", Some(body))
            .await
            .problem(400, "bad_request");
    }
    for body in [
        r#"{"ttl_ms": "5"}"#,
        r#"{"ttl_ms": -5}"#,
        r#"{"ttl_ms": 0.5}"#,
        r#"{"name": 5}"#,
    ] {
        server
            .call("POST", "/v1/sessions", Some(body))
            .await
            .problem(400, "bad_request");
    }
    assert_eq!(
        server.get("/v1/sessions").await.expect(200)["sessions"],
        json!([])
    );
    server.stop().await;
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let server = Server::start_with(HttpConfig {
        max_body_bytes: 1000,
        ..HttpConfig::default()
    })
    .await;
    let session = server.session().await;
    let note = |length| json!({"session": session, "note": "x".repeat(length)});
    server.post("/v1/locks/a/acquire", note(500)).await.expect(200);
    let problem = server
        .post("/v1/locks/b/acquire", note(1000))
        .await
        .problem(413, "too_large");
    assert_eq!(problem["limit"], 1000);
    server.get("/v1/locks/b").await.problem(404, "no_lock");
    // Requests that write data into the tree have a limit of their own, and so does the data in them.
    server
        .post("/v1/znodes/a", json!({"data": "x".repeat(100_000)}))
        .await
        .expect(201);
    let much = json!({"data": "x".repeat(znode_store::MAX_DATA_BYTES + 1)});
    let problem = server.post("/v1/znodes/b", much).await.problem(413, "too_large");
    assert_eq!(problem["limit"], znode_store::MAX_DATA_BYTES);
    let more = json!({"data": "x".repeat(2_500_000)});
    server.post("/v1/znodes/b", more).await.problem(413, "too_large");
    server.get("/v1/znodes/b").await.problem(404, "no_znode");
    server.stop().await;
}

#[tokio::test]
async fn unknown_addresses_and_methods_are_rejected() {
    let server = Server::start().await;
    for path in [
        "/dashboard",
        "/v1",
        "/v2/locks",
        "/v1/sessions/x/y",
        "/v1/multilock",
        "/v1/multilock/a/acquire",
    ] {
        server.get(path).await.problem(404, "no_route");
    }
    for (method, path, allowed) in [
        ("DELETE", "/healthz", "get,head"),
        ("DELETE", "/v1/locks/a", "get,head,patch"),
        ("DELETE", "/v1/locks/a/acquire", "post"),
        ("PATCH", "/v1/locks/a/b/check", "get,head"),
        ("POST", "/v1/locks/a", "get,head,patch"),
        ("POST", "/v1/locks/acquire", "get,head,patch"),
        ("POST", "/v1/lock-graph", "get,head"),
        ("POST", "/v1/locks/graph", "get,head,patch"),
        ("PUT", "/v1/locks/a", "get,head,patch"),
        ("POST", "/v1/locks/a/revoke", "get,head,patch"),
        ("POST", "/v1/locks/a/check", "get,head"),
        ("GET", "/v1/locks/a/acquire", "post"),
        ("GET", "/v1/locks/a/release", "post"),
        ("PATCH", "/v1/locks/a/release", "post"),
        ("GET", "/v1/locks/a/release-request", "post"),
        ("GET", "/v1/locks/a/release-request/reply", "post"),
        ("GET", "/v1/locks/a/downgrade", "post"),
        ("GET", "/v1/locks/a/upgrade", "post"),
        ("GET", "/v1/multilock/acquire", "post"),
        ("POST", "/v1/watch/a", "get,head"),
        ("GET", "/v1/txn", "post"),
        ("GET", "/v1/read", "post"),
        ("GET", "/v1/batch", "post"),
        ("DELETE", "/v1/acl/a", "get,head,put"),
    ] {
        let reply = server.call(method, path, None).await;
        reply.problem(405, "method_not_allowed");
        assert_eq!(reply.header("allow"), Some(allowed), "{method} {path}");
    }
    server.stop().await;
}

#[tokio::test]
async fn whole_numbers_are_accepted_in_every_notation() {
    let server = Server::start().await;
    let opened = server
        .call("POST", "/v1/sessions", Some(r#"{"ttl_ms": 6e4}"#))
        .await;
    let opened = opened.expect(201);
    assert_eq!(opened["ttl_ms"], 60_000);
    let session = opened["session"].as_str().unwrap();
    let acquire = async |limit: &str| {
        let body = format!(
            r#"{{"session": "{session}", "mode": "semaphore", "limit": {limit}, "wait_ms": 5000.0}}"#
        );
        server.call("POST", "/v1/locks/a/acquire", Some(&body)).await
    };
    for limit in ["3", "3.0", "3e0"] {
        acquire(limit).await.expect(200);
    }
    let txn = format!(
        r#"{{"session": "{session}", "ops": [{{"create": {{"path": "/a", "data": ""}}}}, {{"set": {{"path": "/a", "data": "", "version": 0.0}}}}]}}"#
    );
    server.call("POST", "/v1/txn", Some(&txn)).await.expect(200);
    for (limit, words) in [
        (
            "3.5",
            "limit: invalid value: `3.5`, expected a whole number from 0 to 4294967295",
        ),
        (
            "-3",
            "limit: invalid value: integer `-3`, expected a whole number from 0 to 4294967295",
        ),
        (
            "\"3\"",
            "limit: invalid type: string \"3\", expected a whole number from 0 to 4294967295",
        ),
    ] {
        let problem = acquire(limit).await.problem(400, "bad_request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("the body: {words}")), "{detail}");
    }

    for count in ["1", "1.0", "1e0"] {
        let page = server.get(&format!("/v1/locks?limit={count}")).await.expect(200);
        assert_eq!(page["locks"].as_array().unwrap().len(), 1);
    }
    let problem = server
        .get("/v1/locks?limit=1.5")
        .await
        .problem(400, "bad_request");
    assert_eq!(
        problem["detail"],
        "the query: limit: invalid value: `1.5`, expected a whole number from 0 to 18446744073709551615"
    );
    server.stop().await;
}
