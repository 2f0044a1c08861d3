//! Test that every documented answer is given: one conversation for each operation, status and code, or the test that
//! covers it elsewhere. `contract` compares the answers with the document.

mod conversations;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::future::join_all;
use lock_api::http::HttpConfig;
use lock_node::OpeningBounds;
use serde_json::{Value, json};

use crate::contract::{self, Answer};
use crate::support::{Call, Reply, Server, until};

/// Session, holder and lock in the document's examples.
const SESSION: &str = "5d996fd7c6557613";
const HOLDER: &str = "_c_3f0c96ec5d1b4be2a0fd5a7c0d2b9a11-lock-0000000007";

/// Answers that no conversation here produces, and the tests that do. `*` stands for every operation.
const ELSEWHERE_TESTED: &[(&str, &str, &str)] = &[
    ("*", "internal", "a bug of the server, and none is known"),
    (
        "*",
        "outcome_unknown",
        "needs a leader that is lost in mid-flight: lockgate/tests/cluster and fail_points",
    ),
    (
        "*",
        "sequence_exhausted",
        "needs billions of znodes: znode-store's own tests",
    ),
    (
        "*",
        "membership_change_in_progress",
        "needs several nodes: lock-node/tests/node",
    ),
    (
        "makeSnapshot",
        "unavailable",
        "needs a disk that fails: lock-node/tests/node",
    ),
    ("addMember", "200", "needs several nodes: lock-node/tests/node"),
    (
        "addMember",
        "limit_reached",
        "needs seventeen nodes: lock-node's own tests",
    ),
    (
        "addMember",
        "node_id_retired",
        "needs several nodes: lock-node/tests/node",
    ),
    ("removeMember", "200", "needs several nodes: lock-node/tests/node"),
    (
        "promoteMember",
        "not_caught_up",
        "needs several nodes: lock-node/tests/node",
    ),
    (
        "promoteMember",
        "no_majority",
        "needs several nodes: lock-node/tests/node",
    ),
    ("demoteMember", "200", "needs several nodes: lock-node/tests/node"),
    (
        "moveLeader",
        "not_a_voter",
        "needs several nodes: lock-node/tests/node",
    ),
    (
        "moveLeader",
        "not_caught_up",
        "needs several nodes: lock-node/tests/node",
    ),
    (
        "downloadBackup",
        "200",
        "bytes, which are looked at in `snapshot`",
    ),
    (
        "downloadBackup",
        "too_many_requests",
        "takes backups that are larger than what the system buffers: `snapshot`",
    ),
    (
        "followEvents",
        "too_many_requests",
        "needs the maximum number of observers: `event_feed`",
    ),
    (
        "setQuotas",
        "limit_reached",
        "takes ten thousand namespaces: znode-store's own tests",
    ),
    (
        "setQuotas",
        "no_namespace",
        "needs another request that removes the quotas before the answer is built",
    ),
    (
        "createToken",
        "limit_reached",
        "takes ten thousand tokens: znode-store's own tests",
    ),
    (
        "setRole",
        "limit_reached",
        "takes hundreds of roles: znode-store's own tests",
    ),
    (
        "setCertificate",
        "limit_reached",
        "takes a thousand certificates: znode-store's own tests",
    ),
];

/// A documented operation with its examples.
#[derive(Clone)]
struct Operation {
    id: &'static str,
    method: String,
    address: String,
    body: Option<Value>,
    /// Codes by status, or an empty one for a success.
    answers: BTreeMap<u16, Vec<String>>,
}

impl Operation {
    fn all() -> Vec<Self> {
        let paths = lock_api::http::openapi()["paths"].as_object().unwrap();
        let items = paths.iter().flat_map(|(path, item)| {
            let operations = item.as_object().unwrap().iter();
            operations.map(move |(method, operation)| Self::read(path, method, operation))
        });
        items.collect()
    }

    fn read(path: &str, method: &str, operation: &'static Value) -> Self {
        let (mut address, mut query) = (path.to_owned(), Vec::new());
        for parameter in operation["parameters"].as_array().into_iter().flatten() {
            let name = parameter["name"].as_str().unwrap();
            let example = &parameter["example"];
            let example = example
                .as_str()
                .map_or_else(|| example.to_string(), str::to_owned);
            match parameter["in"].as_str() {
                Some("path") => {
                    address = address.replace(&format!("{{{name}}}"), &example.replace('/', "%2F"));
                }
                _ if parameter["required"] == true => query.push(format!("{name}={example}")),
                _ => {}
            }
        }
        if !query.is_empty() {
            address = format!("{address}?{}", query.join("&"));
        }
        let answers = operation["responses"].as_object().unwrap().iter();
        let answers = answers.map(|(status, answer)| {
            let problem = &answer["content"]["application/problem+json"]["schema"];
            let codes = problem["properties"]["code"]["enum"].as_array();
            let codes = codes.map(|codes| codes.iter().map(|code| code.as_str().unwrap().to_owned()));
            let codes = codes.map_or_else(|| vec![String::new()], Iterator::collect);
            (status.parse().unwrap(), codes)
        });
        Self {
            id: operation["operationId"].as_str().unwrap(),
            method: method.to_ascii_uppercase(),
            address,
            body: operation["requestBody"]["content"]["application/json"]
                .get("example")
                .cloned(),
            answers: answers.collect(),
        }
    }

    fn by_id(id: &str) -> Self {
        let mut all = Self::all().into_iter();
        all.find(|operation| operation.id == id)
            .unwrap_or_else(|| panic!("{id}"))
    }

    fn can(&self, code: &str) -> bool {
        self.answers.values().flatten().any(|known| known == code)
    }

    /// Replaces the session of the example.
    fn of(mut self, session: &str) -> Self {
        self.address = self.address.replace(SESSION, session);
        let body = self.body.map(|body| body.to_string().replace(SESSION, session));
        self.body = body.map(|body| serde_json::from_str(&body).unwrap());
        self
    }

    /// Adds a field to the body, or a parameter to the query if there is no body.
    fn with(mut self, name: &str, value: &Value) -> Self {
        match &mut self.body {
            Some(body) => body[name] = value.clone(),
            None => {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                return self.with_query(name, &value);
            }
        }
        self
    }

    /// Adds a parameter to the query.
    fn with_query(mut self, name: &str, value: &str) -> Self {
        let mark = if self.address.contains('?') { '&' } else { '?' };
        self.address = format!("{}{mark}{name}={value}", self.address);
        self
    }

    async fn call(&self, server: &Server) -> Reply {
        let body = self.body.as_ref().map(Value::to_string);
        server.call(&self.method, &self.address, body.as_deref()).await
    }

    async fn call_as(&self, server: &Server, token: &str) -> Reply {
        let body = self.body.clone().unwrap_or(Value::Null);
        server.as_token(token, &self.method, &self.address, body).await
    }

    #[track_caller]
    fn must(&self, reply: &Reply, code: &str) {
        assert_eq!(reply.json()["code"], code, "{} {reply:?}", self.id);
    }
}

/// Returns all operations that document this code.
fn that_can(code: &str) -> Vec<Operation> {
    let all = Operation::all().into_iter();
    all.filter(|operation| operation.can(code)).collect()
}

/// Calls each of these operations, modified by `change`, and expects this code from each.
async fn each(server: &Server, code: &str, change: impl Fn(Operation) -> Operation) {
    each_of(server, code, &[], change).await;
}

/// Does the same for all operations but some.
async fn each_of(server: &Server, code: &str, but_for: &[&str], change: impl Fn(Operation) -> Operation) {
    let mut others = Vec::new();
    let all = that_can(code).into_iter();
    for operation in all.filter(|operation| !but_for.contains(&operation.id)) {
        let operation = change(operation);
        let reply = operation.call(server).await;
        if reply.status < 400 || reply.json()["code"] != code {
            others.push((operation.id, reply));
        }
    }
    assert!(others.is_empty(), "not {code}: {others:#?}");
}

/// Stops a server, and returns its answers.
async fn end(server: Server) -> BTreeSet<Answer> {
    let seen = contract::seen(server.address);
    server.stop().await;
    seen
}

/// Adds the session of the example to a request, even where it is optional.
fn named(operation: Operation) -> Operation {
    match operation.id {
        "listSessions" => operation.with("cursor", &json!(SESSION[1..])),
        "createZnode" | "setZnode" | "setAcl" | "deleteZnode" => operation.with("session", &json!(SESSION)),
        _ => operation,
    }
}

/// Builds a request with an invalid name or path.
fn misnamed(operation: Operation) -> Operation {
    let text = |body: Value| body.to_string().replace("orders/42", "a//b");
    Operation {
        address: operation.address.replace("orders%2F42", "a%2F%2Fb"),
        body: match operation.address.contains("orders%2F42") {
            true => operation.body,
            false => operation
                .body
                .map(|body| serde_json::from_str(&text(body)).unwrap()),
        },
        ..operation
    }
}

async fn nonsense() -> BTreeSet<Answer> {
    let server = Server::start().await;
    each(&server, "bad_request", |operation| {
        operation.with_query("no", "such")
    })
    .await;
    each(&server, "bad_lock_name", |operation| {
        let grants = json!([{"locks": "a//b", "rights": ["read"]}]);
        match operation.id {
            "secureCluster" => operation.with("anonymous", &grants),
            "setRole" => operation.with("grants", &grants),
            _ => misnamed(operation),
        }
    })
    .await;
    each(&server, "bad_path", |operation| match operation.id {
        "transaction" => Operation {
            body: Some(json!({"ops": [{"check": {"path": "a"}}]})),
            ..operation
        },
        "followSession" => operation.with_query("data", "/a//b"),
        "compareTree" => operation.with_query("below", "/a//b"),
        _ => misnamed(operation),
    })
    .await;
    each_of(&server, "lease_expired", &["acquireLock"], |operation| operation).await;
    each(&server, "no_session", named).await;
    let closed = server.session().await;
    server.delete(&format!("/v1/sessions/{closed}")).await.expect(204);
    each(&server, "session_expired", |operation| {
        named(operation).of(&closed)
    })
    .await;
    end(server).await
}

async fn bodies() -> BTreeSet<Answer> {
    let small = HttpConfig {
        max_body_bytes: 100,
        max_data_body_bytes: 100,
        ..HttpConfig::default()
    };
    let server = Server::start_with(small).await;
    each(&server, "too_large", |operation| {
        operation.with("more", &json!("x".repeat(200)))
    })
    .await;
    let mut seen = end(server).await;

    let hasty = HttpConfig {
        body_timeout: Duration::from_millis(50),
        ..HttpConfig::default()
    };
    let server = Server::start_with(hasty).await;
    for operation in that_can("request_timeout") {
        let call = Call::send_head(server.address, &operation.method, &operation.address).await;
        operation.must(&call.reply().await, "request_timeout");
    }
    seen.extend(end(server).await);
    seen
}

async fn repeated() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let session = server.session().await;
    for body in [
        json!({"request_id": "used"}),
        json!({"request_id": "used", "session": session}),
    ] {
        let path = format!("/v1/znodes/{}", body.as_object().unwrap().len());
        server.post(&path, body).await.expect(201);
    }
    each(&server, "request_id_reused", |operation| {
        operation.of(&session).with("request_id", &json!("used"))
    })
    .await;
    end(server).await
}

/// Token that no cluster has issued.
const MADE_UP: &str =
    "lg_00000000000000000000000000000001_0000000000000000000000000000000000000000000000000000000000000001";

/// Operations that policies authorize, and no access control list of a znode.
const OF_POLICIES: [&str; 32] = [
    "getNamespace",
    "setQuotas",
    "deleteNamespace",
    "awaitGrant",
    "getSession",
    "closeSession",
    "heartbeat",
    "listEphemerals",
    "releaseLocks",
    "upgradeLock",
    "secureCluster",
    "listTokens",
    "createToken",
    "revokeToken",
    "listRoles",
    "getRole",
    "setRole",
    "deleteRole",
    "listCertificates",
    "setCertificate",
    "deleteCertificate",
    "getCluster",
    "membersCondition",
    "metrics",
    "downloadBackup",
    "makeSnapshot",
    "addMember",
    "moveMember",
    "removeMember",
    "promoteMember",
    "demoteMember",
    "moveLeader",
];

/// Requests in a secured cluster, by an unauthenticated caller, and by one without rights.
async fn not_allowed() -> BTreeSet<Answer> {
    let (server, admin) = Server::start_secured().await;
    let theirs = server.session_of(&admin).await;
    let weak = server.token_for(&admin, "weak", json!([])).await;
    let own = server.session_of(&weak).await;
    let mut others = Vec::new();
    for operation in that_can("unauthenticated") {
        let reply = operation.call_as(&server, MADE_UP).await;
        if reply.status != 401 {
            others.push((operation.id, reply));
        }
    }
    for operation in that_can("forbidden") {
        let id = operation.id;
        let operation = match id {
            "getSession" | "closeSession" | "heartbeat" | "listEphemerals" | "followSession" => {
                operation.of(&theirs)
            }
            "transaction" => Operation {
                body: Some(json!({"ops": [{"set": {"path": "/orders/42", "data": ""}}]})),
                ..operation
            },
            _ => operation.of(&own),
        };
        let reply = operation.call_as(&server, &weak).await;
        if reply.status != 403 {
            others.push((id, reply));
        }
    }
    assert!(others.is_empty(), "accepted: {others:#?}");
    end(server).await
}

async fn forbidden() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let session = server.session().await;
    let acquire = Operation::by_id("acquireLock").of(&session);
    acquire.call(&server).await.expect(200);
    let open = json!({"parents": true});
    server.post("/v1/znodes/orders/42", open).await.expect(201);
    let theirs = json!({"acl": [{"perms": "cdrwa", "scheme": "ip", "id": "127.0.0.9"}]});
    for path in ["orders/42", "orders", "locks/orders/42"] {
        server
            .put(&format!("/v1/acl/{path}"), theirs.clone())
            .await
            .expect(200);
    }
    each_of(&server, "forbidden", &OF_POLICIES, |operation| {
        match operation.id {
            "createZnode" => Operation {
                address: operation.address.replace("42", "43"),
                ..operation
            },
            "transaction" => Operation {
                body: Some(json!({"ops": [{"set": {"path": "/orders/42", "data": ""}}]})),
                ..operation
            },
            "followSession" => operation.of(&session).with_query("data", "/orders/42"),
            // The limit fits the mode in which the lock is held.
            "configureLock" => Operation {
                body: Some(json!({"draining": true})),
                ..operation
            },
            // Another owner than the holder's, which would only re-enter.
            "acquireLock" | "acquireLocks" => operation.with("owner", &json!("another")).of(&session),
            _ => operation.of(&session),
        }
    })
    .await;
    end(server).await
}

/// A cluster without a leader: one of two members runs.
async fn unavailable() -> BTreeSet<Answer> {
    let server = Server::start_alone().await;
    let all = that_can("unavailable").into_iter();
    let all = all.filter(|operation| operation.id != "makeSnapshot");
    let calls = all.map(|operation| {
        let operation = match (&*operation.method, operation.id) {
            (
                "GET",
                "ready" | "awaitGrant" | "downloadBackup" | "checkFencingToken" | "followEvents"
                | "membersCondition" | "getTerraformState",
            ) => operation,
            // A position that no node has reached yet.
            ("GET", "followSession") => operation.with_query("zxid", "9999.1"),
            ("GET", "metrics" | "getCluster") => operation,
            ("GET", _) | (_, "readZnodes") => operation.with_query("linearizable", "true"),
            _ => operation,
        };
        let server = &server;
        async move {
            let reply = match operation.id {
                // Only the leader could tell whether such a token exists.
                "metrics" | "getCluster" | "batch" => operation.call_as(server, MADE_UP).await,
                _ => operation.call(server).await,
            };
            (reply, operation)
        }
    });
    for (reply, operation) in join_all(calls).await {
        operation.must(&reply, "unavailable");
    }
    end(server).await
}

/// Low disk space: no disk has as much as this node is configured to require.
async fn read_only() -> BTreeSet<Answer> {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.raft.disk.low_water_bytes = u64::MAX;
        node.raft.disk.resume_bytes = u64::MAX;
        node.raft.disk.check_interval = Duration::from_millis(20);
    })
    .await;
    until("the disks are full", async || {
        server.get("/v1/cluster").await.expect(200)["read_only"] == true
    })
    .await;
    each(&server, "read_only", |operation| match operation.id {
        // The new data is longer than the old.
        "setZnode" => Operation {
            address: operation.address.replace("orders%2F42", "zookeeper"),
            ..operation
        },
        "setAcl" => Operation {
            address: operation.address.replace("orders%2F42", "zookeeper"),
            body: Some(json!({"acl": [
                {"perms": "cdrwa", "scheme": "world", "id": "anyone"},
                {"perms": "r", "scheme": "ip", "id": "10.0.0.7"},
            ]})),
            ..operation
        },
        "transaction" => Operation {
            body: Some(json!({"ops": [{"create": {"path": "/a"}}]})),
            ..operation
        },
        _ => operation,
    })
    .await;
    end(server).await
}

/// Rate limit: an address opens two sessions at once, and another one a quarter of an hour later.
const TWO_OPENINGS: OpeningBounds = OpeningBounds {
    per_second: 1,
    burst: 2_000,
    share: 1_000,
};

/// Answers of a node that lacks a feature or reaches a limit.
async fn bounded() -> BTreeSet<Answer> {
    let server = Server::start_node(HttpConfig::default(), |node| {
        node.history.enabled = false;
        node.watches.limits.per_node = 1;
        node.events.streams_per_session = 1;
        node.limits.children = 3;
        node.limits.ephemerals = 1;
        node.limits.sessions = 1;
        node.admission.openings = TWO_OPENINGS;
    })
    .await;
    let configured = server.node.config().limits;
    until("the limits hold", async || {
        server.node.read(|store| store.limits() == configured)
    })
    .await;
    each(&server, "no_history", |operation| operation).await;
    server.post("/v1/znodes/p", json!({})).await.expect(201);
    let first = Call::send(server.address, "GET", "/v1/watch/p?kind=data", None).await;
    until("it is armed", async || server.node.watch_counts().watches == 1).await;
    let second = server.get("/v1/watch/p?kind=children").await;
    second.problem(429, "too_many_requests");
    drop(first);

    let session = server.session().await;
    for child in 1..=3 {
        server
            .post(&format!("/v1/znodes/p/{child}"), json!({}))
            .await
            .expect(201);
    }
    for lock in ["x", "y"] {
        let path = format!("/v1/locks/{lock}");
        server.patch(&path, json!({"draining": true})).await.expect(204);
    }
    let acquire = json!({"session": session});
    server
        .post("/v1/locks/a/acquire", acquire.clone())
        .await
        .expect(200);
    let first = server.follow(&session, "", None).await;
    let second = server.get(&format!("/v1/sessions/{session}/events")).await;
    second.problem(429, "too_many_requests");
    drop(first);
    let locks = json!({"session": session, "locks": [{"name": "b"}]});
    let txn = json!({"ops": [{"create": {"path": "/p/4"}}]});
    for (method, path, body) in [
        ("POST", "/v1/sessions", json!({})),
        ("POST", "/v1/locks/b/acquire", acquire),
        ("POST", "/v1/multilock/acquire", locks),
        ("PATCH", "/v1/locks/d", json!({"draining": true})),
        ("POST", "/v1/znodes/p/4", json!({})),
        ("PUT", "/v1/znodes/p/4?create=true", json!({"data": "x"})),
        ("POST", "/v1/txn", txn),
        ("POST", "/v1/terraform/states/p%2F4", json!({"serial": 1})),
        (
            "POST",
            "/v1/mirror",
            conversations::put("/p/4", json!([{"perms": "r", "scheme": "world", "id": "anyone"}])),
        ),
    ] {
        let refused = server.call(method, path, Some(&body.to_string())).await;
        refused.problem(409, "limit_reached");
    }
    let refused = server.post("/v1/sessions", json!({})).await;
    refused.problem(429, "too_many_requests");
    assert!(refused.header("retry-after").is_some(), "{refused:?}");
    end(server).await
}

#[tokio::test]
async fn every_documented_answer_is_given() {
    let mut seen = conversations::successes().await;
    seen.extend(conversations::locks().await);
    seen.extend(conversations::znodes().await);
    seen.extend(conversations::mirror().await);
    seen.extend(conversations::members().await);
    seen.extend(nonsense().await);
    seen.extend(bodies().await);
    seen.extend(repeated().await);
    seen.extend(forbidden().await);
    seen.extend(not_allowed().await);
    seen.extend(conversations::access().await);
    seen.extend(conversations::namespaces().await);
    seen.extend(bounded().await);
    seen.extend(unavailable().await);
    seen.extend(read_only().await);
    let (mut missing, mut needless) = (Vec::new(), Vec::new());
    let mut idle = BTreeSet::from_iter(ELSEWHERE_TESTED);
    for operation in Operation::all() {
        for (status, codes) in &operation.answers {
            for code in codes {
                let what = if code.is_empty() {
                    status.to_string()
                } else {
                    code.clone()
                };
                let answer = (operation.id.to_owned(), *status, code.clone());
                let excused = ELSEWHERE_TESTED
                    .iter()
                    .find(|(id, known, _)| ["*", operation.id].contains(id) && *known == what);
                match (seen.contains(&answer), excused) {
                    (true, None) => {}
                    (false, None) => missing.push(answer),
                    (false, Some(excuse)) => {
                        idle.remove(excuse);
                    }
                    (true, Some(("*", ..))) => {}
                    (true, Some(_)) => needless.push(answer),
                }
            }
        }
    }
    assert!(
        missing.is_empty() && needless.is_empty() && idle.is_empty(),
        "documented and never seen: {missing:?}; seen in spite of its excuse: {needless:?}; excuses for nothing: {idle:?}"
    );
}
