//! Live updates of the page: a lock changes hands, the leader dies, an operator breaks the lock.

use serde_json::json;

use crate::browser::Browser;
use crate::harness::TestCluster;
use crate::{acquire, assert_content, encoded, must, page, session};

const LOCK: &str = "orders/42";

#[tokio::test]
async fn page_follows_a_lock_through_a_handover_a_failover_and_a_break() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut cluster = TestCluster::start().await;
    let leader = cluster.leader_now().await;
    let node = cluster.followers().await[0];
    let first = session(&cluster, node, "first").await;
    let second = session(&cluster, node, "second").await;
    let held = acquire(&cluster, node, &first, LOCK, "the nightly report").await;
    acquire(&cluster, node, &first, "customers/7", "somebody else's").await;

    browser.go(&page(&cluster, node, "cluster")).await;
    browser.until_text(".badge", "leader").await;
    browser.until_text("#link", &format!("node {leader} leads")).await;
    // Data that only the leader has is shown by this node as well.
    browser
        .until_text(&format!("tr[data-node=\"{leader}\"]"), "up to date")
        .await;

    // The lock is found by a prefix of its name.
    browser.click("#views a", "Locks").await;
    browser.until_text(".list", "customers/7").await;
    browser.write("input[type=search]", "orders/").await;
    browser.until_no_text(".list", "customers/7").await;
    browser.click("a.row", LOCK).await;
    browser.until_text(".detail .holders", "the nightly report").await;
    let token = held["fencing_token"].to_string();
    browser
        .until_text(".detail .holders", &format!("token {token}"))
        .await;

    // A waiter appears, and is granted the lock.
    let waits = json!({"session": second, "note": "the morning report", "wait_ms": null});
    let path = format!("/v1/locks/{}", encoded(LOCK));
    let acquire_path = format!("{path}/acquire");
    let waiting = cluster.send(node, "POST", &acquire_path, &waits);
    let watching = async {
        browser.until_text(".detail .queue", "the morning report").await;
        browser.until_text("a.row .badge", "1").await;
        let release = json!({"session": first, "holder": held["holder"]});
        must(&cluster, node, "POST", &format!("{path}/release"), release).await;
        browser.until_text(".detail .holders", "the morning report").await;
        browser.until_text(".timeline", "released").await;
    };
    let (granted, ()) = tokio::join!(waiting, watching);
    assert_eq!(granted.status, 200);

    // The leader dies. The page of the other node continues.
    cluster.kill(leader).await.unwrap();
    let next = cluster.leader_now().await;
    browser.until_text("#link", &format!("node {next} leads")).await;
    let third = session(&cluster, node, "third").await;
    acquire(&cluster, node, &third, "orders/43", "after the loss").await;
    browser.until_text(".list", "after the loss").await;
    browser.click("#views a", "Cluster").await;
    browser
        .until(&format!(
            "document.querySelector('tr[data-node=\"{leader}\"]').innerText.includes('not heard')"
        ))
        .await;

    // An operator breaks the lock with a reason, which the page then shows.
    browser.click("#views a", "Locks").await;
    browser.click("a.row", LOCK).await;
    browser.click(".detail .holders .party button", "Break").await;
    browser.until_text("dialog", "the morning report").await;
    browser.click("dialog button", "Break the lock").await;
    // The reason is mandatory.
    browser
        .until("document.querySelector('dialog input:invalid') !== null")
        .await;
    browser.write("dialog input", "it hangs since noon").await;
    browser.press("Enter").await;
    browser.until("document.querySelector('dialog') === null").await;
    browser.until_text(".detail", "Held by nobody").await;
    browser.until_text(".timeline", "it hangs since noon").await;
    let seen = must(&cluster, node, "GET", &format!("{path}/history"), json!(null)).await;
    assert_eq!(seen["history"][0]["ended"], "broken", "{seen}");
    assert_eq!(seen["history"][0]["reason"], "it hangs since noon", "{seen}");
    browser.click("#views a", "Events").await;
    browser.until_text(".log", "it hangs since noon").await;

    // The change of the leader is listed, and still is after a reload.
    let is_told = format!(
        "[...document.querySelectorAll('.log .row')].some((row) => \
         row.innerText.includes('leader') && row.innerText.includes('node {next}'))"
    );
    browser.until(&is_told).await;
    browser.reload().await;
    browser.until(&is_told).await;
    browser
        .js("(() => { const choice = document.querySelector('select'); choice.value = 'cluster'; choice.dispatchEvent(new Event('change')); })()")
        .await;
    browser.until_no_text(".log", "it hangs since noon").await;
    browser.until(&is_told).await;
    assert_content(&browser);
}

#[tokio::test]
async fn page_reports_a_lost_node_and_continues_after_its_restart() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let mut cluster = TestCluster::start().await;
    let node = cluster.followers().await[0];
    browser.go(&page(&cluster, node, "locks")).await;
    browser.until_text(".list", "No lock is in use").await;
    // The page shows the node that it is connected to.
    browser.until_text("#link", "leads").await;
    cluster.kill(node).await.unwrap();
    browser
        .until_text("#link", &format!("node {node} does not answer"))
        .await;
    let leader = cluster.leader_now().await;
    let own = session(&cluster, leader, "meanwhile").await;
    acquire(&cluster, leader, &own, "meanwhile", "while it was away").await;
    cluster.start(node).unwrap();
    cluster
        .wait_ready(&[node], local_cluster::START_TIMEOUT)
        .await
        .unwrap();
    browser.until_text("#link", "leads").await;
    browser.until_text(".list", "while it was away").await;
    assert_content(&browser);
}

#[tokio::test]
async fn page_draws_the_wait_graph_and_hands_leadership_over() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start().await;
    let node = cluster.followers().await[0];
    let (one, other) = (
        session(&cluster, node, "one").await,
        session(&cluster, node, "other").await,
    );
    acquire(&cluster, node, &one, "a", "").await;
    acquire(&cluster, node, &other, "b", "").await;
    browser.go(&page(&cluster, node, "graph")).await;
    browser.until_text(".graph", "Nobody waits").await;
    let waits = json!({"session": other, "wait_ms": 60_000});
    let waiting = cluster.send(node, "POST", "/v1/locks/a/acquire", &waits);
    let watching = async {
        browser
            .until("document.querySelectorAll('.graph .lock').length === 1 && document.querySelectorAll('.graph .party').length === 2")
            .await;
        browser
            .until("document.querySelectorAll('.graph path.waits').length === 1 && document.querySelectorAll('.graph path.holds').length === 1")
            .await;
        browser.click("#views a", "Cluster").await;
        browser
            .click(&format!("tr[data-node=\"{node}\"] button"), "Make leader")
            .await;
        browser
            .write("dialog input", "the other one is to be upgraded")
            .await;
        browser.press("Enter").await;
        browser.until_text("#link", &format!("node {node} leads")).await;
        must(
            &cluster,
            node,
            "DELETE",
            &format!("/v1/sessions/{one}"),
            json!(null),
        )
        .await;
    };
    let (granted, ()) = tokio::join!(waiting, watching);
    assert_eq!(granted.status, 200);
    assert_content(&browser);
}
