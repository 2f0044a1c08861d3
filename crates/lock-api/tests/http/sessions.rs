//! Sessions: open, heartbeat, close, expiry, get, list.

use serde_json::json;

use crate::support::{Server, until};

#[tokio::test]
async fn session_is_opened_renewed_and_closed() {
    let server = Server::start().await;
    let opened = server
        .post("/v1/sessions", json!({"ttl_ms": 10_000, "name": "worker-7"}))
        .await
        .expect(201);
    assert_eq!(opened["ttl_ms"], 10_000);
    let path = format!("/v1/sessions/{}", opened["session"].as_str().unwrap());

    let renewed = server
        .call("POST", &format!("{path}/heartbeat"), None)
        .await
        .expect(200);
    assert_eq!(renewed, json!({"ttl_ms": 10_000}));
    let told = server
        .call("POST", &format!("{path}/heartbeat?leader=true"), None)
        .await
        .expect(200);
    assert_eq!(told, json!({"ttl_ms": 10_000, "leads": true}), "it is alone");
    let unknown = server
        .call("POST", &format!("{path}/heartbeat?leads=true"), None)
        .await;
    unknown.problem(400, "bad_request");

    let seen = server.get(&path).await.expect(200);
    assert_eq!(
        (&seen["name"], &seen["ttl_ms"]),
        (&json!("worker-7"), &json!(10_000))
    );
    assert!(
        seen["address"].as_str().unwrap().starts_with("127.0.0.1:"),
        "{seen}"
    );
    assert!(
        seen["age_ms"].is_u64() && seen["opened_at"].as_str().unwrap().ends_with('Z'),
        "{seen}"
    );
    assert!(
        seen["last_heartbeat_at"].as_str().unwrap().ends_with('Z'),
        "this node leads: {seen}"
    );
    assert_eq!(
        (&seen["held"], &seen["awaited"], &seen["ephemerals"]),
        (&json!([]), &json!([]), &json!(0))
    );

    assert_eq!(server.delete(&path).await.expect(204), json!(null));
    for reply in [
        server.get(&path).await,
        server.delete(&path).await,
        server.post(&format!("{path}/heartbeat"), json!({})).await,
    ] {
        let problem = reply.problem(410, "session_expired");
        assert_eq!(problem["session"], opened["session"]);
    }
    server.stop().await;
}

#[tokio::test]
async fn unknown_sessions_are_reported() {
    let server = Server::start().await;
    for id in [
        "00000000deadbeef",
        "x",
        "-1",
        "%zz",
        "%ff",
        "ffffffffffffffff",
        &"9".repeat(3000),
    ] {
        let path = format!("/v1/sessions/{id}");
        server.get(&path).await.problem(404, "no_session");
        server.delete(&path).await.problem(404, "no_session");
        server
            .post(&format!("{path}/heartbeat"), json!({}))
            .await
            .problem(404, "no_session");
    }
    server.stop().await;
}

#[tokio::test]
async fn time_to_live_is_clamped_to_the_servers_bounds() {
    let server = Server::start().await;
    for (body, ttl) in [
        ("", 10_000),
        ("{}", 10_000),
        (r#"{"ttl_ms": null}"#, 10_000),
        (r#"{"ttl_ms": 0}"#, 300),
        (r#"{"ttl_ms": 18446744073709551615}"#, 300_000),
    ] {
        let opened = server.call("POST", "/v1/sessions", Some(body)).await.expect(201);
        assert_eq!(opened["ttl_ms"], ttl, "{body}");
    }
    let long = json!({"name": "x".repeat(257)});
    server
        .post("/v1/sessions", long)
        .await
        .problem(400, "bad_request");
    server.stop().await;
}

#[tokio::test]
async fn a_session_without_heartbeats_expires_and_its_lock_passes_on() {
    let server = Server::start().await;
    let brief = server
        .post("/v1/sessions", json!({"ttl_ms": 300}))
        .await
        .expect(201);
    let brief = brief["session"].as_str().unwrap();
    let steady = server.session().await;
    server
        .post("/v1/locks/a/acquire", json!({"session": brief}))
        .await
        .expect(200);
    server
        .post("/v1/locks/a/acquire", json!({"session": steady, "wait_ms": null}))
        .await
        .expect(200);

    let path = format!("/v1/sessions/{brief}");
    server.get(&path).await.problem(410, "session_expired");
    let late = json!({"session": brief, "wait_ms": 0});
    server
        .post("/v1/locks/b/acquire", late)
        .await
        .problem(410, "session_expired");
    server.get("/v1/locks/b").await.problem(404, "no_lock");
    server.stop().await;
}

#[tokio::test]
async fn a_repeated_request_opens_and_closes_one_session() {
    let server = Server::start().await;
    let body = json!({"name": "twice", "request_id": "open-1"});
    let first = server.post("/v1/sessions", body.clone()).await.expect(201);
    let again = server.post("/v1/sessions", body).await.expect(201);
    assert_eq!(first, again);
    let other = json!({"name": "another", "request_id": "open-1"});
    server
        .post("/v1/sessions", other)
        .await
        .problem(409, "request_id_reused");

    let path = format!(
        "/v1/sessions/{}?request_id=close-1",
        first["session"].as_str().unwrap()
    );
    server.delete(&path).await.expect(204);
    server.delete(&path).await.expect(204);
    server.stop().await;
}

#[tokio::test]
async fn list_shows_held_and_awaited_locks_in_pages() {
    let server = Server::start().await;
    let mut sessions = [
        server.session().await,
        server.session().await,
        server.session().await,
    ];
    let held = server
        .post("/v1/locks/a/acquire", json!({"session": sessions[0]}))
        .await
        .expect(200);
    let waiting = json!({"session": sessions[1], "wait_ms": null}).to_string();
    let call =
        crate::support::Call::send(server.address, "POST", "/v1/locks/a/acquire", Some(&waiting)).await;
    let path = format!("/v1/sessions/{}?linearizable=true", sessions[1]);
    until("the second waits", async || {
        server.get(&path).await.expect(200)["awaited"]
            .as_array()
            .unwrap()
            .len()
            == 1
    })
    .await;
    let holder = server
        .get(&format!("/v1/sessions/{}", sessions[0]))
        .await
        .expect(200);
    assert_eq!(holder["held"], json!([{"lock": "a", "holder": held["holder"]}]));
    assert_eq!(holder["ephemerals"], 1);
    drop(call);

    sessions.sort();
    let ids = |page: &serde_json::Value| -> Vec<String> {
        let sessions = page["sessions"].as_array().unwrap().iter();
        sessions
            .map(|session| session["session"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids(&server.get("/v1/sessions").await.expect(200)), sessions);
    let page = server.get("/v1/sessions?limit=2").await.expect(200);
    assert_eq!(
        (ids(&page), &page["next_cursor"]),
        (sessions[..2].to_vec(), &json!(sessions[1]))
    );
    let page = server
        .get(&format!("/v1/sessions?limit=2&cursor={}", sessions[1]))
        .await
        .expect(200);
    assert_eq!(
        (ids(&page), &page["next_cursor"]),
        (sessions[2..].to_vec(), &json!(null))
    );
    server
        .get("/v1/sessions?limit=0")
        .await
        .problem(400, "bad_request");
    server
        .get("/v1/sessions?limit=1001")
        .await
        .problem(400, "bad_request");
    server
        .get("/v1/sessions?cursor=x")
        .await
        .problem(404, "no_session");
    server.stop().await;
}

#[tokio::test]
async fn the_ephemeral_znodes_of_a_session_are_listed() {
    let server = Server::start().await;
    let (session, other) = (server.session().await, server.session().await);
    for (path, session) in [
        ("/a", &session),
        ("/b", &session),
        ("/bb", &other),
        ("/bc", &session),
    ] {
        let body = json!({"mode": "ephemeral", "session": session});
        server.post(&format!("/v1/znodes{path}"), body).await.expect(201);
    }
    let grant = server
        .post("/v1/locks/l/acquire", json!({"session": session}))
        .await
        .expect(200);
    let contender = format!("/locks/l/{}", grant["holder"].as_str().unwrap());
    let list = async |query: &str| {
        let path = format!("/v1/sessions/{session}/ephemerals{query}");
        server.get(&path).await.expect(200)
    };
    assert_eq!(
        list("").await,
        json!({"ephemerals": ["/a", "/b", "/bc", contender], "next_cursor": null})
    );
    assert_eq!(
        list("?prefix=/b").await,
        json!({"ephemerals": ["/b", "/bc"], "next_cursor": null})
    );
    let first = list("?limit=2").await;
    assert_eq!(first["ephemerals"], json!(["/a", "/b"]));
    // The cursor has the position at which the last znode was created, and its path.
    let after = first["next_cursor"].as_str().unwrap();
    assert!(after.ends_with("/b") && !after.starts_with('/'), "{after}");
    assert_eq!(
        list(&format!("?limit=2&cursor={after}&linearizable=true")).await,
        json!({"ephemerals": ["/bc", contender], "next_cursor": null})
    );
    assert_eq!(
        list("?prefix=/none").await,
        json!({"ephemerals": [], "next_cursor": null})
    );
    let path = format!("/v1/sessions/{session}");
    for after in ["/b", "x/b", "1", "1//"] {
        let page = format!("{path}/ephemerals?cursor={after}");
        server.get(&page).await.problem(400, "bad_request");
    }
    server.delete(&path).await.expect(204);
    server
        .get(&format!("{path}/ephemerals"))
        .await
        .problem(410, "session_expired");
    server
        .get("/v1/sessions/00000000deadbeef/ephemerals")
        .await
        .problem(404, "no_session");
    server.stop().await;
}

#[tokio::test]
async fn session_with_many_locks_is_shown_in_part_and_ends_as_a_whole() {
    // Number of znodes beyond the removals of one log entry.
    const CALLS: usize = 10;
    const EACH: usize = 64;
    let server = Server::start().await;
    let session = server.session().await;
    let mut waiter = None;
    for call in 0..CALLS {
        let locks: Vec<_> = (0..EACH)
            .map(|lock| json!({"name": format!("job/{call}-{lock}")}))
            .collect();
        let body = json!({"session": session, "locks": locks});
        server.post("/v1/multilock/acquire", body).await.expect(200);
    }
    let other = server.session().await;
    let wait = json!({"session": other, "wait_ms": null}).to_string();
    let last = format!("/v1/locks/job/{}-{}/acquire", CALLS - 1, EACH - 1);
    waiter.replace(crate::support::Call::send(server.address, "POST", &last, Some(&wait)).await);
    let path = format!("/v1/sessions/{session}");
    let seen = server.get(&path).await.expect(200);
    assert_eq!(seen["held"].as_array().unwrap().len(), CALLS * EACH);
    assert!(seen.get("complete").is_none(), "all are there");
    let list = server.get("/v1/sessions").await.expect(200);
    let sessions = list["sessions"].as_array().unwrap();
    let listed = sessions.iter().find(|listed| listed["session"] == *session);
    let listed = listed.expect("it is in the list");
    assert_eq!(listed["held"].as_array().unwrap().len(), 100);
    assert_eq!(
        (&listed["complete"], &listed["ephemerals"]),
        (&json!(false), &json!(CALLS * EACH))
    );

    server.delete(&path).await.expect(204);
    let left = server.get("/v1/locks?limit=1000").await.expect(200);
    let left: Vec<_> = left["locks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|lock| &lock["lock"])
        .collect();
    assert!(left.len() <= 1, "only the lock that the other one has: {left:?}");
    server.get(&path).await.problem(410, "session_expired");
    server.stop().await;
}
