//! Clients that follow the events of sessions while nodes die, and sessions that open streams keep alive.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use local_cluster::process::send_signal;
use lock_client::{AcquireOptions, LockSession};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::TcpStream;
use tokio::process::Command;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::client::proxy::Proxy;
use crate::harness::{TIMEOUT, TestCluster, allowance, eventually, rounds};

/// Minimum timeout that the server allows.
const TTL: Duration = Duration::from_secs(2);

/// Received event.
#[derive(Debug, Clone)]
struct Event {
    id: Option<String>,
    word: String,
    data: Value,
}

/// Open stream over HTTP/1.0: it ends with its connection and has no chunks.
struct Stream(Lines<BufReader<TcpStream>>);

impl Stream {
    /// Opens a stream; `None` if the server is unreachable or has no stream now.
    async fn open(server: &str, session: &str, query: &str) -> Option<Self> {
        let mut socket = TcpStream::connect(server).await.ok()?;
        let head = format!("GET /v1/sessions/{session}/events{query} HTTP/1.0\r\n\r\n");
        socket.write_all(head.as_bytes()).await.ok()?;
        let mut lines = BufReader::new(socket).lines();
        let status = lines.next_line().await.ok()??;
        while !lines.next_line().await.ok()??.is_empty() {}
        status.contains(" 200 ").then_some(Self(lines))
    }

    /// Returns the next event, or only an id; `None` at any end of the stream.
    async fn next(&mut self) -> Option<Event> {
        let mut event = Event {
            id: None,
            word: String::new(),
            data: Value::Null,
        };
        loop {
            let line = self.0.next_line().await.ok()??;
            match line.split_once(": ") {
                Some(("id", id)) => event.id = Some(id.to_owned()),
                Some(("event", word)) => event.word = word.to_owned(),
                Some(("data", data)) => event.data = serde_json::from_str(data).ok()?,
                _ if line.is_empty() && (event.id.is_some() || !event.word.is_empty()) => return Some(event),
                _ => {}
            }
        }
    }
}

/// Pseudorandom numbers, equal for the same seed.
struct Rng(u64);

impl Rng {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Follows a session from its first position, at one node after the other, until it has acquired the lock
/// `last_lock`. Sometimes it closes the stream by itself.
async fn follow(servers: Vec<String>, session: String, last_lock: String, mut rng: Rng) -> Vec<Event> {
    let (mut all, mut last, mut server) = (Vec::new(), "0".to_owned(), rng.below(3) as usize);
    loop {
        server = (server + 1) % servers.len();
        let query = format!("?heartbeat=false&zxid={last}");
        let Some(mut stream) = Stream::open(&servers[server], &session, &query).await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let leaves_after = 1 + rng.below(40);
        for _ in 0..leaves_after {
            let Some(event) = stream.next().await else { break };
            if let Some(id) = &event.id {
                last.clone_from(id);
            }
            if event.word == "stream_ended" {
                break;
            }
            let is_last = event.word == "granted" && event.data["lock"] == last_lock;
            if !event.word.is_empty() {
                all.push(event);
            }
            if is_last {
                return all;
            }
        }
    }
}

/// Uses some locks until `stop` is set: waits, tries, reenters, upgrades, and breaks holds of other sessions.
async fn use_locks(
    session: LockSession,
    client: lock_client::LockClient,
    stop: Arc<AtomicBool>,
    mut rng: Rng,
) {
    while !stop.load(Ordering::Relaxed) {
        let lock = format!("l{}", rng.below(4));
        let options = match rng.below(4) {
            0 => AcquireOptions::shared(),
            1 => AcquireOptions::upgradeable(),
            _ => AcquireOptions::exclusive(),
        };
        // Results are ignored while nodes die; the history counts.
        let wait = Duration::from_millis(1 + rng.below(300));
        let Ok(mut guard) = session.acquire(&lock, options.wait_at_most(wait)).await else {
            continue;
        };
        match rng.below(4) {
            0 => drop(client.break_lock(&lock, guard.holder(), "chance").await),
            1 if guard.mode() == lock_client::Mode::Upgradeable => {
                drop(guard.upgrade(lock_client::Wait::AtMost(wait)).await);
            }
            _ => {}
        }
        drop(guard.release().await);
    }
}

/// Returns a session's holds in a node's history: lock, token, holder, end.
async fn history(
    cluster: &TestCluster,
    node: u64,
    session: &str,
) -> Option<Vec<(String, u64, String, Option<String>)>> {
    let mut all = Vec::new();
    for lock in 0..4 {
        let mut before = String::new();
        loop {
            let path = format!("/v1/locks/l{lock}/history?linearizable=true&limit=1000{before}");
            let page = cluster.send(node, "GET", &path, &Value::Null).await;
            if page.status == 404 {
                break;
            }
            if page.status != 200 || !page.json()["gaps"].as_array()?.is_empty() {
                return None;
            }
            let page = page.json();
            for entry in page["history"].as_array()? {
                if entry["session"] == session {
                    let text = |field: &str| entry[field].as_str().map(str::to_owned);
                    let token = entry["fencing_token"].as_u64()?;
                    all.push((format!("l{lock}"), token, text("holder")?, text("ended")));
                }
            }
            match page["next_cursor"].as_str() {
                Some(next) => before = format!("&cursor={next}"),
                None => break,
            }
        }
    }
    all.sort();
    Some(all)
}

/// Returns the same holds from the events.
fn from_events(events: &[Event]) -> Vec<(String, u64, String, Option<String>)> {
    let key = |event: &Event| {
        let text = |field: &str| event.data[field].as_str().unwrap().to_owned();
        (
            text("lock"),
            event.data["fencing_token"].as_u64().unwrap(),
            text("holder"),
        )
    };
    let of = |word: &'static str| events.iter().filter(move |event| event.word == word);
    let mut all = Vec::new();
    for granted in of("granted").filter(|event| event.data["lock"].as_str().unwrap().starts_with('l')) {
        let (lock, token, holder) = key(granted);
        let mut ends = of("lost").filter(|lost| key(lost) == (lock.clone(), token, holder.clone()));
        let ended = ends
            .next()
            .map(|lost| lost.data["ended"].as_str().unwrap().to_owned());
        assert!(ends.next().is_none(), "{lock} {token} was lost twice");
        // An upgrade is reported as the next grant of the same holder.
        let upgraded = of("granted").any(|next| {
            let (other, newer, same) = key(next);
            other == lock && same == holder && newer > token
        });
        all.push((
            lock,
            token,
            holder,
            ended.or(upgraded.then(|| "upgraded".to_owned())),
        ));
    }
    all.sort();
    all
}

fn position(id: &str) -> (u64, u64) {
    let (zxid, number) = id.split_once('.').unwrap_or((id, "999999"));
    (zxid.parse().unwrap(), number.parse().unwrap())
}

#[tokio::test]
async fn no_event_is_lost_or_duplicated_while_leaders_die() {
    let seed: u64 = std::env::var("LOCKGATE_TEST_SEED").map_or(20_260_000, |text| text.parse().unwrap());
    eprintln!("LOCKGATE_TEST_SEED={seed} repeats the random numbers");
    let mut cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let stop = Arc::new(AtomicBool::new(false));
    let (mut sessions, mut users, mut followers) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..3 {
        let session = cluster.lock_session("user").await;
        let mut rng = Rng(seed + number);
        let follower = follow(
            cluster.http_addresses(),
            session.id().to_owned(),
            format!("end-{number}"),
            Rng(rng.below(u64::MAX)),
        );
        followers.push(AbortOnDropHandle::new(tokio::spawn(follower)));
        let user = use_locks(session.clone(), client.clone(), stop.clone(), rng);
        users.push(AbortOnDropHandle::new(tokio::spawn(user)));
        sessions.push(session);
    }
    for _ in 0..rounds(2) {
        let leader = cluster.leader_now().await;
        cluster.kill(leader).await.unwrap();
        cluster.leader_now().await;
        cluster.up(TIMEOUT).await.unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    for user in users {
        tokio::time::timeout(TIMEOUT, user)
            .await
            .expect("the client stops")
            .unwrap();
    }
    for (number, (session, follower)) in sessions.iter().zip(followers).enumerate() {
        let last = session
            .acquire(&format!("end-{number}"), AcquireOptions::exclusive())
            .await;
        let events = tokio::time::timeout(TIMEOUT, follower)
            .await
            .expect("all events in time")
            .unwrap();
        drop(last.unwrap());
        assert!(
            events.iter().all(|event| event.word != "reset"),
            "no event was dropped"
        );
        let ids: Vec<_> = events
            .iter()
            .filter_map(|event| event.id.as_deref())
            .map(position)
            .collect();
        assert!(
            ids.windows(2).all(|two| two[0] < two[1]),
            "in order, and none duplicated"
        );
        let events = from_events(&events);
        let mut known = None;
        // A node that was down may have gaps.
        for node in cluster.ids() {
            known = known.or(history(&cluster, node, session.id()).await);
        }
        assert_eq!(
            events,
            known.expect("one node has the whole history"),
            "session {number}"
        );
        let ended: BTreeSet<_> = events.iter().filter_map(|(.., ended)| ended.as_deref()).collect();
        assert!(
            ended.contains("released") && ended.contains("broken"),
            "holds ended in several ways: {ended:?}"
        );
    }
}

/// Returns whether a session is open.
async fn lives(cluster: &TestCluster, node: u64, session: &str) -> bool {
    let path = format!("/v1/sessions/{session}?linearizable=true");
    cluster.send(node, "GET", &path, &Value::Null).await.status == 200
}

/// Follows a session forever, and opens a new stream whenever one ends.
async fn keep_following(server: &str, session: &str) {
    let mut after = String::new();
    loop {
        if let Some(mut stream) = Stream::open(server, session, &after).await {
            while let Some(event) = stream.next().await {
                if let Some(id) = event.id {
                    after = format!("?zxid={id}");
                }
                if event.word == "stream_ended" {
                    println!("> {} {}", event.word, event.data["reason"]);
                    break;
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Variables that make the process the client: its server and its session.
const SERVER: &str = "LOCKGATE_TEST_FOLLOW_SERVER";
const SESSION: &str = "LOCKGATE_TEST_FOLLOW_SESSION";

/// Program of the client process. In a run of the tests it does nothing.
#[tokio::test]
async fn following_client_process() {
    if let (Ok(server), Ok(session)) = (std::env::var(SERVER), std::env::var(SESSION)) {
        keep_following(&server, &session).await;
    }
}

/// Waits until the session has expired, which must happen within three timeouts.
async fn expires(cluster: &TestCluster, session: &str, what: &str) {
    let begun = Instant::now();
    eventually("the session ends", async || !lives(cluster, 1, session).await).await;
    let lived = begun.elapsed();
    assert!(
        lived <= TTL * 3 + allowance(),
        "{what}, and its session stayed open for {lived:?}"
    );
}

#[tokio::test]
async fn followed_session_lives_until_its_client_is_stopped() {
    let cluster = TestCluster::start().await;
    let session = cluster.client(1).open_session(TTL, "followed").await.unwrap();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "events::following_client_process", "--nocapture"])
        .env(SERVER, cluster.http(2))
        .env(SESSION, &session)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    // Each of its streams lasts two session timeouts.
    for _ in 0..2 {
        let renewed = async {
            while !lines
                .next_line()
                .await
                .unwrap()
                .expect("the client runs")
                .contains("renew")
            {}
        };
        tokio::time::timeout(TIMEOUT, renewed)
            .await
            .expect("the stream ends for renewal");
    }
    assert!(lives(&cluster, 1, &session).await);
    let pid = Pid::from_raw(i32::try_from(client.id().unwrap()).unwrap());
    send_signal(pid, Signal::SIGSTOP).unwrap();
    expires(&cluster, &session, "the client was stopped").await;
}

#[tokio::test]
async fn session_expires_in_time_when_its_clients_network_is_cut() {
    let cluster = TestCluster::start().await;
    let session = cluster.client(1).open_session(TTL, "followed").await.unwrap();
    let proxy = Proxy::start(cluster.http(2)).await;
    let (server, followed) = (proxy.address(), session.clone());
    let _client = AbortOnDropHandle::new(tokio::spawn(
        async move { keep_following(&server, &followed).await },
    ));
    eventually("the client has connected again", async || {
        proxy.connections() >= 2
    })
    .await;
    assert!(lives(&cluster, 1, &session).await);
    proxy.block();
    expires(&cluster, &session, "the network was cut").await;
}

#[tokio::test]
async fn client_is_notified_before_expiry_and_after_renewal() {
    let mut cluster = TestCluster::start().await;
    let survivor = cluster.followers().await[0];
    let others: Vec<_> = cluster.ids().into_iter().filter(|id| *id != survivor).collect();
    // Long enough for a busy machine, and a third of it short enough for a test.
    let session = cluster
        .client(1)
        .open_session(Duration::from_secs(12), "cut off")
        .await
        .unwrap();
    let mut stream = Stream::open(&cluster.http(survivor), &session, "").await.unwrap();
    assert_eq!(stream.next().await.unwrap().word, "state");
    let next = async |stream: &mut Stream, word: &str| {
        let found = async {
            loop {
                let event = stream.next().await.expect("the stream is open");
                if event.word == word {
                    return event.data;
                }
                assert_eq!(event.word, "", "{word} comes first");
            }
        };
        tokio::time::timeout(TIMEOUT, found)
            .await
            .expect("the event in time")
    };
    for id in others {
        cluster.kill(id).await.unwrap();
    }
    let left_ms = next(&mut stream, "expiring").await["left_ms"].as_u64().unwrap();
    assert!(left_ms <= 4_000, "{left_ms} ms are left at least");
    cluster.up(TIMEOUT).await.unwrap();
    assert_eq!(next(&mut stream, "renewed").await["ttl_ms"], 12_000);
    assert!(lives(&cluster, survivor, &session).await);
}
