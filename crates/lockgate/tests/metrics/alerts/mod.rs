//! Every alert fires when what it is for happens, in a Prometheus that scrapes real nodes; and none fires of a cluster that is
//! well.

mod crowded;
mod losses;
mod prometheus;
mod rules;
mod slow_disk;
mod troubled;

use std::collections::BTreeSet;

use self::prometheus::{Job, Prometheus, check_rules};
use crate::documented::{file, root};
use crate::harness::TestCluster;

/// Which test makes a rule fire. A rule that is in none of them is one too many.
const FIRED: [(&str, &[&str]); 4] = [
    ("losses", losses::ALERTS),
    ("crowded", crowded::ALERTS),
    ("troubled", troubled::ALERTS),
    ("slow_disk", slow_disk::ALERTS),
];

/// How a cluster of a test is scraped.
fn job<'a>(name: &'a str, cluster: &TestCluster) -> Job<'a> {
    Job {
        name,
        scheme: if cluster.is_secured() { "https" } else { "http" },
        targets: cluster.http_addresses(),
    }
}

/// Nothing fires but what is expected.
async fn nothing_fires_but(prometheus: &Prometheus, expected: &[&str]) {
    let firing = prometheus.firing().await;
    let firing: BTreeSet<&str> = firing.iter().map(|(_, alert)| alert.as_str()).collect();
    assert_eq!(firing, expected.iter().copied().collect());
}

/// Each rule's name, and when it fires.
pub fn expressions() -> Vec<(String, String)> {
    let rules = rules::rules().into_iter();
    rules.map(|rule| (rule.alert, rule.expr)).collect()
}

#[test]
fn every_rule_is_fired_by_a_test() {
    let rules: BTreeSet<String> = rules::rules().into_iter().map(|rule| rule.alert).collect();
    let fired: BTreeSet<String> = FIRED
        .iter()
        .flat_map(|(_, alerts)| alerts.iter().map(|alert| (*alert).to_owned()))
        .collect();
    assert_eq!(rules, fired);
}

#[test]
fn every_rule_says_what_it_means_and_where_to_read_on() {
    let runbook = file("docs/alerts.md");
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
        let anchor = format!("docs/alerts.md#{}", rule.alert.to_lowercase());
        assert_eq!(*field("runbook_url"), anchor);
        let heading = format!("\n## {}\n", rule.alert);
        assert!(
            runbook.contains(&heading),
            "docs/alerts.md has nothing about {}",
            rule.alert
        );
    }
    let headings = runbook.lines().filter_map(|line| line.strip_prefix("## "));
    let rules: BTreeSet<String> = rules::rules().into_iter().map(|rule| rule.alert).collect();
    for heading in headings {
        assert!(rules.contains(heading), "there is no rule {heading}");
    }
}

#[test]
fn prometheus_finds_the_rules_in_order() {
    if let Some(checked) = check_rules(&root().join(rules::PATH)) {
        checked.unwrap();
    }
}
