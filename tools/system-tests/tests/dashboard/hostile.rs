//! Hostile input: names, notes, reasons and data of clients are shown as they are, and only as text.

use serde_json::json;

use crate::browser::Browser;
use crate::harness::TestCluster;
use crate::{acquire, encoded, must, page, session};

/// Markup that leaves a mark if it is ever executed.
const IMAGE: &str = "<img src=x onerror=\"window.ran='image'\">";
const SCRIPT: &str = "</td><script>window.ran='script'</script><svg onload=\"window.ran='svg'\">";
const LINK: &str = "javascript:window.ran='link'";

#[tokio::test]
async fn client_input_never_becomes_markup() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start().await;
    let node = cluster.leader_now().await;
    let own = session(&cluster, node, SCRIPT).await;
    // A slash separates levels of names, so the lock's name has none.
    let lock = IMAGE;
    acquire(&cluster, node, &own, lock, SCRIPT).await;
    acquire(
        &cluster,
        node,
        &own,
        LINK,
        "\u{202e}desrever\u{202c} & \"quoted\" 'too' `${1}`",
    )
    .await;
    acquire(&cluster, node, &own, "Ünïcödé/🔒", "").await;
    let other = session(&cluster, node, IMAGE).await;
    let revoke = json!({"reason": IMAGE});
    must(
        &cluster,
        node,
        "POST",
        &format!("/v1/locks/{}/release-request", encoded(lock)),
        revoke,
    )
    .await;
    let data = json!({"data": SCRIPT});
    must(
        &cluster,
        node,
        "POST",
        &format!("/v1/znodes/{}", encoded(IMAGE)),
        data,
    )
    .await;

    let waits = json!({"session": other, "owner": IMAGE, "note": IMAGE, "wait_ms": 120_000});
    let waits_path = format!("/v1/locks/{}/acquire", encoded(lock));
    let waiting = cluster.send(node, "POST", &waits_path, &waits);
    let looking = async {
        browser.go(&page(&cluster, node, "locks")).await;
        browser.until_text(".list", IMAGE).await;
        browser.until_text(".list", LINK).await;
        browser.until_text(".list", "Ünïcödé/🔒").await;
        browser.click("a.row", LINK).await;
        // Direction marks are escaped, so that they reverse nothing.
        browser
            .until_text(".detail .holders", "\\u{202e}desrever\\u{202c}")
            .await;
        browser.click("a.row", IMAGE).await;
        browser.until_text(".detail h2", IMAGE).await;
        browser.until_text(".detail .holders", SCRIPT).await;
        browser.until_text(".detail .asked", IMAGE).await;
        browser.until_text(".detail .queue", IMAGE).await;
        browser.click(".detail .queue button", "Remove").await;
        browser.until_text("dialog", IMAGE).await;
        browser.click("dialog button", "Cancel").await;
        for (place, selector, text) in [
            ("graph", ".graph a title", IMAGE),
            ("sessions", ".list", SCRIPT),
            ("sessions?session=OWN", ".detail h2", SCRIPT),
            ("tree", ".list", IMAGE),
            ("tree?path=ZNODE", ".data", SCRIPT),
            ("events", ".log", IMAGE),
        ] {
            let place = place
                .replace("OWN", &own)
                .replace("ZNODE", &encoded(&format!("/{IMAGE}")));
            browser.go(&page(&cluster, node, &place)).await;
            match selector {
                // SVG titles have no laid-out text.
                ".graph a title" => {
                    let text = json!(text);
                    browser
                        .until(&format!(
                            "[...document.querySelectorAll('.graph a title')].some((it) => it.textContent.includes({text}))"
                        ))
                        .await;
                }
                _ => browser.until_text(selector, text).await,
            }
            let made = browser
                .js("document.querySelectorAll('main img, main script, #notes img, dialog img, [onload], [onerror]').length")
                .await;
            assert_eq!(made, 0, "{place}");
        }
        let closed = format!("/v1/sessions/{own}");
        must(&cluster, node, "DELETE", &closed, json!(null)).await;
    };
    let (granted, ()) = tokio::join!(waiting, looking);
    assert_eq!(granted.status, 200);
    assert_eq!(browser.js("window.ran ?? null").await, json!(null));
    // Even the page's own scripts cannot: the policy forbids parsing text as markup.
    let refused = browser
        .js("(() => { try { document.createElement('p').innerHTML = '<b>'; return 'taken'; } catch (error) { return error.name; } })()")
        .await;
    assert_eq!(refused, "TypeError");
    let page_errors = browser.page_errors();
    assert!(
        page_errors
            .iter()
            .all(|page_error| page_error.contains("TrustedHTML")),
        "{page_errors:?}"
    );
}
