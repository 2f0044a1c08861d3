//! Limits and quotas, from the view of callers.

use lock_api::http::HttpConfig;
use serde_json::json;

use crate::support::{Server, until};

#[tokio::test]
async fn objects_are_bounded_by_their_limits() {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.limits.data_bytes = 10;
        node.limits.children = 2;
        node.limits.ephemerals = 1;
        node.limits.sessions = 1;
    })
    .await;
    let configured = server.node.config().limits;
    until("the limits hold", async || {
        server.node.read(|store| store.limits() == configured)
    })
    .await;

    let problem = server
        .post("/v1/znodes/a", json!({"data": "12345678901"}))
        .await
        .problem(413, "too_large");
    assert_eq!(problem["limit"], 10);

    let session = server.session().await;
    let problem = server.post("/v1/sessions", json!({})).await;
    let problem = problem.problem(409, "limit_reached");
    assert_eq!(
        (&problem["of"], &problem["limit"]),
        (&json!("sessions"), &json!(1))
    );

    server.post("/v1/znodes/p", json!({})).await.expect(201);
    let ephemeral = json!({"mode": "ephemeral", "session": session});
    server.post("/v1/znodes/p/a", ephemeral.clone()).await.expect(201);
    let problem = server.post("/v1/znodes/p/b", ephemeral).await;
    let problem = problem.problem(409, "limit_reached");
    assert_eq!(
        (&problem["of"], &problem["session"]),
        (&json!("ephemerals"), &json!(session))
    );

    server.post("/v1/znodes/p/b", json!({})).await.expect(201);
    let problem = server.post("/v1/znodes/p/c", json!({})).await;
    let problem = problem.problem(409, "limit_reached");
    assert_eq!(
        (&problem["of"], &problem["path"], &problem["limit"]),
        (&json!("children"), &json!("/p"), &json!(2))
    );
    server.stop().await;
}

#[tokio::test]
async fn a_hard_quota_is_not_passed() {
    let server = Server::start().await;
    server
        .post("/v1/znodes/app", json!({"data": "12345"}))
        .await
        .expect(201);
    for (name, data) in [
        (
            "zookeeper_limits",
            "count=-1,bytes=-1;byteHardLimit=10;countHardLimit=2",
        ),
        ("zookeeper_stats", ""),
    ] {
        let path = format!("/v1/znodes/zookeeper/quota/app/{name}");
        server
            .post(&path, json!({"data": data, "parents": true}))
            .await
            .expect(201);
    }
    let stats = "/v1/znodes/zookeeper/quota/app/zookeeper_stats";
    assert_eq!(server.get(stats).await.expect(200)["data"], "count=1,bytes=5");
    let problem = server.post("/v1/znodes/app/a", json!({"data": "123456"})).await;
    let problem = problem.problem(409, "quota_exceeded");
    assert_eq!(
        (
            &problem["path"],
            &problem["of"],
            &problem["limit"],
            &problem["would_be"]
        ),
        (&json!("/app"), &json!("bytes"), &json!(10), &json!(11))
    );
    server
        .post("/v1/znodes/app/a", json!({"data": "12345"}))
        .await
        .expect(201);
    assert_eq!(server.get(stats).await.expect(200)["data"], "count=2,bytes=10");
    let problem = server.post("/v1/znodes/app/b", json!({})).await;
    assert_eq!(problem.problem(409, "quota_exceeded")["of"], "znodes");
    server.stop().await;
}
