//! Checks docs/reference/limits.md against the code: the default of every setting, the value of every constant, and that no setting of the sections
//! about limits is missing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Sections of a node's configuration whose every number is a limit.
const SECTIONS: [&str; 8] = [
    "http",
    "admin",
    "zookeeper",
    "redis",
    "load",
    "limits",
    "watches",
    "events",
];

/// Settings in these sections that do not bound callers.
const OTHERS: [&str; 2] = ["http.drain_timeout_ms", "zookeeper.drain_timeout_ms"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Evaluates a cell, or an expression of the code, to milliseconds or a number: `5 s`, `64 KiB`, `10,000`, `16 * 1024 - 1`,
/// `Duration::from_secs(5)`.
fn value(text: &str) -> Option<u64> {
    let text = text.trim();
    for (unit, factor) in [(" ms", 1), (" s", 1_000), (" KiB", 1 << 10), (" MiB", 1 << 20)] {
        if let Some(number) = text.strip_suffix(unit) {
            return Some(value(number)? * factor);
        }
    }
    if let Some(seconds) = text.strip_prefix("Duration::from_secs(") {
        return Some(value(seconds.strip_suffix(')')?)? * 1_000);
    }
    if let Some(ms) = text.strip_prefix("Duration::from_millis(") {
        return value(ms.strip_suffix(')')?);
    }
    if let Some((more, less)) = text.split_once(" - ") {
        return Some(value(more)? - value(less)?);
    }
    if let Some((one, other)) = text.split_once(" * ") {
        return Some(value(one)? * value(other)?);
    }
    text.replace([',', '_'], "").parse().ok()
}

/// Returns the value of a constant in a source file.
fn constant(name: &str, file: &str) -> u64 {
    let source = text(&format!("crates/{file}"));
    let declared = source.lines().map(str::trim).find_map(|line| {
        let line = line.trim_start_matches("pub(crate) ").trim_start_matches("pub ");
        let rest = line
            .strip_prefix("const ")?
            .strip_prefix(name)?
            .strip_prefix(':')?;
        rest.split_once(" = ")?.1.strip_suffix(';').map(str::to_owned)
    });
    let declared = declared.unwrap_or_else(|| panic!("{file} has no {name}"));
    value(&declared).unwrap_or_else(|| panic!("{name} in {file} is {declared}"))
}

/// Returns the defaults of the sample file, which another test compares with the code.
fn defaults() -> BTreeMap<String, u64> {
    let mut section = String::new();
    let mut defaults = BTreeMap::new();
    for line in text("cluster/node-1.toml").lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.to_owned();
        } else if let Some((key, number)) = line.trim_start_matches('#').split_once(" = ")
            && !key.contains(' ')
            && let Some(number) = value(number)
        {
            defaults.insert(format!("{section}.{key}"), number);
        }
    }
    defaults
}

#[test]
fn table_of_limits_agrees_with_the_code() {
    let defaults = defaults();
    let mut documented = Vec::new();
    for line in text("docs/reference/limits.md")
        .lines()
        .filter(|line| line.starts_with("| "))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [what, number, by] = cells[..] else {
            panic!("{line}")
        };
        if what == "limit" {
            continue;
        }
        let number = value(number).unwrap_or_else(|| panic!("{line}"));
        let names: Vec<&str> = by.split('`').skip(1).step_by(2).collect();
        let actual = match names[..] {
            [] => {
                assert_eq!((what, by), ("requests under way on a connection", "HTTP/1.1"));
                continue;
            }
            [setting] => {
                documented.push(setting.to_owned());
                *defaults
                    .get(setting)
                    .unwrap_or_else(|| panic!("unknown setting {setting}"))
            }
            [name, file] => constant(name, file),
            _ => panic!("{line}"),
        };
        assert_eq!(number, actual, "{line}");
    }
    let missing: Vec<_> = defaults
        .keys()
        .filter(|key| {
            SECTIONS
                .iter()
                .any(|section| key.split('.').next() == Some(section))
        })
        .filter(|key| !documented.contains(key) && !OTHERS.contains(&key.as_str()))
        .collect();
    assert!(missing.is_empty(), "docs/reference/limits.md lacks {missing:?}");
}
