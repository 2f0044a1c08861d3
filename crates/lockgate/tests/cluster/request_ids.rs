//! Idempotent retries: a request with a `request_id` is applied once, at any node, after any failure.

use lockgate::lock_node::NodeId;
use serde_json::{Value, json};

use crate::harness::{TestCluster, eventually, held};

async fn create(cluster: &TestCluster, node: NodeId, session: &str) -> Value {
    let body = json!({
        "mode": "persistent_sequential", "parents": true, "session": session, "request_id": "create-1"
    });
    let response = cluster.send(node, "POST", "/v1/znodes/jobs/job-", &body).await;
    assert_eq!(response.status, 201, "{}", response.json());
    response.json()["path"].clone()
}

#[tokio::test]
async fn retry_gets_the_first_answer_from_every_node() {
    let mut cluster = TestCluster::start().await;
    let (mut client, session) = cluster.session(1, "repeats").await;
    let acquire = json!({ "session": session.id(), "request_id": "acquire-1" });
    let first = held(
        "once",
        &cluster.send(1, "POST", "/v1/locks/once/acquire", &acquire).await,
    );
    let created = create(&cluster, 1, session.id()).await;
    for node in [2, 3, 1] {
        let again = cluster
            .send(node, "POST", "/v1/locks/once/acquire", &acquire)
            .await;
        assert_eq!(held("once", &again), first);
        assert_eq!(again.json()["holds"], 1, "{}", again.json());
        assert_eq!(create(&cluster, node, session.id()).await, created);
    }

    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    let survivors: Vec<NodeId> = cluster.ids().into_iter().filter(|id| *id != leader).collect();
    // Until there is a leader, the outcome is unavailable.
    eventually("another node leads", async || {
        let again = cluster
            .send(survivors[0], "POST", "/v1/locks/once/acquire", &acquire)
            .await;
        again.status == 200 && held("once", &again) == first
    })
    .await;
    assert_eq!(create(&cluster, survivors[1], session.id()).await, created);
    let jobs = cluster.get(survivors[0], "/v1/znodes/jobs").await;
    assert_eq!(jobs["stat"]["num_children"], 1, "{jobs}");

    let release = json!({ "session": session.id(), "holder": first.holder, "request_id": "release-1" });
    for node in [survivors[0], survivors[1], survivors[0]] {
        let released = cluster
            .send(node, "POST", "/v1/locks/once/release", &release)
            .await;
        assert_eq!(
            (released.status, &released.json()["holds"]),
            (200, &json!(0)),
            "{}",
            released.json()
        );
    }
    assert!(!client.check(&first).await.unwrap());

    let other = json!({ "session": session.id(), "request_id": "acquire-1" });
    let reused = cluster
        .send(survivors[0], "POST", "/v1/locks/another/acquire", &other)
        .await;
    assert_eq!(
        (reused.status, reused.code().as_str()),
        (409, "request_id_reused")
    );
}

#[tokio::test]
async fn waiter_that_retries_at_another_node_is_granted_once() {
    let cluster = TestCluster::start().await;
    let (mut holder, session) = cluster.session(1, "holder").await;
    let holding = holder.acquire(session.id(), "place").await.unwrap();
    let (mut waiter, waiting) = cluster.session(2, "waiter").await;
    let id = waiting.id().to_owned();
    let wishes = json!({ "wait_ms": null, "request_id": "wait-1" });
    let first = {
        let (id, wishes) = (id.clone(), wishes.clone());
        tokio::spawn(async move { waiter.acquire_with(&id, "place", wishes).await })
    };
    cluster.wait_queued(1, "place", 1).await;
    let before = cluster.get(1, "/v1/locks/place").await["queue"][0]["holder"].clone();
    let contender = format!("/v1/znodes/locks/place/{}", before.as_str().unwrap());
    let first_call = cluster.get(1, &contender).await["data"].clone();
    let second = {
        let mut elsewhere = cluster.client(3);
        tokio::spawn(async move { elsewhere.acquire_with(&id, "place", wishes).await })
    };
    eventually("the second call has replaced the first one", async || {
        cluster.get(3, &contender).await["data"] != first_call
    })
    .await;
    // The first caller disconnects: the second one keeps the queue position.
    first.abort();
    let queue = cluster.get(3, "/v1/locks/place").await["queue"].clone();
    assert_eq!(
        (queue.as_array().unwrap().len(), &queue[0]["holder"]),
        (1, &before),
        "{queue}"
    );
    holder.release(session.id(), &holding).await.unwrap();
    let granted = second.await.unwrap().unwrap();
    assert_eq!(json!(granted.holder), before);
    let lock = cluster.get(1, "/v1/locks/place").await;
    assert_eq!(lock["holders"][0]["holds"], 1, "{lock}");
}
