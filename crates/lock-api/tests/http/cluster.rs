//! What those see who look after the cluster.

use serde_json::json;

use crate::support::Server;

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
