//! A secured cluster: the page loads without a token, shows nothing, asks for a token, and offers only
//! permitted actions. The cluster rejects all others anyway.

use cli_support::http_client::{Response, request_as};
use lockgate::lock_node::NodeId;
use serde_json::{Value, json};

use crate::browser::Browser;
use crate::harness::TestCluster;
use crate::{assert_content, page};

/// Sends a request as the administrator.
async fn admin(cluster: &TestCluster, id: NodeId, method: &str, path: &str, body: Value) -> Value {
    let body = if body.is_null() {
        String::new()
    } else {
        body.to_string()
    };
    let response: Response = request_as(&cluster.http(id), cluster.credentials(), method, path, &body)
        .await
        .unwrap();
    assert!(
        response.status < 300,
        "{method} {path}: {} {}",
        response.status,
        response.json()
    );
    match response.status {
        204 => Value::Null,
        _ => response.json(),
    }
}

#[tokio::test]
async fn page_asks_for_a_token_and_offers_only_permitted_actions() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start_with_access().await;
    let node = cluster.leader_now().await;
    let opened = admin(
        &cluster,
        node,
        "POST",
        "/v1/sessions",
        json!({"ttl_ms": 300_000, "name": "worker"}),
    )
    .await;
    let acquire = json!({"session": opened["session"], "note": "the nightly report"});
    admin(
        &cluster,
        node,
        "POST",
        "/v1/locks/team%2Fa/acquire",
        acquire.clone(),
    )
    .await;
    admin(&cluster, node, "POST", "/v1/locks/other/acquire", acquire).await;
    let grants = json!({"grants": [
        {"locks": "team", "rights": ["read"]}, {"path": "/zookeeper/config", "rights": ["read"]}]});
    admin(&cluster, node, "PUT", "/v1/roles/onlooker", grants).await;
    let make = json!({"role": "onlooker", "description": "the screen on the wall"});
    let onlooker = admin(&cluster, node, "POST", "/v1/tokens", make).await;

    browser.go(&page(&cluster, node, "locks")).await;
    browser.until_text("dialog", "This cluster is secured").await;
    assert!(
        !browser
            .js("document.body.innerText")
            .await
            .as_str()
            .unwrap()
            .contains("team/a")
    );

    // An invalid token is asked for again.
    browser.write("dialog input", "lg_nothing").await;
    browser.press("Enter").await;
    browser.until_text("dialog", "does not count").await;
    browser
        .write("dialog input", onlooker["token"].as_str().unwrap())
        .await;
    browser.press("Enter").await;
    browser.until_text(".list", "team/a").await;
    browser.until_text("#who", "onlooker").await;
    browser.until_text("#link", &format!("node {node} leads")).await;
    // Locks that the token may not read are not shown, and forbidden actions are not offered.
    assert!(
        !browser
            .js("document.querySelector('.list').innerText")
            .await
            .as_str()
            .unwrap()
            .contains("other")
    );
    browser.click("a.row", "team/a").await;
    browser.until_text(".detail .holders", "the nightly report").await;
    let offered = browser
        .js("[...document.querySelectorAll('.detail button')].filter((it) => it.checkVisibility()).map((it) => it.innerText)")
        .await;
    assert_eq!(offered, json!([]));
    // The cluster rejects the action anyway.
    let refused = browser
        .js("import('/dashboard/api.js').then((api) => api.post('/v1/locks/team%2Fa/break', {holder: 'x', reason: 'y'})).catch((error) => error.code)")
        .await;
    assert_eq!(refused, "forbidden");
    // The token is stored in this tab only.
    assert_eq!(
        browser
            .js("[localStorage.length, document.cookie, location.href.includes('lg_')]")
            .await,
        json!([0, "", false])
    );

    // The administrator's token permits everything, including the revocation of the other token.
    browser.click("#who", "").await;
    browser.until_text("main", "onlooker").await;
    browser.click("main button", "Forget this token").await;
    browser.until_text("dialog", "This cluster is secured").await;
    let token = cluster.credentials().token.as_ref().unwrap().expose().to_owned();
    browser.write("dialog input", &token).await;
    browser.press("Enter").await;
    browser.until_text("main", "the screen on the wall").await;
    let row = onlooker["id"].as_str().unwrap().to_owned();
    browser
        .js(&format!(
            "[...document.querySelectorAll('main tr')].find((it) => it.innerText.includes('{row}')).querySelector('button').click()"
        ))
        .await;
    browser.write("dialog input", "the wall was torn down").await;
    browser.press("Enter").await;
    browser
        .until_no_text("main table", "the screen on the wall")
        .await;
    let left = admin(&cluster, node, "GET", "/v1/tokens", Value::Null).await;
    assert!(!left.to_string().contains(&row), "{left}");
    browser.click("#views a", "Locks").await;
    browser.until_text(".list", "other").await;
    browser.click("a.row", "team/a").await;
    browser.click(".detail button", "Drain").await;
    browser.write("dialog input", "the storage is moved").await;
    browser.press("Enter").await;
    browser.until_text(".detail .badge", "draining").await;
    assert_content(&browser);
}

#[tokio::test]
async fn page_asks_for_another_token_after_a_revocation() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start_with_access().await;
    let node = cluster.leader_now().await;
    let made = admin(&cluster, node, "POST", "/v1/tokens", json!({"role": "admin"})).await;
    browser.go(&page(&cluster, node, "locks")).await;
    browser
        .write("dialog input", made["token"].as_str().unwrap())
        .await;
    browser.press("Enter").await;
    browser.until_text(".list", "No lock is in use").await;
    let path = format!("/v1/tokens/{}", made["id"].as_str().unwrap());
    admin(&cluster, node, "DELETE", &path, Value::Null).await;
    browser.until_text("dialog", "does not count").await;
    assert_content(&browser);
}

#[tokio::test]
async fn page_does_not_insist_on_a_token_and_names_missing_permissions() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start_with_access().await;
    let node = cluster.leader_now().await;
    let nothing = json!({ "grants": [] });
    admin(&cluster, node, "PUT", "/v1/roles/poor", nothing).await;
    let poor = admin(&cluster, node, "POST", "/v1/tokens", json!({"role": "poor"})).await;

    // After "Not now" the page does not ask again, even for a view that needs a token.
    browser.go(&page(&cluster, node, "locks")).await;
    browser.click("dialog button", "Not now").await;
    browser.until_text("#link", "no token was shown").await;
    browser.until_text("#who", "Show a token").await;
    browser.click("#views a", "Sessions").await;
    browser.until("document.title.startsWith('Sessions')").await;
    let asked = browser
        .js("import('/dashboard/api.js').then((api) => api.get('/v1/sessions')).catch((error) => error.status)")
        .await;
    assert_eq!(asked, 401);
    assert_eq!(
        browser.js("document.querySelector('dialog') === null").await,
        true
    );

    // A valid token without permissions (403) is not asked for again: the page says what is missing.
    browser.click("#who", "Show a token").await;
    browser
        .write("dialog input", poor["token"].as_str().unwrap())
        .await;
    browser.press("Enter").await;
    browser.until_text("#who", "poor").await;
    browser.click("#views a", "Cluster").await;
    browser
        .until("[...document.querySelectorAll('main .error')].some((it) => it.checkVisibility() && it.innerText.length > 0)")
        .await;
    let status = browser
        .js("import('/dashboard/api.js').then((api) => api.get('/v1/cluster')).catch((error) => error.status)")
        .await;
    assert_eq!(status, 403);
    assert_eq!(
        browser.js("document.querySelector('dialog') === null").await,
        true
    );

    // After the revocation and another "Not now" a different token can still be given.
    let path = format!("/v1/tokens/{}", poor["id"].as_str().unwrap());
    admin(&cluster, node, "DELETE", &path, Value::Null).await;
    browser.until_text("dialog", "does not count").await;
    browser.reload().await;
    browser.until_text("dialog", "does not count").await;
    browser.click("dialog button", "Not now").await;
    browser.click("#who", "Show a token").await;
    let token = cluster.credentials().token.as_ref().unwrap().expose().to_owned();
    browser.write("dialog input", &token).await;
    browser.press("Enter").await;
    browser.until_text("#link", "leads").await;
    assert_content(&browser);
}
