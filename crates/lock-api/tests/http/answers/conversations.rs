//! Conversations of successes and of refusals by the state machine: locks, znodes, members.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{HOLDER, Operation, end};
use crate::contract::Answer;
use crate::support::{Call, Reply, Server, until};

/// One line of a table: a request, and its answer.
type Line<'a> = (&'a str, &'a str, Value, u16, &'a str);

async fn talk(server: &Server, lines: &[Line<'_>]) {
    for (method, path, body, status, code) in lines {
        let body = (!body.is_null()).then(|| body.to_string());
        let reply = server.call(method, path, body.as_deref()).await;
        assert_eq!(reply.status, *status, "{method} {path}: {reply:?}");
        if !code.is_empty() {
            reply.problem(*status, code);
        }
    }
}

async fn acquire(server: &Server, lock: &str, session: &str, how: Value) -> Reply {
    let mut body = how;
    body["session"] = json!(session);
    server.post(&format!("/v1/locks/{lock}/acquire"), body).await
}

fn holder(reply: &Reply) -> String {
    reply.expect(200)["holder"].as_str().unwrap().to_owned()
}

/// Calls every operation successfully, once.
pub async fn successes() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let session = server.session().await;
    let of = |path: &str| format!("/v1/sessions/{session}{path}");
    for path in ["", "/ephemerals"] {
        server.get(&of(path)).await.expect(200);
    }
    server.post(&of("/heartbeat"), json!({})).await.expect(200);
    server.follow(&session, "", None).await.expect("state").await;
    server
        .subscribe_feed("", "")
        .await
        .unwrap()
        .expect("happened")
        .await;
    let own = holder(&acquire(&server, "a", &session, json!({"mode": "upgradeable"})).await);
    let with = |more: Value| {
        let mut body = json!({"session": session, "holder": own});
        body.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        body
    };
    let both = json!({"session": session, "locks": [{"name": "b"}, {"name": "c", "mode": "shared"}]});
    let both = server.post("/v1/multilock/acquire", both).await.expect(200);
    let holders: Vec<_> = both["holders"].as_array().unwrap().iter().collect();
    let holders = holders
        .iter()
        .map(|grant| json!({"lock": grant["lock"], "holder": grant["holder"]}));
    let back = json!({"session": session, "holders": holders.collect::<Vec<_>>()});
    let of_batch = json!({"path": "/v1/locks/of-batch/acquire", "body": {"ttl_ms": 60_000}});
    let batch = json!({"requests": [of_batch, {"method": "DELETE", "path": "/v1/leases/none"}]});
    let acl = json!({"acl": [{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]});
    let address = json!({"peer": server.node.status().members[0].peer, "http": "127.0.0.1:1"});
    talk(
        &server,
        &[
            ("GET", "/v1/sessions", Value::Null, 200, ""),
            ("POST", "/v1/locks/a/upgrade", with(json!({})), 200, ""),
            ("POST", "/v1/locks/a/downgrade", with(json!({})), 200, ""),
            ("GET", "/v1/locks", Value::Null, 200, ""),
            ("GET", "/v1/lock-graph", Value::Null, 200, ""),
            ("GET", "/v1/locks/a", Value::Null, 200, ""),
            ("GET", "/v1/locks/a/check?fencing_token=1", Value::Null, 200, ""),
            ("GET", "/v1/locks/a/history", Value::Null, 200, ""),
            ("PATCH", "/v1/locks/a", json!({"draining": false}), 204, ""),
            (
                "POST",
                "/v1/locks/a/release-request",
                json!({"reason": "r"}),
                200,
                "",
            ),
            (
                "POST",
                "/v1/locks/a/release-request/reply",
                with(json!({"answer": "no"})),
                204,
                "",
            ),
            ("POST", "/v1/locks/a/release", with(json!({})), 200, ""),
            ("POST", "/v1/multilock/release", back, 200, ""),
            ("POST", "/v1/batch", batch, 200, ""),
            ("POST", "/v1/znodes/z", json!({"data": "x"}), 201, ""),
            ("PUT", "/v1/znodes/z", json!({"data": "y"}), 200, ""),
            (
                "PUT",
                "/v1/znodes/new/z?create=true",
                json!({"data": "y"}),
                201,
                "",
            ),
            (
                "GET",
                "/v1/znodes/z?children=true&acl=true&descendants=true",
                Value::Null,
                200,
                "",
            ),
            ("GET", "/v1/acl/z", Value::Null, 200, ""),
            ("PUT", "/v1/acl/z", acl, 200, ""),
            ("GET", "/v1/watch/z?kind=data&zxid=0", Value::Null, 200, ""),
            ("GET", "/v1/watch/z?kind=data&timeout_ms=0", Value::Null, 204, ""),
            (
                "POST",
                "/v1/txn",
                json!({"ops": [{"check": {"path": "/z"}}]}),
                200,
                "",
            ),
            (
                "POST",
                "/v1/read",
                json!({"reads": [{"get": {"path": "/z"}}]}),
                200,
                "",
            ),
            ("DELETE", "/v1/znodes/z", Value::Null, 204, ""),
            ("GET", "/v1/cluster", Value::Null, 200, ""),
            ("POST", "/v1/cluster/snapshot", Value::Null, 200, ""),
            ("POST", "/v1/cluster/leader", json!({"node_id": 1}), 200, ""),
            ("POST", "/v1/cluster/members/1/promote", json!({}), 200, ""),
            ("PUT", "/v1/cluster/members/1", address, 200, ""),
            ("GET", "/healthz", Value::Null, 200, ""),
            ("GET", "/v1/version", Value::Null, 200, ""),
            ("GET", "/readyz", Value::Null, 200, ""),
            ("GET", "/metrics", Value::Null, 200, ""),
            ("GET", "/v1/openapi.json", Value::Null, 200, ""),
            ("GET", "/docs", Value::Null, 200, ""),
            ("GET", "/docs/style.css", Value::Null, 200, ""),
            ("GET", "/", Value::Null, 200, ""),
            ("GET", "/dashboard/style.css", Value::Null, 200, ""),
            ("GET", "/v1/cluster/members", Value::Null, 200, ""),
        ],
    )
    .await;
    leases(&server).await;
    terraform(&server).await;
    queued_waits(&server).await;
    let broken = holder(&acquire(&server, "a", &session, json!({})).await);
    let body = json!({"holder": broken, "reason": "r"});
    server.post("/v1/locks/a/break", body).await.expect(204);
    server.delete(&of("")).await.expect(204);
    end(server).await
}

/// Waits in a queue without an open request.
async fn queued_waits(server: &Server) {
    let body = json!({"ttl_ms": 60_000, "wait": "queue"});
    let acquire = async || server.post("/v1/locks/queued/acquire", body.clone()).await;
    let (held, waiting) = (acquire().await.expect(200), acquire().await.expect(202));
    for (answer, status) in [(&held, 200), (&waiting, 204)] {
        let address = format!("/v1/locks/queued/holders/{}", answer["holder"].as_str().unwrap());
        server.get(&address).await.expect(status);
    }
    for answer in [waiting, held] {
        let lease = answer["lease"].as_str().unwrap();
        server.delete(&format!("/v1/leases/{lease}")).await.expect(204);
        let address = format!("/v1/locks/queued/holders/{}", answer["holder"].as_str().unwrap());
        server.get(&address).await.problem(410, "holder_gone");
    }
}

/// Locks, writes and unlocks a state of Terraform, and provokes the refusals.
async fn terraform(server: &Server) {
    let (state, lock) = ("/v1/terraform/states/t%2Fs", "/v1/terraform/locks/t%2Fs");
    let (one, two) = (json!({"ID": "one"}), json!({"ID": "two"}));
    let held = |id: &str| format!("{state}?ID={id}");
    let bounded = json!({"ttl_ms": 60_000, "min_hold_ms": 60_000});
    let closed = server.post("/v1/locks/closed/acquire", bounded).await.expect(200);
    let closed = format!("/v1/leases/{}", closed["lease"].as_str().unwrap());
    let draining = json!({"draining": true});
    let lines = [
        ("GET", state, Value::Null, 404, "no_znode"),
        ("DELETE", state, Value::Null, 404, "no_znode"),
        ("DELETE", "/v1/terraform/states/t", Value::Null, 409, "not_empty"),
        ("POST", lock, one.clone(), 200, ""),
        ("POST", lock, one.clone(), 200, ""),
        ("POST", lock, two.clone(), 423, ""),
        ("POST", &held("one"), json!({"serial": 1}), 200, ""),
        ("GET", state, Value::Null, 200, ""),
        ("POST", &held("two"), json!({"serial": 2}), 423, ""),
        ("POST", state, json!({"serial": 2}), 423, ""),
        ("DELETE", state, Value::Null, 423, ""),
        ("DELETE", lock, two, 423, ""),
        ("DELETE", lock, one.clone(), 200, ""),
        ("DELETE", lock, one.clone(), 200, ""),
        ("POST", &held("one"), json!({"serial": 3}), 409, "not_holder"),
        ("DELETE", &held("one"), Value::Null, 409, "not_holder"),
        ("POST", lock, one.clone(), 200, ""),
        // `terraform force-unlock`
        ("DELETE", lock, Value::Null, 200, ""),
        ("DELETE", state, Value::Null, 200, ""),
        ("DELETE", &closed, Value::Null, 204, ""),
        (
            "POST",
            "/v1/terraform/locks/closed",
            one.clone(),
            409,
            "lock_busy",
        ),
        ("PATCH", "/v1/locks/t%2Fs", draining, 204, ""),
        ("POST", lock, one, 409, "draining"),
    ];
    server
        .post("/v1/znodes/t/child", json!({"parents": true}))
        .await
        .expect(201);
    talk(server, &lines).await;
}

/// Calls every operation on leases successfully, and repeats an acquire whose lease has ended.
async fn leases(server: &Server) {
    let body = json!({"ttl_ms": 60_000, "request_id": "lease"});
    let reply = server.post("/v1/locks/leased/acquire", body.clone()).await;
    let lease = format!("/v1/leases/{}", reply.expect(200)["lease"].as_str().unwrap());
    server.get(&lease).await.expect(200);
    server
        .post(&format!("{lease}/renew"), json!({}))
        .await
        .expect(200);
    server.delete(&lease).await.expect(204);
    server
        .post("/v1/locks/leased/acquire", body)
        .await
        .problem(410, "lease_expired");
}

/// Provokes the refusals of locks.
pub async fn locks() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let (one, two) = (server.session().await, server.session().await);
    let held = holder(&acquire(&server, "a", &one, json!({})).await);
    let writer = holder(&acquire(&server, "u", &one, json!({"mode": "upgradeable"})).await);
    let reader = holder(&acquire(&server, "u", &two, json!({"mode": "shared"})).await);
    let permit = holder(&acquire(&server, "s", &one, json!({"mode": "semaphore", "limit": 2})).await);
    server
        .patch("/v1/locks/dr", json!({"draining": true}))
        .await
        .expect(204);
    quota(&server, "locks/q", 1).await;

    // Each request by `acquire`, and the same by the `acquire` of several locks.
    let below = format!("a%2F{held}");
    let semaphore = json!({"mode": "semaphore", "limit": 3});
    for (lock, how, code) in [
        ("a", json!({}), "lock_busy"),
        ("a", json!({"wait_ms": 1}), "lock_timeout"),
        ("a", semaphore, "mode_conflict"),
        (
            "u",
            json!({"mode": "exclusive", "wait_ms": 60_000}),
            "would_deadlock",
        ),
        ("dr", json!({}), "draining"),
        (&below, json!({}), "no_children_for_ephemerals"),
        ("q%2Fx", json!({}), "quota_exceeded"),
    ] {
        acquire(&server, lock, &two, how.clone()).await.problem(409, code);
        let mut wanted = how;
        let wait_ms = wanted.as_object_mut().unwrap().remove("wait_ms");
        wanted["name"] = json!(lock.replace("%2F", "/"));
        let body = json!({"session": two, "locks": [wanted], "wait_ms": wait_ms.unwrap_or(json!(0))});
        server
            .post("/v1/multilock/acquire", body)
            .await
            .problem(409, code);
    }
    for (path, body) in [
        ("/v1/locks/a/acquire", json!({"session": two, "wait_ms": null})),
        (
            "/v1/multilock/acquire",
            json!({"session": two, "locks": [{"name": "a"}], "wait_ms": null}),
        ),
    ] {
        broken_in_the_queue(&server, path, body).await;
    }

    let of = |session: &str, holder: &str| json!({"session": session, "holder": holder});
    let waiting = |mut body: Value| {
        body["wait_ms"] = json!(1);
        body
    };
    let to_upgradeable = json!({"session": two, "holder": reader, "mode": "upgradeable"});
    let none = json!({"holder": HOLDER, "reason": "r"});
    let replied = json!({"session": one, "holder": HOLDER, "answer": "no"});
    let nobodys = json!({"session": two, "holders": [{"lock": "a", "holder": held}]});
    talk(
        &server,
        &[
            ("POST", "/v1/locks/u/upgrade", of(&one, &writer), 409, "lock_busy"),
            (
                "POST",
                "/v1/locks/u/upgrade",
                waiting(of(&one, &writer)),
                409,
                "lock_timeout",
            ),
            (
                "POST",
                "/v1/locks/u/upgrade",
                of(&two, &reader),
                409,
                "would_deadlock",
            ),
            (
                "POST",
                "/v1/locks/u/upgrade",
                of(&two, &writer),
                409,
                "not_holder",
            ),
            (
                "POST",
                "/v1/locks/s/upgrade",
                of(&one, &permit),
                409,
                "mode_conflict",
            ),
            (
                "POST",
                "/v1/locks/none/upgrade",
                of(&one, &writer),
                404,
                "no_lock",
            ),
            (
                "POST",
                "/v1/locks/u/downgrade",
                to_upgradeable,
                409,
                "mode_conflict",
            ),
            (
                "POST",
                "/v1/locks/a/downgrade",
                of(&two, &held),
                409,
                "not_holder",
            ),
            (
                "POST",
                "/v1/locks/none/downgrade",
                of(&one, &held),
                404,
                "no_lock",
            ),
            ("POST", "/v1/locks/a/release", of(&two, &held), 409, "not_holder"),
            ("POST", "/v1/locks/none/release", of(&one, &held), 404, "no_lock"),
            ("POST", "/v1/multilock/release", nobodys, 409, "not_holder"),
            ("POST", "/v1/locks/a/break", none.clone(), 409, "not_holder"),
            ("POST", "/v1/locks/none/break", none.clone(), 404, "no_lock"),
            (
                "POST",
                "/v1/locks/a/release-request",
                none.clone(),
                409,
                "not_holder",
            ),
            ("POST", "/v1/locks/none/release-request", none, 404, "no_lock"),
            (
                "POST",
                "/v1/locks/a/release-request/reply",
                replied.clone(),
                409,
                "not_holder",
            ),
            (
                "POST",
                "/v1/locks/none/release-request/reply",
                replied,
                404,
                "no_lock",
            ),
            ("GET", "/v1/locks/none", Value::Null, 404, "no_lock"),
            ("PATCH", "/v1/locks/a", json!({"limit": 3}), 409, "mode_conflict"),
            (
                "PATCH",
                &format!("/v1/locks/{below}%2Fx"),
                json!({"draining": true}),
                409,
                "no_children_for_ephemerals",
            ),
            (
                "PATCH",
                "/v1/locks/q%2Fx",
                json!({"draining": true}),
                409,
                "quota_exceeded",
            ),
        ],
    )
    .await;
    end(server).await
}

/// Waits for the lock `a`, and is removed from its queue by a break.
async fn broken_in_the_queue(server: &Server, path: &str, body: Value) {
    let call = Call::send(server.address, "POST", path, Some(&body.to_string())).await;
    let mut waiter = String::new();
    until("it waits", async || {
        let seen = server.get("/v1/locks/a").await.expect(200);
        waiter = seen["queue"][0]["holder"].as_str().unwrap_or_default().to_owned();
        !waiter.is_empty()
    })
    .await;
    let body = json!({"holder": waiter, "reason": "r"});
    server.post("/v1/locks/a/break", body).await.expect(204);
    call.reply().await.problem(409, "not_holder");
}

/// Sets the quota of the subtree.
async fn quota(server: &Server, path: &str, count: u32) {
    let create = json!({"parents": true});
    server
        .post(&format!("/v1/znodes/{path}"), create)
        .await
        .expect(201);
    let limits = format!("count=-1,bytes=-1;byteHardLimit=-1;countHardLimit={count}");
    for (name, data) in [("zookeeper_limits", limits.as_str()), ("zookeeper_stats", "")] {
        let path = format!("/v1/znodes/zookeeper/quota/{path}/{name}");
        let body = json!({"data": data, "parents": true});
        server.post(&path, body).await.expect(201);
    }
}

/// Builds the step that creates a mirrored znode.
pub fn put(path: &str, acl: Value) -> Value {
    let at = "2026-01-31T09:30:00Z";
    json!({"steps": [{"put": {"path": path, "acl": acl, "created_at": at, "modified_at": at}}]})
}

/// Calls the operations on a mirrored tree.
pub async fn mirror() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let session = server.session().await;
    let ephemeral = json!({"mode": "ephemeral", "session": session});
    server.post("/v1/znodes/e", ephemeral).await.expect(201);
    let open = json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]);
    let put = |path: &str| put(path, open.clone());
    let remove = json!({"steps": [{"remove": {"path": "/m"}}]});
    let answers = "/v1/mirror";
    talk(
        &server,
        &[
            ("POST", answers, put("/m"), 200, ""),
            ("POST", answers, put("/m/below"), 200, ""),
            ("GET", answers, Value::Null, 200, ""),
            ("GET", "/v1/mirror?below=/none", Value::Null, 404, "no_znode"),
            ("POST", answers, put("/none/below"), 404, "no_znode"),
            ("POST", answers, remove, 409, "not_empty"),
            ("POST", answers, self::put("/m", json!([])), 400, "bad_acl"),
            ("POST", answers, put("/e"), 409, "not_mirrored"),
            (
                "POST",
                answers,
                put("/e/below"),
                409,
                "no_children_for_ephemerals",
            ),
        ],
    )
    .await;
    end(server).await
}

/// Provokes the refusals of the tree.
pub async fn znodes() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let session = server.session().await;
    for path in ["a", "a/b"] {
        server
            .post(&format!("/v1/znodes/{path}"), json!({}))
            .await
            .expect(201);
    }
    let ephemeral = json!({"mode": "ephemeral", "session": session});
    server.post("/v1/znodes/e", ephemeral).await.expect(201);
    quota(&server, "q", 1).await;
    // A quota of the bytes below the znode.
    server.post("/v1/znodes/r", json!({})).await.expect(201);
    let limits = json!({"data": "count=-1,bytes=-1;byteHardLimit=3;countHardLimit=-1", "parents": true});
    server
        .post("/v1/znodes/zookeeper/quota/r/zookeeper_limits", limits)
        .await
        .expect(201);
    server
        .post("/v1/znodes/zookeeper/quota/r/zookeeper_stats", json!({}))
        .await
        .expect(201);

    let data = json!({"data": "1234"});
    let follow = format!("/v1/sessions/{session}/events?data=/none");
    let acl = |perms: &str| json!({"acl": [{"perms": perms, "scheme": "world", "id": "anyone"}]});
    talk(
        &server,
        &[
            ("POST", "/v1/znodes/none/x", json!({}), 404, "no_znode"),
            ("POST", "/v1/znodes/a", json!({}), 409, "node_exists"),
            (
                "POST",
                "/v1/znodes/e/x",
                json!({}),
                409,
                "no_children_for_ephemerals",
            ),
            ("POST", "/v1/znodes/q/x", json!({}), 409, "quota_exceeded"),
            ("POST", "/v1/znodes/x", acl("x"), 400, "bad_acl"),
            ("GET", "/v1/znodes/none", Value::Null, 404, "no_znode"),
            ("PUT", "/v1/znodes/none", data.clone(), 404, "no_znode"),
            (
                "PUT",
                "/v1/znodes/e/x?create=true",
                data.clone(),
                409,
                "no_children_for_ephemerals",
            ),
            ("PUT", "/v1/znodes/a?version=7", data.clone(), 409, "bad_version"),
            ("PUT", "/v1/znodes/r", data.clone(), 409, "quota_exceeded"),
            ("DELETE", "/v1/znodes/none", Value::Null, 404, "no_znode"),
            (
                "DELETE",
                "/v1/znodes/a?version=7",
                Value::Null,
                409,
                "bad_version",
            ),
            ("DELETE", "/v1/znodes/a", Value::Null, 409, "not_empty"),
            ("GET", "/v1/acl/none", Value::Null, 404, "no_znode"),
            ("PUT", "/v1/acl/none", acl("r"), 404, "no_znode"),
            ("PUT", "/v1/acl/a?version=7", acl("r"), 409, "bad_version"),
            ("PUT", "/v1/acl/a", acl("x"), 400, "bad_acl"),
            ("GET", "/v1/watch/none?kind=data", Value::Null, 404, "no_znode"),
            ("GET", &follow, Value::Null, 404, "no_znode"),
        ],
    )
    .await;
    let bad_acl = json!([{"perms": "r", "scheme": "none", "id": ""}]);
    for (op, status, code) in [
        (json!({"create": {"path": "/none/x"}}), 404, "no_znode"),
        (json!({"create": {"path": "/a"}}), 409, "node_exists"),
        (
            json!({"create": {"path": "/e/x"}}),
            409,
            "no_children_for_ephemerals",
        ),
        (json!({"create": {"path": "/q/x"}}), 409, "quota_exceeded"),
        (json!({"create": {"path": "/x", "acl": bad_acl}}), 400, "bad_acl"),
        (json!({"check": {"path": "/a", "version": 7}}), 409, "bad_version"),
        (json!({"delete": {"path": "/a"}}), 409, "not_empty"),
        (
            json!({"held": {"lock": "a", "fencing_token": 1}}),
            409,
            "not_holder",
        ),
    ] {
        let body = json!({"session": session, "ops": [op]});
        server.post("/v1/txn", body).await.problem(status, code);
    }
    end(server).await
}

/// Provokes the refusals of a cluster of one node.
pub async fn members() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let add = Operation::by_id("addMember").body.unwrap();
    let with = |node_id: u64, peer: &str| {
        let mut body = add.clone();
        (body["node_id"], body["peer"]) = (json!(node_id), json!(peer));
        body
    };
    let there = json!({"peer": "127.0.0.1:1", "http": "127.0.0.1:2"});
    talk(
        &server,
        &[
            (
                "POST",
                "/v1/cluster/members",
                with(1, "127.0.0.1:1"),
                409,
                "member_exists",
            ),
            (
                "POST",
                "/v1/cluster/members",
                with(2, "127.0.0.1:1"),
                409,
                "node_unreachable",
            ),
            ("PUT", "/v1/cluster/members/2", there, 404, "no_member"),
            (
                "POST",
                "/v1/cluster/members/2/promote",
                json!({}),
                404,
                "no_member",
            ),
            (
                "POST",
                "/v1/cluster/members/2/demote",
                json!({}),
                404,
                "no_member",
            ),
            (
                "POST",
                "/v1/cluster/members/1/demote",
                json!({}),
                409,
                "no_majority",
            ),
            ("DELETE", "/v1/cluster/members/2", Value::Null, 404, "no_member"),
            ("DELETE", "/v1/cluster/members/1", Value::Null, 409, "no_majority"),
            (
                "POST",
                "/v1/cluster/leader",
                json!({"node_id": 2}),
                404,
                "no_member",
            ),
        ],
    )
    .await;
    end(server).await
}

/// Calls the operations of access control.
pub async fn access() -> BTreeSet<Answer> {
    let server = Server::start().await;
    for id in [
        "createToken",
        "revokeToken",
        "setRole",
        "deleteRole",
        "setCertificate",
        "deleteCertificate",
    ] {
        let reply = Operation::by_id(id).call_as(&server, &server.operator).await;
        reply.problem(409, "not_secured");
    }
    let by = async |id: &str, status: u16| {
        let reply = Operation::by_id(id).call_as(&server, &server.operator).await;
        assert_eq!(reply.status, status, "{id}: {reply:?}");
        reply
    };
    by("getAccess", 200).await;
    let first = by("secureCluster", 201).await.expect(201);
    by("secureCluster", 409).await.problem(409, "already_secured");
    for (id, code) in [
        ("getRole", "no_role"),
        ("deleteRole", "no_role"),
        ("createToken", "no_role"),
        ("setCertificate", "no_role"),
        ("revokeToken", "no_token"),
        ("deleteCertificate", "no_certificate"),
    ] {
        by(id, 404).await.problem(404, code);
    }
    for id in [
        "setRole",
        "getRole",
        "listRoles",
        "setCertificate",
        "listCertificates",
        "listTokens",
    ] {
        by(id, 200).await;
    }
    by("deleteRole", 409).await.problem(409, "role_in_use");
    by("createToken", 201).await;
    let ask = async |method: &str, path: &str, body: Value, status: u16, code: &str| {
        let reply = server.as_operator(method, path, body).await;
        assert_eq!(reply.status, status, "{method} {path}: {reply:?}");
        if !code.is_empty() {
            reply.problem(status, code);
        }
    };
    let none = || Value::Null;
    let first = format!("/v1/tokens/{}", first["id"].as_str().unwrap());
    let ops = |role: &str| json!({"subject": "CN=ops", "role": role});
    ask("GET", "/v1/tokens?cursor=x", none(), 404, "no_token").await;
    ask(
        "PUT",
        "/v1/roles/admin",
        json!({"grants": []}),
        409,
        "role_built_in",
    )
    .await;
    ask("DELETE", "/v1/roles/admin", none(), 409, "role_built_in").await;
    ask("DELETE", &first, none(), 409, "last_administrator").await;
    ask("PUT", "/v1/certificates", ops("admin"), 200, "").await;
    ask("DELETE", &first, none(), 204, "").await;
    ask(
        "PUT",
        "/v1/certificates",
        ops("billing"),
        409,
        "last_administrator",
    )
    .await;
    ask(
        "DELETE",
        "/v1/certificates?subject=CN%3Dops",
        none(),
        409,
        "last_administrator",
    )
    .await;
    by("deleteCertificate", 204).await;
    ask("PUT", "/v1/roles/idle", json!({"grants": []}), 200, "").await;
    ask("DELETE", "/v1/roles/idle", none(), 204, "").await;
    end(server).await
}

/// Calls the operations on namespaces, and provokes the refusals by their quotas.
pub async fn namespaces() -> BTreeSet<Answer> {
    let server = Server::start().await;
    let session = server.session().await;
    let (one, code) = ("/v1/namespaces/full", "namespace_quota_exceeded");
    let open = json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]);
    let by_lease = json!({"ttl_ms": 60_000});
    let many = json!({"session": session, "locks": [{"name": "full/x"}]});
    let create = json!({"ops": [{"create": {"path": "/full/x"}}]});
    talk(
        &server,
        &[
            ("GET", one, Value::Null, 404, "no_namespace"),
            ("DELETE", one, Value::Null, 404, "no_namespace"),
            ("PUT", one, json!({"requests_per_second": 0}), 400, "bad_request"),
            ("PUT", "/v1/namespaces/locks", json!({}), 400, "bad_request"),
            ("POST", "/v1/znodes/full", json!({"data": "12"}), 201, ""),
            ("PUT", one, json!({"znodes": 1, "bytes": 2}), 200, ""),
            ("GET", one, Value::Null, 200, ""),
            ("GET", "/v1/namespaces", Value::Null, 200, ""),
            ("POST", "/v1/locks/full%2Fx/acquire", by_lease, 409, code),
            ("POST", "/v1/multilock/acquire", many, 409, code),
            (
                "PATCH",
                "/v1/locks/full%2Fx",
                json!({"draining": true}),
                409,
                code,
            ),
            ("POST", "/v1/znodes/full/x", json!({}), 409, code),
            ("PUT", "/v1/znodes/full", json!({"data": "123"}), 409, code),
            ("POST", "/v1/txn", create, 409, code),
            ("POST", "/v1/mirror", put("/full/x", open), 409, code),
            ("POST", "/v1/terraform/states/full%2Fx", json!({}), 409, code),
            (
                "POST",
                "/v1/terraform/locks/full%2Fx",
                json!({"ID": "one"}),
                409,
                code,
            ),
            ("DELETE", one, Value::Null, 204, ""),
        ],
    )
    .await;
    rate(&server, &session).await;
    end(server).await
}

/// Sends each change of a namespace until its rate is exceeded.
async fn rate(server: &Server, session: &str) {
    let open = json!([{"perms": "cdrwa", "scheme": "world", "id": "anyone"}]);
    let many = json!({"session": session, "locks": [{"name": "fast/x"}]});
    let one = json!({"requests_per_second": 1});
    server.put("/v1/namespaces/fast", one).await.expect(200);
    let upgrade = json!({"session": session, "holder": HOLDER});
    let create = json!({"ops": [{"create": {"path": "/fast/x"}}]});
    for (method, path, body) in [
        ("POST", "/v1/locks/fast%2Fx/acquire", json!({"ttl_ms": 60_000})),
        ("POST", "/v1/multilock/acquire", many),
        ("POST", "/v1/locks/fast%2Fx/upgrade", upgrade),
        (
            "POST",
            "/v1/locks/fast%2Fx/release-request",
            json!({"reason": "r"}),
        ),
        ("POST", "/v1/znodes/fast/x", json!({})),
        ("PUT", "/v1/znodes/fast", json!({"data": "1"})),
        ("PUT", "/v1/acl/fast", json!({"acl": open.clone()})),
        ("DELETE", "/v1/znodes/fast?recursive=true", Value::Null),
        ("POST", "/v1/txn", create),
        ("POST", "/v1/mirror", put("/fast/x", open)),
        ("POST", "/v1/terraform/states/fast%2Fy", json!({})),
        ("POST", "/v1/terraform/locks/fast%2Fy", json!({"ID": "one"})),
    ] {
        let body = (!body.is_null()).then(|| body.to_string());
        until(path, async || {
            let reply = server.call(method, path, body.as_deref()).await;
            if reply.status != 429 {
                return false;
            }
            let problem = reply.problem(429, "too_many_requests");
            assert_eq!(reply.header("retry-after"), Some("1"), "{method} {path}");
            (&problem["namespace"], &problem["of"]) == (&json!("fast"), &json!("requests_per_second"))
        })
        .await;
    }
}
