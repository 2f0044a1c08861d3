//! Routes for operators of the cluster.

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Call, Server};

#[tokio::test]
async fn a_node_tells_how_it_is() {
    let server = Server::start().await;
    assert_eq!(
        server.get("/healthz").await.expect(200),
        json!({"status": "alive"})
    );
    assert_eq!(
        server.get("/readyz").await.expect(200),
        json!({"status": "ready"})
    );
    let before = server.get("/v1/cluster").await.expect(200);
    assert_eq!(
        (&before["node_id"], &before["leader"], &before["role"]),
        (&json!(1), &json!(1), &json!("leader"))
    );
    assert_eq!(before["cluster"], "test");
    assert_eq!(before["members"][0]["http"], server.address.to_string());
    assert!(
        before["version"].is_string() && before["term"].as_u64().unwrap() > 0,
        "{before}"
    );
    server.session().await;
    let after = server.get("/v1/cluster").await.expect(200);
    assert!(
        after["applied_index"].as_u64() > before["applied_index"].as_u64(),
        "{after}"
    );
    server.stop().await;
}

#[tokio::test]
async fn members_are_changed_over_http() {
    let server = Server::start().await;
    let new = json!({"node_id": 2, "peer": "127.0.0.1:1", "http": "127.0.0.1:2"});
    let unreachable = server.post("/v1/cluster/members", new).await;
    let told = unreachable.problem(409, "node_unreachable");
    assert_eq!(told["address"], "127.0.0.1:1");
    for (method, path, body, status, code) in [
        ("POST", "/v1/cluster/members", json!({}), 400, "bad_request"),
        (
            "POST",
            "/v1/cluster/members",
            json!({"node_id": 2, "peer": "nowhere", "http": "127.0.0.1:2"}),
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/cluster/members/1/promote",
            json!({"now": true}),
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/cluster/members/one/promote",
            json!({}),
            400,
            "bad_request",
        ),
        (
            "POST",
            "/v1/cluster/members/2/promote",
            json!({}),
            404,
            "no_member",
        ),
        (
            "POST",
            "/v1/cluster/members/1/demote?force=true",
            json!({}),
            409,
            "no_majority",
        ),
        (
            "POST",
            "/v1/cluster/leader",
            json!({"node_id": 2}),
            404,
            "no_member",
        ),
        ("POST", "/v1/cluster/leader", json!({}), 503, "unavailable"),
    ] {
        let refused = server.call(method, path, Some(&body.to_string())).await;
        refused.problem(status, code);
    }
    let refused = server.delete("/v1/cluster/members/1").await;
    refused.problem(409, "no_majority");
    let refused = server.delete("/v1/cluster/members/1?forced=true").await;
    refused.problem(400, "bad_request");

    for (path, body) in [
        ("/v1/cluster/members/1/promote", json!({})),
        ("/v1/cluster/leader", json!({"node_id": 1})),
    ] {
        let so_already = server.post(path, body).await.expect(200);
        assert_eq!(
            (&so_already["changed"], &so_already["leader"]),
            (&json!(false), &json!(1))
        );
    }
    let seen = server.get("/v1/cluster").await.expect(200);
    assert_eq!(
        (&seen["next_node_id"], &seen["retired_node_ids"]),
        (&json!(2), &json!([]))
    );
    let peer = seen["members"][0]["peer"].as_str().unwrap();
    let moved = json!({"peer": peer, "http": "lockgate.example:7400"});
    let moved = server.put("/v1/cluster/members/1", moved).await.expect(200);
    assert_eq!(moved["changed"], true);
    server.stop().await;
}

#[tokio::test]
async fn metrics_are_in_the_formats_of_prometheus() {
    let server = Server::start().await;
    server.session().await;
    let reply = server.get("/metrics").await;
    assert_eq!(reply.status, 200);
    let format = reply.header("content-type").unwrap();
    assert_eq!(format, "text/plain; version=0.0.4; charset=utf-8");
    let value = |name: &str| {
        let line = reply.body.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|line| line.trim().parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{name} is missing: {}", reply.body))
    };
    assert_eq!(value("lockgate_ready "), 1.0);
    assert_eq!(value("lockgate_raft_role{role=\"leader\"} "), 1.0);
    assert_eq!(value("lockgate_raft_role{role=\"follower\"} "), 0.0);
    assert_eq!(value("lockgate_read_only "), 0.0);
    assert_eq!(value("lockgate_log_full "), 0.0);
    assert!(value("lockgate_raft_term ") >= 1.0);
    assert!(value("lockgate_raft_applied_index ") >= 1.0);
    assert!(value("lockgate_raft_committed_index ") >= value("lockgate_raft_applied_index "));
    assert!(value("lockgate_disk_free_bytes ") > 0.0);
    let syncs = value("lockgate_log_sync_duration_seconds_count ");
    assert!(syncs > 0.0 && value("lockgate_log_sync_duration_seconds_sum ") > 0.0);
    assert_eq!(
        value("lockgate_log_sync_duration_seconds_bucket{le=\"+Inf\"} "),
        syncs
    );
    assert!(
        reply
            .body
            .contains("# TYPE lockgate_http_requests_total counter\n")
    );

    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let head = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text; version=1.0.0\r\n\
                Connection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let reply = Call::of_another_server(stream).reply().await;
    let format = reply.header("content-type").unwrap();
    assert_eq!(
        format,
        "application/openmetrics-text; version=1.0.0; charset=utf-8"
    );
    assert!(reply.body.contains("# TYPE lockgate_http_requests counter\n"));
    assert!(reply.body.ends_with("# EOF\n"), "{}", reply.body);
    server.get("/metrics?x=1").await.problem(400, "bad_request");
    server.stop().await;
}
