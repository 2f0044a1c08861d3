//! Authorization over HTTP: every route and method, by every kind of caller, at every kind of path. Each cell is
//! compared with the expected result in `table`, which was written from docs/reference/security.md and not from the
//! code. A route that the table does not have fails the test.

pub mod callers;
mod table;

use std::collections::{BTreeMap, BTreeSet};

use axum::body::{Body, to_bytes};
use axum::http::{Request, Response};
use lock_api::Locks;
use lock_api::http::{ApiService, HttpConfig, OperatorToken, Peer, router, served};
use lock_node::{MemberAddress, Node, NodeConfig};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tower_service::Service;

use self::callers::{Caller, all_callers};
use self::table::{Expected, PLACES, Place, Row, rows};
use crate::contract::VERBS;
use crate::support::{in_time, until};

/// Exceeds the size of every answer here.
const MANY_BYTES: usize = 4 * 1024 * 1024;

/// A node with one member, and its routes without a socket.
pub struct House {
    pub node: Node,
    locks: Locks,
    service: ApiService,
    pub operator: String,
    directory: TempDir,
}

/// Result of a call.
#[derive(Debug)]
pub struct Outcome {
    pub status: u16,
    pub code: String,
    pub document: Value,
    /// Value of `WWW-Authenticate`.
    pub asks_for: Option<String>,
}

impl House {
    pub async fn open() -> Self {
        let mut all = Self::open_all(1).await;
        all.pop().expect("there is one")
    }

    /// Starts the nodes of one cluster.
    pub async fn open_all(count: u64) -> Vec<Self> {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let members = (1..).zip(&listeners).map(|(id, listener)| {
            let peer = listener.local_addr().unwrap().to_string();
            let http = format!("127.0.0.1:{id}");
            (id, MemberAddress { peer, http })
        });
        let members: BTreeMap<_, _> = members.collect();
        let mut all = Vec::new();
        for (id, listener) in (1..).zip(listeners) {
            let directory = tempfile::tempdir().unwrap();
            let config = NodeConfig::new(id, "test", members.clone(), directory.path());
            let node = Node::start_on(config, listener).await.unwrap();
            let locks = Locks::new(node.clone());
            let (known, operator) = OperatorToken::draw();
            let http = HttpConfig {
                operator: Some(known),
                ..HttpConfig::default()
            };
            let service = router(node.clone(), locks.clone(), http);
            all.push(Self {
                node,
                locks,
                service,
                operator,
                directory,
            });
        }
        for house in &all {
            until("the node is ready", async || house.node.not_ready().is_none()).await;
        }
        all
    }

    pub async fn close(self) {
        in_time("the lock calls end", self.locks.close()).await;
        in_time("the node stops", self.node.stop()).await;
        self.directory.close().unwrap();
    }

    /// Makes one call. Of a streaming answer only the beginning is read.
    pub async fn ask(&self, caller: &Caller, method: &str, path: &str, body: &Value) -> Outcome {
        let what = format!("{} calls {method} {path}", caller.name);
        let answer = in_time(&what, self.answer(caller, method, path, body)).await;
        let (head, body) = answer.into_parts();
        let is_document = head.headers.get("content-type").is_some_and(|kind| {
            let kind = kind.to_str().unwrap();
            kind == "application/json" || kind == "application/problem+json"
        });
        let document = match is_document {
            true if method != "HEAD" => {
                serde_json::from_slice(&to_bytes(body, MANY_BYTES).await.unwrap()).unwrap()
            }
            _ => Value::Null,
        };
        Outcome {
            status: head.status.as_u16(),
            code: document["code"].as_str().unwrap_or_default().to_owned(),
            document,
            asks_for: head
                .headers
                .get("www-authenticate")
                .map(|value| value.to_str().unwrap().to_owned()),
        }
    }

    /// Returns the answer as a stream: its head and its body.
    pub async fn answer(&self, caller: &Caller, method: &str, path: &str, body: &Value) -> Response<Body> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "127.0.0.1:9");
        if let Some(shown) = &caller.shows {
            request = request.header("authorization", shown);
        }
        let body = match body {
            Value::Null => Body::empty(),
            body => Body::from(body.to_string()),
        };
        let mut request = request.body(body).unwrap();
        let peer = Peer::new("127.0.0.1:9".parse().unwrap(), caller.certificate.as_ref());
        request.extensions_mut().insert(peer);
        let mut service = self.service.clone();
        let Ok(answer) = service.call(request).await;
        answer
    }

    /// Makes a call that has to return this status.
    pub async fn must(&self, caller: &Caller, method: &str, path: &str, body: Value, status: u16) -> Value {
        let outcome = self.ask(caller, method, path, &body).await;
        assert_eq!(outcome.status, status, "{method} {path}: {outcome:?}");
        outcome.document
    }

    /// Opens a session that lives as long as a test.
    pub async fn session_of(&self, caller: &Caller) -> String {
        let body = json!({"ttl_ms": 120_000});
        let opened = self.must(caller, "POST", "/v1/sessions", body, 201).await;
        opened["session"].as_str().unwrap().to_owned()
    }
}

/// Creates the objects of the calls: the same at each place, as znodes and as locks.
async fn furnish(house: &House, admin: &Caller) {
    let body = |data: &str| json!({"data": data, "parents": true});
    let session = house.session_of(admin).await;
    for place in PLACES {
        let at = place.path;
        let path = format!("/v1/znodes/{at}");
        // Ancestors of other paths exist already.
        let there = house.ask(admin, "POST", &path, &body("theirs")).await;
        assert!(matches!(there.status, 201 | 409), "{there:?}");
        let acquire = json!({"session": session});
        let path = format!("/v1/locks/{}/acquire", at.replace('/', "%2F"));
        house.must(admin, "POST", &path, acquire, 200).await;
    }
}

fn hold(caller: &Caller, row: &Row, place: &Place, outcome: &Outcome) -> Result<(), String> {
    let expected = row.expected(caller, place);
    let is_so = match expected {
        Expected::Allowed => outcome.status == row.status,
        Expected::Unauthenticated => {
            (outcome.status, &*outcome.code) == (401, "unauthenticated")
                && outcome.asks_for.as_deref() == Some("Bearer")
        }
        Expected::Forbidden => {
            (outcome.status, &*outcome.code) == (403, "forbidden") && tells_nothing(&outcome.document)
        }
        // Each call has its own answer.
        Expected::ForbiddenWithin => {
            outcome.status == 200 && outcome.document["results"][0]["problem"]["code"] == "forbidden"
        }
    };
    match is_so {
        true => Ok(()),
        false => Err(format!(
            "{} at {:?} by {}: {expected:?} (or {}) was expected: {outcome:?}",
            row.name(),
            place.path,
            caller.name,
            row.status,
        )),
    }
}

/// Checks that a refusal names the missing right and the path of the request, and reveals nothing about existing
/// objects.
fn tells_nothing(document: &Value) -> bool {
    let known = [
        "type", "title", "status", "detail", "code", "right", "path", "session", "index",
    ];
    let fields = document.as_object().unwrap().keys();
    fields.map(String::as_str).all(|field| known.contains(&field)) && !document.to_string().contains("theirs")
}

#[tokio::test]
async fn every_route_by_every_caller_at_every_place() {
    let house = House::open().await;
    let callers = all_callers(&house).await;
    let admin = callers
        .iter()
        .find(|caller| caller.name == "administrator")
        .unwrap();
    furnish(&house, admin).await;
    let mut own = Vec::new();
    for caller in &callers {
        own.push(match caller.is_let_in() {
            true => house.session_of(caller).await,
            // The caller has no session. The missing right is reported before the owner of the session is checked.
            false => house.session_of(admin).await,
        });
    }
    let table = rows();
    let (mut cells, mut wrong) = (0_usize, Vec::new());
    for row in &table {
        let places = if row.has_place() { PLACES } else { &PLACES[..1] };
        for place in places {
            for (caller, session) in callers.iter().zip(&own) {
                let session = match row.is_about_anothers_session() {
                    true => house.session_of(admin).await,
                    false => session.clone(),
                };
                cells += 1;
                let (path, body) = (row.path(place, &session, cells), row.body(place, &session, cells));
                let outcome = house.ask(caller, row.method, &path, &body).await;
                wrong.extend(hold(caller, row, place, &outcome).err());
                // A caller without the right to read does not get a `HEAD` answer either.
                if row.method == "GET" {
                    cells += 1;
                    let head = house.ask(caller, "HEAD", &path, &Value::Null).await;
                    if head.status != outcome.status {
                        wrong.push(format!("HEAD {path} by {}: {head:?}", caller.name));
                    }
                }
            }
        }
    }
    println!(
        "the matrix has {cells} cells, of {} requests by {} callers",
        table.len(),
        callers.len()
    );
    assert!(
        wrong.is_empty(),
        "{} of {cells} cells are wrong:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    house.close().await;
}

#[test]
fn every_route_is_in_the_table() {
    let table = rows();
    let known: BTreeSet<(&str, &str)> = table.iter().map(|row| (row.address, row.method)).collect();
    let served = served();
    let routed: BTreeSet<_> = served
        .iter()
        .map(|(address, method)| (*address, method.as_str()))
        .collect();
    let missing: Vec<_> = routed.difference(&known).collect();
    let needless: Vec<_> = known.difference(&routed).collect();
    assert!(
        missing.is_empty() && needless.is_empty(),
        "served, and not in the table: {missing:?}; in the table, and not served: {needless:?}"
    );
    for verb in VERBS {
        let end = format!("/{verb}");
        let is_known = |row: &Row| {
            row.address == "/v1/locks/{*name_and_verb}" && row.path(&PLACES[0], "0", 0).contains(&end)
        };
        assert!(table.iter().any(is_known), "the table lacks {verb}");
    }
}

/// In an open cluster all callers may do everything but secure it. Only callers with an invalid token are rejected.
#[tokio::test]
async fn open_cluster_rejects_only_invalid_tokens() {
    let house = House::open().await;
    let nobody = Caller::nobody();
    let session = house.session_of(&nobody).await;
    let (mut cells, mut wrong) = (0, Vec::new());
    for row in rows() {
        let place = &PLACES[0];
        for caller in [
            nobody.clone(),
            Caller::with_token("bad token", &format!("lg_{:032x}_{:064x}", 1, 2)),
        ] {
            cells += 1;
            let (path, body) = (row.path(place, &session, cells), row.body(place, &session, cells));
            let outcome = house.ask(&caller, row.method, &path, &body).await;
            let refused = matches!(outcome.status, 401 | 403);
            let must_be = match caller.shows {
                Some(_) => !row.is_for_everybody(),
                None => row.address == "/v1/access/secure",
            };
            if refused != must_be || outcome.status >= 500 {
                wrong.push(format!("{} by {}: {outcome:?}", row.name(), caller.name));
            }
        }
    }
    println!("the matrix of an open cluster has {cells} cells");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    house.close().await;
}

/// The existence of an object is hidden from callers without the right: present and absent ones are refused alike.
#[tokio::test]
async fn refusal_does_not_reveal_existence() {
    let house = House::open().await;
    let callers = all_callers(&house).await;
    let by_name = |name: &str| callers.iter().find(|caller| caller.name == name).unwrap();
    furnish(&house, by_name("administrator")).await;
    let weak = by_name("token without rights");
    for (method, there, missing, body) in [
        ("GET", "/v1/znodes/other", "/v1/znodes/none", Value::Null),
        ("GET", "/v1/acl/other", "/v1/acl/none", Value::Null),
        ("PUT", "/v1/znodes/other", "/v1/znodes/none", json!({"data": "x"})),
        ("DELETE", "/v1/znodes/other", "/v1/znodes/none", Value::Null),
        ("GET", "/v1/locks/other", "/v1/locks/none", Value::Null),
        (
            "GET",
            "/v1/locks/other/history",
            "/v1/locks/none/history",
            Value::Null,
        ),
        (
            "GET",
            "/v1/locks/other/check?fencing_token=1",
            "/v1/locks/none/check?fencing_token=1",
            Value::Null,
        ),
        (
            "POST",
            "/v1/locks/other/break",
            "/v1/locks/none/break",
            json!({"holder": "h", "reason": "r"}),
        ),
        (
            "GET",
            "/v1/watch/other?kind=data&timeout_ms=0",
            "/v1/watch/none?kind=data&timeout_ms=0",
            Value::Null,
        ),
    ] {
        let one = house.ask(weak, method, there, &body).await;
        let other = house.ask(weak, method, missing, &body).await;
        assert_eq!(
            (one.status, &*one.code),
            (403, "forbidden"),
            "{method} {there}: {one:?}"
        );
        let alike = one.document.to_string().replace("other", "none");
        assert_eq!(alike, other.document.to_string(), "{method} {there}");
    }
    // Lists contain what the caller may see, which is nothing here.
    for (path, list) in [
        ("/v1/locks", "locks"),
        ("/v1/lock-graph", "waits"),
        ("/v1/sessions", "sessions"),
    ] {
        let seen = house.must(weak, "GET", path, Value::Null, 200).await;
        assert_eq!(seen[list], json!([]), "{path}");
    }
    house.close().await;
}
