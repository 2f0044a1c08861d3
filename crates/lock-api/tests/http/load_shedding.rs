//! Load shedding of a busy node: requests rejected before a proposal, and requests that it still serves.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use lock_api::http::HttpConfig;
use lock_node::MemberAddress;
use lock_node::admission::{AdmissionConfig, MAINTENANCE_PERMITS_PER_NEW, PaceBounds};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use znode_store::SessionId;

use crate::support::{Call, Server, until};

/// Starts a server on which two requests of each kind may be pending, and stay so: the only other member is missing, so
/// nothing is committed.
async fn stuck(config: HttpConfig) -> Server {
    Server::start_unready(config, |node| {
        let missing = MemberAddress {
            peer: "127.0.0.1:1".into(),
            http: "127.0.0.1:1".into(),
        };
        node.raft.members.insert(2, missing);
        node.raft.propose_timeout = Duration::from_secs(600);
        node.admission.max_outstanding = 2;
    })
    .await
}

#[tokio::test]
async fn acquires_are_shed_at_once_and_releases_are_accepted() {
    let config = HttpConfig::default();
    let meter = config.meter.clone();
    let server = stuck(config).await;
    let create = async |name: &'static str| Call::send(server.address, "POST", name, Some("{}")).await;
    let _waiting = (create("/v1/znodes/a").await, create("/v1/znodes/b").await);
    until("two are on their way", async || {
        server.node.admission_counts().new == 2
    })
    .await;

    let session = SessionId::from_random(1).to_string();
    for (method, path, body) in [
        ("POST", "/v1/znodes/c".to_owned(), json!({})),
        ("POST", "/v1/sessions".to_owned(), json!({})),
        (
            "POST",
            "/v1/locks/a/acquire".to_owned(),
            json!({"session": session}),
        ),
        ("PUT", "/v1/znodes/a".to_owned(), json!({"data": "x"})),
    ] {
        let refused = server.call(method, &path, Some(&body.to_string())).await;
        refused.problem(503, "unavailable");
        assert_eq!(refused.header("retry-after"), Some("1"), "{path}");
    }
    server.get("/v1/znodes").await.problem(503, "unavailable");
    assert!(server.node.admission_counts().refused[0] >= 5);
    assert_eq!(
        meter.counts().shed,
        5,
        "they are counted, though no route ever heard of them"
    );
    assert_eq!(server.node.admission_counts().new, 2, "nothing more was proposed");

    server.get("/healthz").await;
    assert_eq!(server.get("/v1/cluster").await.status, 200);
    assert_eq!(server.get("/metrics").await.status, 200);
    let body = json!({"session": session, "holder": "none"}).to_string();
    let _deleted = Call::send(server.address, "DELETE", "/v1/znodes/a", None).await;
    // All calls come from one address, and the last quarter is for others.
    let places = 2 * MAINTENANCE_PERMITS_PER_NEW * 3 / 4;
    let mut released = Vec::new();
    for _ in 1..places {
        released.push(Call::send(server.address, "POST", "/v1/locks/a/release", Some(&body)).await);
    }
    until("all are taken in", async || {
        server.node.admission_counts().kept == places
    })
    .await;
    // Renewals have a limit as well. The request reached its route.
    server.delete("/v1/znodes/b").await.problem(503, "unavailable");
    assert_eq!(meter.counts().shed, 5);
    server.stop().await;
}

#[tokio::test]
async fn large_bodies_have_a_budget_and_small_ones_need_none() {
    let config = HttpConfig {
        max_large_bodies_bytes: 64 * 1024,
        ..HttpConfig::default()
    };
    let server = Server::start_with(config).await;
    // The client has announced a large body, and sends it slowly.
    let mut slow = TcpStream::connect(server.address).await.unwrap();
    let head = "POST /v1/znodes/slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50000\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let large = json!({"data": "x".repeat(30_000)});
    until("there is no room for another", async || {
        let name = "/v1/znodes/large";
        let reply = server.post(name, large.clone()).await;
        if reply.status == 201 {
            server.delete(name).await.expect(204);
            return false;
        }
        reply.problem(503, "unavailable");
        true
    })
    .await;
    server.session().await;
    let small = json!({"data": "x".repeat(10_000)});
    server.post("/v1/znodes/small", small).await.expect(201);
    drop(slow);
    until("there is room again", async || {
        server.post("/v1/znodes/again", large.clone()).await.status == 201
    })
    .await;
    server.stop().await;
}

#[tokio::test]
async fn caller_with_its_share_of_waiting_calls_is_refused_before_it_is_in_the_queue() {
    let config = HttpConfig {
        max_waiting_calls_per_caller: 1,
        ..HttpConfig::default()
    };
    let server = Server::start_with(config).await;
    let session = server.session().await;
    let acquire = |wait_ms: Value| json!({"session": session, "wait_ms": wait_ms, "reentrant": false});
    let path = "/v1/locks/a/acquire";
    server.post(path, acquire(json!(0))).await.expect(200);
    let waiting_calls = async || {
        let lock = server.get("/v1/locks/a").await.expect(200);
        lock["queue"].as_array().unwrap().len()
    };
    let waits = acquire(Value::Null).to_string();
    let waiting = Call::send(server.address, "POST", path, Some(&waits)).await;
    until("the first one waits", async || waiting_calls().await == 1).await;

    let before = server.node.read(|store| store.zxid());
    for (path, body) in [
        (path, acquire(json!(60_000))),
        (path, json!({"ttl_ms": 60_000, "wait_ms": 60_000})),
        (
            "/v1/multilock/acquire",
            json!({"session": session, "wait_ms": 60_000, "locks": [{"name": "a"}]}),
        ),
        (
            "/v1/locks/a/upgrade",
            json!({"session": session, "holder": "none", "wait_ms": 60_000}),
        ),
    ] {
        let refused = server.post(path, body).await;
        assert_eq!(refused.problem(429, "too_many_requests")["limit"], 1);
        assert!(refused.header("retry-after").is_some());
    }
    let after = server.node.read(|store| store.zxid());
    assert_eq!(before, after, "nothing was proposed");

    server
        .post(path, acquire(json!(0)))
        .await
        .problem(409, "lock_busy");
    let queued = json!({"session": session, "wait": "queue", "reentrant": false});
    server.post(path, queued).await.expect(202);
    let other = Ipv4Addr::new(127, 0, 0, 2);
    let of_another = acquire(json!(1));
    let late = server.call_from(other, "POST", path, Some(of_another)).await;
    late.problem(409, "lock_timeout");
    drop(waiting);
    server.stop().await;
}

/// Bounds of a pace with which every request has to wait.
const NONE_AT_ONCE: PaceBounds = PaceBounds {
    per_second: 1_000,
    at_once: 0,
};

/// Starts a server, after `bound` has set the bounds of a pace.
async fn paced(bound: impl FnOnce(&mut AdmissionConfig)) -> Server {
    Server::start_node(HttpConfig::default(), |node| bound(&mut node.admission)).await
}

/// Sends requests until one of them is delayed. Before each of them, a client with another address opens a session, so that it counts as another
/// caller: it does for a second, which may be over on a busy machine.
async fn until_delayed(server: &Server, mut request: impl AsyncFnMut()) {
    until("a request is delayed", async || {
        let (other, body) = (Ipv4Addr::new(127, 0, 0, 2), json!({"ttl_ms": 60_000}));
        let opened = server.call_from(other, "POST", "/v1/sessions", Some(body)).await;
        opened.expect(201);
        request().await;
        server.node.admission_counts().answers_delayed > 0
    })
    .await;
}

#[tokio::test]
async fn answers_to_refused_requests_beyond_the_pace_are_delayed() {
    let server = paced(|admission| admission.refusals = NONE_AT_ONCE).await;
    let delayed = || server.node.admission_counts().answers_delayed;
    server.get("/v1/locks/none").await.problem(404, "no_lock");
    assert_eq!(delayed(), 0, "nothing was refused");
    // By the router, and around it.
    server.post("/v1/none", json!({})).await.problem(404, "no_route");
    let mistake = server.post("/v1/locks/a%00/acquire", json!({})).await;
    assert_eq!(mistake.status, 400);
    assert_eq!(delayed(), 2);
    let batch = json!({"requests": vec![json!({"path": "/v1/none"}); 128]});
    let began = Instant::now();
    server.post("/v1/batch", batch).await.expect(200);
    assert_eq!(delayed(), 2 + 128, "each request of a batch counts");
    assert!(
        began.elapsed() >= Duration::from_millis(128),
        "the last one waits for all tokens"
    );
}

#[tokio::test]
async fn answers_to_long_requests_beyond_the_pace_are_delayed_beside_another_caller() {
    let server = paced(|admission| admission.long_requests = NONE_AT_ONCE).await;
    let session = server.session().await;
    let heartbeat = json!({"path": format!("/v1/sessions/{session}/heartbeat")});
    let batch = json!({"requests": vec![heartbeat; 128]});
    let long = async || {
        server.post("/v1/batch", batch.clone()).await.expect(200);
    };
    long().await;
    let counts = server.node.admission_counts();
    assert_eq!(
        counts.answers_delayed, 0,
        "a caller without others has the whole node"
    );
    until_delayed(&server, long).await;
    server.stop().await;
}

#[tokio::test]
async fn answers_about_an_exceeded_rate_are_delayed_like_refusals() {
    let server = paced(|admission| admission.refusals = NONE_AT_ONCE).await;
    let rate = json!({"requests_per_second": 1});
    server.put("/v1/namespaces/fast", rate).await.expect(200);
    assert_eq!(server.node.admission_counts().answers_delayed, 0);
    until("the rate is exceeded", async || {
        let created = server.post("/v1/znodes/fast", json!({})).await;
        created.status == 429
    })
    .await;
    assert!(server.node.admission_counts().answers_delayed > 0);
    server.stop().await;
}

#[tokio::test]
async fn large_writes_beyond_the_pace_are_delayed_beside_another_caller() {
    let server = paced(|admission| admission.large_writes = NONE_AT_ONCE).await;
    let delayed = || server.node.admission_counts().answers_delayed;
    server.post("/v1/znodes/a", json!({})).await.expect(201);
    let set = async |bytes| {
        let data = json!({"data": "x".repeat(bytes)});
        server.put("/v1/znodes/a", data).await.expect(200);
    };
    set(100_000).await;
    assert_eq!(delayed(), 0, "a caller without others has the whole node");
    let began = Instant::now();
    until_delayed(&server, async || set(100_000).await).await;
    assert!(
        began.elapsed() >= Duration::from_millis(97),
        "it waits for a token for each KiB"
    );
    let before = delayed();
    until_delayed(&server, async || set(10_000).await).await;
    assert_eq!(delayed(), before, "small writes have no pace");
    server.stop().await;
}
