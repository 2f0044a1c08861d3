//! The conventions that clients may rely on from version 1 on: one test for each.

use std::collections::BTreeSet;
use std::time::Duration;

use lock_api::http::HttpConfig;
use lock_api::http::problem::Code;
use lock_node::OpeningBounds;
use serde_json::{Value, json};

use crate::support::{Call, Server, until};

#[tokio::test]
async fn unavailable_is_503_with_retry_after() {
    let server = Server::start_alone().await;
    let refused = server.post("/v1/sessions", json!({})).await;
    refused.problem(503, "unavailable");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn terraforms_own_methods_lock_and_unlock_its_locks_only() {
    let server = Server::start().await;
    let description = Some(r#"{"ID":"one"}"#);
    let (lock, state) = ("/v1/terraform/locks/t%2Fs", "/v1/terraform/states/t%2Fs");
    server.call("LOCK", lock, description).await.expect(200);
    let held = server
        .call("LOCK", lock, Some(r#"{"ID":"two"}"#))
        .await
        .expect(423);
    assert_eq!(held["ID"], "one");
    server
        .call("UNLOCK", lock, Some(r#"{"ID":"two"}"#))
        .await
        .expect(423);
    server.call("UNLOCK", lock, description).await.expect(200);
    let free = server.get("/v1/locks/t%2Fs").await.expect(200);
    assert_eq!(free["holders"], json!([]));
    for other in [state, "/v1/locks/t%2Fs"] {
        server
            .call("LOCK", other, description)
            .await
            .problem(405, "method_not_allowed");
    }
    server.stop().await;
}

#[tokio::test]
async fn unknown_outcome_is_504() {
    let server = Server::start().await;
    let (holder, waiter) = (server.session().await, server.session().await);
    let path = "/v1/locks/a/acquire";
    server.post(path, json!({"session": holder})).await.expect(200);
    // The place of a caller with a request id is kept when its node stops, so the call may still be done.
    let wait = json!({"session": waiter, "wait_ms": null, "request_id": "w"}).to_string();
    let call = Call::send(server.address, "POST", path, Some(&wait)).await;
    until("it waits", async || {
        server.get("/v1/locks/a").await.expect(200)["queue"][0]["session"] == waiter
    })
    .await;
    let ((), reply) = tokio::join!(server.stop(), call.reply());
    reply.problem(504, "outcome_unknown");
    assert_eq!(reply.header("retry-after"), None);
}

#[tokio::test]
async fn nearly_full_disk_is_507_without_retry_after() {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.raft.disk.low_water_bytes = u64::MAX;
        node.raft.disk.resume_bytes = u64::MAX;
        node.raft.disk.check_interval = Duration::from_millis(20);
    })
    .await;
    until("the disks are full", async || {
        server.get("/v1/cluster").await.expect(200)["read_only"] == true
    })
    .await;
    let refused = server.post("/v1/znodes/a", json!({})).await;
    refused.problem(507, "read_only");
    assert_eq!(refused.header("retry-after"), None);
    server.stop().await;
}

#[tokio::test]
async fn own_limit_is_429_with_retry_after() {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.admission.openings = OpeningBounds {
            per_second: 1,
            burst: 2_000,
            share: 1_000,
        };
    })
    .await;
    for _ in 0..2 {
        server.session().await;
    }
    let refused = server.post("/v1/sessions", json!({})).await;
    refused.problem(429, "too_many_requests");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    server.stop().await;
}

#[tokio::test]
async fn idempotency_key_means_request_id() {
    let server = Server::start().await;
    let sequential = || json!({"mode": "persistent_sequential"});
    let create =
        async |headers: &str, body: Value| server.call_with(headers, "POST", "/v1/znodes/q-", body).await;
    const KEY: &str = "Idempotency-Key: one\r\n";
    let first = create(KEY, sequential()).await.expect(201);
    assert_eq!(create(KEY, sequential()).await.expect(201), first);
    assert_eq!(
        create("Idempotency-Key: \"one\"\r\n", sequential())
            .await
            .expect(201),
        first
    );
    let in_body = json!({"mode": "persistent_sequential", "request_id": "one"});
    assert_eq!(create("", in_body.clone()).await.expect(201), first);
    assert_eq!(create(KEY, in_body.clone()).await.expect(201), first);
    let other = create("Idempotency-Key: two\r\n", sequential()).await.expect(201);
    assert_ne!(other["path"], first["path"]);

    for headers in [
        "Idempotency-Key: two\r\n",
        "Idempotency-Key: \r\n",
        "Idempotency-Key: one\r\nIdempotency-Key: one\r\n",
        "Idempotency-Key: \u{e9}\r\n",
    ] {
        create(headers, in_body.clone()).await.problem(400, "bad_request");
    }
    // Also where the request has no effect that could be doubled, and in place of the query.
    let beat = format!("/v1/sessions/{}/heartbeat", server.session().await);
    let beat = server
        .call_with(KEY, "POST", &beat, json!({"request_id": "x"}))
        .await;
    beat.problem(400, "bad_request");
    server.post("/v1/znodes/d", json!({})).await.expect(201);
    for _ in 0..2 {
        let deleted = server
            .call_with(KEY_OF_DELETE, "DELETE", "/v1/znodes/d", Value::Null)
            .await;
        deleted.expect(204);
    }
    server.delete("/v1/znodes/d").await.problem(404, "no_znode");
    // Reads ignore it.
    let read = server
        .call_with("Idempotency-Key: \r\n", "GET", "/v1/locks", Value::Null)
        .await;
    read.expect(200);
    server.stop().await;
}

const KEY_OF_DELETE: &str = "Idempotency-Key: delete\r\n";

#[tokio::test]
async fn copy_without_a_count_of_tries_keeps_the_place() {
    let server = Server::start().await;
    let (holder, waiter) = (server.session().await, server.session().await);
    let path = "/v1/locks/a/acquire";
    let grant = server.post(path, json!({"session": holder})).await.expect(200);
    let wait = json!({"session": waiter, "wait_ms": null, "request_id": "w"}).to_string();
    let waiters = async || {
        let seen = server.get("/v1/locks/a").await.expect(200);
        seen["queue"].as_array().unwrap().clone()
    };
    let first = Call::send(server.address, "POST", path, Some(&wait)).await;
    until("it waits", async || waiters().await.len() == 1).await;
    let place = waiters().await[0]["holder"].clone();
    drop(first);
    let again = Call::send(server.address, "POST", path, Some(&wait)).await;
    let released = json!({"session": holder, "holder": grant["holder"]});
    server.post("/v1/locks/a/release", released).await.expect(200);
    assert_eq!(again.reply().await.expect(200)["holder"], place);
    server.stop().await;
}

#[tokio::test]
async fn release_request_has_an_address_and_its_reply_another() {
    let server = Server::start().await;
    let session = server.session().await;
    let grant = server
        .post("/v1/locks/a/b/acquire", json!({"session": session}))
        .await
        .expect(200);
    let request = "/v1/locks/a/b/release-request";
    let asked = server
        .post(request, json!({"reason": "backup"}))
        .await
        .expect(200);
    assert_eq!(asked, json!({"asked": 1}));
    let reply = json!({"session": session, "holder": grant["holder"], "answer": "soon"});
    server.post(&format!("{request}/reply"), reply).await.expect(204);
    let seen = server.get("/v1/locks/a/b").await.expect(200);
    assert_eq!(seen["holders"][0]["release_requested"]["answer"], "soon");

    let gone = server
        .post("/v1/locks/a/b/revoke", json!({"reason": "backup"}))
        .await;
    let detail = gone.problem(405, "method_not_allowed")["detail"].clone();
    assert!(detail.as_str().unwrap().contains("release-request"), "{detail}");
    server.stop().await;
}

#[tokio::test]
async fn wait_graph_shadows_no_lock() {
    let server = Server::start().await;
    let session = server.session().await;
    server
        .post("/v1/locks/graph/acquire", json!({"session": session}))
        .await
        .expect(200);
    assert_eq!(server.get("/v1/locks/graph").await.expect(200)["lock"], "graph");
    let graph = server.get("/v1/lock-graph").await.expect(200);
    assert_eq!(graph, json!({"waits": [], "complete": true}));
    server.stop().await;
}

#[tokio::test]
async fn partial_update_of_a_lock_is_a_patch() {
    let server = Server::start().await;
    server
        .patch("/v1/locks/a", json!({"draining": true}))
        .await
        .expect(204);
    assert_eq!(server.get("/v1/locks/a").await.expect(200)["draining"], true);
    let put = server.put("/v1/locks/a", json!({"draining": false})).await;
    put.problem(405, "method_not_allowed");
    assert_eq!(put.header("allow"), Some("get,head,patch"));
    server.stop().await;
}

#[tokio::test]
async fn put_with_create_makes_what_is_missing() {
    let server = Server::start().await;
    let address = "/v1/znodes/a/b/c?create=true";
    let made = server.put(address, json!({"data": "x"})).await;
    assert_eq!(made.header("location"), Some("/v1/znodes/a/b/c"));
    assert_eq!(made.expect(201)["path"], "/a/b/c");
    let replaced = server.put(address, json!({"data": "y"})).await.expect(200);
    assert_eq!(replaced["stat"]["version"], 1);
    assert_eq!(server.get("/v1/znodes/a/b/c").await.expect(200)["data"], "y");
    server
        .put("/v1/znodes/none", json!({"data": "x"}))
        .await
        .problem(404, "no_znode");
    let versioned = server
        .put("/v1/znodes/a?create=true&version=0", json!({"data": "x"}))
        .await;
    versioned.problem(400, "bad_request");

    // A copy gets the first answer, although the znode exists by now.
    let body = json!({"data": "z", "request_id": "one"});
    let first = server
        .put("/v1/znodes/d/e?create=true", body.clone())
        .await
        .expect(201);
    assert_eq!(
        server.put("/v1/znodes/d/e?create=true", body).await.expect(201),
        first
    );
    let long = json!({"data": "z", "request_id": "x".repeat(63)});
    server.put(address, long).await.problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn missing_znode_is_no_znode() {
    let server = Server::start().await;
    server.get("/v1/znodes/none").await.problem(404, "no_znode");
    server.stop().await;
}

/// Returns the names of all parameters of an operation in the query.
fn parameters(operation: &Value) -> BTreeSet<&str> {
    let all = operation["parameters"].as_array().into_iter().flatten();
    let query = all.filter(|parameter| parameter["in"] == "query");
    query
        .map(|parameter| parameter["name"].as_str().unwrap())
        .collect()
}

fn operations() -> impl Iterator<Item = &'static Value> {
    let paths = lock_api::http::openapi()["paths"].as_object().unwrap();
    paths.values().flat_map(|item| item.as_object().unwrap().values())
}

#[test]
fn lists_have_a_cursor_and_a_limit() {
    let mut lists = 0;
    for operation in operations() {
        let (names, id) = (parameters(operation), &operation["operationId"]);
        for old in ["after", "before", "count"] {
            assert!(!names.contains(old), "{id} has {old}");
        }
        if names.contains("cursor") {
            assert!(names.contains("limit"), "{id}");
            lists += 1;
        }
    }
    assert_eq!(
        lists, 10,
        "sessions, ephemerals, locks, history, children, tokens, roles, certificates, namespaces, mirror"
    );
    let text = lock_api::http::openapi().to_string();
    assert!(!text.contains("next_after") && !text.contains("next_before"));
}

#[test]
fn seen_position_is_called_zxid() {
    let with_zxid = operations().filter(|operation| parameters(operation).contains("zxid"));
    let ids: BTreeSet<_> = with_zxid
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["followSession", "followEvents", "watchZnode"].into());
    for operation in operations() {
        assert!(!parameters(operation).contains("seen_zxid"), "{operation}");
    }
    let stream = operations()
        .find(|operation| operation["operationId"] == "followSession")
        .unwrap();
    for kind in ["data", "children", "exists"] {
        assert!(parameters(stream).contains(kind), "{kind}");
    }
}

#[tokio::test]
async fn retired_ids_are_ranges_and_alarms_have_a_time() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/v1/cluster").await.expect(200)["retired_node_ids"],
        json!([])
    );
    let schemas = &lock_api::http::openapi()["components"]["schemas"];
    let alarm = &schemas["Alarm"]["properties"];
    assert_eq!(alarm["since_at"]["format"], "date-time");
    assert_eq!(alarm.get("since_ms"), None);
    server.stop().await;
}

#[tokio::test]
async fn created_things_have_a_location() {
    let (server, admin) = Server::start_secured().await;
    let opened = server.as_token(&admin, "POST", "/v1/sessions", json!({})).await;
    let session = opened.expect(201)["session"].as_str().unwrap().to_owned();
    assert_eq!(
        opened.header("location"),
        Some(&*format!("/v1/sessions/{session}"))
    );
    let made = server
        .as_token(&admin, "POST", "/v1/znodes/a%20b", json!({}))
        .await;
    made.expect(201);
    let location = made.header("location").unwrap().to_owned();
    let seen = server.as_token(&admin, "GET", &location, Value::Null).await;
    assert_eq!(seen.expect(200)["path"], "/a b");
    let token = server
        .as_token(&admin, "POST", "/v1/tokens", json!({"role": "admin"}))
        .await;
    let id = token.expect(201)["id"].as_str().unwrap().to_owned();
    assert_eq!(token.header("location"), Some(&*format!("/v1/tokens/{id}")));
    server.stop().await;
}

#[tokio::test]
async fn version_needs_no_authentication() {
    let (server, _) = Server::start_secured().await;
    let version = server.get("/v1/version").await.expect(200);
    assert_eq!(version["program"], env!("CARGO_PKG_VERSION"));
    assert_eq!(version["api"], "v1");
    assert!(
        version["features"]
            .as_array()
            .unwrap()
            .contains(&json!("idempotency_key"))
    );
    server.get("/v1/cluster").await.problem(401, "unauthenticated");
    server.stop().await;
}

#[tokio::test]
async fn type_of_a_problem_is_a_page_of_the_documentation() {
    let server = Server::start().await;
    let problem = server.get("/v1/locks/none").await.problem(404, "no_lock");
    let (page, anchor) = problem["type"].as_str().unwrap().split_once('#').unwrap();
    let page = server.get(page).await.body;
    assert!(page.contains(&format!("id=\"{anchor}\"")));
    for code in Code::ALL {
        assert!(page.contains(&format!("id=\"{}\"", code.word())), "{code:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn every_answer_has_a_request_id_of_its_own() {
    let server = Server::start().await;
    let mut seen = BTreeSet::new();
    for path in [
        "/healthz",
        "/v1/locks",
        "/v1/locks/none",
        "/nothing",
        "/",
        "/docs",
    ] {
        let id = server.get(path).await.header("request-id").unwrap().to_owned();
        assert!(id.len() == 16 && seen.insert(id), "{path}");
    }
    server.stop().await;
}

#[test]
fn titles_of_problems_are_noun_phrases_of_the_field() {
    for (code, title) in [
        (Code::Unauthenticated, "Authentication required"),
        (Code::Internal, "Internal server error"),
        (Code::ReadOnly, "Cluster is read-only: disk space low"),
    ] {
        assert_eq!(code.title(), title);
    }
    for code in Code::ALL {
        assert!(
            !code.title().ends_with('.') && code.title().chars().next().unwrap().is_uppercase(),
            "{code:?}"
        );
    }
}
