//! Prints the table of settings: docs/reference/configuration.md, the sample files in `cluster/`, and JSON for programs.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::settings::{
    DefaultValue, Kind, MEMBERS, Reload, SECTIONS, SampleForm, Section, Setting, variable,
};

/// Line width of the sample files.
const WIDTH: usize = 120;

/// Number of members of the samples, on one machine.
const SAMPLE_MEMBERS: u64 = 3;

/// Returns the reference as a page of Markdown.
pub fn markdown() -> String {
    let mut page = "\
<!-- Printed by `lockgate config reference`; a test holds it against the code. -->

# Configuration

All settings of a node. `lockgate serve --config FILE` reads a TOML file; environment variables override it. Relative paths are relative to the
file's directory. Times are in milliseconds, sizes in bytes. Unknown settings are errors; all errors are reported together, with their lines or
variables. [`cluster/node-1.toml`](../../cluster/node-1.toml) is the same as a commented file (`lockgate config sample`).

| command | effect |
|---|---|
| `lockgate config check --config FILE` | reads the configuration as `serve` does, and checks certificates, keys, directories and ports. Exit code 1 if the node would not start; `--json` for programs |
| `lockgate config reload --config FILE` | checks it, and makes the node with its `pid_file` read it again, as SIGHUP does |
| `lockgate config reference`, `lockgate config sample` | print this page, and a sample file |

## Reloading

A reload reads the file and the environment of the process again. If there is an error, nothing changes, and the log has the error. Otherwise the settings
marked **live** take effect. The log names each changed setting with its old and new value, and those that take effect at the next start. Open
connections stay, also above a new limit. Certificates and keys are read again too, as they are every few seconds when their files change.
If live settings do not fit the others (a shortest session timeout that suits future election timeouts), the whole reload is rejected.

Other settings need a restart:

- identity, addresses, directories and threads of the node.
- Raft's timing, which must be equal on all nodes: restart one after the other.
- tables and files of a fixed size (`watches`, `events`, `history`, `disk.segment_bytes`, memory for large bodies and responses). A change would discard what
  clients rely on.
- TLS and authentication (`tls`, `access`, `insecure`), which never change under open connections.

`limits` belong to the cluster: the leader's apply, so use the same on all nodes.

## The settings
"
    .to_owned();
    for section in SECTIONS {
        let title = match section.name {
            "" => "The node".to_owned(),
            name => format!("`[{name}]`"),
        };
        page.push_str(&format!("\n### {title}\n\n"));
        if !section.meaning.is_empty() {
            page.push_str(&format!("{}\n\n", cell(section.meaning)));
        }
        page.push_str("| setting | takes | default | reload | meaning |\n|---|---|---|---|---|\n");
        for setting in section.settings {
            page.push_str(&row(setting));
        }
    }
    page.push_str(&format!(
        "\n### `[members.ID]`\n\n{MEMBERS}\n\n\
         | setting | takes | meaning |\n|---|---|---|\n\
         | `peer` | \"HOST:PORT\" | address for the other nodes |\n\
         | `http` | \"HOST:PORT\" | address for clients |\n\n\
         In the environment they are one variable: `LOCKGATE_MEMBERS=\"1=PEER/HTTP,2=PEER/HTTP\"`. Addresses that differ only in a \
         number can be given together: in `1..3=node-{{id}}:7500/node-{{id}}:7400` each `{{id}}` is the member's id, and each \
         `{{ordinal}}` one less, as Kubernetes counts the pods of a StatefulSet. With `LOCKGATE_NODE_ID=hostname` all nodes have the \
         same environment.\n\n\
         ## Environment variables\n\n\
         The variable of a setting is `LOCKGATE_`, its section and its name, in capitals: `node_id` is `LOCKGATE_NODE_ID`, \
         `raft.heartbeat_ms` is `LOCKGATE_RAFT_HEARTBEAT_MS`. A similar but unknown variable causes a warning. `LOCKGATE_CONFIG` is the \
         file, for `serve`, `config` and `snapshot restore`; `RUST_LOG` overrides `log.level`.\n"
    ));
    page
}

fn row(setting: &Setting) -> String {
    let default = match setting.default {
        DefaultValue::Literal("\"\"") => "none".to_owned(),
        DefaultValue::Literal(default) => format!("`{default}`"),
        DefaultValue::Described(default) => default.to_owned(),
        DefaultValue::Required => "required".to_owned(),
    };
    let reload = match setting.reload {
        Reload::Live => "live",
        Reload::Restart => "restart",
    };
    format!(
        "| `{}` | {} | {default} | {reload} | {} |\n",
        setting.name,
        setting.kind.allowed(),
        cell(setting.meaning)
    )
}

/// Escapes text in a cell, so that names of hosts and files, and bars, are no markup.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('*', "\\*")
}

/// Returns the sample file of a node: every setting with its meaning, commented out where it is the default.
pub fn sample(node: u64) -> String {
    let mut file = format!(
        "\
# Lockgate, node {node} of a cluster of three on one machine. Start it with
#
#     lockgate serve --config cluster/node-{node}.toml
#
# (`lockgate dev up` writes such files itself.) `lockgate config check --config FILE` checks a file. Environment variables override
# it: raft.heartbeat_ms is LOCKGATE_RAFT_HEARTBEAT_MS, members is LOCKGATE_MEMBERS=\"1=PEER/HTTP,2=PEER/HTTP,…\". Unknown settings are
# errors. Settings that are commented out show their default. Relative paths are relative to this file. Times are in milliseconds.
# A reload (SIGHUP, or `lockgate config reload`) applies settings marked [live], the next start all others.
"
    );
    for section in SECTIONS {
        file.push('\n');
        if !section.name.is_empty() {
            comment(&mut file, section.meaning);
            file.push_str(&format!("[{}]\n", section.name));
        }
        sample_section(&mut file, section, node);
    }
    file.push('\n');
    comment(&mut file, MEMBERS);
    let members: Vec<String> = (1..=SAMPLE_MEMBERS)
        .map(|id| format!("[members.{id}]\npeer = \"127.0.0.1:750{id}\"\nhttp = \"127.0.0.1:740{id}\"\n"))
        .collect();
    file.push_str(&members.join("\n"));
    file
}

fn sample_section(file: &mut String, section: &Section, node: u64) {
    for (place, setting) in section.settings.iter().enumerate() {
        if place > 0 {
            file.push('\n');
        }
        let mut text = setting.meaning.to_owned();
        match (setting.default, setting.sample) {
            (DefaultValue::Required, _) => text.push_str(" Required."),
            (DefaultValue::Described(default), _) => {
                write!(text, " Default: {default}.").expect("writing to a String cannot fail")
            }
            (DefaultValue::Literal(default), SampleForm::Set(_)) => {
                write!(text, " Default: {default}.").expect("writing to a String cannot fail");
            }
            (DefaultValue::Literal(_), SampleForm::Default | SampleForm::Example(_)) => {}
        }
        if setting.reload == Reload::Live {
            text.push_str(" [live]");
        }
        comment(file, &text);
        let id = |text: &str| text.replace("{N}", &node.to_string());
        let line = match (setting.sample, setting.default) {
            (SampleForm::Set(value), _) => format!("{} = {}\n", setting.key(), id(value)),
            (SampleForm::Example(value), _) => format!("#{} = {}\n", setting.key(), id(value)),
            (SampleForm::Default, DefaultValue::Literal(value)) => format!("#{} = {value}\n", setting.key()),
            (SampleForm::Default, default) => {
                panic!("{} has {default:?}, which is not to be shown", setting.name)
            }
        };
        file.push_str(&line);
    }
}

/// Wraps text as a comment.
fn comment(file: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + word.chars().count() + 3 > WIDTH {
            file.push_str(&format!("#{line}\n"));
            line.clear();
        }
        line.push(' ');
        line.push_str(word);
    }
    if !line.is_empty() {
        file.push_str(&format!("#{line}\n"));
    }
}

/// Returns the table for programs: editors, forms, and checks of other tools.
pub fn document() -> Value {
    let settings = SECTIONS.into_iter().flat_map(|section| section.settings);
    let settings: Vec<Value> = settings.map(one_document).collect();
    json!({ "settings": settings })
}

fn one_document(setting: &Setting) -> Value {
    let kind = match setting.kind {
        Kind::Flag => "flag",
        Kind::Number { .. } | Kind::NodeId => "number",
        Kind::Milliseconds { .. } => "milliseconds",
        Kind::Ratio => "ratio",
        Kind::List => "list",
        Kind::OneOf(_) => "choice",
        Kind::Path => "path",
        Kind::Address | Kind::AddressOrOff | Kind::SocketAddress => "address",
        Kind::Text | Kind::Secret => "text",
    };
    let mut document = json!({
        "setting": setting.name,
        "variable": variable(setting.name),
        "kind": kind,
        "allowed": setting.kind.allowed(),
        "live": setting.reload == Reload::Live,
        "meaning": setting.meaning,
    });
    if let Some((least, most)) = setting.kind.bounds() {
        document["least"] = least.into();
        document["most"] = most.into();
    }
    if let DefaultValue::Literal(default) = setting.default {
        document["default"] = default.into();
    }
    document
}
