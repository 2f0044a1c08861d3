//! Modes of locks and their changes: downgrade, upgrade, semaphores with a changed limit, several locks at once,
//! deadlocks, lock-delay, release requests, draining. Each from the view of a caller; scripts of the store cover the
//! rules themselves.

use serde_json::{Value, json};

use crate::support::{Call, Reply, Server, in_time, until};

async fn post(server: &Server, path: &str, body: Value) -> Reply {
    server.post(path, body).await
}

async fn acquire(server: &Server, lock: &str, body: Value) -> Value {
    let reply = post(server, &format!("/v1/locks/{lock}/acquire"), body).await;
    reply.expect(200)
}

async fn release(server: &Server, lock: &str, session: &str, grant: &Value) {
    let body = json!({"session": session, "holder": grant["holder"]});
    let path = format!("/v1/locks/{lock}/release");
    post(server, &path, body).await.expect(200);
}

/// Begins a call that waits, and returns when the lock has a waiter.
async fn begin(server: &Server, path: &str, lock: &str, body: Value) -> Call {
    let call = Call::send(server.address, "POST", path, Some(&body.to_string())).await;
    until_waiting(server, lock, 1).await;
    call
}

/// Waits until `count` contenders wait: in the queue, or as holders that upgrade.
async fn until_waiting(server: &Server, lock: &str, count: usize) {
    until("they wait", async || {
        let seen = lock_view(server, lock).await;
        let upgrades = seen["holders"].as_array().unwrap().iter();
        let upgrades = upgrades.filter(|holder| holder["upgrading_since_at"].is_string());
        seen["queue"].as_array().unwrap().len() + upgrades.count() == count
    })
    .await;
}

async fn lock_view(server: &Server, lock: &str) -> Value {
    server.get(&format!("/v1/locks/{lock}")).await.expect(200)
}

fn token(grant: &Value) -> u64 {
    grant["fencing_token"].as_u64().unwrap()
}

#[tokio::test]
async fn the_view_of_a_lock_has_a_maximum_number_of_holders() {
    let server = Server::start().await;
    let session = server.session().await;
    for number in 0..=1_000 {
        let body = json!({"session": session, "mode": "shared", "owner": number.to_string()});
        acquire(&server, "a", body).await;
    }
    let seen = lock_view(&server, "a").await;
    assert_eq!(seen["holders"].as_array().unwrap().len(), 1_000);
    let facts = (&seen["complete"], &seen["holding"], &seen["waiting"]);
    assert_eq!(facts, (&json!(false), &json!(1_001), &json!(0)));
    server
        .post("/v1/znodes/locks/a/lock-0000000000", json!({}))
        .await
        .expect(201);
    assert_eq!(
        lock_view(&server, "a").await["blocking_znodes"],
        json!(["lock-0000000000"])
    );
    server.stop().await;
}

#[tokio::test]
async fn a_second_acquire_that_is_not_reentrant_waits_and_times_out() {
    let server = Server::start().await;
    let session = server.session().await;
    let body = |wait_ms: u64| json!({"session": session, "reentrant": false, "wait_ms": wait_ms});
    let grant = acquire(&server, "a", body(0)).await;
    post(&server, "/v1/locks/a/acquire", body(0))
        .await
        .problem(409, "lock_busy");
    post(&server, "/v1/locks/a/acquire", body(40))
        .await
        .problem(409, "lock_timeout");
    release(&server, "a", &session, &grant).await;
    acquire(&server, "a", body(0)).await;
    server.stop().await;
}

#[tokio::test]
async fn downgrade_to_shared_has_no_gap() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let grant = acquire(&server, "book", json!({"session": first})).await;
    let body = json!({"session": second, "mode": "shared", "wait_ms": null});
    let reader = begin(&server, "/v1/locks/book/acquire", "book", body).await;

    let body = json!({"session": first, "holder": grant["holder"], "request_id": "down"});
    let path = "/v1/locks/book/downgrade";
    let now = post(&server, path, body.clone()).await.expect(200);
    assert_eq!((&now["mode"], token(&now)), (&json!("shared"), token(&grant)));
    assert!(token(&reader.reply().await.expect(200)) > token(&grant));
    // The answer was lost, so the request is repeated.
    assert_eq!(post(&server, path, body).await.expect(200), now);
    // The same from a caller without a hold.
    let body = json!({"session": second, "holder": grant["holder"]});
    post(&server, path, body).await.problem(409, "not_holder");
    server.stop().await;
}

#[tokio::test]
async fn upgrade_is_rejected_for_readers_and_waits_for_other_readers() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let reader = acquire(&server, "book", json!({"session": second, "mode": "shared"})).await;
    let upgrade = "/v1/locks/book/upgrade";
    let body = json!({"session": second, "holder": reader["holder"], "wait_ms": null});
    let problem = post(&server, upgrade, body).await.problem(409, "would_deadlock");
    assert_eq!(problem["cycle"][0]["has"], "book");

    let grant = acquire(&server, "book", json!({"session": first, "mode": "upgradeable"})).await;
    let other = json!({"session": second, "mode": "upgradeable", "owner": "x"});
    post(&server, "/v1/locks/book/acquire", other)
        .await
        .problem(409, "lock_busy");
    let body = |wait_ms: Value| json!({"session": first, "holder": grant["holder"], "wait_ms": wait_ms});
    // A try, a wait that times out, a caller that disconnects: it stays upgradeable, and readers are granted.
    post(&server, upgrade, body(json!(0)))
        .await
        .problem(409, "lock_busy");
    post(&server, upgrade, body(json!(40)))
        .await
        .problem(409, "lock_timeout");
    drop(begin(&server, upgrade, "book", body(json!(null))).await);
    until_waiting(&server, "book", 0).await;
    assert_eq!(
        lock_view(&server, "book").await["holders"][1]["mode"],
        "upgradeable"
    );

    let waiting = begin(&server, upgrade, "book", body(json!(null))).await;
    let late = json!({"session": second, "mode": "shared", "owner": "late"});
    post(&server, "/v1/locks/book/acquire", late.clone())
        .await
        .problem(409, "lock_busy");
    release(&server, "book", &second, &reader).await;
    let alone = waiting.reply().await.expect(200);
    assert_eq!(alone["mode"], "exclusive");
    assert!(token(&alone) > token(&grant) && token(&alone) > token(&reader));

    let body = json!({"session": first, "holder": grant["holder"], "mode": "upgradeable"});
    let back = post(&server, "/v1/locks/book/downgrade", body).await.expect(200);
    assert_eq!(
        (&back["mode"], token(&back)),
        (&json!("upgradeable"), token(&alone))
    );
    assert!(token(&acquire(&server, "book", late).await) > token(&alone));
    server.stop().await;
}

#[tokio::test]
async fn semaphore_limit_changes_while_in_use() {
    let server = Server::start().await;
    let session = server.session().await;
    let lease =
        |permits: u32| json!({"session": session, "mode": "semaphore", "limit": 3, "permits": permits});
    let first = acquire(&server, "pool", lease(3)).await;
    let mut body = lease(2);
    body["wait_ms"] = json!(null);
    let waiting = begin(&server, "/v1/locks/pool/acquire", "pool", body).await;
    server
        .patch("/v1/locks/pool", json!({"limit": 5}))
        .await
        .expect(204);
    let second = waiting.reply().await.expect(200);
    assert_eq!(lock_view(&server, "pool").await["limit"], 5);

    // Below the permits in use: no holder loses permits, and none is granted.
    server
        .patch("/v1/locks/pool", json!({"limit": 2}))
        .await
        .expect(204);
    assert_eq!(
        lock_view(&server, "pool").await["holders"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let problem = post(&server, "/v1/locks/pool/acquire", lease(1)).await;
    assert_eq!(problem.problem(409, "mode_conflict")["limit"], 2);
    // Without a limit the request uses the current one.
    let body = |permits: u32| json!({"session": session, "mode": "semaphore", "permits": permits});
    post(&server, "/v1/locks/pool/acquire", body(3))
        .await
        .problem(400, "bad_request");
    post(&server, "/v1/locks/pool/acquire", body(1))
        .await
        .problem(409, "lock_busy");
    release(&server, "pool", &session, &first).await;
    post(&server, "/v1/locks/pool/acquire", body(1))
        .await
        .problem(409, "lock_busy");

    // A waiter for more permits than the new limit is refused.
    let mut more = body(2);
    more["wait_ms"] = json!(null);
    let waiting = begin(&server, "/v1/locks/pool/acquire", "pool", more).await;
    server
        .patch("/v1/locks/pool", json!({"limit": 1}))
        .await
        .expect(204);
    assert_eq!(waiting.reply().await.problem(409, "mode_conflict")["limit"], 1);
    server
        .patch("/v1/locks/pool", json!({"limit": null}))
        .await
        .problem(409, "mode_conflict");
    release(&server, "pool", &session, &second).await;
    server
        .patch("/v1/locks/pool", json!({"limit": null}))
        .await
        .expect(204);
    acquire(&server, "pool", json!({"session": session})).await;
    for body in [json!({"limit": 0}), json!({"limits": 3}), json!({"draining": 1})] {
        server
            .patch("/v1/locks/pool", body)
            .await
            .problem(400, "bad_request");
    }
    server.stop().await;
}

#[tokio::test]
async fn permits_are_granted_in_order_and_released_with_the_session() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let lease = |session: &str, permits: u32, wait_ms: Value| json!({"session": session, "mode": "semaphore", "limit": 5, "permits": permits, "wait_ms": wait_ms});
    acquire(&server, "pool", lease(&first, 3, json!(0))).await;
    let path = "/v1/locks/pool/acquire";
    let all = begin(&server, path, "pool", lease(&second, 5, json!(null))).await;
    // The waiter does not get the two permits that are left, but later contenders do not overtake it.
    assert_eq!(
        lock_view(&server, "pool").await["holders"]
            .as_array()
            .unwrap()
            .len(),
        1
    );
    post(&server, path, lease(&second, 1, json!(0)))
        .await
        .problem(409, "lock_busy");
    server.delete(&format!("/v1/sessions/{first}")).await.expect(204);
    let grant = all.reply().await.expect(200);
    assert_eq!(grant["permits"], 5);
    post(&server, path, lease(&first, 1, json!(0)))
        .await
        .problem(410, "session_expired");
    server.stop().await;
}

#[tokio::test]
async fn several_locks_are_granted_all_or_none() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let locks = json!([
        {"name": "a"},
        {"name": "b", "mode": "shared"},
        {"name": "c", "mode": "semaphore", "limit": 3, "permits": 2},
    ]);
    let path = "/v1/multilock/acquire";
    let body = json!({"session": first, "locks": locks, "owner": "main"});
    let granted = post(&server, path, body).await.expect(200);
    let holders = granted["holders"].as_array().unwrap();
    let seen: Vec<_> = holders
        .iter()
        .map(|grant| (&grant["lock"], &grant["mode"]))
        .collect();
    assert_eq!(
        json!(seen),
        json!([["a", "exclusive"], ["b", "shared"], ["c", "semaphore"]])
    );
    assert!(holders.iter().all(|grant| token(grant) == token(&holders[0])));

    // One of the locks is held: a try, a timeout and a disconnect leave no contenders behind.
    let body = |wait_ms: Value| json!({"session": second, "locks": [{"name": "d"}, {"name": "a"}], "wait_ms": wait_ms});
    let problem = post(&server, path, body(json!(0)))
        .await
        .problem(409, "lock_busy");
    assert_eq!(problem["lock"], "a");
    let problem = post(&server, path, body(json!(40)))
        .await
        .problem(409, "lock_timeout");
    assert_eq!(problem["lock"], "a");
    drop(begin(&server, path, "a", body(json!(null))).await);
    until_waiting(&server, "a", 0).await;
    assert_eq!(lock_view(&server, "d").await["holders"], json!([]));

    let waiting = begin(&server, path, "a", body(json!(null))).await;
    let given = |grant: &Value| json!({"lock": grant["lock"], "holder": grant["holder"]});
    let given: Vec<_> = holders.iter().map(given).collect();
    let body = json!({"session": first, "holders": given});
    let released = post(&server, "/v1/multilock/release", body.clone())
        .await
        .expect(200);
    let holds = released["released"].as_array().unwrap().iter();
    assert!(
        holds
            .map(|released| &released["holds"])
            .eq([0, 0, 0].map(|n| json!(n)).iter())
    );
    assert_eq!(
        waiting.reply().await.expect(200)["holders"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    post(&server, "/v1/multilock/release", body)
        .await
        .problem(409, "not_holder");

    // One of the locks is broken while the call waits: the others are released.
    let body = json!({"session": first, "locks": [{"name": "e"}, {"name": "a"}], "wait_ms": null});
    let waiting = begin(&server, path, "a", body).await;
    let broken = lock_view(&server, "a").await["queue"][0]["holder"].clone();
    let body = json!({"holder": broken, "reason": "maintenance"});
    post(&server, "/v1/locks/a/break", body).await.expect(204);
    let problem = waiting.reply().await.problem(409, "not_holder");
    assert_eq!(problem["reason"], "maintenance");
    assert!(
        problem["by"].as_str().unwrap().starts_with("127.0.0.1"),
        "{problem}"
    );
    assert_eq!(lock_view(&server, "e").await["holders"], json!([]));

    let many: Vec<_> = (0..65).map(|n| json!({"name": format!("l{n}")})).collect();
    for locks in [json!([]), json!(many), json!([{"name": "a"}, {"name": "a"}])] {
        let body = json!({"session": first, "locks": locks});
        post(&server, path, body).await.problem(400, "bad_request");
    }
    server.stop().await;
}

#[tokio::test]
async fn deadlock_error_names_the_cycle() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    acquire(&server, "a", json!({"session": first})).await;
    acquire(&server, "b", json!({"session": second, "owner": "worker"})).await;
    let body = json!({"session": first, "wait_ms": null});
    let waiting = begin(&server, "/v1/locks/b/acquire", "b", body).await;

    let graph = server.get("/v1/lock-graph").await.expect(200);
    assert_eq!(
        (&graph["complete"], &graph["waits"][0]["lock"]),
        (&json!(true), &json!("b"))
    );
    assert_eq!(graph["waits"][0]["waiter"]["session"], json!(first));
    let other = &graph["waits"][0]["waits_for"][0];
    assert_eq!(
        (&other["owner"], &other["standing"]),
        (&json!("worker"), &json!("holds"))
    );
    let none = server.get("/v1/lock-graph?prefix=x").await.expect(200);
    assert_eq!(none["waits"], json!([]));

    let body = json!({"session": second, "owner": "worker", "wait_ms": null});
    let problem = post(&server, "/v1/locks/a/acquire", body)
        .await
        .problem(409, "would_deadlock");
    let cycle = json!([
        {"session": second, "owner": "worker", "has": "b", "awaits": "a"},
        {"session": first, "owner": "", "has": "a", "awaits": "b"},
    ]);
    assert_eq!(problem["cycle"], cycle);
    // Another thread of the same session waits without a deadlock.
    let body = json!({"session": second, "owner": "other", "wait_ms": 40});
    post(&server, "/v1/locks/a/acquire", body)
        .await
        .problem(409, "lock_timeout");
    drop(waiting);
    server.stop().await;
}

#[tokio::test]
async fn lock_delay_follows_the_expiry_of_a_holder() {
    let server = Server::start().await;
    let opened = post(&server, "/v1/sessions", json!({"ttl_ms": 1_000}))
        .await
        .expect(201);
    let (dies, lives) = (opened["session"].clone(), server.session().await);
    // The session's time to live begins no earlier than this.
    let begun = std::time::Instant::now();
    acquire(&server, "disk", json!({"session": dies, "lock_delay_ms": 1_500})).await;
    let body = json!({"session": lives, "wait_ms": null});
    let waiting = begin(&server, "/v1/locks/disk/acquire", "disk", body).await;
    until("the lock is closed", async || {
        lock_view(&server, "disk").await["closed"]["delay_ms"] == 1_500
    })
    .await;
    let seen = lock_view(&server, "disk").await;
    assert_eq!(
        (&seen["holders"], seen["queue"].as_array().unwrap().len()),
        (&json!([]), 1)
    );
    post(
        &server,
        "/v1/locks/disk/acquire",
        json!({"session": lives, "owner": "x"}),
    )
    .await
    .problem(409, "lock_busy");
    let grant = in_time("the lock is opened", waiting.reply()).await.expect(200);
    assert!(
        begun.elapsed() >= std::time::Duration::from_millis(2_500),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(lock_view(&server, "disk").await["closed"], json!(null));
    release(&server, "disk", &lives, &grant).await;

    let long = json!({"session": lives, "lock_delay_ms": 60_001});
    post(&server, "/v1/locks/disk/acquire", long)
        .await
        .problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn holder_receives_and_answers_a_release_request() {
    let server = Server::start().await;
    let session = server.session().await;
    let grant = acquire(&server, "job", json!({"session": session})).await;
    let heartbeat = format!("/v1/sessions/{session}/heartbeat");
    let (request, reply) = (
        "/v1/locks/job/release-request",
        "/v1/locks/job/release-request/reply",
    );
    let beat = post(&server, &heartbeat, json!({})).await.expect(200);
    assert_eq!(beat.get("release_requested"), None);
    let asked = post(&server, request, json!({"reason": "backup"}))
        .await
        .expect(200);
    assert_eq!(asked, json!({"asked": 1}));
    let beat = post(&server, &heartbeat, json!({})).await.expect(200);
    let told = &beat["release_requested"][0];
    assert_eq!(
        (&told["lock"], &told["holder"], &told["reason"]),
        (&json!("job"), &grant["holder"], &json!("backup"))
    );
    assert!(told["requested_at"].as_str().unwrap().ends_with('Z'));

    let body = json!({"session": session, "holder": grant["holder"], "answer": "in a minute"});
    post(&server, reply, body).await.expect(204);
    let seen = lock_view(&server, "job").await;
    let seen = &seen["holders"][0]["release_requested"];
    assert_eq!(
        (&seen["reason"], &seen["answer"]),
        (&json!("backup"), &json!("in a minute"))
    );
    let beat = post(&server, &heartbeat, json!({})).await.expect(200);
    assert_eq!(beat.get("release_requested"), None);

    for (path, body) in [
        (request, json!({})),
        (request, json!({"reason": "x", "answer": "y"})),
        (request, json!({"reason": "x", "session": session})),
        (reply, json!({"answer": "x"})),
        (reply, json!({"session": session, "holder": grant["holder"]})),
    ] {
        post(&server, path, body).await.problem(400, "bad_request");
    }
    let body = json!({"reason": "x", "holder": "nobody"});
    post(&server, request, body).await.problem(409, "not_holder");
    post(&server, "/v1/locks/none/release-request", json!({"reason": "x"}))
        .await
        .problem(404, "no_lock");
    server.stop().await;
}

#[tokio::test]
async fn drained_lock_grants_nothing_until_the_drain_ends() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let grant = acquire(&server, "job", json!({"session": first})).await;
    let body = json!({"session": second, "wait_ms": null});
    let waiting = begin(&server, "/v1/locks/job/acquire", "job", body).await;
    server
        .patch("/v1/locks/job", json!({"draining": true}))
        .await
        .expect(204);
    let body = json!({"session": second, "owner": "x", "wait_ms": null});
    post(&server, "/v1/locks/job/acquire", body)
        .await
        .problem(409, "draining");
    // The holder re-enters and releases.
    assert_eq!(
        acquire(&server, "job", json!({"session": first})).await["holds"],
        2
    );
    release(&server, "job", &first, &grant).await;
    release(&server, "job", &first, &grant).await;
    let seen = lock_view(&server, "job").await;
    assert_eq!(
        (
            &seen["draining"],
            &seen["holders"],
            seen["queue"].as_array().unwrap().len()
        ),
        (&json!(true), &json!([]), 1)
    );
    server
        .patch("/v1/locks/job", json!({"draining": false}))
        .await
        .expect(204);
    waiting.reply().await.expect(200);
    let reply = server.patch("/v1/locks/job/acquire", json!({})).await;
    reply.problem(405, "method_not_allowed");
    server.stop().await;
}
