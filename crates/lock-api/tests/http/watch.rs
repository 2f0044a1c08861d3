//! One-shot watches by long poll.

use serde_json::json;

use crate::support::{Call, Reply, Server};

/// Begins to watch, and makes `change` again and again until the watch has fired: when it is armed cannot be
/// seen from outside.
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

    // Where nothing exists yet, and anything in between.
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
async fn a_watch_that_makes_no_sense_is_refused() {
    let server = Server::start().await;
    server
        .get("/v1/watch/nothing?kind=data")
        .await
        .problem(404, "no_node");
    server
        .get("/v1/watch/nothing?kind=children")
        .await
        .problem(404, "no_node");
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
