//! Transactions: all or none.

use serde_json::{Value, json};

use crate::support::{Call, Server, until};

#[tokio::test]
async fn transaction_is_applied_as_a_whole() {
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
async fn failed_transaction_changes_nothing() {
    let server = Server::start().await;
    let body = json!({"ops": [{"create": {"path": "/a"}}, {"delete": {"path": "/b"}}]});
    let problem = server.post("/v1/txn", body).await.problem(404, "no_znode");
    assert_eq!((&problem["index"], &problem["path"]), (&json!(1), &json!("/b")));
    server.get("/v1/znodes/a").await.problem(404, "no_znode");
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

#[tokio::test]
async fn a_guarded_write_is_made_only_while_the_lock_is_held() {
    let server = Server::start().await;
    let (holder, other) = (server.session().await, server.session().await);
    server
        .post("/v1/znodes/report", json!({"data": "0"}))
        .await
        .expect(201);
    let grant = server
        .post("/v1/locks/jobs/7/acquire", json!({"session": holder}))
        .await
        .expect(200);
    let write = |session: &str, token: &Value, data: &str| {
        let body = json!({"session": session, "ops": [
            {"held": {"lock": "jobs/7", "fencing_token": token}},
            {"set": {"path": "/report", "data": data}},
        ]});
        server.post("/v1/txn", body)
    };
    let token = &grant["fencing_token"];
    let refuse = async |session: &str, token: &Value| {
        let problem = write(session, token, "wrong").await.problem(409, "not_holder");
        assert_eq!(
            (&problem["index"], &problem["lock"], &problem["fencing_token"]),
            (&json!(0), &json!("jobs/7"), token)
        );
    };

    let done = write(&holder, token, "1").await.expect(200);
    assert_eq!(done["results"][0], json!({"held": {}}));
    assert_eq!(done["results"][1]["set"]["stat"]["version"], 1);
    refuse(&other, token).await;
    refuse(&holder, &json!(token.as_u64().unwrap() + 1)).await;
    // The contender waits and does not hold.
    let waits = Call::send(
        server.address,
        "POST",
        "/v1/locks/jobs/7/acquire",
        Some(&json!({"session": other, "wait_ms": null}).to_string()),
    )
    .await;
    until("the other waits", async || {
        let queue = server.get("/v1/locks/jobs/7").await.expect(200)["queue"].clone();
        queue.as_array().unwrap().len() == 1
    })
    .await;
    let queued = server.get("/v1/locks/jobs/7").await.expect(200)["queue"][0]["fencing_token"].clone();
    refuse(&other, &queued).await;

    let release = json!({"session": holder, "holder": grant["holder"]});
    server.post("/v1/locks/jobs/7/release", release).await.expect(200);
    refuse(&holder, token).await;
    let next = waits.reply().await.expect(200);
    assert_eq!(next["fencing_token"], queued);
    write(&other, &queued, "2").await.expect(200);
    assert_eq!(server.get("/v1/znodes/report").await.expect(200)["data"], "2");

    // A lock that was never taken, a transaction without a session, an invalid name.
    for (body, status, code) in [
        (
            json!({"session": holder, "ops": [{"held": {"lock": "none", "fencing_token": 1}}]}),
            409,
            "not_holder",
        ),
        (
            json!({"ops": [{"held": {"lock": "jobs/7", "fencing_token": queued}}]}),
            400,
            "bad_request",
        ),
        (
            json!({"session": holder, "ops": [{"held": {"lock": "a//b", "fencing_token": 1}}]}),
            400,
            "bad_lock_name",
        ),
        (
            json!({"session": holder, "ops": [{"held": {"lock": "jobs/7"}}]}),
            400,
            "bad_request",
        ),
    ] {
        server.post("/v1/txn", body).await.problem(status, code);
    }
    server.stop().await;
}
