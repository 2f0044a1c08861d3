//! One-shot watches by long poll.

use lock_api::http::HttpConfig;
use serde_json::json;
use znode_store::{Acl, AclEntry, Command, CreateMode, CreatePath, Op, Perms, Request};

use crate::support::{Call, Reply, Server, until};

/// Starts a watch, and makes `change` repeatedly until the watch has fired, because a client cannot see when it is
/// registered.
async fn fired(server: &Server, watch: &str, mut change: impl AsyncFnMut(u32)) -> Reply {
    let call = Call::send(server.address, "GET", watch, None).await;
    let reply = call.reply();
    tokio::pin!(reply);
    let mut round = 0;
    loop {
        tokio::select! {
            biased;
            reply = &mut reply => return reply,
            () = change(round) => round += 1,
        }
    }
}

#[tokio::test]
async fn a_watch_answers_with_the_change() {
    let server = Server::start().await;
    server.post("/v1/znodes/a", json!({})).await.expect(201);
    let event = fired(&server, "/v1/watch/a?kind=data&timeout_ms=60000", async |round| {
        server
            .put("/v1/znodes/a", json!({"data": round.to_string()}))
            .await
            .expect(200);
    });
    let event = event.await.expect(200);
    assert_eq!(
        (&event["event"], &event["path"]),
        (&json!("data_changed"), &json!("/a"))
    );
    assert!(event["zxid"].as_u64().unwrap() > 0);

    let event = fired(&server, "/v1/watch/a?kind=children", async |round| {
        server
            .post(&format!("/v1/znodes/a/{round}"), json!({}))
            .await
            .expect(201);
    });
    let event = event.await.expect(200);
    assert_eq!(
        (&event["event"], &event["path"]),
        (&json!("children_changed"), &json!("/a"))
    );

    // A znode that does not exist yet, with missing parents.
    let event = fired(&server, "/v1/watch/b?kind=exists&linearizable=true", async |_| {
        server.post("/v1/znodes/b", json!({})).await;
        server.delete("/v1/znodes/b").await;
    });
    let event = event.await.expect(200);
    assert!(
        ["created", "deleted"].contains(&event["event"].as_str().unwrap()),
        "{event}"
    );
    assert_eq!(event["path"], "/b");

    let event = fired(&server, "/v1/watch/a?kind=recursive", async |round| {
        server
            .post(&format!("/v1/znodes/a/deep/{round}"), json!({"parents": true}))
            .await
            .expect(201);
    });
    let event = event.await.expect(200);
    assert!(event["path"].as_str().unwrap().starts_with("/a/deep"), "{event}");
    server.stop().await;
}

#[tokio::test]
async fn a_watch_ends_in_time_without_an_event() {
    let server = Server::start().await;
    server
        .get("/v1/watch/nothing?kind=exists&timeout_ms=20")
        .await
        .expect(204);
    server
        .get("/v1/watch/?kind=children&timeout_ms=0")
        .await
        .expect(204);
    server.stop().await;
}

#[tokio::test]
async fn invalid_watch_is_rejected() {
    let server = Server::start().await;
    server
        .get("/v1/watch/nothing?kind=data")
        .await
        .problem(404, "no_znode");
    server
        .get("/v1/watch/nothing?kind=children")
        .await
        .problem(404, "no_znode");
    for query in [
        "",
        "?kind=",
        "?kind=all",
        "?kind=data&timeout_ms=-1",
        "?kind=data&timeout_ms=3600001",
    ] {
        server
            .get(&format!("/v1/watch/a{query}"))
            .await
            .problem(400, "bad_request");
    }
    server
        .get("/v1/watch//a?kind=data")
        .await
        .problem(400, "bad_path");
    server.stop().await;
}

/// Creates a znode that only `scheme` and `id` may read.
async fn create_for(server: &Server, path: &str, scheme: &str, id: &str) {
    let acl = AclEntry {
        perms: Perms::ALL,
        scheme: scheme.into(),
        id: id.into(),
    };
    let op = Op::Create {
        path: CreatePath::parse(path, false).unwrap(),
        data: "".into(),
        acl: Acl::new(vec![acl]),
        mode: CreateMode::Persistent,
        parents: false,
    };
    let request = Request::anonymous(Command::Write(op));
    server.node.propose(request).await.unwrap().outcome.unwrap();
}

#[tokio::test]
async fn watches_need_the_right_to_read() {
    let server = Server::start().await;
    create_for(&server, "/ours", "ip", "127.0.0.1").await;
    create_for(&server, "/theirs", "ip", "192.0.2.0/24").await;
    for kind in ["data", "children"] {
        server
            .get(&format!("/v1/watch/ours?kind={kind}&timeout_ms=0"))
            .await
            .expect(204);
        server
            .get(&format!("/v1/watch/theirs?kind={kind}&timeout_ms=0"))
            .await
            .problem(403, "forbidden");
    }
    // Whether a znode exists is no secret, in ZooKeeper either; its changes require the right to read it.
    server
        .get("/v1/watch/theirs?kind=exists&timeout_ms=0")
        .await
        .expect(204);
    server.stop().await;
}

#[tokio::test]
async fn too_many_watches_are_refused() {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.watches.limits.per_node = 1;
    })
    .await;
    let first = Call::send(server.address, "GET", "/v1/watch/a?kind=exists", None).await;
    let watches = async |count| server.node.watch_counts().watches == count;
    until("the first watch is armed", async || watches(1).await).await;
    let refused = server.get("/v1/watch/b?kind=exists").await;
    refused.problem(429, "too_many_requests");
    drop(first);
    until("the first caller is gone", async || watches(0).await).await;
    server
        .get("/v1/watch/b?kind=exists&timeout_ms=0")
        .await
        .expect(204);
    server.stop().await;
}

#[tokio::test]
async fn events_since_a_position_are_reported_at_once() {
    let server = Server::start().await;
    let created = server.post("/v1/znodes/a", json!({})).await.expect(201);
    let seen = created["stat"]["mzxid"].as_u64().unwrap();
    let watch = async |kind: &str, path: &str, seen: u64| {
        let address = format!("/v1/watch/{path}?kind={kind}&timeout_ms=0&zxid={seen}");
        server.get(&address).await
    };
    for kind in ["data", "children", "exists"] {
        watch(kind, "a", seen).await.expect(204);
    }
    watch("exists", "b", seen).await.expect(204);
    server.put("/v1/znodes/a", json!({"data": "x"})).await.expect(200);
    server.post("/v1/znodes/a/c", json!({})).await.expect(201);
    server.post("/v1/znodes/b", json!({})).await.expect(201);
    for (kind, path, event) in [
        ("data", "a", "data_changed"),
        ("children", "a", "children_changed"),
        ("exists", "b", "created"),
    ] {
        let told = watch(kind, path, seen).await.expect(200);
        assert_eq!(told["event"], event);
        let now = told["zxid"].as_u64().unwrap();
        assert!(now > seen);
        watch(kind, path, now).await.expect(204);
    }
    server.delete("/v1/znodes/b").await.expect(204);
    watch("data", "b", seen).await.problem(404, "no_znode");
    watch("recursive", "a", seen).await.problem(400, "bad_request");
    // A position that has not been reached yet is rejected, however long the caller waits.
    let future = watch("data", "a", seen + 1_000_000).await;
    future.problem(400, "bad_request");
    server.stop().await;
}
