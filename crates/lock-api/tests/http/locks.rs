//! Locks: every mode, every error, hang-ups, repeated requests.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{Call, Reply, Server, until};

async fn acquire(server: &Server, lock: &str, body: Value) -> Reply {
    server.post(&format!("/v1/locks/{lock}/acquire"), body).await
}

/// Begins a call that waits for a lock, and returns when the queue shows it.
async fn queue(server: &Server, lock: &str, body: Value, position: usize) -> Call {
    let path = format!("/v1/locks/{lock}/acquire");
    let call = Call::send(server.address, "POST", &path, Some(&body.to_string())).await;
    until_queued(server, lock, position).await;
    call
}

async fn until_queued(server: &Server, lock: &str, count: usize) {
    let path = format!("/v1/locks/{lock}");
    until("the queue has its length", async || {
        server.get(&path).await.expect(200)["queue"]
            .as_array()
            .unwrap()
            .len()
            == count
    })
    .await;
}

#[tokio::test]
async fn exclusive_lock_is_acquired_shown_and_released() {
    let server = Server::start().await;
    let session = server.session().await;
    let body = json!({"session": session, "note": "import", "owner": "task-1"});
    let grant = acquire(&server, "orders/42", body).await.expect(200);
    assert_eq!(
        (&grant["lock"], &grant["mode"]),
        (&json!("orders/42"), &json!("exclusive"))
    );
    assert_eq!((&grant["holds"], &grant["permits"]), (&json!(1), &json!(1)));
    let token = grant["fencing_token"].as_u64().unwrap();

    let seen = server.get("/v1/locks/orders/42").await.expect(200);
    assert_eq!(
        (&seen["lock"], &seen["mode"]),
        (&json!("orders/42"), &json!("exclusive"))
    );
    assert_eq!((&seen["limit"], &seen["queue"]), (&json!(null), &json!([])));
    let holder = &seen["holders"][0];
    for (field, value) in [
        ("holder", &grant["holder"]),
        ("session", &json!(session)),
        ("owner", &json!("task-1")),
        ("note", &json!("import")),
        ("mode", &json!("exclusive")),
        ("permits", &json!(1)),
        ("fencing_token", &json!(token)),
    ] {
        assert_eq!(&holder[field], value, "{field}");
    }
    assert!(holder["since_at"].as_str().unwrap().ends_with('Z'), "{holder}");
    assert!(
        holder["address"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{holder}"
    );
    assert_eq!(
        server.get("/v1/znodes/locks/orders/42").await.expect(200)["stat"]["num_children"],
        1
    );

    let check = |token: u64| format!("/v1/locks/orders/42/check?fencing_token={token}");
    assert_eq!(server.get(&check(token)).await.expect(200), json!({"held": true}));
    assert_eq!(
        server.get(&check(token + 1)).await.expect(200),
        json!({"held": false})
    );
    server
        .get("/v1/locks/orders/42/check")
        .await
        .problem(400, "bad_request");
    server
        .get("/v1/locks/orders/42/check?fencing_token=x")
        .await
        .problem(400, "bad_request");

    let release = json!({"session": session, "holder": grant["holder"]});
    let released = server
        .post("/v1/locks/orders/42/release", release.clone())
        .await
        .expect(200);
    assert_eq!(released, json!({"holds": 0}));
    assert_eq!(
        server.get(&check(token)).await.expect(200),
        json!({"held": false})
    );
    let problem = server
        .post("/v1/locks/orders/42/release", release)
        .await
        .problem(409, "not_holder");
    assert_eq!(problem["holder"], grant["holder"]);

    let next = acquire(&server, "orders/42", json!({"session": session}))
        .await
        .expect(200);
    assert!(next["fencing_token"].as_u64().unwrap() > token);
    server.stop().await;
}

#[tokio::test]
async fn failed_try_leaves_no_contender_and_a_wait_times_out() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let grant = acquire(&server, "a", json!({"session": first})).await.expect(200);

    for body in [
        json!({"session": second}),
        json!({"session": second, "wait_ms": 0}),
    ] {
        let problem = acquire(&server, "a", body).await.problem(409, "lock_busy");
        assert_eq!(
            (&problem["lock"], &problem["holders"]),
            (&json!("a"), &json!([grant["holder"]]))
        );
    }
    assert_eq!(server.get("/v1/locks/a").await.expect(200)["queue"], json!([]));

    let problem = acquire(&server, "a", json!({"session": second, "wait_ms": 50})).await;
    assert_eq!(problem.problem(409, "lock_timeout")["lock"], "a");
    let seen = server.get("/v1/locks/a").await.expect(200);
    assert_eq!(
        (seen["holders"].as_array().unwrap().len(), &seen["queue"]),
        (1, &json!([]))
    );
    server.stop().await;
}

#[tokio::test]
async fn waiters_are_granted_in_order_of_arrival() {
    let server = Server::start().await;
    let mut waiting = Vec::new();
    let first = server.session().await;
    let mut grant = acquire(&server, "a", json!({"session": first})).await.expect(200);
    let mut owner = first;
    for position in 1..=3 {
        let session = server.session().await;
        let body =
            json!({"session": session, "wait_ms": if position == 2 { json!(60_000) } else { json!(null) }});
        waiting.push((queue(&server, "a", body, position).await, session));
    }
    let seen = server.get("/v1/locks/a").await.expect(200);
    let positions: Vec<_> = seen["queue"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["position"])
        .collect();
    assert_eq!(positions, [1, 2, 3]);
    for (call, session) in waiting {
        let release = json!({"session": owner, "holder": grant["holder"]});
        server.post("/v1/locks/a/release", release).await.expect(200);
        let next = call.reply().await.expect(200);
        assert!(next["fencing_token"].as_u64() > grant["fencing_token"].as_u64());
        let holders = server.get("/v1/locks/a").await.expect(200)["holders"].clone();
        assert_eq!(
            (&holders[0]["session"], holders.as_array().unwrap().len()),
            (&json!(session), 1)
        );
        (grant, owner) = (next, session);
    }
    server.stop().await;
}

#[tokio::test]
async fn a_waiter_whose_caller_hangs_up_leaves_the_queue() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    let grant = acquire(&server, "a", json!({"session": first})).await.expect(200);
    let body = json!({"session": second, "wait_ms": null});

    let call = queue(&server, "a", body.clone(), 1).await;
    drop(call);
    until_queued(&server, "a", 0).await;

    let mut call = queue(&server, "a", body.clone(), 1).await;
    call.stream.shutdown().await.unwrap();
    until_queued(&server, "a", 0).await;

    // Bytes that the client sent after its request make no difference.
    for behind in ["\r\n\r\n", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"] {
        let mut call = queue(&server, "a", body.clone(), 1).await;
        call.stream.write_all(behind.as_bytes()).await.unwrap();
        drop(call);
        until_queued(&server, "a", 0).await;
    }

    // The session lives on, and its calls are cleaned up: the next call gets the lock.
    let release = json!({"session": first, "holder": grant["holder"]});
    server.post("/v1/locks/a/release", release).await.expect(200);
    assert_eq!(acquire(&server, "a", body).await.expect(200)["holds"], 1);
    server.stop().await;
}

#[tokio::test]
async fn disconnected_waiter_finds_its_contender_by_request_id() {
    let server = Server::start().await;
    let (holder, first, second) = (
        server.session().await,
        server.session().await,
        server.session().await,
    );
    let grant = acquire(&server, "a", json!({"session": holder}))
        .await
        .expect(200);
    let body = |retry: u16| json!({"session": first, "wait_ms": null, "request_id": "w", "retry": retry});
    let cut = queue(&server, "a", body(0), 1).await;
    let other = queue(&server, "a", json!({"session": second, "wait_ms": null}), 2).await;
    drop(cut);
    let again = queue(&server, "a", body(1), 2).await;
    let release = json!({"session": holder, "holder": grant["holder"]});
    server.post("/v1/locks/a/release", release).await.expect(200);
    let grant = again.reply().await.expect(200);
    assert_eq!(grant["holds"], 1);
    until_queued(&server, "a", 1).await;
    let release = json!({"session": first, "holder": grant["holder"]});
    server.post("/v1/locks/a/release", release).await.expect(200);
    other.reply().await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn readers_share_and_do_not_overtake_a_waiting_writer() {
    let server = Server::start().await;
    let (one, two, three) = (
        server.session().await,
        server.session().await,
        server.session().await,
    );
    let shared = |session: &String| json!({"session": session, "mode": "shared"});
    let a = acquire(&server, "a", shared(&one)).await.expect(200);
    let b = acquire(&server, "a", shared(&two)).await.expect(200);
    assert_eq!((&a["mode"], &b["mode"]), (&json!("shared"), &json!("shared")));
    let writer = queue(&server, "a", json!({"session": three, "wait_ms": null}), 1).await;
    let late = server.session().await;
    acquire(&server, "a", shared(&late))
        .await
        .problem(409, "lock_busy");
    for (session, grant) in [(&one, &a), (&two, &b)] {
        let release = json!({"session": session, "holder": grant["holder"]});
        server.post("/v1/locks/a/release", release).await.expect(200);
    }
    assert_eq!(writer.reply().await.expect(200)["mode"], "exclusive");
    server.stop().await;
}

#[tokio::test]
async fn permits_are_counted_and_modes_do_not_mix() {
    let server = Server::start().await;
    let session = server.session().await;
    let permits =
        |permits: u32| json!({"session": session, "mode": "semaphore", "limit": 3, "permits": permits});
    let two = acquire(&server, "s", permits(2)).await.expect(200);
    assert_eq!((&two["mode"], &two["permits"]), (&json!("semaphore"), &json!(2)));
    acquire(&server, "s", permits(2)).await.problem(409, "lock_busy");
    let one = acquire(&server, "s", permits(1)).await.expect(200);
    assert_ne!(one["holder"], two["holder"], "a semaphore is never re-entered");
    let seen = server.get("/v1/locks/s").await.expect(200);
    assert_eq!((&seen["mode"], &seen["limit"]), (&json!("semaphore"), &json!(3)));

    let problem = acquire(&server, "s", json!({"session": session}))
        .await
        .problem(409, "mode_conflict");
    assert_eq!(
        (&problem["mode"], &problem["limit"]),
        (&json!("semaphore"), &json!(3))
    );
    let other = json!({"session": session, "mode": "semaphore", "limit": 4});
    acquire(&server, "s", other).await.problem(409, "mode_conflict");

    let release = json!({"session": session, "holder": two["holder"]});
    server.post("/v1/locks/s/release", release).await.expect(200);
    acquire(&server, "s", permits(2)).await.expect(200);
    server.stop().await;
}

#[tokio::test]
async fn owner_re_enters_and_releases_each_hold() {
    let server = Server::start().await;
    let session = server.session().await;
    let body = json!({"session": session, "owner": "t1"});
    let first = acquire(&server, "a", body.clone()).await.expect(200);
    let again = acquire(&server, "a", body).await.expect(200);
    assert_eq!((&again["holder"], &again["holds"]), (&first["holder"], &json!(2)));
    assert_eq!(again["fencing_token"], first["fencing_token"]);
    acquire(&server, "a", json!({"session": session, "owner": "t2"}))
        .await
        .problem(409, "lock_busy");
    let rigid = json!({"session": session, "owner": "t1", "reentrant": false});
    acquire(&server, "a", rigid).await.problem(409, "lock_busy");
    let release = json!({"session": session, "holder": first["holder"]});
    for holds in [1, 0] {
        let released = server
            .post("/v1/locks/a/release", release.clone())
            .await
            .expect(200);
        assert_eq!(released, json!({"holds": holds}));
    }

    let shared = json!({"session": session, "mode": "shared"});
    acquire(&server, "b", shared).await.expect(200);
    let exclusive = json!({"session": session, "wait_ms": null});
    acquire(&server, "b", exclusive)
        .await
        .problem(409, "would_deadlock");
    server.stop().await;
}

#[tokio::test]
async fn repeated_request_is_applied_once_with_the_same_answer() {
    let server = Server::start().await;
    let session = server.session().await;
    let body = json!({"session": session, "request_id": "r1"});
    let first = acquire(&server, "a", body.clone()).await.expect(200);
    assert_eq!(acquire(&server, "a", body.clone()).await.expect(200), first);
    acquire(&server, "b", body.clone())
        .await
        .problem(409, "request_id_reused");

    let release = json!({"session": session, "holder": first["holder"], "request_id": "r2"});
    for _ in 0..2 {
        let released = server
            .post("/v1/locks/a/release", release.clone())
            .await
            .expect(200);
        assert_eq!(released, json!({"holds": 0}));
    }
    // Once released, a late copy of the acquire does not take the lock again.
    assert_eq!(acquire(&server, "a", body).await.expect(200), first);
    assert_eq!(server.get("/v1/locks/a").await.expect(200)["holders"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn repeated_request_may_have_another_maximum_wait() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    acquire(&server, "a", json!({"session": first})).await.expect(200);
    let body = |wait: Value| json!({"session": second, "request_id": "r", "wait_ms": wait});
    let call = queue(&server, "a", body(Value::Null), 1).await;
    let again = queue(&server, "a", body(json!(60_000)), 1).await;
    acquire(&server, "a", body(json!(0)))
        .await
        .problem(409, "lock_timeout");
    for ended in [call, again] {
        ended.reply().await.problem(409, "lock_timeout");
    }
    until_queued(&server, "a", 0).await;
    server.stop().await;
}

#[tokio::test]
async fn holder_releases_and_administrator_breaks() {
    let server = Server::start().await;
    let (holder, other) = (server.session().await, server.session().await);
    let grant = acquire(&server, "a", json!({"session": holder}))
        .await
        .expect(200);
    for body in [
        json!({"session": other, "holder": grant["holder"]}),
        json!({"session": holder, "holder": "somebody"}),
        json!({"session": holder, "holder": ""}),
        json!({"session": holder, "holder": "../a"}),
    ] {
        server
            .post("/v1/locks/a/release", body)
            .await
            .problem(409, "not_holder");
    }
    let body = json!({"session": holder, "holder": grant["holder"]});
    let elsewhere = server.post("/v1/locks/b/release", body).await;
    assert!(matches!(elsewhere.status, 404 | 409), "{elsewhere:?}");
    server
        .post("/v1/locks/a/release", json!({"session": holder}))
        .await
        .problem(400, "bad_request");

    let waiter = queue(&server, "a", json!({"session": other, "wait_ms": null}), 1).await;
    let orders = json!({"holder": grant["holder"], "reason": "stuck since Monday"});
    server.post("/v1/locks/a/break", orders.clone()).await.expect(204);
    waiter.reply().await.expect(200);
    server
        .post("/v1/locks/a/break", orders)
        .await
        .problem(409, "not_holder");
    server
        .post("/v1/locks/a/break", json!({"holder": "x"}))
        .await
        .problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn lock_names_are_validated_and_may_contain_slashes() {
    let server = Server::start().await;
    let session = server.session().await;
    for name in [
        "a//b",
        "a/",
        "../a",
        "a/%2E%2E",
        "%00",
        "a%",
        "%ff",
        "%F0%9F",
        &"x".repeat(513),
    ] {
        acquire(&server, name, json!({"session": session}))
            .await
            .problem(400, "bad_lock_name");
        server
            .get(&format!("/v1/locks/{name}"))
            .await
            .problem(400, "bad_lock_name");
    }
    server.get("/v1/locks/").await.problem(400, "bad_lock_name");
    for (address, name) in [
        ("acquire", "acquire"),
        ("jobs%2Facquire", "jobs/acquire"),
        ("jobs%2Fcheck", "jobs/check"),
        ("caf%C3%A9%20%231", "café #1"),
        ("100%25", "100%"),
    ] {
        let grant = acquire(&server, address, json!({"session": session}))
            .await
            .expect(200);
        assert_eq!(grant["lock"], name);
        let seen = server.get(&format!("/v1/locks/{address}")).await.expect(200);
        assert_eq!(seen["lock"], name);
    }
    server.stop().await;
}

#[tokio::test]
async fn acquire_without_a_live_session_reports_the_reason() {
    let server = Server::start().await;
    let ended = server.session().await;
    server.delete(&format!("/v1/sessions/{ended}")).await.expect(204);
    for verb in ["acquire", "release"] {
        let path = format!("/v1/locks/a/{verb}");
        let body = |session: &str| match verb {
            "acquire" => json!({"session": session}),
            _ => json!({"session": session, "holder": "h"}),
        };
        server
            .post(&path, body(&ended))
            .await
            .problem(410, "session_expired");
        server
            .post(&path, body("00000000deadbeef"))
            .await
            .problem(404, "no_session");
        server
            .post(&path, body("nonsense"))
            .await
            .problem(404, "no_session");
        server
            .post(&path, json!({"holder": "h"}))
            .await
            .problem(400, "bad_request");
    }
    server.get("/v1/locks/a").await.problem(404, "no_lock");
    server.stop().await;
}

#[tokio::test]
async fn locks_are_listed_page_by_page() {
    let server = Server::start().await;
    let session = server.session().await;
    for name in ["jobs/b", "jobs/a", "other", "jobs/c"] {
        acquire(&server, name, json!({"session": session}))
            .await
            .expect(200);
    }
    let names = |page: &Value| -> Vec<String> {
        let locks = page["locks"].as_array().unwrap().iter();
        locks
            .map(|lock| lock["lock"].as_str().unwrap().to_owned())
            .collect()
    };
    let page = server.get("/v1/locks?prefix=jobs/&limit=2").await.expect(200);
    assert_eq!(names(&page), ["jobs/a", "jobs/b"]);
    assert_eq!(page["next_cursor"], "jobs/b");
    let entry = json!({"lock": "jobs/a", "mode": "exclusive", "holders": 1, "waiters": 0});
    assert_eq!(page["locks"][0], entry);
    let page = server
        .get("/v1/locks?prefix=jobs/&limit=2&cursor=jobs/b")
        .await
        .expect(200);
    assert_eq!(
        (names(&page), &page["next_cursor"]),
        (vec!["jobs/c".to_owned()], &json!(null))
    );
    server.get("/v1/locks?limit=0").await.problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn stopping_node_answers_waiting_calls() {
    let server = Server::start().await;
    let (first, second) = (server.session().await, server.session().await);
    acquire(&server, "a", json!({"session": first})).await.expect(200);
    let call = queue(&server, "a", json!({"session": second, "wait_ms": null}), 1).await;
    let ((), reply) = tokio::join!(server.stop(), call.reply());
    match reply.json()["code"].as_str().unwrap() {
        "outcome_unknown" => drop(reply.problem(504, "outcome_unknown")),
        code => {
            assert_eq!(code, "unavailable");
            reply.problem(503, code);
            assert_eq!(reply.header("retry-after"), Some("1"));
        }
    }
}
