//! Feed of events: their order, earlier ones, the mark that events were skipped, and no events for callers without the
//! right.

use lock_node::MAX_FEED_SUBSCRIBERS;
use serde_json::{Value, json};

use crate::stream::Stream;
use crate::support::{Server, in_time};

async fn by(server: &Server, token: &str, query: &str) -> Stream {
    let header = format!("Authorization: Bearer {token}\r\n");
    server.subscribe_feed(query, &header).await.unwrap()
}

/// Reads until `count` events have arrived; returns them with the last state of the locks.
async fn read_events(stream: &mut Stream, count: usize) -> (Vec<Value>, Value) {
    let (mut events, mut locks) = (Vec::new(), Value::Null);
    while events.len() < count {
        let data = stream.expect("happened").await;
        events.extend(data["events"].as_array().unwrap().iter().cloned());
        locks = data["locks"].clone();
    }
    (events, locks)
}

fn words(events: &[Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn events_arrive_in_order_with_the_state_of_the_locks() {
    let server = Server::start().await;
    let mut all = server.subscribe_feed("", "").await.unwrap();
    let mut some = server
        .subscribe_feed("?prefix=orders/&locks=true", "")
        .await
        .unwrap();
    let first = some.expect("happened").await;
    assert_eq!(first, json!({"more": false, "events": [], "locks": []}));

    let one = server.session().await;
    let other = server.session().await;
    let held = server
        .post(
            "/v1/locks/orders%2F1/acquire",
            json!({"session": one, "note": "first"}),
        )
        .await
        .expect(200);
    server
        .post("/v1/locks/else/acquire", json!({"session": one}))
        .await
        .expect(200);
    let body = json!({"session": other, "note": "second", "wait_ms": 20_000});
    let waiting = server.post("/v1/locks/orders%2F1/acquire", body);
    let watching = async {
        let (events, _) = read_events(&mut some, 2).await;
        assert_eq!(words(&events), ["granted", "queued"]);
        assert_eq!(events[0]["fencing_token"], held["fencing_token"]);
        assert_eq!(events[1]["session"], json!(other));
        let body = json!({"holder": held["holder"], "reason": "it hangs"});
        server.post("/v1/locks/orders%2F1/break", body).await.expect(204);
        let (events, locks) = read_events(&mut some, 2).await;
        assert_eq!(words(&events), ["lost", "granted"]);
        assert_eq!(
            (&events[0]["ended"], &events[0]["reason"]),
            (&json!("broken"), &json!("it hangs"))
        );
        assert_eq!(locks[0]["first_holder"]["note"], "second", "{locks}");
        assert_eq!(
            (&locks[0]["holders"], &locks[0]["waiters"]),
            (&json!(1), &json!(0))
        );
    };
    let (granted, ()) = tokio::join!(waiting, watching);
    granted.expect(200);
    server.delete(&format!("/v1/sessions/{other}")).await.expect(204);
    let (events, locks) = read_events(&mut some, 1).await;
    assert_eq!(words(&events), ["lost"]);
    assert_eq!(
        locks,
        json!([{"lock": "orders/1", "mode": null, "holders": 0, "waiters": 0}])
    );

    let (events, _) = read_events(&mut all, 9).await;
    let mut opened = words(&events);
    opened.truncate(3);
    assert_eq!(opened, ["session_opened", "session_opened", "granted"]);
    assert_eq!(*words(&events).last().unwrap(), "session_ended");
    server.stop().await;
}

#[tokio::test]
async fn reconnecting_observer_gets_later_events_and_a_new_one_earlier_events() {
    let server = Server::start().await;
    let session = server.session().await;
    for lock in ["a", "b", "c"] {
        server
            .post(&format!("/v1/locks/{lock}/acquire"), json!({"session": session}))
            .await
            .expect(200);
    }
    let mut stream = server.subscribe_feed("?last=2", "").await.unwrap();
    let first = stream.expect("happened").await;
    let locks: Vec<_> = first["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["lock"])
        .collect();
    assert_eq!(locks, ["b", "c"]);
    assert_eq!(first["more"], true);
    let last = stream.leave();

    server
        .post("/v1/locks/d/acquire", json!({"session": session}))
        .await
        .expect(200);
    let mut back = server
        .subscribe_feed("", &format!("Last-Event-ID: {last}\r\n"))
        .await
        .unwrap();
    let since = back.expect("happened").await;
    assert_eq!(
        (words(since["events"].as_array().unwrap()), &since["more"]),
        (vec!["granted"], &json!(false))
    );
    let mut back = server.subscribe_feed(&format!("?zxid={last}"), "").await.unwrap();
    assert_eq!(back.expect("happened").await["events"][0]["lock"], "d");

    for wrong in [
        "?last=1001",
        "?last=-1",
        "?zxid=x",
        "?nothing=1",
        "?locks=perhaps",
    ] {
        let refused = server.subscribe_feed(wrong, "").await.err().unwrap();
        refused.problem(400, "bad_request");
    }
    server.stop().await;
}

#[tokio::test]
async fn flood_of_events_is_skipped_and_marked() {
    let server = Server::start().await;
    let session = server.session().await;
    let mut stream = server.subscribe_feed("", "").await.unwrap();
    stream.expect("happened").await;
    for batch in 0..3 {
        let locks: Vec<_> = (0..60)
            .map(|lock| json!({"name": format!("{batch}/{lock}")}))
            .collect();
        let body = json!({"session": session, "locks": locks});
        server.post("/v1/multilock/acquire", body).await.expect(200);
    }
    let body = json!({"session": session});
    server.post("/v1/locks/the-last/acquire", body).await.expect(200);
    let (mut is_left_out, mut most) = (false, 0);
    loop {
        let data = stream.expect("happened").await;
        let events = data["events"].as_array().unwrap();
        is_left_out |= data["more"] == true;
        most = most.max(events.len());
        if events.last().is_some_and(|event| event["lock"] == "the-last") {
            break;
        }
    }
    // The number of messages depends on the speed of the machine, but no message exceeds its maximum.
    assert!(most <= 100, "{most}");
    assert!(is_left_out || most < 100);
    server.stop().await;
}

#[tokio::test]
async fn events_without_the_right_are_not_sent() {
    let (server, admin) = Server::start_secured().await;
    let session = server.session_of(&admin).await;
    let grants = json!([{"locks": "team", "rights": ["read"]}]);
    let token = server.token_for(&admin, "onlooker", grants).await;
    let mut onlooker = by(&server, &token, "?locks=true").await;
    let mut administrator = by(&server, &admin, "").await;
    for stream in [&mut onlooker, &mut administrator] {
        stream.expect("happened").await;
    }
    for lock in ["other", "team", "team%2Fa"] {
        let body = json!({"session": session});
        server
            .as_token(&admin, "POST", &format!("/v1/locks/{lock}/acquire"), body)
            .await
            .expect(200);
    }
    let (events, locks) = read_events(&mut onlooker, 2).await;
    let seen: Vec<_> = events.iter().map(|event| &event["lock"]).collect();
    assert_eq!(seen, ["team", "team/a"]);
    assert!(!locks.to_string().contains("other"), "{locks}");
    let another = server.as_token(&admin, "POST", "/v1/sessions", json!({})).await;
    another.expect(201);
    let (events, _) = read_events(&mut administrator, 4).await;
    assert_eq!(
        words(&events),
        ["granted", "granted", "granted", "session_opened"]
    );

    // A caller whose token is revoked receives no further events.
    let id = token.split('_').nth(1).unwrap();
    server
        .as_token(
            &admin,
            "DELETE",
            &format!("/v1/tokens/{id}?reason=test"),
            Value::Null,
        )
        .await
        .expect(204);
    let (events, _) = read_events(&mut administrator, 1).await;
    assert_eq!(words(&events), ["access_changed"]);
    let end = in_time("it ends", async {
        loop {
            let next = onlooker.next().await;
            if next.word != "happened" {
                return next;
            }
            assert_eq!(next.data["events"], json!([]));
        }
    });
    assert_eq!(end.await.data["reason"], "access_lost");
    onlooker.expect_end().await;
    let refused = server.subscribe_feed("", "").await.err().unwrap();
    refused.problem(401, "unauthenticated");
    server.stop().await;
}

/// Waits for events of the cluster in this node's feed and returns them.
async fn of_cluster(server: &Server, token: &str) -> Vec<Value> {
    let mut seen = Vec::new();
    crate::support::until("something has happened to the cluster", async || {
        let mut stream = by(server, token, "?cluster=true&last=10").await;
        let first = stream.expect("happened").await;
        seen = first["cluster"].as_array().unwrap().clone();
        !seen.is_empty()
    })
    .await;
    seen
}

#[tokio::test]
async fn events_of_the_cluster_are_sent_on_request_with_earlier_ones() {
    let (server, admin) = Server::start_secured().await;
    let seen = of_cluster(&server, &admin).await;
    let [leader] = &seen[..] else { panic!("{seen:?}") };
    assert_eq!(
        (&leader["event"], &leader["node_id"]),
        (&json!("leader_changed"), &json!(1))
    );
    assert_eq!(leader["id"], format!("leader-{}", leader["term"]));
    assert!(leader["at"].as_str().unwrap().ends_with('Z'), "{leader}");
    // Events of the cluster are retained separately, so events of locks do not displace them.
    let session = server.session_of(&admin).await;
    for lock in 0..12 {
        let path = format!("/v1/locks/{lock}/acquire");
        server
            .as_token(&admin, "POST", &path, json!({"session": session}))
            .await
            .expect(200);
    }
    assert_eq!(of_cluster(&server, &admin).await, seen);

    // Only callers that may see the state of the cluster get it, and only on request.
    let grants = json!([{"locks": "team", "rights": ["read"]}]);
    let token = server.token_for(&admin, "onlooker", grants).await;
    let first = by(&server, &token, "?cluster=true&last=10")
        .await
        .expect("happened")
        .await;
    assert_eq!(first["cluster"], json!([]));
    let first = by(&server, &admin, "?last=10").await.expect("happened").await;
    assert_eq!(first.get("cluster"), None);
    server.stop().await;
}

#[tokio::test]
async fn observers_are_bounded_and_one_caller_gets_half_of_the_places() {
    let (server, admin) = Server::start_secured().await;
    let grants = json!([{"locks": "team", "rights": ["read"]}]);
    let onlooker = server.token_for(&admin, "onlooker", grants.clone()).await;
    let another = server.token_for(&admin, "another", grants).await;
    let of = |token: &str| format!("Authorization: Bearer {token}\r\n");
    let refused = async |token: &str| {
        let refused = server.subscribe_feed("", &of(token)).await.err().unwrap();
        refused.problem(429, "too_many_requests");
    };
    let mut streams = Vec::new();
    for caller in [&onlooker, &admin] {
        for _ in 0..MAX_FEED_SUBSCRIBERS / 2 {
            streams.push(by(&server, caller, "").await);
        }
        refused(caller).await;
    }
    refused(&another).await;
    drop(streams);
    for caller in [&onlooker, &another] {
        crate::support::until("there is a place again", async || {
            server.subscribe_feed("", &of(caller)).await.is_ok()
        })
        .await;
    }
    server.stop().await;
}
