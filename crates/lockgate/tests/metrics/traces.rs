//! Traces of requests: a collector in this test receives the spans of nodes, like an OpenTelemetry collector.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::harness::{TestCluster, eventually};
use crate::scrape::Scrape;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";

/// Collector of spans.
struct Collector {
    address: String,
    received: Arc<Mutex<Vec<Value>>>,
    task: JoinHandle<()>,
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let received = Arc::<Mutex<Vec<Value>>>::default();
        let sink = received.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (head, body) = receive(stream).await;
                assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
                assert!(head.contains("content-type: application/json\r\n"), "{head}");
                sink.lock()
                    .push(serde_json::from_str(&body).expect("an export is JSON"));
            }
        });
        Self {
            address,
            received,
            task,
        }
    }

    fn settings(&self, ratio: f64) -> String {
        format!(
            "[traces]\nendpoint = \"http://{}\"\nratio = {ratio:?}\n",
            self.address
        )
    }

    /// Returns all spans so far, with the id of the node that sent each.
    fn spans(&self) -> Vec<(String, Value)> {
        let mut spans = Vec::new();
        for export in &*self.received.lock() {
            for of_node in export["resourceSpans"].as_array().expect("a list") {
                let attributes = attributes(&of_node["resource"]);
                assert_eq!(attributes["service.name"], "lockgate");
                let node = attributes["service.instance.id"].as_str().unwrap().to_owned();
                for scope in of_node["scopeSpans"].as_array().expect("a list") {
                    let all = scope["spans"].as_array().expect("a list").iter();
                    spans.extend(all.map(|span| (node.clone(), span.clone())));
                }
            }
        }
        spans
    }

    /// Waits until a trace has this number of spans. Returns them by name.
    async fn of_trace(&self, trace: &str, count: usize) -> BTreeMap<String, (String, Value)> {
        let of_trace = || -> Vec<(String, Value)> {
            let spans = self.spans().into_iter();
            spans.filter(|(_, span)| span["traceId"] == trace).collect()
        };
        eventually(&format!("{count} spans are exported"), async || {
            of_trace().len() >= count
        })
        .await;
        let all = of_trace();
        assert_eq!(all.len(), count, "{all:#?}");
        let named = all.into_iter();
        named
            .map(|(node, span)| (span["name"].as_str().unwrap().to_owned(), (node, span)))
            .collect()
    }
}

/// Reads one request and acknowledges it.
async fn receive(mut stream: TcpStream) -> (String, String) {
    let mut received = Vec::new();
    let (head, body) = loop {
        stream.read_buf(&mut received).await.unwrap();
        let text = String::from_utf8(received.clone()).expect("requests are text");
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").parse().unwrap();
            if body.len() == length {
                break (format!("{head}\r\n"), body.to_owned());
            }
        }
    };
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    stream.write_all(answer.as_bytes()).await.unwrap();
    (head, body)
}

fn attributes(of: &Value) -> BTreeMap<String, Value> {
    let all = of["attributes"].as_array().expect("a list of attributes").iter();
    all.map(|attribute| {
        let value = attribute["value"].as_object().expect("a value");
        let (_, value) = value.iter().next().expect("a value");
        (attribute["key"].as_str().unwrap().to_owned(), value.clone())
    })
    .collect()
}

fn time(span: &Value, which: &str) -> u64 {
    let text = span[which].as_str().expect("64-bit numbers are text");
    text.parse().unwrap()
}

/// Sends a request with a `traceparent`. Returns the answer with its head.
async fn traced(http: &str, path: &str, body: &Value, parent: &str) -> String {
    let body = body.to_string();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ntraceparent: {parent}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(http).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn trace_of_a_caller_continues_through_the_log() {
    let collector = Collector::start().await;
    let cluster = TestCluster::start_with(&collector.settings(0.0)).await;
    let follower = cluster.followers().await[0];
    let (_client, session) = cluster.session(follower, "traced").await;
    let acquire = json!({"session": session.id()});
    let parent = |flags: &str| format!("00-{TRACE}-{CALLER}-{flags}");
    let path = "/v1/locks/orders/42/acquire";
    // A request whose caller does not sample it is not traced here either.
    let answer = traced(&cluster.http(follower), path, &acquire, &parent("00")).await;
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && !answer.contains("traceresponse"),
        "{answer}"
    );
    let answer = traced(&cluster.http(follower), path, &acquire, &parent("01")).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");

    let leader = cluster.leader_now().await.to_string();
    let spans = collector.of_trace(TRACE, 7).await;
    let span = |name: &str| &spans.get(name).unwrap_or_else(|| panic!("{name}: {spans:#?}")).1;
    for (name, (node, _)) in &spans {
        let is_by = if name == "leader" {
            &leader
        } else {
            &follower.to_string()
        };
        assert_eq!(node, is_by, "{name}");
    }
    let server = span("POST /v1/locks/{name}/acquire");
    assert_eq!(
        (&server["parentSpanId"], &server["kind"]),
        (&json!(CALLER), &json!(2))
    );
    let attributes_of_span = attributes(server);
    assert_eq!(attributes_of_span["http.response.status_code"], "200");
    assert_eq!(attributes_of_span["url.path"], path);
    let own = server["spanId"].as_str().unwrap();
    let named = format!("traceresponse: 00-{TRACE}-{own}-01\r\n");
    assert!(answer.contains(&named), "{answer}");

    let proposal = span("proposal");
    assert_eq!(
        (&proposal["parentSpanId"], &proposal["kind"]),
        (&json!(own), &json!(1))
    );
    let attributes_of_span = attributes(proposal);
    assert_eq!(
        (
            &attributes_of_span["lockgate.command"],
            &attributes_of_span["lockgate.outcome"]
        ),
        (&json!("acquire"), &json!("done"))
    );
    assert_eq!(attributes_of_span["lockgate.path"], "/locks/orders/42");
    // One part after the other, each within the whole.
    let mut at = time(proposal, "startTimeUnixNano");
    for part in ["queue", "commit", "apply", "reply"] {
        let part = span(part);
        assert_eq!(part["parentSpanId"], proposal["spanId"]);
        assert_eq!(time(part, "startTimeUnixNano"), at, "{part}");
        at = time(part, "endTimeUnixNano");
    }
    assert_eq!(time(proposal, "endTimeUnixNano"), at);
    // Its part as the leader saw it.
    let led = span("leader");
    assert_eq!(led["parentSpanId"], proposal["spanId"]);
    // These times are of another clock of the same machine; a thread may be preempted between the reads of
    // both.
    const SLACK: u64 = 1_000_000_000;
    assert!(time(led, "startTimeUnixNano") + SLACK >= time(span("commit"), "startTimeUnixNano"));
    assert!(time(led, "endTimeUnixNano") <= time(proposal, "endTimeUnixNano") + SLACK);
    assert!(time(server, "startTimeUnixNano") <= time(proposal, "startTimeUnixNano") + SLACK);
    assert!(time(proposal, "endTimeUnixNano") <= time(server, "endTimeUnixNano") + SLACK);

    // No other request is traced, not even the session's creation.
    assert!(collector.spans().iter().all(|(_, span)| span["traceId"] == TRACE));
}

#[tokio::test]
async fn wait_and_hold_are_spans_of_the_leader_and_name_their_trace() {
    const WAITERS: &str = "0af7651916cd43dd8448eb211c80319c";
    let collector = Collector::start().await;
    let cluster = TestCluster::start_with(&collector.settings(0.0)).await;
    let leader = cluster.leader_now().await.to_string();
    let follower = cluster.followers().await[0];
    let http = cluster.http(follower);
    let (_client, session) = cluster.session(follower, "traced").await;
    let (_client, waiter) = cluster.session(follower, "waiter").await;
    let path = "/v1/locks/orders/42";
    let acquire = async |session: &str, trace: &str| {
        let body = json!({"session": session, "wait": "queue"});
        let parent = format!("00-{trace}-{CALLER}-01");
        let answer = traced(&http, &format!("{path}/acquire"), &body, &parent).await;
        assert!(answer.starts_with("HTTP/1.1 20"), "{answer}");
        let (_, body) = answer.split_once("\r\n\r\n").expect("a body");
        serde_json::from_str::<Value>(body).expect("an answer is JSON")
    };
    let held = acquire(session.id(), TRACE).await;
    let queued = acquire(waiter.id(), WAITERS).await;

    // Every node knows the traces, and shows the address without it.
    for node in [1, 2, 3] {
        let view = async || {
            cluster
                .send(node, "GET", &format!("{path}?linearizable=true"), &Value::Null)
                .await
                .json()
        };
        let lock = view().await;
        assert_eq!(lock["holders"][0]["trace_id"], TRACE, "{lock}");
        assert_eq!(lock["queue"][0]["trace_id"], WAITERS, "{lock}");
        let address = lock["holders"][0]["address"].as_str().unwrap();
        assert!(address.parse::<std::net::SocketAddr>().is_ok(), "{lock}");
    }
    let release = async |session: &str, holder: &Value| {
        let body = json!({"session": session, "holder": holder});
        let answer = cluster
            .send(follower, "POST", &format!("{path}/release"), &body)
            .await;
        assert_eq!(answer.status, 200, "{}", answer.json());
    };
    release(session.id(), &held["holder"]).await;
    release(waiter.id(), &queued["holder"]).await;
    let history = cluster
        .send(follower, "GET", &format!("{path}/history"), &Value::Null)
        .await
        .json();
    let traces = [0, 1].map(|at| history["history"][at]["trace_id"].clone());
    assert_eq!(traces, [WAITERS, TRACE], "{history}");

    // The request with its proposal, and the hold; the waiter waited as well.
    let of_holder = collector.of_trace(TRACE, 8).await;
    let of_waiter = collector.of_trace(WAITERS, 9).await;
    let server = &of_waiter["POST /v1/locks/{name}/acquire"].1;
    for (of, name) in [(&of_holder, "hold"), (&of_waiter, "wait"), (&of_waiter, "hold")] {
        let (node, span) = &of[name];
        assert_eq!(*node, leader);
        assert_eq!(attributes(span)["lockgate.lock"], "orders/42");
    }
    let (_, wait) = &of_waiter["wait"];
    let (_, hold) = &of_waiter["hold"];
    assert_eq!(wait["parentSpanId"], server["spanId"]);
    assert_eq!(hold["parentSpanId"], server["spanId"]);
    assert_eq!(time(wait, "endTimeUnixNano"), time(hold, "startTimeUnixNano"));
    assert_eq!(
        time(&of_holder["hold"].1, "endTimeUnixNano"),
        time(hold, "startTimeUnixNano"),
        "the release is the grant of the next"
    );
    assert_eq!(attributes(hold)["lockgate.ended"], "released");
    assert_eq!(
        attributes(hold)["lockgate.fencing_token"],
        history["history"][0]["fencing_token"].to_string()
    );
}

#[tokio::test]
async fn zookeeper_requests_are_traced_like_http_requests() {
    let collector = Collector::start().await;
    let cluster = TestCluster::start_with(&collector.settings(1.0)).await;
    let follower = cluster.followers().await[0];
    let server = cluster.node(follower).unwrap().zookeeper.clone().unwrap();
    crate::zookeeper::ask_once(&server).await;
    let of_zookeeper = |operation: &str| {
        let name = format!("ZooKeeper {operation}");
        let spans = collector.spans().into_iter();
        spans.map(|(_, span)| span).find(|span| span["name"] == name)
    };
    for operation in ["createSession", "getData", "closeSession"] {
        let mut found = None;
        eventually(&format!("{operation} was traced"), async || {
            found = of_zookeeper(operation);
            found.is_some()
        })
        .await;
        let span = found.expect("the span exists");
        assert_eq!((&span["parentSpanId"], &span["kind"]), (&Value::Null, &json!(2)));
        let attributes_of_span = attributes(&span);
        assert_eq!(
            (
                &attributes_of_span["rpc.system"],
                &attributes_of_span["rpc.method"]
            ),
            (&json!("zookeeper"), &json!(operation))
        );
        assert_eq!(
            attributes_of_span["lockgate.session"].as_str().unwrap().len(),
            16,
            "{attributes_of_span:?}"
        );
        assert_eq!(attributes_of_span.get("error.type"), None);
        if operation == "getData" {
            // A read of this node's own state does not go through the log.
            assert_eq!(attributes_of_span["lockgate.path"], "/");
            continue;
        }
        // A request through the log has the same parts as over HTTP.
        let all = collector.of_trace(span["traceId"].as_str().unwrap(), 7).await;
        let led = |name: &str| name == "leader";
        assert!(
            all.iter()
                .all(|(name, (node, _))| led(name) != (*node == follower.to_string()))
        );
        let proposal = &all["proposal"].1;
        assert_eq!(proposal["parentSpanId"], span["spanId"]);
        let mut at = time(proposal, "startTimeUnixNano");
        for part in ["queue", "commit", "apply", "reply"] {
            let part = &all[part].1;
            assert_eq!(part["parentSpanId"], proposal["spanId"]);
            assert_eq!(time(part, "startTimeUnixNano"), at, "{part}");
            at = time(part, "endTimeUnixNano");
        }
        assert_eq!(time(proposal, "endTimeUnixNano"), at);
    }
}

#[tokio::test]
async fn node_traces_the_configured_share() {
    let collector = Collector::start().await;
    let cluster = TestCluster::start_with(&collector.settings(1.0)).await;
    let missing = cluster
        .send(
            1,
            "POST",
            "/v1/locks/a/release",
            &json!({"session": "0x0000000000000007", "holder": "x"}),
        )
        .await;
    assert_eq!(missing.status, 404, "{}", missing.json());
    let mut found = None;
    eventually("the rejection was traced", async || {
        let spans = collector.spans();
        let mut spans = spans.into_iter().map(|(_, span)| span);
        found = spans.find(|span| span["name"] == "POST /v1/locks/{name}/release");
        found.is_some()
    })
    .await;
    let span = found.expect("the span exists");
    assert_eq!(
        span["parentSpanId"],
        Value::Null,
        "the span is the root of its trace"
    );
    assert_eq!(
        span["status"],
        Value::Null,
        "a rejection is no error of the server"
    );
    assert_eq!(attributes(&span)["error.type"], missing.code());
    let sent = "lockgate_trace_spans_total{outcome=\"sent\"}";
    assert!(Scrape::of(&cluster, 1).await.value(sent) > 0.0);
}

#[tokio::test]
async fn missing_collector_delays_no_request() {
    let unused = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let settings = format!(
        "[traces]\nendpoint = \"http://{}\"\nratio = 1.0\n",
        unused.local_addr().unwrap()
    );
    drop(unused);
    let cluster = TestCluster::start_with(&settings).await;
    eventually("spans are counted as lost", async || {
        let seen = Scrape::of(&cluster, 1).await;
        seen.value("lockgate_trace_spans_total{outcome=\"dropped\"}") > 0.0
    })
    .await;
    let (_client, session) = cluster.session(1, "served").await;
    let held = cluster
        .send(
            1,
            "POST",
            "/v1/locks/a/acquire",
            &json!({"session": session.id()}),
        )
        .await;
    assert_eq!(held.status, 200, "{}", held.json());
}
