//! Waits in the queue without an open request: `"wait": "queue"`, and the long poll for the grant. By a node with one member.

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{Call, Reply, Server, until};

async fn queue(server: &Server, mut body: Value) -> Reply {
    body["wait"] = json!("queue");
    server.post("/v1/locks/job/acquire", body).await
}

/// Returns the address of the long poll for the grant of a contender.
fn address(contender: &Value, wait_ms: u64) -> String {
    let holder = contender["holder"].as_str().unwrap();
    format!("/v1/locks/job/holders/{holder}?wait_ms={wait_ms}")
}

async fn release(server: &Server, session: &str, grant: &Value) {
    let body = json!({"session": session, "holder": grant["holder"]});
    server.post("/v1/locks/job/release", body).await.expect(200);
}

#[tokio::test]
async fn place_in_the_queue_stays_without_a_request_and_its_grant_is_polled_and_streamed() {
    let server = Server::start().await;
    let (first, second, third) = (
        server.session().await,
        server.session().await,
        server.session().await,
    );
    let held = queue(&server, json!({"session": first})).await.expect(200);
    let mut stream = server.follow(&second, "", None).await;
    stream.expect("state").await;
    let place = queue(&server, json!({"session": second})).await.expect(202);
    assert_eq!((&place["lock"], &place["position"]), (&json!("job"), &json!(1)));
    let last = queue(&server, json!({"session": third})).await.expect(202);
    assert_eq!(last["position"], json!(2));
    server.get(&address(&held, 0)).await.expect(200);
    server.get(&address(&place, 0)).await.expect(204);
    let begun = Instant::now();
    server.get(&address(&place, 50)).await.expect(204);
    assert!(begun.elapsed().as_millis() >= 50);

    // Two polls for one contender, of which one hangs up: neither has an influence on it.
    let path = address(&place, 20_000);
    let poll = Call::send(server.address, "GET", &path, None).await;
    drop(Call::send(server.address, "GET", &path, None).await);
    release(&server, &first, &held).await;
    let grant = poll.reply().await.expect(200);
    assert_eq!(grant["holder"], place["holder"]);
    assert!(grant["fencing_token"].as_u64() > held["fencing_token"].as_u64());
    assert_eq!(stream.expect("granted").await["holder"], place["holder"]);
    server.get(&address(&last, 0)).await.expect(204);
    release(&server, &second, &grant).await;
    server.get(&address(&last, 20_000)).await.expect(200);
    server.get(&address(&place, 0)).await.problem(410, "holder_gone");
    server.stop().await;
}

#[tokio::test]
async fn poll_ends_when_the_contender_is_gone_and_names_the_reason() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    queue(&server, json!({"session": first})).await.expect(200);
    let place = queue(&server, json!({"session": second})).await.expect(202);
    let poll = Call::send(server.address, "GET", &address(&place, 20_000), None).await;
    let body = json!({"holder": place["holder"], "reason": "test"});
    server.post("/v1/locks/job/break", body).await.expect(204);
    let gone = poll.reply().await.problem(410, "holder_gone");
    // The poll may also have begun after the end.
    assert!(
        gone["ended"] == json!("broken") || gone["ended"].is_null(),
        "{gone}"
    );

    let place = queue(&server, json!({"session": second})).await.expect(202);
    server.delete(&format!("/v1/sessions/{second}")).await.expect(204);
    server
        .get(&address(&place, 20_000))
        .await
        .problem(410, "holder_gone");
    let unknown = "/v1/locks/job/holders/unknown?wait_ms=20000";
    server.get(unknown).await.problem(410, "holder_gone");
    server
        .get(&address(&place, 3_600_001))
        .await
        .problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn lease_waits_in_the_queue_as_long_as_it_is_renewed() {
    let server = Server::start().await;
    let held = queue(&server, json!({"ttl_ms": 60_000})).await.expect(200);
    let lease = |answer: &Value| format!("/v1/leases/{}", answer["lease"].as_str().unwrap());
    let lost = queue(&server, json!({"ttl_ms": 300})).await.expect(202);
    let place = queue(&server, json!({"ttl_ms": 60_000})).await.expect(202);
    assert_eq!(place["position"], json!(2));
    assert!((1..=60_000).contains(&place["expires_in_ms"].as_u64().unwrap()));
    until("a lease that is not renewed loses its place", async || {
        server.get(&lease(&lost)).await.status == 410
    })
    .await;
    server
        .get(&address(&lost, 20_000))
        .await
        .problem(410, "holder_gone");
    let renew = format!("{}/renew", lease(&place));
    let renewed = server.post(&renew, json!({})).await.expect(200);
    assert_eq!(
        (&renewed["state"], &renewed["fencing_token"]),
        (&json!("waits"), &Value::Null)
    );
    server.delete(&lease(&held)).await.expect(204);
    let grant = server.get(&address(&place, 20_000)).await.expect(200);
    let renewed = server.post(&renew, json!({})).await.expect(200);
    assert_eq!(renewed["state"], json!("holds"));
    assert_eq!(renewed["fencing_token"], grant["fencing_token"]);

    let left = queue(&server, json!({"ttl_ms": 60_000})).await.expect(202);
    server.delete(&lease(&left)).await.expect(204);
    server.get(&address(&left, 0)).await.problem(410, "holder_gone");
    server.stop().await;
}

#[tokio::test]
async fn repeated_acquire_keeps_the_place() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let held = queue(&server, json!({"session": first})).await.expect(200);
    let body = json!({"session": second, "request_id": "r"});
    let place = queue(&server, body.clone()).await.expect(202);
    let again = queue(&server, body.clone()).await.expect(202);
    assert_eq!(place, again);
    release(&server, &first, &held).await;
    let grant = server.get(&address(&place, 20_000)).await.expect(200);
    let again = queue(&server, body).await.expect(200);
    assert_eq!(grant, again);
    server.stop().await;
}
