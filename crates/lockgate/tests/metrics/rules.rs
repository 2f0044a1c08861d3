//! Alert rules, as delivered and as tests need them: with seconds in place of minutes. Expressions stay the
//! same, except for the few thresholds that a test cannot reach, which are listed here.

use std::collections::BTreeMap;

use crate::project::file;

/// Path of the rules.
pub const PATH: &str = "deploy/prometheus/alerts.yml";

/// Windows in a test: long enough for a condition that develops in steps, and a dozen scrapes.
const WINDOWS: [(&str, &str); 3] = [("[5m]", "[8s]"), ("[10m]", "[8s]"), ("[15m]", "[20s]")];

/// Thresholds that would take a test hours, or a machine to itself: the rule, the delivered text, and the
/// text in a test.
const TEST_THRESHOLDS: [(&str, &str, &str); 5] = [
    // Seconds after a backup in the place of days.
    ("LockgateBackupTooOld", "> 172800", "> 2"),
    ("LockgateFollowerLags", "> 10000", "> 20"),
    // A test does not fill the memory of the machine.
    ("LockgateMemory", "> 0.8", "> 0.00001"),
    ("LockgateLockWaitsLong", "> 60", "> 0.2"),
    ("LockgateLockWaitsLong", "> 100", "> 3"),
];

/// Alert rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Name.
    pub alert: String,
    /// Expression.
    pub expr: String,
    /// Other fields, by name.
    pub fields: BTreeMap<String, String>,
}

/// Returns all rules, as delivered. Each field is on one line.
pub fn rules() -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    for line in file(PATH).lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            rules.push(Rule {
                alert: alert.to_owned(),
                expr: String::new(),
                fields: BTreeMap::new(),
            });
        } else if let Some(rule) = rules.last_mut()
            && let Some((name, value)) = line.split_once(": ")
        {
            match name {
                "expr" => rule.expr = value.to_owned(),
                _ => {
                    let value = value.trim_matches('"').to_owned();
                    rule.fields.insert(name.to_owned(), value);
                }
            }
        }
    }
    rules
}

/// Returns the file for a test.
pub fn hastened() -> String {
    let mut alert = String::new();
    let mut adjusted = 0;
    let text = file(PATH);
    let lines = text.lines().map(|line| {
        let text = line.trim();
        if let Some(name) = text.strip_prefix("- alert: ") {
            alert = name.to_owned();
        } else if text.starts_with("for: ") {
            return "        for: 0s".to_owned();
        } else if text.starts_with("expr: ") {
            let mut line = WINDOWS.iter().fold(line.to_owned(), |line, (window, in_test)| {
                line.replace(window, in_test)
            });
            for (_, delivered, in_test) in TEST_THRESHOLDS.iter().filter(|(name, ..)| *name == alert) {
                assert_eq!(
                    line.matches(delivered).count(),
                    1,
                    "{alert}: {delivered:?} in {line}"
                );
                line = line.replace(delivered, in_test);
                adjusted += 1;
            }
            return line;
        }
        line.to_owned()
    });
    let lines: Vec<String> = lines.collect();
    assert_eq!(adjusted, TEST_THRESHOLDS.len(), "every adjustment has its rule");
    lines.join("\n") + "\n"
}

/// Returns the name and the expression of each rule.
pub fn expressions() -> Vec<(String, String)> {
    let rules = rules().into_iter();
    rules.map(|rule| (rule.alert, rule.expr)).collect()
}
