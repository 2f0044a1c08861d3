//! Waits other than in one queue survive a leader change too: an upgrade, and an acquire of several locks.

use std::time::Duration;

use cli_support::api_client::{ApiClient, request_id};
use serde_json::{Value, json};

use crate::harness::{TIMEOUT, TestCluster, eventually};

async fn post(client: &mut ApiClient, path: &str, mut body: Value) -> Value {
    body["request_id"] = request_id().into();
    let response = client.call("POST", path, &body, TIMEOUT).await;
    response
        .unwrap_or_else(|error| panic!("{path} {body}: {error}"))
        .json()
}

#[tokio::test]
async fn waiting_upgrade_and_multilock_survive_the_leader() {
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let survivors = cluster.followers().await;
    let (mut one, first) = cluster.session(survivors[0], "one").await;
    let (mut two, second) = cluster.session(survivors[1], "two").await;
    let wish = |session: &str, mode: &str| json!({ "session": session, "mode": mode });
    let book = post(
        &mut one,
        "/v1/locks/book/acquire",
        wish(first.id(), "upgradeable"),
    )
    .await;
    let reader = post(&mut two, "/v1/locks/book/acquire", wish(second.id(), "shared")).await;
    let held = post(&mut two, "/v1/locks/a/acquire", wish(second.id(), "exclusive")).await;

    let body = json!({ "session": first.id(), "holder": book["holder"], "wait_ms": null });
    // The upgrade waits at the leader itself, the acquire at another node.
    let mut waiter = cluster.client(leader);
    let upgrade = tokio::spawn(async move { post(&mut waiter, "/v1/locks/book/upgrade", body).await });
    let locks = json!([{ "name": "b" }, { "name": "a", "mode": "shared" }]);
    let body = json!({ "session": first.id(), "owner": "both", "locks": locks, "wait_ms": null });
    let both = tokio::spawn(async move { post(&mut one, "/v1/multilock/acquire", body).await });
    eventually("both wait", async || {
        let graph = cluster.get(survivors[1], "/v1/lock-graph").await;
        graph["waits"].as_array().is_some_and(|waits| waits.len() == 2)
    })
    .await;

    cluster.kill(leader).await.unwrap();
    let body = json!({ "session": second.id(), "holders": [
        { "lock": "book", "holder": reader["holder"] },
        { "lock": "a", "holder": held["holder"] },
    ] });
    let released = post(&mut two, "/v1/multilock/release", body).await;
    assert_eq!(released["released"].as_array().unwrap().len(), 2, "{released}");

    let in_time = |waits| tokio::time::timeout(TIMEOUT + Duration::from_secs(5), waits);
    let alone = in_time(upgrade).await.unwrap().unwrap();
    assert_eq!(alone["mode"], "exclusive");
    let token = |grant: &Value| grant["fencing_token"].as_u64().unwrap();
    assert!(token(&alone) > token(&reader).max(token(&book)), "{alone}");
    let both = in_time(both).await.unwrap().unwrap();
    let (b, a) = (&both["holders"][0], &both["holders"][1]);
    assert!(token(b) == token(a) && token(a) > token(&held), "{both}");
    // Both survivors have the same state, without waiters.
    for node in survivors {
        let graph = cluster.get(node, "/v1/lock-graph").await;
        assert_eq!(graph["waits"], json!([]));
        for (lock, grant) in [("book", &alone), ("a", a), ("b", b)] {
            let view = cluster.get(node, &format!("/v1/locks/{lock}")).await;
            let holders = view["holders"].as_array().unwrap();
            assert_eq!(holders.len(), 1, "{view}");
            for field in ["holder", "mode", "fencing_token"] {
                assert_eq!(holders[0][field], grant[field], "{view}");
            }
        }
    }
}
