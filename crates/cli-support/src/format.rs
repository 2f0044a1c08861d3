//! Formats of a command's result: a table or text for people, JSON and YAML for programs.
//!
//! YAML is written by this module, not by a library: a result is JSON, and JSON's strings and numbers are YAML
//! (1.2) already, so only the structure is laid out.

use std::fmt::Write as _;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use serde::Serialize;
use serde_json::Value;

use crate::output::{say, say_to_reader};

/// Format of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Table or text for people
    #[default]
    Table,
    /// JSON, as in the HTTP API
    Json,
    /// The same as YAML
    Yaml,
}

/// Options for the format of a result.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Output {
    /// Format of the result
    #[arg(
        short,
        long,
        value_enum,
        value_name = "FORMAT",
        default_value = "table",
        hide_default_value = true
    )]
    output: Format,
    /// The same as `-o json`
    #[arg(long, conflicts_with = "output")]
    json: bool,
}

impl Output {
    /// Returns the format.
    pub fn format(self) -> Format {
        match self.json {
            true => Format::Json,
            false => self.output,
        }
    }

    /// Returns whether a document is printed for programs, not text for people.
    pub fn is_document(self) -> bool {
        self.format() != Format::Table
    }

    /// Prints a result: the document, or the text for people.
    pub fn say(self, document: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self.format() {
            Format::Table => say(text()),
            Format::Json => say(serde_json::to_string_pretty(document).context("the result as JSON")?),
            Format::Yaml => {
                say(yaml(&serde_json::to_value(document).context("the result as YAML")?).trim_end())
            }
        }
    }

    /// Prints one of several results, in JSON each on a line of its own. Returns whether the pipe still has a
    /// reader.
    pub fn say_next(self, document: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<bool> {
        match self.format() {
            Format::Table => say_to_reader(text()),
            Format::Json => say_to_reader(serde_json::to_string(document).context("the result as JSON")?),
            Format::Yaml => {
                let document = serde_json::to_value(document).context("the result as YAML")?;
                say_to_reader(format!("---\n{}", yaml(&document).trim_end()))
            }
        }
    }
}

/// Returns a document as YAML in block style. Texts are always quoted, so that none is taken for a number, a date
/// or a boolean.
fn yaml(document: &Value) -> String {
    let mut text = String::new();
    write_block(&mut text, document, 0);
    text
}

/// Words that YAML readers take for booleans and null.
const NO_PLAIN_KEYS: [&str; 9] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null"];

/// Writes a value at the start of a line, or behind the dash of a list.
fn write_block(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                indent(text, depth);
                let is_word =
                    !name.is_empty() && name.chars().all(|each| each.is_ascii_lowercase() || each == '_');
                match is_word && !NO_PLAIN_KEYS.contains(&name.as_str()) {
                    true => text.push_str(name),
                    false => text.push_str(&Value::from(name.as_str()).to_string()),
                }
                text.push(':');
                match value {
                    Value::Object(inner) if !inner.is_empty() => text.push('\n'),
                    Value::Array(inner) if !inner.is_empty() => text.push('\n'),
                    _ => text.push(' '),
                }
                write_block(text, value, depth + 1);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for item in items {
                indent(text, depth);
                text.push_str("- ");
                write_block(text, item, depth + 1);
            }
        }
        scalar => writeln!(text, "{scalar}").expect("memory takes it"),
    }
}

/// Indents a new line. The first line of an item stands behind its dash.
fn indent(text: &mut String, depth: usize) {
    if text.is_empty() || text.ends_with('\n') {
        text.push_str(&"  ".repeat(depth));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn documents_are_written_as_yaml_blocks() {
        let document = json!({
            "lock": "orders/42",
            "no": null,
            "holders": [{ "session": "5d99", "since": ["a", 1] }, {}],
            "queue": [],
            "more": { "Grüße": "one\ntwo: \"3\"", "held": true, "lag_ms": 1.5 },
            "pairs": [[1, 2], [3]],
        });
        let expected = "holders:\n  - session: \"5d99\"\n    since:\n      - \"a\"\n      - 1\n  - {}\nlock: \"orders/42\"\nmore:\n  \
                        \"Grüße\": \"one\\ntwo: \\\"3\\\"\"\n  held: true\n  lag_ms: 1.5\n\"no\": null\npairs:\n  - - 1\n    - 2\n  - - 3\n\
                        queue: []\n";
        assert_eq!(yaml(&document), expected);
        assert_eq!(yaml(&json!("text")), "\"text\"\n");
        assert_eq!(yaml(&json!([])), "[]\n");
    }
}
