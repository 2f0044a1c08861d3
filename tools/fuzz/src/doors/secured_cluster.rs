//! A secured cluster of one node. It holds secrets that its callers may neither see nor change.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use lock_api::http::{HttpConfig, OperatorToken};
use serde_json::{Value, json};
use znode_store::{Identities, Identity, Store, ZPath};

use crate::http::response::{Facts, Response};
use crate::http::server::Server;

/// Subtrees in which the worker has every permission: a path of znodes, and the path of a prefix of lock
/// names.
const OWN_SUBTREES: [&str; 2] = ["/team/a", "/locks/team/a"];

/// Ancestors of those subtrees. They are created and deleted along with them, and belong to no caller.
const ANCESTORS: [&str; 4] = ["/", "/team", "/locks", "/locks/team"];

/// Length of a piece of the secret: no caller guesses one by chance, and most mutations of an input that has
/// the secret still contain one.
const PIECE_BYTES: usize = 8;

/// State that the callers may not change, as text by path or by name of a table.
pub type ProtectedState = BTreeMap<String, String>;

/// A secured cluster, with a caller of each kind.
pub struct SecuredCluster {
    pub server: Server,
    /// `Authorization` header of the operator, who has every permission.
    operator: String,
    worker: String,
    blind: String,
    /// Part of every name and every text that the callers may not see. It is random, so no caller can guess
    /// it.
    secret: String,
}

impl SecuredCluster {
    /// Secures the cluster and creates the callers' tokens.
    pub fn open() -> Self {
        let (known, token) = OperatorToken::draw();
        let config = HttpConfig {
            operator: Some(known),
            ..HttpConfig::default()
        };
        let mut random = [0; 16];
        getrandom::fill(&mut random).expect("the operating system has random numbers");
        let mut cluster = Self {
            server: Server::start(config),
            operator: format!("Bearer {token}"),
            worker: String::new(),
            blind: String::new(),
            secret: format!("{:032x}", u128::from_le_bytes(random)),
        };
        cluster.call_as_operator("POST", "/v1/access/secure", &json!({}));
        let all = ["read", "lock", "write", "break", "administer"];
        let grants = OWN_SUBTREES.map(|path| json!({"path": path, "rights": all}));
        cluster.call_as_operator("PUT", "/v1/roles/worker", &json!({"grants": grants}));
        cluster.call_as_operator("PUT", "/v1/roles/blind", &json!({"grants": []}));
        cluster.worker = cluster.token("worker");
        cluster.blind = cluster.token("blind");
        cluster
    }

    fn token(&mut self, role: &str) -> String {
        let description = self.secret.clone();
        let made = self.call_as_operator(
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
    pub fn create_secrets(&mut self) {
        let secret = self.secret.clone();
        let text = json!({"data": secret, "parents": true});
        self.call_as_operator("POST", &format!("/v1/znodes/private/{secret}"), &text);
        self.call_as_operator("POST", &format!("/v1/znodes/{secret}"), &text);
        self.call_as_operator("POST", "/v1/znodes/team/ab", &text);
        let session = json!({"ttl_ms": 300_000, "name": secret});
        let session = self.call_as_operator("POST", "/v1/sessions", &session)["session"].take();
        for lock in [&format!("vault-{secret}"), "vault", "team%2Fab"] {
            let wish = json!({"session": session, "wait_ms": 0, "note": secret, "owner": secret});
            self.call_as_operator("POST", &format!("/v1/locks/{lock}/acquire"), &wish);
        }
    }

    /// Sends a request as the operator and returns the body of the response, which must be a success.
    fn call_as_operator(&mut self, method: &str, path: &str, body: &Value) -> Value {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", &self.operator)
            .header("host", "localhost")
            .body(Body::from(body.to_string()))
            .expect("the request is well formed");
        let response = self.server.send_unlimited(request);
        let text = String::from_utf8_lossy(&response.body);
        assert!(
            response.status.is_success(),
            "{method} {path}: {} {text}",
            response.status
        );
        serde_json::from_str(&text).unwrap_or_default()
    }

    /// Returns the values that inputs may refer to: the callers' tokens.
    pub fn facts(&self) -> Facts {
        Facts::with([("{worker}", self.worker.clone()), ("{blind}", self.blind.clone())])
    }

    /// Returns whether an input contains a piece of the secret, as a fuzzer sees the operands of comparisons.
    /// Responses to such an input may repeat the secret.
    pub fn is_part_of(&self, input: &[u8]) -> bool {
        let pieces = self.secret.as_bytes().windows(PIECE_BYTES);
        pieces
            .into_iter()
            .any(|piece| input.windows(PIECE_BYTES).any(|part| part == piece))
    }

    /// Checks that a response contains nothing that its caller may not see.
    pub fn check_secrecy(&self, request_line: &str, response: &Response) {
        let body = String::from_utf8_lossy(&response.body);
        assert!(
            !body.contains(&self.secret),
            "{request_line} reveals what its caller may not see: {body}"
        );
        for (name, value) in &response.headers {
            let value = String::from_utf8_lossy(value.as_bytes());
            assert!(
                !value.contains(&self.secret),
                "{request_line} reveals it in header {name}: {value}"
            );
        }
    }

    /// Returns all state that the callers may not change.
    pub fn protected_state(&self) -> ProtectedState {
        self.server.read(|store| {
            let operator = Identities::new([Identity::Super]);
            let view = store.seen_by(&operator);
            let mut all = ProtectedState::new();
            collect_below(store, &ZPath::root(), &mut all);
            all.insert("tokens".to_owned(), format!("{:?}", view.tokens()));
            all.insert("roles".to_owned(), format!("{:?}", view.roles()));
            all.insert("certificates".to_owned(), format!("{:?}", view.certificates()));
            let named = |session: &&_| format!("{session:?}").contains(&self.secret);
            let sessions = store.sessions();
            let sessions: Vec<_> = sessions.iter().filter(named).collect();
            assert_eq!(sessions.len(), 1, "the operator has one session");
            all.insert("session".to_owned(), format!("{sessions:?}"));
            all
        })
    }
}

fn collect_below(store: &Store, path: &ZPath, all: &mut ProtectedState) {
    let text = path.to_string();
    if OWN_SUBTREES.contains(&text.as_str()) {
        return;
    }
    if !ANCESTORS.contains(&text.as_str()) {
        let operator = Identities::new([Identity::Super]);
        let view = store.seen_by(&operator);
        all.insert(text, format!("{:?} {:?}", view.get(path), view.acl(path)));
    }
    for name in store.children(path).expect("the path was just listed").iter() {
        let child = path.join(name).expect("the child has a valid path");
        collect_below(store, &child, all);
    }
}

/// Describes the differences between two states.
pub fn difference(before: &ProtectedState, after: &ProtectedState) -> String {
    let names = before.keys().chain(after.keys());
    let differing = names.filter(|name| before.get(*name) != after.get(*name));
    let lines = differing.map(|name| format!("{name}: {:?} and {:?}", before.get(name), after.get(name)));
    lines.collect::<Vec<_>>().join("; ")
}
