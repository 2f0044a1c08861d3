//! Alerts: each rule fires in a Prometheus that scrapes real nodes when its condition is met, and no rule
//! fires for a healthy cluster.
//!
//! A real Prometheus, the Debian package `prometheus`, evaluates the rules. Without it the tests print a
//! message and pass; with LOCKGATE_PROMETHEUS=required they fail.

// clippy's exception for tests does not reach their helpers.
#![allow(clippy::unwrap_used)]

mod clocks;
mod crowded;
mod differing;
#[path = "../../../../crates/lockgate/tests/cluster/harness.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod harness;
mod losses;
#[path = "../../../../crates/lockgate/tests/metrics/project.rs"]
mod project;
mod prometheus;
#[path = "../../../../crates/lockgate/tests/metrics/rules.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod rules;
#[path = "../../../../crates/lockgate/tests/metrics/scrape.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod scrape;
mod slow_disk;
#[path = "../../../../crates/lock-node/tests/node/troubled_disk.rs"]
#[allow(dead_code, reason = "other tests need more of it")]
mod troubled_disk;
mod troubled;

use std::collections::BTreeSet;

use self::prometheus::{Job, Prometheus, check_rules, test_rules};
use crate::harness::TestCluster;
use crate::project::{file, root};

/// The program under test.
pub const LOCKGATE: &str = env!("CARGO_BIN_EXE_lockgate-with-faults");

/// Alerts by the test that raises them. Every rule must be in the list.
const FIRED: [(&str, &[&str]); 6] = [
    ("losses", losses::ALERTS),
    ("crowded", crowded::ALERTS),
    ("troubled", troubled::ALERTS),
    ("slow_disk", slow_disk::ALERTS),
    ("differing", differing::ALERTS),
    ("clocks", clocks::ALERTS),
];

/// Returns the scrape job of a test's cluster.
fn job<'a>(name: &'a str, cluster: &TestCluster) -> Job<'a> {
    Job {
        name,
        scheme: if cluster.is_secured() { "https" } else { "http" },
        targets: cluster.http_addresses(),
    }
}

/// Asserts that only the expected alerts fire.
async fn assert_only_these_fire(prometheus: &Prometheus, expected: &[&str]) {
    let firing = prometheus.firing().await;
    let firing: BTreeSet<&str> = firing.iter().map(|(_, alert)| alert.as_str()).collect();
    assert_eq!(firing, expected.iter().copied().collect());
}

#[test]
fn every_rule_is_raised_by_a_test() {
    let rules: BTreeSet<String> = rules::rules().into_iter().map(|rule| rule.alert).collect();
    let fired: BTreeSet<String> = FIRED
        .iter()
        .flat_map(|(_, alerts)| alerts.iter().map(|alert| (*alert).to_owned()))
        .collect();
    assert_eq!(rules, fired);
}

#[test]
fn every_rule_has_a_summary_a_description_and_a_runbook_entry() {
    let runbook = file("docs/operate/runbook.md");
    for rule in rules::rules() {
        let field = |name: &str| {
            let field = rule.fields.get(name).filter(|text| !text.is_empty());
            field.unwrap_or_else(|| panic!("{} has no {name}", rule.alert))
        };
        assert!(!rule.expr.is_empty(), "{}", rule.alert);
        assert!(
            !field("summary").is_empty() && field("description").ends_with('.'),
            "{}",
            rule.alert
        );
        let severity = field("labels");
        let known = ["critical", "warning", "info"].map(|word| format!("{{ severity: {word} }}"));
        assert!(known.contains(severity), "{}: {severity}", rule.alert);
        let anchor = format!("docs/operate/runbook.html#{}", rule.alert.to_lowercase());
        assert_eq!(*field("runbook_url"), anchor);
        let heading = format!("\n## {}\n", rule.alert);
        assert!(
            runbook.contains(&heading),
            "docs/operate/runbook.md has no heading for {}",
            rule.alert
        );
    }
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let rules: BTreeSet<String> = rules::rules().into_iter().map(|rule| rule.alert).collect();
    for heading in headings {
        assert!(rules.contains(heading), "no rule has the name {heading}");
    }
}

#[test]
fn summaries_have_whole_numbers() {
    let texts = "tools/system-tests/tests/alerts/texts.yml";
    if let Some(tested) = test_rules(&root().join(texts)) {
        tested.unwrap();
    }
}

#[test]
fn prometheus_accepts_the_rules() {
    if let Some(checked) = check_rules(&root().join(rules::PATH)) {
        checked.unwrap();
    }
}
