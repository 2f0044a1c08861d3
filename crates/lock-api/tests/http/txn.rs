//! Transactions: all or none.

use serde_json::json;

use crate::support::Server;

#[tokio::test]
async fn a_transaction_is_carried_out_as_a_whole() {
    let server = Server::start().await;
    let body = json!({"request_id": "t1", "ops": [
        {"create": {"path": "/a", "data": "1"}},
        {"create": {"path": "/a/n-", "mode": "persistent_sequential"}},
        {"set": {"path": "/a", "data": "2", "version": 0}},
        {"check": {"path": "/a", "version": 1}},
        {"delete": {"path": "/a/n-0000000000"}},
    ]});
    let done = server.post("/v1/txn", body.clone()).await.expect(200);
    let results = done["results"].as_array().unwrap();
    assert_eq!(results.len(), 5);
    assert_eq!(results[1]["created"]["path"], "/a/n-0000000000");
    assert_eq!(results[2]["set"]["stat"]["version"], 1);
    assert_eq!(
        (&results[3], &results[4]),
        (&json!({"checked": {}}), &json!({"deleted": {}}))
    );
    assert_eq!(server.get("/v1/znodes/a").await.expect(200)["data"], "2");
    assert_eq!(server.post("/v1/txn", body).await.expect(200), done);
    server.stop().await;
}

#[tokio::test]
async fn a_transaction_that_fails_anywhere_does_nothing() {
    let server = Server::start().await;
    let body = json!({"ops": [{"create": {"path": "/a"}}, {"delete": {"path": "/b"}}]});
    let problem = server.post("/v1/txn", body).await.problem(404, "no_node");
    assert_eq!((&problem["index"], &problem["path"]), (&json!(1), &json!("/b")));
    server.get("/v1/znodes/a").await.problem(404, "no_node");
    for ops in [
        json!([]),
        json!([{"create": {}}]),
        json!([{"move": {"path": "/a"}}]),
        json!([{"set": {"path": "/a"}}]),
        json!([{"delete": {"path": "/a", "recursive": true, "version": 1}}]),
        json!([{"create": {"path": "/a"}, "delete": {"path": "/a"}}]),
    ] {
        server
            .post("/v1/txn", json!({"ops": ops}))
            .await
            .problem(400, "bad_request");
    }
    server
        .post("/v1/txn", json!({"ops": [{"check": {"path": "a"}}]}))
        .await
        .problem(400, "bad_path");
    server.stop().await;
}
