//! Appearance: nothing is wider than a small screen, the text is readable in both themes, and the keyboard
//! reaches everything.

use std::path::PathBuf;

use serde_json::json;

use crate::browser::Browser;
use crate::harness::TestCluster;
use crate::{acquire, assert_content, must, page, session};

/// Environment variable with a directory for screenshots of all views.
const PICTURES_VARIABLE: &str = "LOCKGATE_PICTURES";

const VIEWS: [(&str, &str); 9] = [
    ("cluster", "up to date"),
    ("locks", "a-name-that"),
    ("locks?lock=orders%2F42", "token"),
    ("graph", "orders/42"),
    ("sessions", "worker"),
    ("tree", "locks"),
    ("tree?path=%2Fflags", "carts"),
    ("events", "granted"),
    ("access", "everything"),
];

/// Script that returns whether the page is wider than the screen, and the elements that overflow
/// unintentionally.
const TOO_WIDE: &str = "[document.documentElement.scrollWidth > innerWidth, \
    [...document.querySelectorAll('main, main .view, main .sheet, main .rows, header, nav')]\
    .filter((it) => it.checkVisibility() && it.scrollWidth > it.clientWidth + 1).map((it) => it.outerHTML.slice(0, 200))]";

/// Script that returns the lowest contrast of any text with its background, by WCAG's formula, and the
/// element.
const LEAST_CONTRAST: &str = r"(() => {
    const context = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
    const rgb = (color) => { context.clearRect(0, 0, 1, 1); context.fillStyle = color; context.fillRect(0, 0, 1, 1); return context.getImageData(0, 0, 1, 1).data; };
    const light = (color) => { const [r, g, b] = [...rgb(color)].map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
    const ground = (it) => { for (; it; it = it.parentElement) { const color = getComputedStyle(it).backgroundColor; if (rgb(color)[3] > 250) return color; } return 'white'; };
    const all = [...document.querySelectorAll('body *')].filter((it) => it.checkVisibility() && !it.disabled && !it.closest('svg, .skip') && [...it.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    const contrasts = all.map((it) => { const [a, b] = [light(getComputedStyle(it).color), light(ground(it))].sort((x, y) => y - x); return [(a + 0.05) / (b + 0.05), it.outerHTML.slice(0, 160)]; });
    return contrasts.sort((x, y) => x[0] - y[0])[0];
})()";

#[tokio::test]
async fn every_view_fits_a_small_screen_and_is_readable_in_both_themes() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start().await;
    let node = cluster.leader_now().await;
    let (own, other) = (
        session(&cluster, node, "worker-1").await,
        session(&cluster, node, "worker-2").await,
    );
    acquire(&cluster, node, &own, "orders/42", "the nightly report").await;
    let long = format!("a-name-that-{}", "does-not-end-".repeat(30));
    acquire(
        &cluster,
        node,
        &own,
        &long,
        &"and a note that goes on ".repeat(20),
    )
    .await;
    let flags = json!({"data": "{\"carts\": {\"limit\": 500}}"});
    must(&cluster, node, "POST", "/v1/znodes/flags", flags).await;
    let pictures = std::env::var_os(PICTURES_VARIABLE).map(PathBuf::from);
    let waits = json!({"session": other, "note": "the morning report", "wait_ms": 240_000});
    let waiting = cluster.send(node, "POST", "/v1/locks/orders%2F42/acquire", &waits);
    let looking = async {
        for (width, height) in [(390, 844), (800, 600), (1280, 800)] {
            browser.size(width, height).await;
            for scheme in ["light", "dark"] {
                browser.scheme(scheme).await;
                for (number, (view, text)) in VIEWS.into_iter().enumerate() {
                    browser.go(&page(&cluster, node, view)).await;
                    browser.until_text("main", text).await;
                    let at = format!("{view} at {width} in {scheme}");
                    let wide = browser.js(TOO_WIDE).await;
                    assert_eq!(wide, json!([false, []]), "{at}");
                    let contrast = browser.js(LEAST_CONTRAST).await;
                    assert!(contrast[0].as_f64().unwrap() >= 4.5, "{at}: {contrast}");
                    if let Some(pictures) = &pictures {
                        let name = view.split('?').next().unwrap();
                        let file = format!("{number}-{name}-{width}-{scheme}.png");
                        browser.picture(&pictures.join(file)).await;
                    }
                }
            }
        }
        must(
            &cluster,
            node,
            "DELETE",
            &format!("/v1/sessions/{own}"),
            json!(null),
        )
        .await;
    };
    let (granted, ()) = tokio::join!(waiting, looking);
    assert_eq!(granted.status, 200);
    assert_content(&browser);
}

#[tokio::test]
async fn theme_can_be_selected_and_the_keyboard_reaches_everything() {
    let Some(browser) = Browser::start().await else {
        return;
    };
    let cluster = TestCluster::start().await;
    let node = cluster.leader_now().await;
    let own = session(&cluster, node, "worker-1").await;
    for lock in ["a", "b", "c"] {
        acquire(&cluster, node, &own, lock, "").await;
    }
    browser.scheme("light").await;
    browser.go(&page(&cluster, node, "cluster")).await;
    browser.until_text(".badge", "leader").await;
    let ground = "getComputedStyle(document.body).backgroundColor";
    let light = browser.js(ground).await;
    for theme in ["light", "dark"] {
        browser.click("#theme", "").await;
        browser
            .until(&format!("document.documentElement.dataset.theme === '{theme}'"))
            .await;
    }
    assert_ne!(browser.js(ground).await, light);
    browser.reload().await;
    browser
        .until("document.documentElement.dataset.theme === 'dark'")
        .await;

    // Digits select a view, a slash the search, arrows a row, and Enter opens it.
    browser.press("2").await;
    browser
        .until("document.querySelectorAll('.list .row').length === 3")
        .await;
    browser.press("/").await;
    browser.until("document.activeElement.type === 'search'").await;
    browser.js("document.querySelector('.rows').focus()").await;
    for row in ["a", "b"] {
        browser.press("ArrowDown").await;
        browser
            .until(&format!("document.activeElement.dataset.lock === '{row}'"))
            .await;
    }
    browser.press("Enter").await;
    browser.until_text(".detail h2", "b").await;
    // A dialog takes the focus, and Escape closes it.
    browser.click(".detail button", "Break").await;
    browser.until("document.activeElement.name === 'reason'").await;
    browser.press("Escape").await;
    browser.until("document.querySelector('dialog') === null").await;
    // Every control has an accessible name.
    let nameless = browser
        .js("[...document.querySelectorAll('button, a, input, select, nav, dialog')].filter((it) => !(it.innerText?.trim() || it.ariaLabel || \
             it.textContent.trim() || it.closest('label'))).map((it) => it.outerHTML.slice(0, 120))")
        .await;
    assert_eq!(nameless, json!([]));
    assert_content(&browser);
}
