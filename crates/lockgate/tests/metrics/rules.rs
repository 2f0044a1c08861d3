//! The rules as they are delivered, and as tests need them: with seconds in the place of minutes. What is compared with what
//! stays as it is, but for the few thresholds that a test cannot reach, which are named here one by one.

use std::collections::BTreeMap;

use crate::project::file;

/// Where the rules are.
pub const PATH: &str = "deploy/prometheus/alerts.yml";

/// The windows in a test: long enough for a condition that is brought about step by step, and a dozen scrapes.
const WINDOWS: [(&str, &str); 3] = [("[5m]", "[8s]"), ("[10m]", "[8s]"), ("[15m]", "[20s]")];

/// Thresholds that would take a test hours, or a machine to itself: the rule, what it says, and what it says in a test.
const WITHIN_REACH: [(&str, &str, &str); 5] = [
    // Seconds after a backup in the place of days.
    ("LockgateBackupTooOld", "> 172800", "> 2"),
    ("LockgateFollowerLags", "> 10000", "> 20"),
    // Nobody fills the memory of the machine that runs the tests.
    ("LockgateMemory", "> 0.8", "> 0.00001"),
    ("LockgateLockWaitsLong", "> 60", "> 0.2"),
    ("LockgateLockWaitsLong", "> 100", "> 3"),
];

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// Its name.
    pub alert: String,
    /// When it fires.
    pub expr: String,
    /// What else is told of it, by name.
    pub fields: BTreeMap<String, String>,
}

/// All of them, as they are delivered. One field is on one line.
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

/// The file for a test.
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
            for (_, said, says) in WITHIN_REACH.iter().filter(|(name, ..)| *name == alert) {
                assert_eq!(line.matches(said).count(), 1, "{alert}: {said:?} in {line}");
                line = line.replace(said, says);
                adjusted += 1;
            }
            return line;
        }
        line.to_owned()
    });
    let lines: Vec<String> = lines.collect();
    assert_eq!(adjusted, WITHIN_REACH.len(), "every adjustment has its rule");
    lines.join("\n") + "\n"
}

/// Each rule's name, and when it fires.
pub fn expressions() -> Vec<(String, String)> {
    let rules = rules().into_iter();
    rules.map(|rule| (rule.alert, rule.expr)).collect()
}
