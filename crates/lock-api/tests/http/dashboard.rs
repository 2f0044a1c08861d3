//! Dashboard: the page is served to all callers, and contains no data itself.

use serde_json::{Value, json};

use crate::support::Server;

#[tokio::test]
async fn page_is_served_to_all_callers_and_runs_only_its_own_scripts() {
    let (server, _) = Server::start_secured().await;
    let page = server.get("/").await;
    assert_eq!(
        (page.status, page.header("content-type")),
        (200, Some("text/html; charset=utf-8"))
    );
    let policy = page.header("content-security-policy").unwrap();
    for rule in [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "connect-src 'self'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    ] {
        assert!(policy.contains(rule), "{policy}");
    }
    assert!(!policy.contains("unsafe"), "{policy}");
    for (file, kind) in [
        ("app.js", "text/javascript; charset=utf-8"),
        ("style.css", "text/css; charset=utf-8"),
        ("icon.svg", "image/svg+xml"),
    ] {
        let part = server.get(&format!("/dashboard/{file}")).await;
        assert_eq!(
            (part.status, part.header("content-type")),
            (200, Some(kind)),
            "{file}"
        );
    }
    let asked = server.get("/v1/locks").await;
    asked.problem(401, "unauthenticated");
    server.stop().await;
}

#[tokio::test]
async fn callers_see_their_rights() {
    let (server, admin) = Server::start_secured().await;
    let grants = json!([{"locks": "team", "rights": ["read", "break"]}]);
    let token = server.token_for(&admin, "onlooker", grants).await;
    let answer = async |token: &str| {
        server
            .as_token(token, "GET", "/v1/access", Value::Null)
            .await
            .expect(200)
    };
    assert_eq!(answer(&admin).await["you"]["grants"], Value::Null);
    assert_eq!(
        answer(&token).await["you"]["grants"],
        json!([{"path": "/locks/team", "rights": ["read", "break"]}])
    );
    let nobody = server.get("/v1/access").await.expect(200);
    assert_eq!(nobody["you"]["grants"], json!([]));
    server.stop().await;
}

#[tokio::test]
async fn condition_of_the_members_comes_from_the_leader() {
    let server = Server::start().await;
    let members = server.get("/v1/cluster/members").await.expect(200);
    assert_eq!(members["members"][0]["node_id"], 1, "{members}");
    assert_eq!(members["members"][0]["lag"], 0, "{members}");
    let cluster = server.get("/v1/cluster").await.expect(200);
    assert!(
        cluster["disk"]["low_water_bytes"].as_u64().unwrap() > 0,
        "{cluster}"
    );
    let session = server.session().await;
    server
        .post("/v1/locks/a/acquire", json!({"session": session}))
        .await
        .expect(200);
    let counts = &server.get("/v1/cluster").await.expect(200)["counts"];
    assert_eq!(
        (&counts["sessions"], &counts["locks"]),
        (&json!(1), &json!(1)),
        "{counts}"
    );
    server.stop().await;

    let alone = Server::start_alone().await;
    alone.get("/v1/cluster/members").await.problem(503, "unavailable");
    alone.stop().await;
}

#[tokio::test]
async fn lists_show_holders_and_sessions_are_found_by_name() {
    let server = Server::start().await;
    let body = json!({"name": "worker-1"});
    let session = server.post("/v1/sessions", body).await.expect(201)["session"].clone();
    server
        .post("/v1/sessions", json!({"name": "other"}))
        .await
        .expect(201);
    for lock in ["a", "b"] {
        let body = json!({"session": session, "note": "the report"});
        server
            .post(&format!("/v1/locks/{lock}/acquire"), body)
            .await
            .expect(200);
    }
    let plain = server.get("/v1/locks?prefix=a").await.expect(200);
    assert!(plain["locks"][0].get("first_holder").is_none(), "{plain}");
    let answer = server.get("/v1/locks?holders=true&limit=1").await.expect(200);
    let first = &answer["locks"][0]["first_holder"];
    assert_eq!(
        (&first["session_name"], &first["note"]),
        (&json!("worker-1"), &json!("the report"))
    );
    assert_eq!(answer["next_cursor"], "a");

    for count in [0, 1001] {
        let asked = server.get(&format!("/v1/locks/a?limit={count}")).await;
        asked.problem(400, "bad_request");
    }
    let found = server.get("/v1/sessions?prefix=work").await.expect(200);
    assert_eq!(found["sessions"].as_array().unwrap().len(), 1, "{found}");
    let id = session.as_str().unwrap();
    let found = server.get(&format!("/v1/sessions?prefix={id}")).await.expect(200);
    assert_eq!(found["sessions"][0]["session"], session, "{found}");
    server.stop().await;
}

#[tokio::test]
async fn long_queue_is_shown_in_part_with_its_length() {
    let server = Server::start().await;
    let mut sessions = Vec::new();
    for _ in 0..4 {
        sessions.push(server.session().await);
    }
    let acquire = |session: &String| {
        let body = json!({"session": session, "mode": "shared", "note": "reads"});
        server.post("/v1/locks/a/acquire", body)
    };
    for session in &sessions[..3] {
        acquire(session).await.expect(200);
    }
    let body = json!({"session": sessions[3], "wait_ms": 20_000});
    let waiting = server.post("/v1/locks/a/acquire", body);
    let looking = async {
        crate::support::until("it waits", async || {
            server.get("/v1/locks/a?limit=2").await.expect(200)["waiting"] == 1
        })
        .await;
        let answer = server.get("/v1/locks/a?limit=2").await.expect(200);
        assert_eq!(
            (&answer["holding"], answer["holders"].as_array().unwrap().len()),
            (&json!(3), 2)
        );
        let all = server.get("/v1/locks/a").await.expect(200);
        assert_eq!(all["holders"].as_array().unwrap().len(), 3);
        assert!(all.get("holding").is_none(), "{all}");
        for session in &sessions[..3] {
            server
                .delete(&format!("/v1/sessions/{session}?reason=it+is+late"))
                .await
                .expect(204);
        }
    };
    let (granted, ()) = tokio::join!(waiting, looking);
    granted.expect(200);
    server.stop().await;
}
