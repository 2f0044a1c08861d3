//! Tokens, roles, certificates, and the end of waits whose credentials become invalid.

use serde_json::{Value, json};

use crate::support::{Call, Server, until};

const EVERYTHING: [&str; 5] = ["read", "lock", "write", "break", "administer"];

#[tokio::test]
async fn a_cluster_is_secured_once_by_its_operator() {
    let server = Server::start().await;
    let open = server.get("/v1/access").await.expect(200);
    assert_eq!(
        open,
        json!({"secured": false, "you": {"kind": "nobody", "name": null, "role": null, "grants": null}})
    );
    let refused = server.post("/v1/access/secure", json!({})).await;
    refused.problem(403, "forbidden");
    // A role created in an open cluster would be in force later.
    let early = server
        .as_operator("POST", "/v1/tokens", json!({"role": "admin"}))
        .await;
    early.problem(409, "not_secured");

    let description = json!({"description": "the first"});
    let secured = server.as_operator("POST", "/v1/access/secure", description).await;
    assert_eq!(secured.header("cache-control"), Some("no-store"));
    let made = secured.expect(201);
    assert_eq!(
        (&made["role"], &made["expires_at"]),
        (&json!("admin"), &Value::Null)
    );
    let admin = made["token"].as_str().unwrap();
    let again = server.as_operator("POST", "/v1/access/secure", json!({})).await;
    again.problem(409, "already_secured");

    let nobody = server.get("/v1/locks").await;
    nobody.problem(401, "unauthenticated");
    assert_eq!(nobody.header("www-authenticate"), Some("bearer"));
    let you = server
        .as_token(admin, "GET", "/v1/access", Value::Null)
        .await
        .expect(200);
    let id = &made["id"];
    assert_eq!(
        you,
        json!({"secured": true, "you": {"kind": "token", "name": id, "role": "admin", "grants": null}})
    );
    let operator = server
        .as_operator("GET", "/v1/access", Value::Null)
        .await
        .expect(200);
    assert_eq!(
        operator["you"],
        json!({"kind": "operator", "name": null, "role": null, "grants": null})
    );
    let still_open = server.get("/v1/access").await.expect(200);
    assert_eq!(still_open["secured"], true);
    server.stop().await;
}

#[tokio::test]
async fn unauthenticated_callers_have_the_role_anonymous() {
    let server = Server::start().await;
    let anonymous = json!({"anonymous": [{"locks": "public", "rights": ["lock", "read"]}]});
    server
        .as_operator("POST", "/v1/access/secure", anonymous)
        .await
        .expect(201);
    let session = server.session().await;
    let body = json!({"session": session});
    server
        .post("/v1/locks/public%2Fa/acquire", body.clone())
        .await
        .expect(200);
    // With a token the caller might have the right, so the answer asks for one.
    server
        .post("/v1/locks/private/acquire", body)
        .await
        .problem(401, "unauthenticated");
    server.get("/v1/znodes").await.problem(401, "unauthenticated");
    // A caller with an invalid token is rejected, even for requests that every caller may make.
    let made_up = format!("lg_{:032x}_{:064x}", 1, 1);
    let refused = server.as_token(&made_up, "GET", "/v1/locks", Value::Null).await;
    refused.problem(401, "unauthenticated");
    server.stop().await;
}

#[tokio::test]
async fn tokens_are_created_listed_revoked_and_shown_once() {
    let (server, admin) = Server::start_secured().await;
    let call = |method: &'static str, path: String, body: Value| {
        let (server, admin) = (&server, &admin);
        async move { server.as_token(admin, method, &path, body).await }
    };
    let billing = server
        .token_for(
            &admin,
            "billing",
            json!([{"locks": "orders", "rights": ["lock"]}]),
        )
        .await;
    let month = json!({"role": "billing", "description": "nightly", "expires_in_ms": 2_592_000_000_u64});
    let made = call("POST", "/v1/tokens".into(), month).await.expect(201);
    assert!(made["expires_at"].as_str().unwrap().ends_with('Z'), "{made}");

    let list = call("GET", "/v1/tokens".into(), Value::Null).await;
    let tokens = list.expect(200)["tokens"].as_array().unwrap().clone();
    assert_eq!(tokens.len(), 3);
    for text in [&billing, &admin, made["token"].as_str().unwrap()] {
        let (_, secret) = text.rsplit_once('_').unwrap();
        assert!(!list.body.contains(secret), "a secret is shown");
    }
    // The pages together have the same tokens.
    let (mut paged, mut after) = (Vec::new(), String::new());
    loop {
        let page = call("GET", format!("/v1/tokens?limit=1{after}"), Value::Null)
            .await
            .expect(200);
        paged.extend(page["tokens"].as_array().unwrap().clone());
        match page["next_cursor"].as_str() {
            Some(last) => after = format!("&cursor={last}"),
            None => break,
        }
    }
    assert_eq!(paged, tokens);

    let session = server.session_of(&billing).await;
    let path = format!("/v1/sessions/{session}/heartbeat");
    server
        .as_token(&billing, "POST", &path, json!({}))
        .await
        .expect(200);
    let id = billing.split('_').nth(1).unwrap();
    call("DELETE", format!("/v1/tokens/{id}"), Value::Null)
        .await
        .expect(204);
    let late = server.as_token(&billing, "POST", &path, json!({})).await;
    late.problem(401, "unauthenticated");
    call("DELETE", format!("/v1/tokens/{id}"), Value::Null)
        .await
        .problem(404, "no_token");
    call("DELETE", "/v1/tokens/x".into(), Value::Null)
        .await
        .problem(404, "no_token");

    // The text of the first token is gone with its answer, so a repetition does not create a second token silently.
    let again = json!({"role": "billing", "request_id": "once"});
    call("POST", "/v1/tokens".into(), again.clone()).await.expect(201);
    call("POST", "/v1/tokens".into(), again)
        .await
        .problem(409, "request_id_reused");
    call("POST", "/v1/tokens".into(), json!({"role": "none"}))
        .await
        .problem(404, "no_role");
    let admins = admin.split('_').nth(1).unwrap();
    let last = call("DELETE", format!("/v1/tokens/{admins}"), Value::Null).await;
    last.problem(409, "last_administrator");
    server.stop().await;
}

#[tokio::test]
async fn changed_role_applies_at_once() {
    let (server, admin) = Server::start_secured().await;
    let token = server
        .token_for(
            &admin,
            "team",
            json!([{"path": "/team", "rights": ["read", "write"]}]),
        )
        .await;
    let write = json!({"data": "x"});
    server
        .as_token(&token, "POST", "/v1/znodes/team", write.clone())
        .await
        .expect(201);
    let refused = server
        .as_token(&token, "POST", "/v1/znodes/others", write.clone())
        .await;
    let problem = refused.problem(403, "forbidden");
    assert_eq!(
        (&problem["right"], &problem["path"]),
        (&json!("write"), &json!("/others"))
    );

    let narrower = json!({"grants": [{"path": "/team", "rights": ["read"]}]});
    let set = server
        .as_token(&admin, "PUT", "/v1/roles/team", narrower)
        .await
        .expect(200);
    assert_eq!(set["grants"], json!([{"path": "/team", "rights": ["read"]}]));
    let refused = server.as_token(&token, "PUT", "/v1/znodes/team", write).await;
    refused.problem(403, "forbidden");

    let list = server
        .as_token(&admin, "GET", "/v1/roles", Value::Null)
        .await
        .expect(200);
    let names: Vec<_> = list["roles"]
        .as_array()
        .unwrap()
        .iter()
        .map(|role| &role["role"])
        .collect();
    assert_eq!(names, ["admin", "team"]);
    let answer = server
        .as_token(&admin, "GET", "/v1/roles/admin", Value::Null)
        .await
        .expect(200);
    assert_eq!(answer["grants"], json!([{"path": "/", "rights": EVERYTHING}]));
    for (method, path, body, status, code) in [
        ("DELETE", "/v1/roles/team", Value::Null, 409, "role_in_use"),
        ("DELETE", "/v1/roles/admin", Value::Null, 409, "role_built_in"),
        ("DELETE", "/v1/roles/none", Value::Null, 404, "no_role"),
        ("GET", "/v1/roles/none", Value::Null, 404, "no_role"),
        ("GET", "/v1/roles/two%20words", Value::Null, 400, "bad_request"),
        ("GET", "/v1/roles/%ff", Value::Null, 400, "bad_request"),
        (
            "PUT",
            "/v1/roles/admin",
            json!({"grants": []}),
            409,
            "role_built_in",
        ),
        (
            "PUT",
            "/v1/roles/x",
            json!({"grants": [{"path": "/a", "locks": "a", "rights": ["read"]}]}),
            400,
            "bad_request",
        ),
        (
            "PUT",
            "/v1/roles/x",
            json!({"grants": [{"rights": ["read"]}]}),
            400,
            "bad_request",
        ),
        (
            "PUT",
            "/v1/roles/x",
            json!({"grants": [{"path": "/", "rights": []}]}),
            400,
            "bad_request",
        ),
        (
            "PUT",
            "/v1/roles/x",
            json!({"grants": [{"path": "/", "rights": ["own"]}]}),
            400,
            "bad_request",
        ),
    ] {
        let refused = server.as_token(&admin, method, path, body).await;
        refused.problem(status, code);
    }
    let all_locks = json!({"grants": [{"locks": "", "rights": ["lock"]}]});
    let set = server
        .as_token(&admin, "PUT", "/v1/roles/locker", all_locks)
        .await
        .expect(200);
    assert_eq!(set["grants"][0]["path"], "/locks");
    server
        .as_token(&admin, "DELETE", "/v1/roles/locker", Value::Null)
        .await
        .expect(204);
    server.stop().await;
}

#[tokio::test]
async fn certificates_have_roles() {
    let (server, admin) = Server::start_secured().await;
    let subject = "CN=ops, O=\"Example, Inc.\"";
    let body = json!({"subject": subject, "role": "admin"});
    server
        .as_token(&admin, "PUT", "/v1/certificates", body.clone())
        .await
        .expect(200);
    let list = server
        .as_token(&admin, "GET", "/v1/certificates?limit=1", Value::Null)
        .await
        .expect(200);
    assert_eq!(list, json!({"certificates": [body], "next_cursor": null}));
    // At least one administrator has to remain.
    let id = admin.split('_').nth(1).unwrap();
    server
        .as_operator("DELETE", &format!("/v1/tokens/{id}"), Value::Null)
        .await
        .expect(204);
    let path = "/v1/certificates?subject=CN%3Dops,%20O%3D%22Example,%20Inc.%22";
    server
        .as_operator("DELETE", path, Value::Null)
        .await
        .problem(409, "last_administrator");
    // A caller that lost all tokens gets access again by the node's own token.
    server
        .as_operator("POST", "/v1/tokens", json!({"role": "admin"}))
        .await
        .expect(201);
    server.as_operator("DELETE", path, Value::Null).await.expect(204);
    server
        .as_operator("DELETE", path, Value::Null)
        .await
        .problem(404, "no_certificate");
    server.stop().await;
}

/// Creates a token, and returns it with the request that revokes it.
async fn leaving(server: &Server, admin: &str) -> (String, String) {
    let grants = json!([{"path": "/team", "rights": ["read"]}, {"locks": "", "rights": ["lock"]}]);
    let token = server.token_for(admin, "leaving", grants).await;
    let path = format!("/v1/tokens/{}", token.split('_').nth(1).unwrap());
    (token, path)
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked() {
    let (server, admin) = Server::start_secured().await;
    let (token, itself) = leaving(&server, &admin).await;
    let session = server.session_of(&token).await;
    let mut stream = server.follow_as(&token, &session, "").await.unwrap();
    stream.expect("state").await;
    let mut others = server.follow_as(&admin, &session, "").await.unwrap();
    others.expect("state").await;
    // A change for another role does not end the wait.
    server.token_for(&admin, "others", json!([])).await;
    server
        .as_token(&admin, "DELETE", &itself, Value::Null)
        .await
        .expect(204);
    assert_eq!(
        stream.expect("stream_ended").await,
        json!({"reason": "access_lost"})
    );
    stream.expect_end().await;
    let refused = server.follow_as(&token, &session, "").await.err().unwrap();
    refused.problem(401, "unauthenticated");
    // The session belongs to the administrator.
    server
        .as_token(&admin, "DELETE", &format!("/v1/sessions/{session}"), Value::Null)
        .await
        .expect(204);
    assert_eq!(others.expect("session_ended").await["reason"], "closed");
    server.stop().await;
}

#[tokio::test]
async fn a_stream_ends_when_its_token_expires() {
    let (server, admin) = Server::start_secured().await;
    let short = json!({"role": "admin", "expires_in_ms": 1500});
    let made = server
        .as_token(&admin, "POST", "/v1/tokens", short)
        .await
        .expect(201);
    let token = made["token"].as_str().unwrap();
    let session = server.session_of(token).await;
    let mut stream = server.follow_as(token, &session, "").await.unwrap();
    stream.expect("state").await;
    assert_eq!(
        stream.expect("stream_ended").await,
        json!({"reason": "access_lost"})
    );
    stream.expect_end().await;
    let refused = server.as_token(token, "GET", "/v1/locks", Value::Null).await;
    let problem = refused.problem(401, "unauthenticated");
    assert_eq!(problem["detail"], "the token has expired");
    server.stop().await;
}

#[tokio::test]
async fn a_long_poll_ends_when_its_token_is_revoked_or_its_right_is_gone() {
    let (server, admin) = Server::start_secured().await;
    server
        .as_token(&admin, "POST", "/v1/znodes/team", json!({"data": "x"}))
        .await
        .expect(201);
    let armed = async |token: &str| {
        let before = server.node.watch_counts().watches;
        let path = "/v1/watch/team?kind=data&timeout_ms=3600000";
        let call = Call::send_as(server.address, Some(token), "GET", path, None).await;
        until("it is armed", async || {
            server.node.watch_counts().watches > before
        })
        .await;
        call
    };
    let (token, itself) = leaving(&server, &admin).await;
    let poll = armed(&token).await;
    let elsewhere = json!({"grants": [{"path": "/elsewhere", "rights": ["read"]}]});
    server
        .as_token(&admin, "PUT", "/v1/roles/leaving", elsewhere)
        .await
        .expect(200);
    let problem = poll.reply().await.problem(403, "forbidden");
    assert_eq!(
        (&problem["right"], &problem["path"]),
        (&json!("read"), &json!("/team"))
    );

    let back = json!({"grants": [{"path": "/team", "rights": ["read"]}]});
    server
        .as_token(&admin, "PUT", "/v1/roles/leaving", back)
        .await
        .expect(200);
    let poll = armed(&token).await;
    server
        .as_token(&admin, "DELETE", &itself, Value::Null)
        .await
        .expect(204);
    poll.reply().await.problem(401, "unauthenticated");
    until("it watches no more", async || {
        server.node.watch_counts().watches == 0
    })
    .await;
    server.stop().await;
}

/// Cause for which a waiting caller loses the right to lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Loss {
    Revoked,
    Expired,
    Narrowed,
}

/// Checks that waits of each kind end when the caller loses the right to lock, and that their contenders leave the
/// queues.
async fn waits_end(loss: Loss) {
    let (server, admin) = Server::start_secured().await;
    let role = async |locks: &str| {
        let grants = json!({"grants": [{"locks": locks, "rights": ["read", "lock"]}]});
        server
            .as_token(&admin, "PUT", "/v1/roles/waiting", grants)
            .await
            .expect(200);
    };
    role("").await;
    // A wait that begins after the expiry gets the same answer.
    let lives_ms = (loss == Loss::Expired).then_some(3_000);
    let token = server
        .as_token(
            &admin,
            "POST",
            "/v1/tokens",
            json!({"role": "waiting", "expires_in_ms": lives_ms}),
        )
        .await
        .expect(201);
    let token = token["token"].as_str().unwrap().to_owned();
    let session = server.session_of(&token).await;
    let upgradeable = json!({"session": session, "mode": "upgradeable"});
    let held = server
        .as_token(&token, "POST", "/v1/locks/c/acquire", upgradeable)
        .await
        .expect(200);
    let holder = server.session_of(&admin).await;
    for (lock, mode) in [("a", "exclusive"), ("b", "exclusive"), ("c", "shared")] {
        let body = json!({"session": holder, "mode": mode});
        server
            .as_token(&admin, "POST", &format!("/v1/locks/{lock}/acquire"), body)
            .await
            .expect(200);
    }
    let wait = json!({"session": session, "wait_ms": null});
    let both = json!({"session": session, "wait_ms": null, "locks": [{"name": "b"}, {"name": "free"}]});
    let upgrade = json!({"session": session, "wait_ms": null, "holder": held["holder"]});
    let mut calls = Vec::new();
    for (path, body) in [
        ("/v1/locks/a/acquire", wait),
        ("/v1/multilock/acquire", both),
        ("/v1/locks/c/upgrade", upgrade),
    ] {
        let body = body.to_string();
        calls.push(Call::send_as(server.address, Some(&token), "POST", path, Some(&body)).await);
    }
    let waiting = async || {
        let mut waiting = 0;
        for lock in ["a", "b", "c"] {
            let path = format!("/v1/locks/{lock}");
            let seen = server
                .as_token(&admin, "GET", &path, Value::Null)
                .await
                .expect(200);
            let holders = seen["holders"].as_array().unwrap().iter();
            waiting += seen["queue"].as_array().unwrap().len();
            waiting += holders
                .filter(|it| it.get("upgrading_since_at").is_some())
                .count();
        }
        waiting
    };
    if loss != Loss::Expired {
        until("all wait", async || waiting().await == 3).await;
    }
    match loss {
        Loss::Revoked => {
            let path = format!("/v1/tokens/{}", token.split('_').nth(1).unwrap());
            server
                .as_token(&admin, "DELETE", &path, Value::Null)
                .await
                .expect(204);
        }
        Loss::Expired => {}
        Loss::Narrowed => role("elsewhere").await,
    }
    for call in calls {
        let reply = call.reply().await;
        match loss {
            Loss::Revoked | Loss::Expired => reply.problem(401, "unauthenticated"),
            Loss::Narrowed => reply.problem(403, "forbidden"),
        };
    }
    until("their places are gone", async || waiting().await == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn waits_end_when_the_token_is_revoked() {
    waits_end(Loss::Revoked).await;
}

#[tokio::test]
async fn waits_end_when_the_token_expires() {
    waits_end(Loss::Expired).await;
}

#[tokio::test]
async fn waits_end_when_the_role_is_narrowed() {
    waits_end(Loss::Narrowed).await;
}

#[tokio::test]
async fn watches_of_a_stream_respect_the_current_rights() {
    let (server, admin) = Server::start_secured().await;
    server
        .as_token(&admin, "POST", "/v1/znodes/team", json!({"data": "x"}))
        .await
        .expect(201);
    let (token, _) = leaving(&server, &admin).await;
    let session = server.session_of(&token).await;
    let mut stream = server
        .follow_as(&token, &session, "?data=/team&exists=/team/new")
        .await
        .unwrap();
    stream.expect("state").await;
    let locks_only = json!({"grants": [{"locks": "", "rights": ["lock"]}]});
    server
        .as_token(&admin, "PUT", "/v1/roles/leaving", locks_only)
        .await
        .expect(200);
    server
        .as_token(&admin, "PUT", "/v1/znodes/team", json!({"data": "secret"}))
        .await
        .expect(200);
    server
        .as_token(&admin, "POST", "/v1/znodes/team/new", json!({}))
        .await
        .expect(201);
    // The stream still delivers events of the caller's own session, and this is the next one.
    let body = json!({"session": session});
    server
        .as_token(&token, "POST", "/v1/locks/l/acquire", body)
        .await
        .expect(200);
    assert_eq!(stream.next().await.word, "granted");
    // Nor does a reconnecting client receive the events that it missed.
    let refused = server
        .follow_as(&token, &session, "?zxid=1&data=/team")
        .await
        .err()
        .unwrap();
    refused.problem(403, "forbidden");
    server.stop().await;
}
