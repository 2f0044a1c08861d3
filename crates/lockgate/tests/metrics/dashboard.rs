//! Dashboard for Grafana, and alert rules: the dashboard is valid JSON with the required rows, and both use
//! only metrics that nodes export.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::documented::documented;
use crate::project::file;
use crate::rules::expressions;

const DASHBOARD: &str = "deploy/grafana/lockgate.json";

/// Required rows.
const ROWS: [&str; 7] = [
    "Cluster",
    "Raft",
    "Storage",
    "Locks",
    "Sessions and watches",
    "Requests",
    "Process",
];

/// Returns the metrics of nodes in an expression of PromQL.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'));
    let ours = words.filter(|word| word.starts_with("lockgate_") || word.starts_with("process_"));
    ours.map(str::to_owned).collect()
}

/// Returns every name under which Prometheus stores a metric of a node.
fn exported_names() -> BTreeSet<String> {
    let exported = documented()
        .into_iter()
        .flat_map(|(name, (kind, _))| match kind.as_str() {
            "histogram" => ["_bucket", "_sum", "_count"]
                .map(|end| format!("{name}{end}"))
                .to_vec(),
            _ => vec![name],
        });
    exported.collect()
}

fn panels(dashboard: &Value) -> Vec<&Value> {
    dashboard["panels"]
        .as_array()
        .expect("a list of panels")
        .iter()
        .collect()
}

#[test]
fn dashboard_shows_exported_metrics() {
    let dashboard: Value = serde_json::from_str(&file(DASHBOARD)).expect("it is JSON");
    let panels = panels(&dashboard);
    let rows: Vec<&str> = panels
        .iter()
        .filter(|panel| panel["type"] == "row")
        .filter_map(|panel| panel["title"].as_str())
        .collect();
    assert_eq!(rows, ROWS);
    let exported = exported_names();
    let mut ids = BTreeSet::new();
    let mut shown = BTreeSet::new();
    let mut places = BTreeSet::new();
    for panel in panels {
        let title = panel["title"].as_str().expect("every panel has a title");
        assert!(
            ids.insert(panel["id"].as_u64().expect("every panel has an id")),
            "{title}"
        );
        let place = ["x", "y"].map(|at| panel["gridPos"][at].as_u64().expect("every panel has a place"));
        assert!(places.insert(place), "{title} overlaps another panel");
        if panel["type"] == "row" {
            continue;
        }
        assert!(
            !panel["description"].as_str().unwrap_or_default().is_empty(),
            "{title}"
        );
        assert!(
            panel["fieldConfig"]["defaults"]["unit"].is_string(),
            "{title} has a unit"
        );
        let targets = panel["targets"].as_array().expect("every panel has targets");
        assert!(!targets.is_empty(), "{title}");
        for target in targets {
            let expression = target["expr"].as_str().expect("an expression");
            assert!(
                expression.contains("job=\"$job\""),
                "{title} shows one cluster: {expression}"
            );
            let names = names(expression);
            for name in &names {
                assert!(exported.contains(name), "{title}: no node exports {name}");
            }
            shown.extend(names);
        }
    }
    for important in [
        "lockgate_lock_wait_duration_seconds_bucket",
        "lockgate_raft_follower_lag_entries",
    ] {
        assert!(shown.contains(important), "no panel shows {important}");
    }
}

#[test]
fn alerts_use_exported_metrics() {
    let exported = exported_names();
    for (alert, expression) in expressions() {
        let names = names(&expression);
        assert!(
            !names.is_empty() || expression.contains("up{"),
            "{alert} uses no metric"
        );
        for name in names {
            assert!(exported.contains(&name), "{alert}: no node exports {name}");
        }
    }
}
