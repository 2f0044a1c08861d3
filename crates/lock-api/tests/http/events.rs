//! Event stream of a session: every event, reconnection, and renewal of the session.

use std::net::Ipv4Addr;
use std::time::Duration;

use lock_api::http::HttpConfig;
use serde_json::{Value, json};

use crate::stream::Stream;
use crate::support::{Call, Server, in_time, until};

/// Query that switches renewals off.
const QUIET: &str = "?heartbeat=false";

async fn acquire(server: &Server, session: &str, lock: &str, more: Value) -> Value {
    let mut body = json!({"session": session});
    body.as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    server
        .post(&format!("/v1/locks/{lock}/acquire"), body)
        .await
        .expect(200)
}

async fn release(server: &Server, session: &str, lock: &str, grant: &Value) {
    let body = json!({"session": session, "holder": grant["holder"]});
    server
        .post(&format!("/v1/locks/{lock}/release"), body)
        .await
        .expect(200);
}

fn facts<'a>(data: &'a Value, fields: &[&str]) -> Vec<&'a Value> {
    fields.iter().map(|field| &data[*field]).collect()
}

#[tokio::test]
async fn new_stream_begins_with_the_current_state() {
    let server = Server::start().await;
    let (one, two) = (server.session().await, server.session().await);
    acquire(&server, &two, "b", json!({})).await;
    let held = acquire(
        &server,
        &one,
        "a",
        json!({"mode": "semaphore", "limit": 3, "permits": 2}),
    )
    .await;
    let body = json!({"session": one, "wait_ms": null}).to_string();
    let waiting = Call::send(server.address, "POST", "/v1/locks/b/acquire", Some(&body)).await;
    until("it waits", async || {
        !server.get("/v1/locks/b").await.expect(200)["queue"]
            .as_array()
            .unwrap()
            .is_empty()
    })
    .await;
    server
        .post("/v1/locks/a/release-request", json!({"reason": "noon"}))
        .await
        .expect(200);

    let mut stream = server.follow(&one, QUIET, None).await;
    let state = stream.next().await;
    assert_eq!(
        (state.word.as_str(), &state.data["ttl_ms"]),
        ("state", &json!(120_000))
    );
    assert_eq!(state.id, Some(state.data["zxid"].to_string()));
    let expected = json!([{"lock": "a", "mode": "semaphore", "limit": 3, "permits": 2, "holder": held["holder"],
        "fencing_token": held["fencing_token"], "holds": 1}]);
    assert_eq!(state.data["held"], expected);
    let awaited = &state.data["awaited"][0];
    assert_eq!(facts(awaited, &["lock", "position"]), [&json!("b"), &json!(1)]);
    let asked = &state.data["release_requested"][0];
    assert_eq!(
        facts(asked, &["lock", "holder", "reason"]),
        [&json!("a"), &held["holder"], &json!("noon")]
    );
    drop(waiting);
    let left = stream.expect("left_queue").await;
    assert_eq!(
        facts(&left, &["lock", "ended"]),
        [&json!("b"), &json!("withdrawn")]
    );
    server.stop().await;
}

#[tokio::test]
async fn holder_is_notified_of_every_loss_of_a_lock() {
    let server = Server::start().await;
    let (one, two) = (server.session().await, server.session().await);
    let mut stream = server.follow(&one, QUIET, None).await;
    stream.expect("state").await;

    // Released by another call, and granted to the waiter.
    let first = acquire(&server, &two, "a", json!({})).await;
    let body = json!({"session": one, "wait_ms": null, "owner": "w", "note": "n"}).to_string();
    let waiting = Call::send(server.address, "POST", "/v1/locks/a/acquire", Some(&body)).await;
    until("it waits", async || {
        server.get("/v1/locks/a").await.body.contains("\"position\":1")
    })
    .await;
    release(&server, &two, "a", &first).await;
    let granted = stream.expect("granted").await;
    let grant = waiting.reply().await.expect(200);
    for field in ["lock", "mode", "permits", "holder", "fencing_token"] {
        assert_eq!(granted[field], grant[field], "{field}");
    }
    assert_eq!(facts(&granted, &["owner", "note"]), [&json!("w"), &json!("n")]);
    release(&server, &one, "a", &grant).await;
    let lost = stream.expect("lost").await;
    assert_eq!(
        facts(&lost, &["ended", "by", "reason"]),
        [&json!("released"), &Value::Null, &Value::Null]
    );
    assert_eq!(lost["fencing_token"], grant["fencing_token"]);

    // The break is reported with the principal and the reason.
    let grant = acquire(&server, &one, "a", json!({})).await;
    stream.expect("granted").await;
    let body = json!({"holder": grant["holder"], "reason": "it hangs"});
    let operator = Ipv4Addr::new(127, 0, 0, 9);
    server
        .call_from(operator, "POST", "/v1/locks/a/break", Some(body))
        .await
        .expect(204);
    let lost = stream.expect("lost").await;
    let expected = [&json!("broken"), &json!("ip:127.0.0.9"), &json!("it hangs")];
    assert_eq!(facts(&lost, &["ended", "by", "reason"]), expected);

    // The deletion of the contender's znode is reported with the principal.
    let grant = acquire(&server, &one, "a", json!({})).await;
    stream.expect("granted").await;
    let path = format!("/v1/znodes/locks/a/{}", grant["holder"].as_str().unwrap());
    server
        .call_from(operator, "DELETE", &path, None)
        .await
        .expect(204);
    let lost = stream.expect("lost").await;
    assert_eq!(
        facts(&lost, &["ended", "by"]),
        [&json!("deleted"), &json!("ip:127.0.0.9")]
    );

    // Upgraded and downgraded: the hold stays, and the events have its new mode.
    let grant = acquire(&server, &one, "a", json!({"mode": "upgradeable"})).await;
    stream.expect("granted").await;
    let body = json!({"session": one, "holder": grant["holder"]});
    let upgraded = server.post("/v1/locks/a/upgrade", body.clone()).await.expect(200);
    let granted = stream.expect("granted").await;
    assert_eq!(
        facts(&granted, &["mode", "fencing_token"]),
        [&json!("exclusive"), &upgraded["fencing_token"]]
    );
    server.post("/v1/locks/a/downgrade", body).await.expect(200);
    let downgraded = stream.expect("downgraded").await;
    let expected = [
        &json!("a"),
        &json!("shared"),
        &grant["holder"],
        &upgraded["fencing_token"],
    ];
    assert_eq!(
        facts(&downgraded, &["lock", "mode", "holder", "fencing_token"]),
        expected
    );

    // A release request.
    server
        .post("/v1/locks/a/release-request", json!({"reason": "noon"}))
        .await
        .expect(200);
    let asked = stream.expect("release_requested").await;
    let expected = [&json!("a"), &grant["holder"], &json!("noon")];
    assert_eq!(facts(&asked, &["lock", "holder", "reason"]), expected);
    assert!(
        asked["requested_at"].is_string() && asked["by"].is_string(),
        "{asked}"
    );

    // The session closed.
    server.delete(&format!("/v1/sessions/{one}")).await.expect(204);
    assert_eq!(stream.expect("lost").await["ended"], "session_closed");
    assert_eq!(stream.expect("session_ended").await["reason"], "closed");
    stream.expect_end().await;
    server.stop().await;
}

#[tokio::test]
async fn a_session_that_expires_says_so() {
    let server = Server::start().await;
    let opened = server
        .post("/v1/sessions", json!({"ttl_ms": 1_500}))
        .await
        .expect(201);
    let session = opened["session"].as_str().unwrap();
    let mut stream = server.follow(session, QUIET, None).await;
    stream.expect("state").await;
    acquire(&server, session, "a", json!({})).await;
    stream.expect("granted").await;
    assert_eq!(stream.expect("lost").await["ended"], "session_expired");
    let ended = stream.expect("session_ended").await;
    assert_eq!(ended["reason"], "expired");
    stream.expect_end().await;
    server.stop().await;
}

#[tokio::test]
async fn an_open_stream_keeps_its_session_alive_and_a_closed_one_does_not() {
    let server = Server::start().await;
    let opened = server
        .post("/v1/sessions", json!({"ttl_ms": 1_500}))
        .await
        .expect(201);
    let session = opened["session"].as_str().unwrap();
    let mut stream = server.follow(session, "", None).await;
    stream.expect("state").await;
    // Four times the session's time to live; the client reconnects whenever the stream ends.
    for _ in 0..2 {
        let next = stream.next().await;
        assert_eq!(
            (next.word.as_str(), &next.data["reason"]),
            ("stream_ended", &json!("renew"))
        );
        let last = stream.leave();
        stream = server.follow(session, "", Some(&last)).await;
    }
    server.get(&format!("/v1/sessions/{session}")).await.expect(200);
    // The connection is closed, and with it the heartbeat.
    drop(stream);
    until("the session ends", async || {
        server.get(&format!("/v1/sessions/{session}")).await.status == 410
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn session_of_a_stopped_client_expires_although_its_stream_was_open() {
    let server = Server::start().await;
    let opened = server
        .post("/v1/sessions", json!({"ttl_ms": 1_500}))
        .await
        .expect(201);
    let session = opened["session"].as_str().unwrap();
    // The client does not read, as if it were stopped, while its operating system accepts all bytes.
    let stream = server.follow(session, "", None).await;
    until("the session ends", async || {
        server.get(&format!("/v1/sessions/{session}")).await.status == 410
    })
    .await;
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn reconnecting_client_gets_missed_events_once() {
    let server = Server::start().await;
    let session = server.session().await;
    let mut stream = server.follow(&session, QUIET, None).await;
    stream.expect("state").await;
    let mut last = stream.leave();
    let mut seen = Vec::new();
    for round in 0..20 {
        let grant = acquire(&server, &session, "a", json!({})).await;
        release(&server, &session, "a", &grant).await;
        let mut stream = server.follow(&session, QUIET, Some(&last)).await;
        // Sometimes the client leaves before it has read all events.
        for _ in 0..=(round % 3) {
            match tokio::time::timeout(Duration::from_millis(50), stream.read()).await {
                Ok(event) => seen.push(event.unwrap()),
                Err(_) => break,
            }
        }
        last = stream.leave();
    }
    let mut stream = server.follow(&session, QUIET, Some(&last)).await;
    server
        .post("/v1/locks/b/acquire", json!({"session": session}))
        .await
        .expect(200);
    loop {
        let event = stream.next().await;
        if event.data["lock"] == "b" {
            break;
        }
        seen.push(event);
    }
    let words: Vec<_> = seen.iter().map(|event| event.word.as_str()).collect();
    assert_eq!(words, ["granted", "lost"].repeat(20));
    let tokens: Vec<_> = seen
        .iter()
        .map(|event| event.data["fencing_token"].as_u64().unwrap())
        .collect();
    assert!(tokens.chunks(2).all(|pair| pair[0] == pair[1]), "{tokens:?}");
    assert!(tokens.windows(3).all(|three| three[0] < three[2]), "{tokens:?}");
    server.stop().await;
}

#[tokio::test]
async fn quiet_stream_advances_with_the_log() {
    let server = Server::start().await;
    let opened = server
        .post("/v1/sessions", json!({"ttl_ms": 1_500}))
        .await
        .expect(201);
    let session = opened["session"].as_str().unwrap();
    let mut stream = server.follow(session, "", None).await;
    let state = stream.next().await;
    server.session().await;
    // The end of the stream has the position of the other session's events, though not the events.
    assert_eq!(stream.expect("stream_ended").await["reason"], "renew");
    let last: u64 = stream.leave().parse().unwrap();
    assert!(last > state.data["zxid"].as_u64().unwrap());
    server.stop().await;
}

#[tokio::test]
async fn client_that_reconnects_too_late_begins_anew() {
    let server = Server::start_node(HttpConfig::default(), |node| node.events.backlog = 3).await;
    let session = server.session().await;
    let mut stream = server.follow(&session, QUIET, None).await;
    stream.expect("state").await;
    let last = stream.leave();
    let held = acquire(&server, &session, "a", json!({})).await;
    for _ in 0..2 {
        let grant = acquire(&server, &session, "b", json!({})).await;
        release(&server, &session, "b", &grant).await;
    }
    let mut stream = server.follow(&session, QUIET, Some(&last)).await;
    assert_eq!(stream.expect("reset").await, json!({"zxid": last}));
    let state = stream.expect("state").await;
    assert_eq!(state["held"][0]["holder"], held["holder"]);
    assert_eq!(state["held"].as_array().unwrap().len(), 1);
    release(&server, &session, "a", &held).await;
    assert_eq!(stream.expect("lost").await["lock"], "a");
    let last = stream.leave();
    // From here on the retained events suffice.
    let grant = acquire(&server, &session, "b", json!({})).await;
    let mut stream = server.follow(&session, QUIET, Some(&last)).await;
    assert_eq!(stream.expect("granted").await["holder"], grant["holder"]);
    drop(stream);

    // A position that no node of this cluster has sent.
    let mut stream = server
        .follow(&session, "?heartbeat=false&zxid=1000000.1", None)
        .await;
    assert_eq!(stream.expect("reset").await, json!({"zxid": "1000000.1"}));
    stream.expect("state").await;
    drop(stream);
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("lockgate_event_resets_total 2"), "{metrics}");
    server.stop().await;
}

#[tokio::test]
async fn reconnecting_client_receives_the_end_of_its_session() {
    let server = Server::start().await;
    let session = server.session().await;
    acquire(&server, &session, "a", json!({})).await;
    let mut stream = server.follow(&session, QUIET, None).await;
    stream.expect("state").await;
    let last = stream.leave();
    server
        .delete(&format!("/v1/sessions/{session}"))
        .await
        .expect(204);
    let mut stream = server.follow(&session, "", Some(&last)).await;
    stream.expect("lost").await;
    stream.expect("session_ended").await;
    let last = stream.last_id.clone().unwrap();
    stream.expect_end().await;
    // The event is sent once only.
    for id in [Some(last.as_str()), None] {
        let refused = Stream::open(server.address, &session, "", id).await;
        refused.err().unwrap().problem(410, "session_expired");
    }
    server.stop().await;
}

#[tokio::test]
async fn watches_fire_in_the_stream_once_each() {
    let server = Server::start().await;
    let session = server.session().await;
    server.post("/v1/znodes/a", json!({})).await.expect(201);
    server.post("/v1/znodes/b", json!({})).await.expect(201);
    let query = "?heartbeat=false&data=/a&children=/b&exists=/new";
    let mut stream = server.follow(&session, query, None).await;
    stream.expect("state").await;
    for _ in 0..2 {
        server.put("/v1/znodes/a", json!({"data": "x"})).await.expect(200);
    }
    server.post("/v1/znodes/new", json!({})).await.expect(201);
    let fired = stream.expect("watch").await;
    assert_eq!(
        facts(&fired, &["kind", "event", "path"]),
        [&json!("data"), &json!("data_changed"), &json!("/a")]
    );
    let fired = stream.expect("watch").await;
    assert_eq!(
        facts(&fired, &["kind", "event"]),
        [&json!("exists"), &json!("created")]
    );
    let last = stream.leave();

    // A disconnected client misses nothing: watches of changed znodes fire, the others are set.
    let stat = server.put("/v1/znodes/a", json!({"data": "y"})).await.expect(200);
    let mut stream = server.follow(&session, query, Some(&last)).await;
    let fired = stream.next().await;
    assert_eq!(
        facts(&fired.data, &["kind", "zxid"]),
        [&json!("data"), &stat["stat"]["mzxid"]]
    );
    let last = stream.leave();
    let mut stream = server.follow(&session, query, Some(&last)).await;
    server.post("/v1/znodes/b/c", json!({})).await.expect(201);
    let fired = stream.expect("watch").await;
    assert_eq!(
        facts(&fired, &["kind", "event"]),
        [&json!("children"), &json!("children_changed")]
    );
    let last = stream.leave();

    // The znode was deleted meanwhile.
    server.delete("/v1/znodes/a").await.expect(204);
    let mut stream = server.follow(&session, query, Some(&last)).await;
    assert_eq!(stream.expect("watch").await["event"], "deleted");
    drop(stream);

    // A watch from the position of a read.
    let b = server.get("/v1/znodes/b").await.expect(200);
    let seen = b["stat"]["mzxid"].as_u64().unwrap();
    let mut stream = server
        .follow(&session, &format!("{QUIET}&zxid={seen}&children=/b"), None)
        .await;
    assert_eq!(stream.expect("watch").await["kind"], "children");
    server.stop().await;
}

#[tokio::test]
async fn two_watches_fired_by_one_transaction_are_delivered_once_across_reconnects() {
    let server = Server::start().await;
    let session = server.session().await;
    for name in ["a", "b"] {
        server
            .post(&format!("/v1/znodes/{name}"), json!({}))
            .await
            .expect(201);
    }
    let query = "?heartbeat=false&data=/a&data=/b";
    let mut stream = server.follow(&session, query, None).await;
    stream.expect("state").await;
    let ops = json!({"ops": [{"set": {"path": "/b", "data": "1"}}, {"set": {"path": "/a", "data": "1"}}]});
    server.post("/v1/txn", ops).await.expect(200);
    let first = stream.next().await;
    assert_eq!(first.data["path"], "/a");
    // The client behaves as if it had left before the second event arrived.
    let mut stream = server.follow(&session, query, first.id.as_deref()).await;
    let second = stream.next().await;
    assert_eq!(second.data["path"], "/b");
    let mut stream = server.follow(&session, query, second.id.as_deref()).await;
    acquire(&server, &session, "l", json!({})).await;
    stream.expect("granted").await;
    server.stop().await;
}

#[tokio::test]
async fn invalid_requests_are_refused() {
    let server = Server::start().await;
    let session = server.session().await;
    let open = async |session: &str, query: &str, id: Option<&str>| {
        Stream::open(server.address, session, query, id)
            .await
            .err()
            .unwrap()
    };
    for query in [
        "?beat=true",
        "?heartbeat=yes",
        "?heartbeat=true&heartbeat=true",
        "?zxid=x",
        "?zxid=1.",
        "?watch=data:/a",
        "?recursive=/a",
        "?after=1",
    ] {
        open(&session, query, None).await.problem(400, "bad_request");
    }
    open(&session, "", Some("-1")).await.problem(400, "bad_request");
    open(&session, "?data=a", None).await.problem(400, "bad_path");
    open(&session, "?data=/none", None).await.problem(404, "no_znode");
    let many = format!("?{}", ["exists=/a"; 65].join("&"));
    open(&session, &many, None).await.problem(400, "bad_request");
    open("0000000000000001", "", None)
        .await
        .problem(404, "no_session");
    open("nonsense", "", None).await.problem(404, "no_session");
    let path = format!("/v1/sessions/{session}/events");
    server
        .call("POST", &path, None)
        .await
        .problem(405, "method_not_allowed");
    let counts = server.node.session_event_counts();
    assert_eq!(
        (counts.streams, server.node.watch_counts().watches),
        (0, 0),
        "nothing stays behind"
    );
    server.stop().await;
}

#[tokio::test]
async fn number_of_streams_is_bounded() {
    let server = Server::start_node(HttpConfig::default(), |node| {
        (node.events.streams_per_session, node.events.streams_per_node) = (2, 3);
    })
    .await;
    let (one, two) = (server.session().await, server.session().await);
    let mut first = server.follow(&one, "", None).await;
    first.expect("state").await;
    let _second = server.follow(&one, "", None).await;
    let refused = Stream::open(server.address, &one, "", None).await.err().unwrap();
    assert_eq!(refused.problem(429, "too_many_requests")["limit"], 2);
    assert!(refused.header("retry-after").is_some());
    let _third = server.follow(&two, "", None).await;
    let refused = Stream::open(server.address, &two, "", None).await.err().unwrap();
    assert_eq!(refused.problem(429, "too_many_requests")["limit"], 3);
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("lockgate_event_streams 3"), "{metrics}");
    // A disconnected client frees its permit.
    drop(first);
    until("a place is free", async || {
        Stream::open(server.address, &two, "", None).await.is_ok()
    })
    .await;
    server.stop().await;
}

/// Creates more events for a session that does not read than the socket buffers hold; returns the maximum number of
/// events.
async fn fill(server: &Server, session: &str) -> u64 {
    // Each event names the note.
    let locks: Vec<_> = (0..64).map(|n| json!({"name": format!("l{n}")})).collect();
    let note = "n".repeat(1024);
    let mut rounds = 0;
    until("a round has gone by without anything being written", async || {
        let before = server.node.session_event_counts().told;
        for _ in 0..4 {
            let body = json!({"session": session, "locks": locks, "note": note});
            let grants = server.post("/v1/multilock/acquire", body).await.expect(200);
            let grants = grants["holders"].as_array().unwrap().iter();
            let holders: Vec<_> = grants
                .map(|grant| json!({"lock": grant["lock"], "holder": grant["holder"]}))
                .collect();
            let body = json!({"session": session, "holders": holders});
            server.post("/v1/multilock/release", body).await.expect(200);
            rounds += 1;
        }
        server.node.session_event_counts().told == before
    })
    .await;
    rounds * 2 * locks.len() as u64
}

#[tokio::test]
async fn client_that_does_not_read_is_disconnected_and_can_reconnect() {
    let server = Server::start_node(HttpConfig::default(), |node| node.events.backlog = 500).await;
    let session = server.session().await;
    let mut stream = server.follow(&session, QUIET, None).await;
    stream.expect("state").await;
    let last = stream.last_id.clone().unwrap();
    let most = fill(&server, &session).await;
    let mut told = 0;
    let end = loop {
        match in_time("the stream ends", stream.read()).await {
            Some(event) if event.word == "stream_ended" => break event,
            Some(_) => told += 1,
            None => panic!("it ended without a word"),
        }
    };
    assert_eq!(end.data["reason"], "too_slow");
    assert!(told < most, "all {told} events went somewhere");
    let mut again = server.follow(&session, QUIET, stream.last_id.as_deref()).await;
    again.expect("reset").await;
    again.expect("state").await;
    assert_ne!(stream.last_id.unwrap(), last);
    server.stop().await;
}

#[tokio::test]
async fn client_that_never_reads_again_frees_its_permit() {
    let config = HttpConfig {
        send_timeout: Duration::from_millis(300),
        ..HttpConfig::default()
    };
    let server = Server::start_with(config).await;
    let session = server.session().await;
    let mut stream = server.follow(&session, QUIET, None).await;
    stream.expect("state").await;
    fill(&server, &session).await;
    until("its connection is cut", async || {
        server.node.session_event_counts().streams == 0
    })
    .await;
    drop(stream);
    server.stop().await;
}

#[tokio::test]
async fn stopping_server_ends_its_streams_at_once() {
    let server = Server::start().await;
    let session = server.session().await;
    let mut stream = server.follow(&session, "", None).await;
    stream.expect("state").await;
    let reading = tokio::spawn(async move {
        let ended = stream.expect("stream_ended").await;
        assert_eq!(ended["reason"], "node_stops");
        stream.expect_end().await;
    });
    server.stop().await;
    in_time("the client got the event", reading).await.unwrap();
}
