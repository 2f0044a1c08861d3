//! Znodes: create, get, set, delete, children.

use std::time::Duration;

use lock_api::http::HttpConfig;
use serde_json::{Value, json};

use crate::support::{Server, until};

#[tokio::test]
async fn a_znode_is_created_read_changed_and_deleted() {
    let server = Server::start().await;
    let created = server
        .post("/v1/znodes/app", json!({"data": "héllo"}))
        .await
        .expect(201);
    assert_eq!(
        (&created["path"], &created["stat"]["version"]),
        (&json!("/app"), &json!(0))
    );
    assert_eq!(created["stat"]["ephemeral_owner"], json!(null));
    assert!(created["stat"]["created_at"].as_str().unwrap().ends_with('Z'));

    let seen = server.get("/v1/znodes/app").await.expect(200);
    assert_eq!(
        (&seen["data"], &seen["stat"]),
        (&json!("héllo"), &created["stat"])
    );
    assert!(seen.get("children").is_none());
    assert_eq!(
        server.get("/v1/znodes/app?linearizable=true").await.expect(200),
        seen
    );

    let set = server
        .put("/v1/znodes/app?version=0", json!({"data_base64": "AP8="}))
        .await
        .expect(200);
    assert_eq!(
        (&set["path"], &set["stat"]["version"]),
        (&json!("/app"), &json!(1))
    );
    let seen = server.get("/v1/znodes/app").await.expect(200);
    assert_eq!((seen.get("data"), &seen["data_base64"]), (None, &json!("AP8=")));

    let problem = server
        .put("/v1/znodes/app?version=0", json!({"data": "x"}))
        .await
        .problem(409, "bad_version");
    assert_eq!(
        (&problem["path"], &problem["actual_version"]),
        (&json!("/app"), &json!(1))
    );
    server
        .delete("/v1/znodes/app?version=0")
        .await
        .problem(409, "bad_version");
    server.delete("/v1/znodes/app?version=1").await.expect(204);
    server.get("/v1/znodes/app").await.problem(404, "no_znode");
    server
        .put("/v1/znodes/app", json!({"data": "x"}))
        .await
        .problem(404, "no_znode");
    server.delete("/v1/znodes/app").await.problem(404, "no_znode");
    server.stop().await;
}

#[tokio::test]
async fn children_are_listed_page_by_page_and_protect_their_parent() {
    let server = Server::start().await;
    server
        .post("/v1/znodes/p/a", json!({}))
        .await
        .problem(404, "no_znode");
    for name in ["b", "c", "a"] {
        server
            .post(&format!("/v1/znodes/p/{name}"), json!({"parents": true}))
            .await
            .expect(201);
    }
    server
        .post("/v1/znodes/p/a", json!({}))
        .await
        .problem(409, "node_exists");
    let seen = server.get("/v1/znodes/p?children=true&limit=2").await.expect(200);
    let names: Vec<_> = seen["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| &child["name"])
        .collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(
        (&seen["next_cursor"], &seen["stat"]["num_children"]),
        (&json!("b"), &json!(3))
    );
    assert_eq!(seen["children"][0]["stat"]["version"], 0);
    let rest = server
        .get("/v1/znodes/p?children=true&limit=2&cursor=b")
        .await
        .expect(200);
    assert_eq!(
        (&rest["children"][0]["name"], &rest["next_cursor"]),
        (&json!("c"), &json!(null))
    );
    server
        .get("/v1/znodes/p?limit=2")
        .await
        .problem(400, "bad_request");

    server.delete("/v1/znodes/p").await.problem(409, "not_empty");
    let problem = server
        .delete("/v1/znodes/p?recursive=true&version=7")
        .await
        .problem(409, "bad_version");
    assert_eq!(problem.get("index"), None);
    server
        .delete("/v1/znodes/p?recursive=true&version=0")
        .await
        .expect(204);
    server.get("/v1/znodes/p/a").await.problem(404, "no_znode");
    server.stop().await;
}

#[tokio::test]
async fn ephemeral_and_sequential_znodes_follow_their_session_and_their_counter() {
    let server = Server::start().await;
    let session = server.session().await;
    server.post("/v1/znodes/q", json!({})).await.expect(201);
    let body = json!({"mode": "ephemeral_sequential", "session": session, "request_id": "one"});
    let first = server.post("/v1/znodes/q/n-", body.clone()).await.expect(201);
    assert_eq!(first["path"], "/q/n-0000000000");
    assert_eq!(first["stat"]["ephemeral_owner"], json!(session));
    assert_eq!(server.post("/v1/znodes/q/n-", body).await.expect(201), first);
    let bare = server
        .post("/v1/znodes/q/", json!({"mode": "persistent_sequential"}))
        .await
        .expect(201);
    assert_eq!(bare["path"], "/q/0000000001");

    server
        .post("/v1/znodes/q/n-0000000000/x", json!({}))
        .await
        .problem(409, "no_children_for_ephemerals");
    server
        .post("/v1/znodes/e", json!({"mode": "ephemeral"}))
        .await
        .problem(400, "bad_request");
    let nobody = json!({"mode": "ephemeral", "session": "00000000deadbeef"});
    server
        .post("/v1/znodes/e", nobody)
        .await
        .problem(404, "no_session");

    server
        .delete(&format!("/v1/sessions/{session}"))
        .await
        .expect(204);
    server
        .get("/v1/znodes/q/n-0000000000")
        .await
        .problem(404, "no_znode");
    let late = json!({"mode": "ephemeral", "session": session});
    server
        .post("/v1/znodes/e", late)
        .await
        .problem(410, "session_expired");
    server.stop().await;
}

#[tokio::test]
async fn children_are_found_by_prefix() {
    let server = Server::start().await;
    for name in [
        "p",
        "p/a-1",
        "p/a-2",
        "p/a-3",
        "p/b-1",
        "p/a-1/deep",
        "p/a-1/deep/er",
    ] {
        server
            .post(&format!("/v1/znodes/{name}"), json!({}))
            .await
            .expect(201);
    }
    let names = async |query: &str| {
        let seen = server.get(&format!("/v1/znodes/p?children=true&{query}")).await;
        let seen = seen.expect(200);
        let children = seen["children"].as_array().unwrap().iter();
        let names: Vec<_> = children.map(|child| child["name"].clone()).collect();
        (names, seen["next_cursor"].clone())
    };
    assert_eq!(
        names("prefix=a-&limit=2").await,
        (vec![json!("a-1"), json!("a-2")], json!("a-2"))
    );
    assert_eq!(
        names("prefix=a-&limit=2&cursor=a-2").await,
        (vec![json!("a-3")], json!(null))
    );
    assert_eq!(names("prefix=c").await, (vec![], json!(null)));
    assert_eq!(names("prefix=").await.0.len(), 4);
    server
        .get("/v1/znodes/p?prefix=a")
        .await
        .problem(400, "bad_request");

    let seen = server.get("/v1/znodes/p?descendants=true").await.expect(200);
    assert_eq!(seen["descendants"], 6);
    assert!(
        server
            .get("/v1/znodes/p")
            .await
            .expect(200)
            .get("descendants")
            .is_none()
    );
    server.stop().await;
}

#[tokio::test]
async fn containers_and_ttl_znodes_show_their_kind_and_are_swept() {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.sweeps.every = Duration::from_millis(50);
        node.sweeps.empty_for = Duration::from_millis(50);
    })
    .await;
    let kind = |answer: &Value| {
        let stat = &answer["stat"];
        (
            stat["ephemeral_owner"].clone(),
            stat["container"].clone(),
            stat["ttl_ms"].clone(),
        )
    };
    let plain = server.post("/v1/znodes/p", json!({})).await.expect(201);
    assert_eq!(kind(&plain), (json!(null), json!(false), json!(null)));
    let container = json!({"mode": "container"});
    let container = server.post("/v1/znodes/c", container).await.expect(201);
    assert_eq!(kind(&container), (json!(null), json!(true), json!(null)));
    let ttl = json!({"mode": "ttl", "ttl_ms": 600_000});
    let ttl = server.post("/v1/znodes/long", ttl).await.expect(201);
    assert_eq!(kind(&ttl), (json!(null), json!(false), json!(600_000)));
    let numbered = json!({"mode": "ttl_sequential", "ttl_ms": 1});
    let numbered = server.post("/v1/znodes/n-", numbered).await.expect(201);
    assert_eq!(numbered["path"], "/n-0000000003");
    server
        .post("/v1/znodes/short", json!({"mode": "ttl", "ttl_ms": 1}))
        .await
        .expect(201);

    for ttl_ms in [0, 1_u64 << 40, u64::MAX] {
        let body = json!({"mode": "ttl", "ttl_ms": ttl_ms});
        let problem = server.post("/v1/znodes/x", body).await;
        let problem = problem.problem(400, "bad_request");
        assert_eq!(problem["ttl_ms"], ttl_ms);
    }
    let body = json!({"ops": [{"create": {"path": "/x", "mode": "ttl", "ttl_ms": 5000}}]});
    let done = server.post("/v1/txn", body).await.expect(200);
    assert_eq!(done["results"][0]["created"]["stat"]["ttl_ms"], 5000);

    server.post("/v1/znodes/c/child", json!({})).await.expect(201);
    server.delete("/v1/znodes/c/child").await.expect(204);
    for path in ["/v1/znodes/short", "/v1/znodes/n-0000000003", "/v1/znodes/c"] {
        until("it is swept", async || server.get(path).await.status == 404).await;
    }
    server.get("/v1/znodes/long").await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn paths_are_validated_before_any_change() {
    let server = Server::start().await;
    for path in ["//a", "/a//b", "/a/../b", "/a/.", "/%00", "/a%", "/%ff"] {
        let path = format!("/v1/znodes{path}");
        server.get(&path).await.problem(400, "bad_path");
        server.post(&path, json!({})).await.problem(400, "bad_path");
        server
            .put(&path, json!({"data": ""}))
            .await
            .problem(400, "bad_path");
        server.delete(&path).await.problem(400, "bad_path");
    }
    server.get("/v1/znodes/a/").await.problem(400, "bad_path");
    assert_eq!(server.get("/v1/znodes").await.expect(200)["path"], "/");
    assert_eq!(server.get("/v1/znodes/").await.expect(200)["path"], "/");
    server.delete("/v1/znodes/").await.problem(400, "bad_path");
    server.post("/v1/znodes/a%20b", json!({})).await.expect(201);
    assert_eq!(server.get("/v1/znodes/a%20b").await.expect(200)["path"], "/a b");
    server.stop().await;
}

#[tokio::test]
async fn paths_of_new_znodes_have_bounds() {
    let server = Server::start().await;
    let data = || json!({"data": "x", "parents": true});
    // The longest and the deepest; a thousand levels are created and removed at once.
    let long = format!("/v1/znodes/{}", "l".repeat(8_191));
    server.post(&long, data()).await.expect(201);
    assert_eq!(server.get(&long).await.expect(200)["data"], "x");
    server.delete(&long).await.expect(204);
    let deep = format!("/v1/znodes{}", "/d".repeat(1_000));
    server.post(&deep, data()).await.expect(201);
    assert_eq!(server.get(&deep).await.expect(200)["data"], "x");
    server.delete("/v1/znodes/d?recursive=true").await.expect(204);
    server.get(&deep).await.problem(404, "no_znode");
    // Paths beyond the limits are rejected, also in a transaction and with the digits of a sequential name.
    server
        .post(&format!("{long}l"), data())
        .await
        .problem(400, "bad_path");
    let sequential = json!({"mode": "persistent_sequential"});
    server.post(&long, sequential).await.problem(400, "bad_path");
    let ops = json!({"ops": [{"create": {"path": format!("/{}", "l".repeat(8_192))}}]});
    server.post("/v1/txn", ops).await.problem(400, "bad_path");
    server.stop().await;

    let config = HttpConfig {
        paths: znode_store::PathBounds { bytes: 10, depth: 2 },
        ..HttpConfig::default()
    };
    let server = Server::start_with(config).await;
    server.post("/v1/znodes/a/b", data()).await.expect(201);
    let problem = server
        .post("/v1/znodes/a/b/c", data())
        .await
        .problem(400, "bad_path");
    assert_eq!(problem["detail"], "a path has at most 2 components");
    server.get("/v1/znodes/a/b/c").await.problem(404, "no_znode");
    assert_eq!(
        server.get("/v1/mirror").await.expect(200)["limits"]["path_depth"],
        2
    );
    server.stop().await;
}
