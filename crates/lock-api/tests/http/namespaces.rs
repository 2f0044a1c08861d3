//! Namespaces: a tenant sees and uses only its own, administrators set its quotas, and refusals name the quota.

use serde_json::{Value, json};

use crate::support::Server;

const OWN: &str = "/v1/namespaces/billing";

#[tokio::test]
async fn tenant_sees_its_namespace_and_is_bounded_by_its_quotas() {
    let (server, admin) = Server::start_secured().await;
    let grants = json!([
        {"locks": "billing", "rights": ["read", "lock"]},
        {"path": "/billing", "rights": ["read", "write"]},
    ]);
    let tenant = server.token_for(&admin, "billing", grants).await;
    let by = async |token: &str, method: &str, path: &str, body: Value| {
        server.as_token(token, method, path, body).await
    };
    let set = json!({"sessions": 1, "locks": 2, "znodes": 10, "bytes": 1000, "requests_per_second": 100});
    by(&tenant, "PUT", OWN, set.clone())
        .await
        .problem(403, "forbidden");
    let answer = by(&admin, "PUT", OWN, set.clone()).await.expect(200);
    let mut quotas = set;
    quotas
        .as_object_mut()
        .unwrap()
        .retain(|_, limit| !limit.is_null());
    let unused = json!({"sessions": 0, "locks": 0, "znodes": 0, "bytes": 0});
    assert_eq!(
        answer,
        json!({"namespace": "billing", "usage": unused, "quotas": quotas})
    );
    by(&admin, "PUT", "/v1/namespaces/shop", json!({}))
        .await
        .expect(200);

    let listed = by(&tenant, "GET", "/v1/namespaces", Value::Null)
        .await
        .expect(200);
    assert_eq!(listed, json!({"namespaces": [answer], "next_cursor": null}));
    by(&tenant, "GET", "/v1/namespaces/shop", Value::Null)
        .await
        .problem(403, "forbidden");
    let page = by(&admin, "GET", "/v1/namespaces?limit=1", Value::Null)
        .await
        .expect(200);
    assert_eq!(page["next_cursor"], "billing");
    let page = by(
        &admin,
        "GET",
        "/v1/namespaces?limit=1&cursor=billing",
        Value::Null,
    )
    .await
    .expect(200);
    assert_eq!(
        (&page["namespaces"][0]["namespace"], &page["next_cursor"]),
        (&json!("shop"), &Value::Null)
    );

    let sessions = [server.session_of(&tenant).await, server.session_of(&tenant).await];
    let acquire = async |session: &str, lock: &str| {
        let path = format!("/v1/locks/billing%2F{lock}/acquire");
        by(&tenant, "POST", &path, json!({"session": session})).await
    };
    let held = acquire(&sessions[0], "a").await.expect(200);
    acquire(&sessions[0], "b").await.expect(200);
    let facts = |problem: &Value| {
        let fact = |name: &str| problem[name].clone();
        json!([fact("namespace"), fact("of"), fact("limit"), fact("would_be")])
    };
    let refused = acquire(&sessions[1], "c")
        .await
        .problem(409, "namespace_quota_exceeded");
    assert_eq!(facts(&refused), json!(["billing", "sessions", 1, 2]));
    let refused = acquire(&sessions[0], "c")
        .await
        .problem(409, "namespace_quota_exceeded");
    assert_eq!(facts(&refused), json!(["billing", "locks", 2, 3]));
    let detail = "the quota of namespace billing for locks is 2, and this would make it 3";
    assert_eq!(refused["detail"], detail);
    let large = json!({"data": "x".repeat(1000)});
    let refused = by(&tenant, "POST", "/v1/znodes/billing", large).await;
    assert_eq!(
        facts(&refused.problem(409, "namespace_quota_exceeded"))[1],
        "bytes"
    );

    // A quota below the usage leaves what there is, and releases work.
    by(&admin, "PUT", OWN, json!({"locks": 0})).await.expect(200);
    let release = json!({"session": sessions[0], "holder": held["holder"]});
    by(&tenant, "POST", "/v1/locks/billing%2Fa/release", release)
        .await
        .expect(200);
    let seen = by(&tenant, "GET", OWN, Value::Null).await.expect(200);
    assert_eq!(
        (&seen["usage"]["locks"], &seen["quotas"]["locks"]),
        (&json!(1), &json!(0))
    );
    by(&admin, "DELETE", OWN, Value::Null).await.expect(204);
    acquire(&sessions[1], "a").await.expect(200);
    by(&tenant, "GET", OWN, Value::Null)
        .await
        .problem(404, "no_namespace");
    server.stop().await;
}
