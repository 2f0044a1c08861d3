//! A secured cluster of one node. It holds secrets that its callers may neither see nor change.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use lock_api::http::{HttpConfig, OperatorToken};
use serde_json::{Value, json};
use znode_store::{Identities, Identity, Store, ZPath};

use crate::http::answer::{Answered, Facts};
use crate::http::server::Server;

/// Subtrees in which the worker has every permission: a path of znodes, and the path of a prefix of lock
/// names.
const OWN: [&str; 2] = ["/team/a", "/locks/team/a"];

/// Ancestors of those subtrees. They are created and deleted along with them, and belong to no caller.
const ABOVE: [&str; 4] = ["/", "/team", "/locks", "/locks/team"];

/// Length of a piece of the secret: no caller guesses one by chance, and most mutations of an input that has
/// the secret still contain one.
const PIECE_BYTES: usize = 8;

/// State that the callers may not change, as text by path or by name of a table.
pub type NotTheirs = BTreeMap<String, String>;

/// A secured cluster, with a caller of each kind.
pub struct House {
    pub server: Server,
    /// `Authorization` header of the operator, who has every permission.
    operator: String,
    worker: String,
    blind: String,
    /// Part of every name and every text that the callers may not see. It is random, so no caller can guess
    /// it.
    mark: String,
}

impl House {
    /// Secures the cluster and creates the callers' tokens.
    pub fn open() -> Self {
        let (known, token) = OperatorToken::draw();
        let config = HttpConfig {
            operator: Some(known),
            ..HttpConfig::default()
        };
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system has random numbers");
        let mut house = Self {
            server: Server::start(config),
            operator: format!("Bearer {token}"),
            worker: String::new(),
            blind: String::new(),
            mark: format!("{:032x}", u128::from_le_bytes(random)),
        };
        house.must("POST", "/v1/access/secure", &json!({}));
        let all = ["read", "lock", "write", "break", "administer"];
        let grants = OWN.map(|path| json!({"path": path, "rights": all}));
        house.must("PUT", "/v1/roles/worker", &json!({"grants": grants}));
        house.must("PUT", "/v1/roles/blind", &json!({"grants": []}));
        house.worker = house.token("worker");
        house.blind = house.token("blind");
        house
    }

    fn token(&mut self, role: &str) -> String {
        let description = self.mark.clone();
        let made = self.must(
            "POST",
            "/v1/tokens",
            &json!({"role": role, "description": description}),
        );
        made["token"]
            .as_str()
            .expect("the node returns the token")
            .to_owned()
    }

    /// Creates the secrets. The last input has deleted everything else.
    pub fn furnish(&mut self) {
        let mark = self.mark.clone();
        let text = json!({"data": mark, "parents": true});
        self.must("POST", &format!("/v1/znodes/private/{mark}"), &text);
        self.must("POST", &format!("/v1/znodes/{mark}"), &text);
        self.must("POST", "/v1/znodes/team/ab", &text);
        let session = json!({"ttl_ms": 300_000, "name": mark});
        let session = self.must("POST", "/v1/sessions", &session)["session"].take();
        for lock in [&format!("vault-{mark}"), "vault", "team%2Fab"] {
            let wish = json!({"session": session, "wait_ms": 0, "note": mark, "owner": mark});
            self.must("POST", &format!("/v1/locks/{lock}/acquire"), &wish);
        }
    }

    /// Sends a request as the operator and returns the body of the response, which must be a success.
    fn must(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", &self.operator)
            .header("host", "localhost")
            .body(Body::from(body.to_string()))
            .expect("the request is well formed");
        let answered = self.server.ask_of_itself(request);
        let text = String::from_utf8_lossy(&answered.body);
        assert!(
            answered.status.is_success(),
            "{method} {path}: {} {text}",
            answered.status
        );
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Returns the values that inputs may refer to: the callers' tokens.
    pub fn facts(&self) -> Facts {
        Facts::with([("{worker}", self.worker.clone()), ("{blind}", self.blind.clone())])
    }

    /// Returns whether an input contains a piece of the secret, as a fuzzer sees the operands of comparisons.
    /// Responses to such an input may repeat the secret.
    pub fn is_known_to(&self, input: &[u8]) -> bool {
        let pieces = self.mark.as_bytes().windows(PIECE_BYTES);
        pieces
            .into_iter()
            .any(|piece| input.windows(PIECE_BYTES).any(|part| part == piece))
    }

    /// Checks that a response contains nothing that its caller may not see.
    pub fn tells_no_secret(&self, asked: &str, answered: &Answered) {
        let body = String::from_utf8_lossy(&answered.body);
        assert!(
            !body.contains(&self.mark),
            "{asked} reveals what its caller may not see: {body}"
        );
        for (name, value) in &answered.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            assert!(
                !value.contains(&self.mark),
                "{asked} reveals it in header {name}: {value}"
            );
        }
    }

    /// Returns all state that the callers may not change.
    pub fn not_theirs(&self) -> NotTheirs {
        self.server.read(|store| {
            let operator = Identities::new([Identity::Super]);
            let view = store.seen_by(&operator);
            let mut all = NotTheirs::new();
            put_below(store, &ZPath::root(), &mut all);
            all.insert("tokens".to_owned(), format!("{:?}", view.tokens()));
            all.insert("roles".to_owned(), format!("{:?}", view.roles()));
            all.insert("certificates".to_owned(), format!("{:?}", view.certificates()));
            let named = |session: &&_| format!("{session:?}").contains(&self.mark);
            let sessions = store.sessions();
            let sessions: Vec<_> = sessions.iter().filter(named).collect();
            assert_eq!(sessions.len(), 1, "the operator has one session");
            all.insert("session".to_owned(), format!("{sessions:?}"));
            all
        })
    }
}

fn put_below(store: &Store, path: &ZPath, all: &mut NotTheirs) {
    let text = path.to_string();
    if OWN.contains(&text.as_str()) {
        return;
    }
    if !ABOVE.contains(&text.as_str()) {
        let operator = Identities::new([Identity::Super]);
        let view = store.seen_by(&operator);
        all.insert(text, format!("{:?} {:?}", view.get(path), view.acl(path)));
    }
    for name in store.children(path).expect("the path was just listed").iter() {
        let child = path.join(name).expect("the child has a valid path");
        put_below(store, &child, all);
    }
}

/// Describes the differences between two states.
pub fn difference(before: &NotTheirs, after: &NotTheirs) -> String {
    let names = before.keys().chain(after.keys());
    let differing = names.filter(|name| before.get(*name) != after.get(*name));
    let lines = differing.map(|name| format!("{name}: {:?} and {:?}", before.get(name), after.get(name)));
    lines.collect::<Vec<_>>().join("; ")
}
