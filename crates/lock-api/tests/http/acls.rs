//! Access control lists, by the address of the connection.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::support::Server;

/// Default address of the tests' callers.
const HERE: &str = "127.0.0.1";

/// Another address of this machine's.
const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

fn entry(perms: &str, scheme: &str, id: &str) -> Value {
    json!({"perms": perms, "scheme": scheme, "id": id})
}

#[tokio::test]
async fn access_control_list_restricts_a_znode() {
    let server = Server::start().await;
    let ours = json!([entry("cdrwa", "ip", HERE)]);
    server
        .post("/v1/znodes/a", json!({"data": "x", "acl": ours}))
        .await
        .expect(201);
    server.post("/v1/znodes/a/b", json!({})).await.expect(201);
    for (method, path, body) in [
        ("GET", "/v1/znodes/a", None),
        ("GET", "/v1/znodes/a?children=true", None),
        ("PUT", "/v1/znodes/a", Some(json!({"data": "y"}))),
        ("POST", "/v1/znodes/a/c", Some(json!({}))),
        ("DELETE", "/v1/znodes/a/b", None),
        ("DELETE", "/v1/znodes/a?recursive=true", None),
        ("GET", "/v1/acl/a", None),
        (
            "PUT",
            "/v1/acl/a",
            Some(json!({"acl": [entry("cdrwa", "world", "anyone")]})),
        ),
    ] {
        let refused = server.call_from(ELSEWHERE, method, path, body).await;
        assert_eq!(refused.problem(403, "forbidden")["path"], "/a", "{method} {path}");
    }
    // Rights of all callers: the child has a list of its own.
    let child = server.call_from(ELSEWHERE, "GET", "/v1/znodes/a/b", None).await;
    child.expect(200);

    assert_eq!(server.get("/v1/znodes/a").await.expect(200)["data"], "x");
    server.put("/v1/znodes/a", json!({"data": "y"})).await.expect(200);
    server.delete("/v1/znodes/a?recursive=true").await.expect(204);
    server.stop().await;
}

#[tokio::test]
async fn a_list_is_shown_and_replaced() {
    let server = Server::start().await;
    server.post("/v1/znodes/a", json!({})).await.expect(201);
    let seen = server.get("/v1/acl/a").await.expect(200);
    assert_eq!(
        (&seen["path"], &seen["acl"], &seen["stat"]["aversion"]),
        (
            &json!("/a"),
            &json!([entry("cdrwa", "world", "anyone")]),
            &json!(0)
        )
    );

    let list = json!([entry("r", "world", "anyone"), entry("cdrwa", "ip", HERE)]);
    let body = json!({"acl": list, "request_id": "once"});
    let set = server.put("/v1/acl/a?version=0", body.clone()).await.expect(200);
    assert_eq!(
        (&set["path"], &set["stat"]["aversion"], &set["stat"]["version"]),
        (&json!("/a"), &json!(1), &json!(0))
    );
    assert_eq!(server.put("/v1/acl/a?version=0", body).await.expect(200), set);
    let problem = server
        .put("/v1/acl/a?version=0", json!({"acl": list}))
        .await
        .problem(409, "bad_version");
    assert_eq!(problem["actual_version"], 1);

    for path in [
        "/v1/acl/a",
        "/v1/acl/a?linearizable=true",
        "/v1/znodes/a?acl=true",
    ] {
        let seen = server.call_from(ELSEWHERE, "GET", path, None).await.expect(200);
        assert_eq!(
            (&seen["acl"], &seen["stat"]["aversion"]),
            (&list, &json!(1)),
            "{path}"
        );
    }
    assert!(server.get("/v1/znodes/a").await.expect(200).get("acl").is_none());
    for path in ["/v1/acl", "/v1/acl/"] {
        assert_eq!(server.get(path).await.expect(200)["path"], "/");
    }
    server.get("/v1/acl/none").await.problem(404, "no_znode");
    server
        .put("/v1/acl/none", json!({"acl": list}))
        .await
        .problem(404, "no_znode");
    server.get("/v1/acl//a").await.problem(400, "bad_path");
    server.stop().await;
}

#[tokio::test]
async fn administrators_see_the_list_and_readers_see_no_hashes() {
    let server = Server::start().await;
    let administered = json!([entry("a", "ip", HERE)]);
    server
        .post("/v1/znodes/a", json!({"acl": administered}))
        .await
        .expect(201);
    server.get("/v1/znodes/a").await.problem(403, "forbidden");
    server
        .get("/v1/znodes/a?acl=true")
        .await
        .problem(403, "forbidden");
    assert_eq!(server.get("/v1/acl/a").await.expect(200)["acl"], administered);

    let with_password = json!([entry("cdrwa", "digest", "anna:hash"), entry("ra", "ip", HERE)]);
    server
        .put("/v1/acl/a", json!({"acl": with_password}))
        .await
        .expect(200);
    assert_eq!(server.get("/v1/acl/a").await.expect(200)["acl"], with_password);
    let for_readers = json!([entry("cdrwa", "digest", "anna:hash"), entry("r", "ip", HERE)]);
    server
        .put("/v1/acl/a", json!({"acl": for_readers}))
        .await
        .expect(200);
    let masked = json!([entry("cdrwa", "digest", "anna:x"), entry("r", "ip", HERE)]);
    assert_eq!(server.get("/v1/acl/a").await.expect(200)["acl"], masked);
    server.stop().await;
}

#[tokio::test]
async fn invalid_lists_are_refused() {
    let server = Server::start().await;
    server.post("/v1/znodes/a", json!({})).await.expect(201);
    for list in [
        json!([]),
        json!([entry("x", "world", "anyone")]),
        json!([entry("r", "world", "somebody")]),
        json!([entry("r", "ip", "127.0.0.1/33")]),
        json!([entry("r", "nobody", "knows")]),
        // An address does not authenticate a caller.
        json!([entry("cdrwa", "auth", "")]),
    ] {
        let body = json!({"acl": list});
        server
            .put("/v1/acl/a", body.clone())
            .await
            .problem(400, "bad_acl");
        server.post("/v1/znodes/b", body).await.problem(400, "bad_acl");
    }
    for body in [
        json!({}),
        json!({"acl": null}),
        json!({"acl": ["world:anyone:r"]}),
    ] {
        server.put("/v1/acl/a", body).await.problem(400, "bad_request");
    }
    server.stop().await;
}

#[tokio::test]
async fn transaction_sets_lists_and_is_rejected_as_a_whole() {
    let server = Server::start().await;
    let ours = json!([entry("cdrwa", "ip", HERE)]);
    let body = json!({"ops": [
        {"create": {"path": "/a", "acl": ours}},
        {"create": {"path": "/b"}},
        {"set_acl": {"path": "/b", "acl": ours, "version": 0}},
    ]});
    let done = server.post("/v1/txn", body).await.expect(200);
    assert_eq!(done["results"][2]["acl_set"]["stat"]["aversion"], 1);
    for path in ["/v1/acl/a", "/v1/acl/b"] {
        assert_eq!(server.get(path).await.expect(200)["acl"], ours, "{path}");
    }
    let body = json!({"ops": [{"create": {"path": "/c"}}, {"set": {"path": "/b", "data": "x"}}]});
    let refused = server.call_from(ELSEWHERE, "POST", "/v1/txn", Some(body)).await;
    let problem = refused.problem(403, "forbidden");
    assert_eq!((&problem["path"], &problem["index"]), (&json!("/b"), &json!(1)));
    server.get("/v1/znodes/c").await.problem(404, "no_znode");
    server.stop().await;
}

#[tokio::test]
async fn access_control_list_restricts_a_lock() {
    let server = Server::start().await;
    let session = server.session().await;
    let acquire = json!({"session": session, "owner": "o"});
    let grant = server
        .post("/v1/locks/ours/acquire", acquire.clone())
        .await
        .expect(200);
    let list = json!({"acl": [entry("cdrwa", "ip", HERE)]});
    server.put("/v1/acl/locks/ours", list).await.expect(200);

    let other = server.session().await;
    let check = format!("/v1/locks/ours/check?fencing_token={}", grant["fencing_token"]);
    for (method, path, body) in [
        (
            "POST",
            "/v1/locks/ours/acquire",
            Some(json!({"session": other, "wait_ms": 10_000})),
        ),
        (
            "POST",
            "/v1/locks/ours/break",
            Some(json!({"holder": grant["holder"], "reason": "mine"})),
        ),
        ("GET", "/v1/locks/ours", None),
        ("GET", &check, None),
    ] {
        let refused = server.call_from(ELSEWHERE, method, path, body).await;
        let problem = refused.problem(403, "forbidden");
        assert_eq!(problem["path"], "/locks/ours", "{method} {path}");
    }
    let listed = server.call_from(ELSEWHERE, "GET", "/v1/locks", None).await;
    assert_eq!(
        listed.expect(200),
        json!({"locks": [], "next_cursor": null}),
        "its name is no more for them than its holders"
    );
    let others = server.call_from(
        ELSEWHERE,
        "POST",
        "/v1/locks/others/acquire",
        Some(json!({"session": other})),
    );
    others.await.expect(200);

    // The callers in the list may do all of it.
    assert_eq!(server.get(&check).await.expect(200), json!({"held": true}));
    let seen = server.get("/v1/locks/ours").await.expect(200);
    assert_eq!(seen["holders"][0]["holder"], grant["holder"]);
    let listed = server.get("/v1/locks").await.expect(200);
    assert_eq!(listed["locks"].as_array().unwrap().len(), 2, "{listed}");
    let broken = json!({"holder": grant["holder"], "reason": "enough"});
    server.post("/v1/locks/ours/break", broken).await.expect(204);
    server.post("/v1/locks/ours/acquire", acquire).await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn a_page_of_locks_is_not_the_last_because_some_are_not_shown() {
    let server = Server::start().await;
    let session = server.session().await;
    for name in ["a", "b", "c"] {
        server
            .post(&format!("/v1/locks/{name}/acquire"), json!({"session": session}))
            .await
            .expect(200);
    }
    let list = json!({"acl": [entry("cdrwa", "ip", HERE)]});
    server.put("/v1/acl/locks/b", list).await.expect(200);
    let mut names = Vec::new();
    let mut path = "/v1/locks?limit=1".to_owned();
    loop {
        let page = server.call_from(ELSEWHERE, "GET", &path, None).await.expect(200);
        names.extend(
            page["locks"]
                .as_array()
                .unwrap()
                .iter()
                .map(|lock| lock["lock"].clone()),
        );
        assert_ne!(page["next_cursor"], "b", "what may not be seen is not named");
        match page["next_cursor"].as_str() {
            Some(after) => path = format!("/v1/locks?limit=1&cursor={after}"),
            None => break,
        }
    }
    assert_eq!(names, ["a", "c"]);
    server.stop().await;
}
