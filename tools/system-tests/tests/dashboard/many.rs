//! Long lists: only visible rows exist, and scrolling loads further ones. With a number in `LOCKGATE_MANY`
//! the test also measures the smoothness of scrolling and the cost of an open page for its node.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use lockgate::lock_node::NodeId;
use serde_json::json;
use tokio::time::Instant;

use crate::browser::Browser;
use crate::harness::TestCluster;
use crate::{assert_content, must, page, session};

/// Environment variable with the number of locks and of sessions.
const MANY_VARIABLE: &str = "LOCKGATE_MANY";

/// Default number: enough for some pages of each list.
const USUALLY: usize = 1200;

/// Maximum number of rows at a time: those of a screen, with a margin.
const ROWS: u64 = 80;

/// Time for which the node's CPU time is measured.
const WINDOW: Duration = Duration::from_secs(20);

/// Number of locks acquired by one call.
const AT_ONCE: usize = 60;

#[tokio::test]
async fn long_lists_contain_only_visible_rows() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let asked = std::env::var(MANY_VARIABLE)
        .ok()
        .map(|text| text.parse().unwrap());
    let many = asked.unwrap_or(USUALLY);
    let cluster = TestCluster::start().await;
    let node = cluster.followers().await[0];
    let own = session(&cluster, node, "holder").await;
    let names: Vec<String> = (0..many).map(|number| format!("many/{number:06}")).collect();
    for names in names.chunks(AT_ONCE) {
        let locks: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
        let body = json!({"session": own, "locks": locks});
        must(&cluster, node, "POST", "/v1/multilock/acquire", body).await;
    }
    let opening = (0..many).map(|number| {
        let (cluster, name) = (&cluster, format!("worker-{number}"));
        async move { session(cluster, node, &name).await }
    });
    let opened: Vec<_> = stream::iter(opening).buffer_unordered(32).collect().await;
    assert_eq!(opened.len(), many);

    let last = names.last().unwrap();
    for (view, selector, total) in [
        ("locks", "[data-lock]", many),
        ("sessions", "[data-session]", many + 1),
    ] {
        browser.go(&page(&cluster, node, view)).await;
        browser
            .until(&format!("document.querySelectorAll('{selector}').length > 10"))
            .await;
        let begin = Instant::now();
        // Drags the scroll bar to its end repeatedly until the last row exists: a loaded page extends the
        // list only with the next frame. The header is the first row.
        let foot = grouped(total, if view == "locks" { "locks" } else { "sessions" });
        browser
            .until(&format!(
                "(() => {{ const rows = document.querySelector('.rows'); rows.scrollTop = rows.scrollHeight; \
                 return document.querySelector('.foot').innerText === '{foot}' \
                 && Boolean(document.querySelector('{selector}[aria-rowindex=\"{}\"]')); }})()",
                total + 1
            ))
            .await;
        let loaded = begin.elapsed();
        if view == "locks" {
            browser.until_text(".list", last).await;
        }
        let rows = browser
            .js(&format!("document.querySelectorAll('{selector}').length"))
            .await;
        assert!(rows.as_u64().unwrap() < ROWS, "{rows} rows of {view}");
        if asked.is_some() {
            let frames = scroll(&browser).await;
            println!("{view}: {total} loaded in {loaded:?}; {frames}");
        }
    }
    if asked.is_some() {
        measure_cost(&browser, &cluster, node, &own).await;
    }
    assert_content(&browser);
}

/// Measures the cost of an open page: first without events, then while a lock changes hands continuously.
async fn measure_cost(browser: &Browser, cluster: &TestCluster, node: NodeId, own: &str) {
    browser.go(&page(cluster, node, "locks")).await;
    browser
        .until("document.querySelectorAll('[data-lock]').length > 10")
        .await;
    let begin = used(cluster, node);
    tokio::time::sleep(WINDOW).await;
    println!(
        "the node: {:.2} % of a core while the page is open",
        share(cluster, node, begin, WINDOW)
    );
    let (begin, deadline, mut rounds) = (used(cluster, node), Instant::now() + WINDOW, 0);
    while Instant::now() < deadline {
        let body = json!({"session": own, "note": format!("round {rounds}")});
        let held = must(cluster, node, "POST", "/v1/locks/many%2Fa/acquire", body).await;
        let body = json!({"session": own, "holder": held["holder"]});
        must(cluster, node, "POST", "/v1/locks/many%2Fa/release", body).await;
        rounds += 1;
    }
    println!(
        "the node: {:.2} % of a core with the page open and {rounds} rounds of a lock in {WINDOW:?}",
        share(cluster, node, begin, WINDOW)
    );
}

/// Scrolls for two seconds; returns statistics of the frame times.
async fn scroll(browser: &Browser) -> String {
    let times = browser
        .js(r"new Promise((done) => {
            const rows = document.querySelector('.rows');
            const [times, begin] = [[], performance.now()];
            let last = begin;
            const step = (now) => {
                times.push(now - last);
                last = now;
                rows.scrollTop = (rows.scrollHeight * ((now - begin) % 1000)) / 1000;
                if (now - begin < 2000) requestAnimationFrame(step);
                else done(times.slice(1).sort((one, other) => one - other));
            };
            requestAnimationFrame(step);
        })")
        .await;
    let times: Vec<f64> = times
        .as_array()
        .unwrap()
        .iter()
        .filter_map(serde_json::Value::as_f64)
        .collect();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    format!(
        "{} frames during scrolling, half of them within {:.1} ms, 99 of 100 within {:.1} ms",
        times.len(),
        at(0.5),
        at(0.99)
    )
}

/// Returns the CPU time of a node's process in ticks of a hundredth of a second.
fn used(cluster: &TestCluster, node: NodeId) -> u64 {
    let pid = cluster.pid(node).unwrap().expect("the node runs");
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // After the name, which may contain blanks.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    [fields[11], fields[12]]
        .iter()
        .map(|ticks| ticks.parse::<u64>().unwrap())
        .sum()
}

fn share(cluster: &TestCluster, node: NodeId, begin: u64, window: Duration) -> f64 {
    (used(cluster, node) - begin) as f64 / window.as_secs_f64()
}

/// Formats a number as the page does: `1,200 locks`.
fn grouped(number: usize, what: &str) -> String {
    match number {
        0..1000 => format!("{number} {what}"),
        _ => format!("{},{:03} {what}", number / 1000, number % 1000),
    }
}
