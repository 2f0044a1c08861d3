//! Several requests in one: over HTTP, by a node with one member.

use serde_json::{Value, json};

use crate::support::{Call, Server, until};

async fn batch(server: &Server, requests: Vec<Value>) -> Vec<Value> {
    let answer = server.post("/v1/batch", json!({"requests": requests})).await;
    let mut answer = answer.expect(200);
    serde_json::from_value(answer["results"].take()).unwrap()
}

fn acquire(lock: &str, body: Value) -> Value {
    json!({"path": format!("/v1/locks/{lock}/acquire"), "body": body})
}

fn statuses(results: &[Value]) -> Vec<u64> {
    results
        .iter()
        .map(|result| result["status"].as_u64().unwrap())
        .collect()
}

#[tokio::test]
async fn each_request_has_the_result_that_it_has_alone() {
    let server = Server::start().await;
    let session = server.session().await;
    let results = batch(
        &server,
        vec![
            acquire("a", json!({"session": session})),
            acquire("b%2Fc", json!({"ttl_ms": 6e4, "note": "lease"})),
            acquire("d", json!({"session": "none"})),
            json!({"path": format!("/v1/sessions/{session}/heartbeat")}),
        ],
    )
    .await;
    assert_eq!(statuses(&results), [200, 200, 404, 200]);
    assert_eq!(results[0]["body"]["lock"], "a");
    assert_eq!(results[1]["body"]["lock"], "b/c");
    assert_eq!(results[2]["problem"]["code"], "no_session");
    assert!(results[2].get("body").is_none() && results[0].get("problem").is_none());
    let lease = results[1]["body"]["lease"].as_str().unwrap();
    let of_lease =
        |method: &str, verb: &str| json!({"method": method, "path": format!("/v1/leases/{lease}{verb}")});

    let renewed = batch(
        &server,
        vec![
            of_lease("POST", "/renew"),
            acquire("b%2Fc", json!({"session": session})),
            acquire("b%2Fc", json!({"session": session, "wait": "queue"})),
        ],
    )
    .await;
    assert_eq!(statuses(&renewed), [200, 409, 202]);
    assert_eq!(renewed[0]["body"]["ttl_ms"], 60_000);
    assert_eq!(renewed[1]["problem"]["code"], "lock_busy");

    let release = json!({"session": session, "holder": results[0]["body"]["holder"]});
    let released = batch(
        &server,
        vec![
            json!({"path": "/v1/locks/a/release", "body": release}),
            of_lease("DELETE", ""),
        ],
    )
    .await;
    assert_eq!(
        released,
        [
            json!({"status": 200, "body": {"holds": 0}}),
            json!({"status": 204})
        ]
    );
    let seen = server.get("/v1/locks/b%2Fc").await.expect(200);
    assert_eq!(
        seen["holders"][0]["session"],
        json!(session),
        "the next in the queue"
    );
    server.stop().await;
}

#[tokio::test]
async fn requests_of_a_batch_share_entries_of_the_log() {
    let server = Server::start().await;
    let requests = |count: usize| {
        let each = (0..count).map(|number| acquire(&format!("many-{number}"), json!({"ttl_ms": 60_000})));
        each.collect::<Vec<_>>()
    };
    let before = server.node.status().applied_index;
    let results = batch(&server, requests(128)).await;
    assert_eq!(statuses(&results), [200; 128]);
    let entries = server.node.status().applied_index - before;
    assert!(entries <= 16, "{entries} entries for 128 requests");
    for count in [0, 129] {
        let body = json!({"requests": requests(count)});
        server.post("/v1/batch", body).await.problem(400, "bad_request");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_batch_serves_no_other_routes() {
    let server = Server::start().await;
    let session = server.session().await;
    let of = |method: &str, path: &str| json!({"method": method, "path": path, "body": {}});
    let requests = vec![
        of("POST", "/v1/batch"),
        of("POST", "/v1/sessions"),
        of("DELETE", &format!("/v1/sessions/{session}")),
        of("POST", "/v1/locks/a/break"),
        of("POST", "/v1/locks/a"),
        of("DELETE", "/v1/locks/a/acquire"),
        of("POST", "/v1/locks/a%/acquire"),
        of("POST", "/v1/locks/a/acquire?wait_ms=1"),
        of("POST", "/v1/leases/ls_1"),
        of("POST", "/v1/leases/renew"),
        of("DELETE", "/v1/leases/"),
        of("POST", "/v1/sessions/x/y/heartbeat"),
        of("POST", "v1/locks/a/acquire"),
        of("POST", "http://other/v1/locks/a/acquire"),
        of("POST", ""),
    ];
    for (request, result) in requests.iter().zip(batch(&server, requests.clone()).await) {
        assert_eq!(result["status"], 400, "{request}: {result}");
    }
    for body in [
        json!({"requests": [{"path": "/v1/locks/a/acquire", "method": "GET"}]}),
        json!({"requests": [{"path": 1}]}),
        json!({"requests": {}}),
        json!([]),
        json!({}),
    ] {
        server.post("/v1/batch", body).await.problem(400, "bad_request");
    }
    let body = json!({"requests": [acquire("a", json!({"ttl_ms": 60_000}))]});
    let refused = server
        .call_with("Idempotency-Key: one\r\n", "POST", "/v1/batch", body)
        .await;
    refused.problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn waiting_requests_leave_their_queues_when_the_caller_hangs_up() {
    let server = Server::start().await;
    let session = server.session().await;
    for lock in ["a", "b"] {
        batch(&server, vec![acquire(lock, json!({"ttl_ms": 60_000}))]).await;
    }
    let waiting = async |lock: &str| {
        let seen = server.get(&format!("/v1/locks/{lock}")).await.expect(200);
        seen["queue"].as_array().unwrap().len()
    };
    let wait = json!({"session": session, "wait_ms": null});
    let body = json!({"requests": [acquire("a", wait.clone()), acquire("b", wait)]});
    let call = Call::send(server.address, "POST", "/v1/batch", Some(&body.to_string())).await;
    until("both wait", async || waiting("a").await + waiting("b").await == 2).await;
    drop(call);
    until("both have left", async || {
        waiting("a").await + waiting("b").await == 0
    })
    .await;
    server.stop().await;
}
