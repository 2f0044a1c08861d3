//! Cardinality of metrics: the number of series does not depend on callers.

use serde_json::json;

use crate::harness::{LONG_TTL, TestCluster};
use crate::scrape::Scrape;

/// Returns the number of series of a node.
async fn series(cluster: &TestCluster) -> usize {
    Scrape::of(cluster, 1).await.series.len()
}

#[tokio::test]
async fn callers_cannot_add_series() {
    let cluster = TestCluster::start_with("[metrics]\nlock_prefixes = \"orders/, bills/\"\n").await;
    let mut client = cluster.client_of(1);
    let session = cli_support::api_client::RenewedSession::open(&mut client, LONG_TTL, "many")
        .await
        .unwrap();
    let round = async |round: usize| {
        for at in 0..20 {
            let number = round * 1_000 + at;
            let lock = format!("/v1/locks/orders/{number}/acquire");
            let grant = cluster
                .send(1, "POST", &lock, &json!({"session": session.id()}))
                .await;
            assert_eq!(grant.status, 200, "{}", grant.json());
            // Failed requests: a held lock, and unknown addresses, methods, sessions and actions.
            for (method, path, body, status) in [
                (
                    "POST",
                    lock.clone(),
                    json!({"session": session.id(), "reentrant": false}),
                    409,
                ),
                ("POST", format!("/v1/locks/orders/{number}/seize"), json!({}), 405),
                ("GET", format!("/v1/znodes/none/{number}"), json!(null), 404),
                ("GET", format!("/v{number}/nothing"), json!(null), 404),
                ("BREW", format!("/v1/znodes/{number}"), json!(null), 405),
                ("POST", format!("/v1/sessions/{number}/heartbeat"), json!({}), 404),
            ] {
                let answer = cluster.send(1, method, &path, &body).await;
                assert_eq!(answer.status, status, "{method} {path}: {}", answer.json());
            }
        }
        series(&cluster).await
    };
    // The first scrape adds series for itself.
    series(&cluster).await;
    let first = round(0).await;
    for more in 1..4 {
        assert_eq!(round(more).await, first, "in round {more}");
    }
    let seen = Scrape::of(&cluster, 1).await;
    let acquired = "method=\"POST\",route=\"/v1/locks/{name}/acquire\"";
    let acquired = |code: &str, problem: &str| {
        seen.value(&format!(
            "lockgate_http_requests_total{{{acquired},code=\"{code}\",problem=\"{problem}\"}}"
        ))
    };
    assert_eq!((acquired("200", ""), acquired("409", "lock_busy")), (80.0, 80.0));
}
