//! Expected results: each possible request with the callers that may make it. It repeats the table of
//! docs/reference/security.md by hand, and does not know the code of the routes.

use serde_json::{Value, json};

use super::callers::{Caller, Standing};

/// A path in the tree, and the lock of the same name.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub path: &'static str,
    /// Set if the grants at `team/a` cover it.
    pub is_own: bool,
}

/// The granted path, a path below it, a foreign path, a path above it, and a path beside it with the same prefix.
pub const PLACES: &[Place] = &[
    Place {
        path: "team/a",
        is_own: true,
    },
    Place {
        path: "team/a/x",
        is_own: true,
    },
    Place {
        path: "other",
        is_own: false,
    },
    Place {
        path: "team",
        is_own: false,
    },
    Place {
        path: "team/ab",
        is_own: false,
    },
];

/// Callers that may make a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// Every caller, with any credentials.
    Everybody,
    /// Every caller without an invalid token.
    Anybody,
    /// Every authenticated caller.
    LetIn,
    /// Callers with one of these rights at the place.
    With(&'static [&'static str]),
    /// The same; the request itself is answered, and the one in it is refused.
    WithinWith(&'static [&'static str]),
    /// Callers that may read the state of the cluster.
    Watchers,
    /// Administrators.
    Administrators,
    /// The same, or the owner of the session, which is an administrator.
    ItsOwner,
}

/// Expected result of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Allowed,
    Unauthenticated,
    Forbidden,
    ForbiddenWithin,
}

/// A request that can be made.
pub struct Row {
    /// Address of the route.
    pub address: &'static str,
    pub method: &'static str,
    /// Path of the request. `{at}` is the path, `{lock}` the same with encoded slashes, `{session}` a session, `{n}` a
    /// number of this cell alone.
    path: &'static str,
    body: Value,
    who: Who,
    /// Status for permitted callers.
    pub status: u16,
}

impl Row {
    pub fn name(&self) -> String {
        format!("{} {} {}", self.method, self.path, self.body)
    }

    pub fn has_place(&self) -> bool {
        matches!(self.who, Who::With(_) | Who::WithinWith(_))
    }

    pub fn is_for_everybody(&self) -> bool {
        self.who == Who::Everybody
    }

    pub fn is_about_anothers_session(&self) -> bool {
        self.who == Who::ItsOwner
    }

    pub fn path(&self, place: &Place, session: &str, number: usize) -> String {
        fill(self.path, place, session, number)
    }

    pub fn body(&self, place: &Place, session: &str, number: usize) -> Value {
        let text = fill(&self.body.to_string(), place, session, number);
        serde_json::from_str(&text).unwrap()
    }

    pub fn expected(&self, caller: &Caller, place: &Place) -> Expected {
        let has_one_of = |rights: &[&str]| match caller.standing {
            Standing::Mighty => true,
            Standing::Has(Some(right)) => place.is_own && rights.contains(&right),
            _ => false,
        };
        let is_allowed = match (self.who, caller.standing) {
            (Who::Everybody, _) => true,
            (_, Standing::Refused) => return Expected::Unauthenticated,
            (Who::Anybody, _) => true,
            (_, Standing::Unproven) => return Expected::Unauthenticated,
            (Who::LetIn, _) => true,
            (Who::With(rights) | Who::WithinWith(rights), _) => has_one_of(rights),
            (Who::Watchers, standing) => matches!(standing, Standing::Watcher | Standing::Mighty),
            (Who::Administrators | Who::ItsOwner, standing) => standing == Standing::Mighty,
        };
        match (is_allowed, self.who) {
            (true, _) => Expected::Allowed,
            (false, Who::WithinWith(_)) => Expected::ForbiddenWithin,
            (false, _) => Expected::Forbidden,
        }
    }
}

fn fill(text: &str, place: &Place, session: &str, number: usize) -> String {
    text.replace("{at}", place.path)
        .replace("{lock}", &place.path.replace('/', "%2F"))
        .replace("{session}", session)
        .replace("{n}", &number.to_string())
}

const NONE: Value = Value::Null;
const READ: Who = Who::With(&["read"]);
const LOCK: Who = Who::With(&["lock"]);
const WRITE: Who = Who::With(&["write"]);
const BREAK: Who = Who::With(&["break"]);
const ADMINISTER: Who = Who::With(&["administer"]);
const LOCK_OR_READ: Who = Who::With(&["lock", "read"]);
const READ_OR_ADMINISTER: Who = Who::With(&["read", "administer"]);

const LOCKS: &str = "/v1/locks/{*name_and_verb}";
const ZNODES: &str = "/v1/znodes/{*path}";

/// Returns every request.
pub fn rows() -> Vec<Row> {
    let mut all = Vec::new();
    for family in [
        everybody(),
        cluster(),
        access(),
        sessions(),
        leases(),
        terraform(),
        locks(),
        several_locks(),
        znodes(),
        root(),
        txn(),
    ] {
        all.extend(family);
    }
    #[cfg(feature = "failpoints")]
    all.extend(debug());
    all
}

fn row(address: &'static str, call: &'static str, body: Value, who: Who, status: u16) -> Row {
    let (method, path) = call.split_once(' ').unwrap();
    Row {
        address,
        method,
        path,
        body,
        who,
        status,
    }
}

fn plain(call: &'static str, body: Value, who: Who, status: u16) -> Row {
    let (_, path) = call.split_once(' ').unwrap();
    row(path, call, body, who, status)
}

fn everybody() -> Vec<Row> {
    let all = [
        "GET /healthz",
        "GET /v1/version",
        "GET /readyz",
        "GET /v1/openapi.json",
        "GET /docs",
        "GET /docs/style.css",
        "GET /",
    ];
    let mut rows: Vec<_> = all.map(|call| plain(call, NONE, Who::Everybody, 200)).into();
    let file = "GET /dashboard/app.js";
    rows.push(row("/dashboard/{file}", file, NONE, Who::Everybody, 200));
    rows.push(plain("GET /v1/access", NONE, Who::Anybody, 200));
    // The events that each caller gets are tested in tests/http/event_feed.rs.
    rows.push(plain("GET /v1/events", NONE, Who::LetIn, 200));
    rows
}

fn cluster() -> Vec<Row> {
    use Who::{Administrators, Watchers};
    let member = "/v1/cluster/members/{id}";
    let address = json!({"peer": "127.0.0.1:1", "http": "127.0.0.1:2"});
    let joining = json!({"node_id": 1, "peer": "127.0.0.1:1", "http": "127.0.0.1:2"});
    vec![
        plain("GET /metrics", NONE, Watchers, 200),
        plain("GET /v1/cluster", NONE, Watchers, 200),
        plain("POST /v1/cluster/snapshot", NONE, Administrators, 200),
        plain("GET /v1/snapshot", NONE, Administrators, 200),
        plain("GET /v1/cluster/members", NONE, Watchers, 200),
        plain("GET /v1/mirror", NONE, Administrators, 200),
        plain(
            "POST /v1/mirror",
            json!({"steps": [{"remove": {"path": "/mirror-of-nothing"}}]}),
            Administrators,
            200,
        ),
        plain("POST /v1/cluster/members", joining, Administrators, 409),
        row(member, "PUT /v1/cluster/members/2", address, Administrators, 404),
        row(member, "DELETE /v1/cluster/members/2", NONE, Administrators, 404),
        row(
            "/v1/cluster/members/{id}/promote",
            "POST /v1/cluster/members/2/promote",
            NONE,
            Administrators,
            404,
        ),
        row(
            "/v1/cluster/members/{id}/demote",
            "POST /v1/cluster/members/2/demote",
            NONE,
            Administrators,
            404,
        ),
        plain(
            "POST /v1/cluster/leader",
            json!({"node_id": 2}),
            Administrators,
            404,
        ),
    ]
}

fn access() -> Vec<Row> {
    use Who::{Administrators, LetIn};
    let namespace = "/v1/namespaces/{name}";
    let token = "/v1/tokens/{id}";
    let role = "/v1/roles/{role}";
    let made_up = "DELETE /v1/tokens/00000000000000000000000000000001";
    vec![
        plain("POST /v1/access/secure", json!({}), Administrators, 409),
        plain("GET /v1/namespaces", NONE, LetIn, 200),
        row(namespace, "GET /v1/namespaces/none", NONE, Administrators, 404),
        row(
            namespace,
            "PUT /v1/namespaces/made",
            json!({}),
            Administrators,
            200,
        ),
        row(
            namespace,
            "DELETE /v1/namespaces/never",
            NONE,
            Administrators,
            404,
        ),
        plain("GET /v1/tokens", NONE, Administrators, 200),
        plain("POST /v1/tokens", json!({"role": "none"}), Administrators, 201),
        row(token, made_up, NONE, Administrators, 404),
        plain("GET /v1/roles", NONE, Administrators, 200),
        row(role, "GET /v1/roles/none", NONE, Administrators, 200),
        row(
            role,
            "PUT /v1/roles/made",
            json!({"grants": []}),
            Administrators,
            200,
        ),
        row(role, "DELETE /v1/roles/never", NONE, Administrators, 404),
        plain("GET /v1/certificates", NONE, Administrators, 200),
        plain(
            "PUT /v1/certificates",
            json!({"subject": "CN=x", "role": "none"}),
            Administrators,
            200,
        ),
        row(
            "/v1/certificates",
            "DELETE /v1/certificates?subject=CN=never",
            NONE,
            Administrators,
            404,
        ),
    ]
}

fn sessions() -> Vec<Row> {
    use Who::{ItsOwner, LetIn};
    let one = "/v1/sessions/{session}";
    let beat = "/v1/sessions/{session}/heartbeat";
    let ephemerals = "/v1/sessions/{session}/ephemerals";
    let events = "/v1/sessions/{session}/events";
    let mut rows = vec![
        plain("GET /v1/sessions", NONE, LetIn, 200),
        plain("POST /v1/sessions", json!({}), LetIn, 201),
        row(one, "DELETE /v1/sessions/{session}", NONE, ItsOwner, 204),
    ];
    for who in [ItsOwner, LetIn] {
        rows.push(row(one, "GET /v1/sessions/{session}", NONE, who, 200));
        rows.push(row(beat, "POST /v1/sessions/{session}/heartbeat", NONE, who, 200));
        rows.push(row(
            ephemerals,
            "GET /v1/sessions/{session}/ephemerals",
            NONE,
            who,
            200,
        ));
        rows.push(row(events, "GET /v1/sessions/{session}/events", NONE, who, 200));
    }
    let watching = "GET /v1/sessions/{session}/events?exists=/{at}";
    rows.push(row(events, watching, NONE, READ, 200));
    rows
}

/// The secret of a lease is the right to it, so every caller with a proven identity is admitted, and gets 410 for this lease, which does not exist.
fn leases() -> Vec<Row> {
    use Who::LetIn;
    let one = "/v1/leases/{lease}";
    let get = "GET /v1/leases/ls_000000000000001f_00000000000000000000000000000001";
    let release = "DELETE /v1/leases/ls_000000000000001f_00000000000000000000000000000001";
    let renew = "POST /v1/leases/ls_000000000000001f_00000000000000000000000000000001/renew";
    vec![
        row(one, get, NONE, LetIn, 410),
        row(one, release, NONE, LetIn, 410),
        row("/v1/leases/{lease}/renew", renew, json!({}), LetIn, 410),
    ]
}

/// States of Terraform, and their locks.
fn terraform() -> Vec<Row> {
    let state = "/v1/terraform/states/{*name}";
    let lock = "/v1/terraform/locks/{*name}";
    let info = json!({"ID": "one"});
    vec![
        row(state, "GET /v1/terraform/states/{at}", NONE, READ, 200),
        row(
            state,
            "POST /v1/terraform/states/{at}/t{n}",
            json!({"serial": 1}),
            WRITE,
            200,
        ),
        row(state, "DELETE /v1/terraform/states/{at}/none", NONE, WRITE, 404),
        row(
            lock,
            "POST /v1/terraform/locks/{at}/t{n}",
            info.clone(),
            LOCK,
            200,
        ),
        row(
            lock,
            "DELETE /v1/terraform/locks/{at}/none",
            info,
            LOCK_OR_READ,
            200,
        ),
    ]
}

fn locks() -> Vec<Row> {
    let held = json!({"session": "{session}", "holder": "none"});
    let down = json!({"session": "{session}", "holder": "none", "mode": "shared"});
    let ask = json!({"reason": "r"});
    let reply = json!({"session": "{session}", "holder": "none", "answer": "no"});
    let take_away = json!({"holder": "none", "reason": "r"});
    let at = |call, body, who, status| row(LOCKS, call, body, who, status);
    vec![
        plain("GET /v1/locks", NONE, Who::LetIn, 200),
        plain("GET /v1/lock-graph", NONE, Who::LetIn, 200),
        // Locks at which no caller has a grant.
        row(
            LOCKS,
            "PATCH /v1/locks/graph",
            json!({"draining": false}),
            Who::Administrators,
            204,
        ),
        row(LOCKS, "POST /v1/locks/graph", NONE, Who::LetIn, 405),
        // No lock has an empty name.
        row("/v1/locks/", "GET /v1/locks/", NONE, Who::LetIn, 400),
        row(
            "/v1/locks/",
            "PATCH /v1/locks/",
            json!({"draining": false}),
            Who::LetIn,
            400,
        ),
        row("/v1/locks/", "POST /v1/locks/", NONE, Who::LetIn, 400),
        at("GET /v1/locks/{lock}", NONE, READ, 200),
        at("GET /v1/locks/{lock}/check?fencing_token=1", NONE, READ, 200),
        at("GET /v1/locks/{lock}/history", NONE, READ, 200),
        at("GET /v1/locks/{lock}/holders/none", NONE, LOCK_OR_READ, 410),
        at(
            "POST /v1/locks/{lock}%2Fl{n}/acquire",
            json!({"session": "{session}"}),
            LOCK,
            200,
        ),
        at("POST /v1/locks/{lock}/release", held.clone(), LOCK, 409),
        at("POST /v1/locks/{lock}/downgrade", down, LOCK, 409),
        at("POST /v1/locks/{lock}/upgrade", held, LOCK, 409),
        at("POST /v1/locks/{lock}/release-request", ask, BREAK, 200),
        at("POST /v1/locks/{lock}/release-request/reply", reply, LOCK, 409),
        at("POST /v1/locks/{lock}/break", take_away, BREAK, 409),
        at(
            "PATCH /v1/locks/{lock}",
            json!({"draining": false}),
            ADMINISTER,
            204,
        ),
    ]
}

fn several_locks() -> Vec<Row> {
    let acquire = json!({"session": "{session}", "locks": [{"name": "{at}/m{n}"}]});
    let release = json!({"session": "{session}", "holders": [{"lock": "{at}", "holder": "none"}]});
    let one = json!({"path": "/v1/locks/{lock}/acquire", "body": {"session": "{session}", "mode": "shared"}});
    let batch = json!({"requests": [one]});
    vec![
        plain("POST /v1/multilock/acquire", acquire, LOCK, 200),
        plain("POST /v1/multilock/release", release, LOCK, 409),
        plain("POST /v1/batch", batch, Who::WithinWith(&["lock"]), 200),
    ]
}

fn znodes() -> Vec<Row> {
    let acl = "/v1/acl/{*path}";
    let everything = json!({"acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]});
    vec![
        row(ZNODES, "GET /v1/znodes/{at}", NONE, READ, 200),
        row(
            ZNODES,
            "GET /v1/znodes/{at}?children=true&descendants=true&acl=true",
            NONE,
            READ,
            200,
        ),
        row(
            ZNODES,
            "POST /v1/znodes/{at}/c{n}",
            json!({"data": "x"}),
            WRITE,
            201,
        ),
        row(
            ZNODES,
            "POST /v1/znodes/{at}/s{n}-",
            json!({"session": "{session}", "mode": "ephemeral_sequential"}),
            WRITE,
            201,
        ),
        row(
            ZNODES,
            "POST /v1/znodes/{at}/p{n}/below",
            json!({"parents": true}),
            WRITE,
            201,
        ),
        row(
            ZNODES,
            "PUT /v1/znodes/{at}",
            json!({"data": "theirs"}),
            WRITE,
            200,
        ),
        row(ZNODES, "DELETE /v1/znodes/{at}/none", NONE, WRITE, 404),
        row(
            ZNODES,
            "DELETE /v1/znodes/{at}/none?recursive=true",
            NONE,
            WRITE,
            404,
        ),
        // The contender of the administrator, which all other callers conflict with.
        row(ZNODES, "DELETE /v1/znodes/locks/{at}/none", NONE, WRITE, 404),
        row(acl, "GET /v1/acl/{at}", NONE, READ_OR_ADMINISTER, 200),
        row(acl, "PUT /v1/acl/{at}", everything, ADMINISTER, 200),
        row(
            "/v1/watch/{*path}",
            "GET /v1/watch/{at}?kind=data&timeout_ms=0",
            NONE,
            READ,
            204,
        ),
        row(
            "/v1/watch/{*path}",
            "GET /v1/watch/{at}?kind=recursive&timeout_ms=0",
            NONE,
            READ,
            204,
        ),
    ]
}

/// Returns the requests for the root, which has two addresses and no grant.
fn root() -> Vec<Row> {
    use Who::Administrators;
    let everything = json!({"acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]});
    let mut rows = Vec::new();
    for (znodes, acl, watch) in [
        ("/v1/znodes", "/v1/acl", "/v1/watch"),
        ("/v1/znodes/", "/v1/acl/", "/v1/watch/"),
    ] {
        let calls: [&'static str; 7] = match znodes {
            "/v1/znodes" => [
                "GET /v1/znodes",
                "POST /v1/znodes",
                "PUT /v1/znodes",
                "DELETE /v1/znodes",
                "GET /v1/acl",
                "PUT /v1/acl",
                "GET /v1/watch?kind=data&timeout_ms=0",
            ],
            _ => [
                "GET /v1/znodes/",
                "POST /v1/znodes/",
                "PUT /v1/znodes/",
                "DELETE /v1/znodes/",
                "GET /v1/acl/",
                "PUT /v1/acl/",
                "GET /v1/watch/?kind=data&timeout_ms=0",
            ],
        };
        rows.push(row(znodes, calls[0], NONE, Administrators, 200));
        rows.push(row(znodes, calls[1], json!({}), Administrators, 409));
        rows.push(row(znodes, calls[2], json!({"data": ""}), Administrators, 200));
        rows.push(row(znodes, calls[3], NONE, Administrators, 400));
        rows.push(row(acl, calls[4], NONE, Administrators, 200));
        rows.push(row(acl, calls[5], everything.clone(), Administrators, 200));
        rows.push(row(watch, calls[6], NONE, Administrators, 204));
    }
    rows
}

fn txn() -> Vec<Row> {
    let ops = |op: Value| json!({"session": "{session}", "ops": [op]});
    let at = |op, who, status| plain("POST /v1/txn", ops(op), who, status);
    let open = json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]);
    let read = |read: Value| {
        plain(
            "POST /v1/read",
            json!({"reads": [read]}),
            Who::WithinWith(&["read"]),
            200,
        )
    };
    vec![
        at(json!({"create": {"path": "/{at}/t{n}"}}), WRITE, 200),
        at(json!({"set": {"path": "/{at}", "data": "theirs"}}), WRITE, 200),
        at(json!({"delete": {"path": "/{at}/none"}}), WRITE, 404),
        at(
            json!({"delete": {"path": "/{at}/none", "recursive": true}}),
            WRITE,
            404,
        ),
        at(
            json!({"set_acl": {"path": "/{at}", "acl": open}}),
            ADMINISTER,
            200,
        ),
        at(json!({"check": {"path": "/{at}"}}), READ, 200),
        at(
            json!({"held": {"lock": "{at}", "fencing_token": 1}}),
            LOCK_OR_READ,
            409,
        ),
        read(json!({"get": {"path": "/{at}"}})),
        read(json!({"exists": {"path": "/{at}"}})),
        read(json!({"children": {"path": "/{at}"}})),
    ]
}

#[cfg(feature = "failpoints")]
fn debug() -> Vec<Row> {
    use Who::Administrators;
    vec![
        plain("GET /v1/debug", NONE, Administrators, 200),
        plain(
            "PUT /v1/debug/fail-points",
            json!({"name": "none", "action": "off"}),
            Administrators,
            204,
        ),
        plain("POST /v1/debug/snapshot", NONE, Administrators, 204),
        plain("POST /v1/debug/leader", json!({"to": 9}), Administrators, 400),
    ]
}
