//! Reference of all commands, docs/reference/commands.md, as it follows from their definitions. After a change of a
//! command, write the page again and review the difference:
//!
//! ```sh
//! UPDATE_GOLDENFILES=1 cargo test -p lockgate --lib command_reference
//! ```

use std::fmt::Write as _;
use std::path::Path;

use clap::{Arg, Command};

use super::{client, program};

/// Options of every command that calls a cluster. The page explains them once.
const CONNECTION: [&str; 8] = [
    "server",
    "context",
    "ca",
    "cert",
    "key",
    "token-file",
    "insecure",
    "patience",
];

/// Options for the format of a result.
const OUTPUT: [&str; 2] = ["output", "json"];

const HEAD: &str = "# All commands

Every command with its arguments and options, generated from the program. [Command line](command-line.md) explains the common options, the exit \
codes and the behaviour of `lockgate lock`.
";

/// Returns the page.
fn page(program: &Command) -> String {
    let mut page = HEAD.to_owned();
    let example = program
        .find_subcommand("status")
        .expect("a command with all common options");
    let common = |title: &str, names: &[&str], page: &mut String| {
        let options = example
            .get_arguments()
            .filter(|arg| is_one_of(arg, names))
            .collect::<Vec<_>>();
        write!(page, "\n## {title}\n\n").expect("memory takes it");
        write_table(page, &options);
    };
    common("Connection options", &CONNECTION, &mut page);
    common("Output options", &OUTPUT, &mut page);
    for command in visible(program) {
        write_command(&mut page, command, "lockgate");
    }
    page.push_str(
        "\n## Short forms\n\nThese commands are other names of commands above, with the same arguments:",
    );
    for name in client::SHORT_FORMS {
        let separator = if page.ends_with(':') { " " } else { ", " };
        write!(page, "{separator}`lockgate {name}`").expect("memory takes it");
    }
    page.push_str(". `lockgate cluster` has the commands of `lockgate dev` and `lockgate member`.\n");
    page
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set() && inner.get_name() != "help")
}

fn is_one_of(arg: &Arg, names: &[&str]) -> bool {
    arg.get_long().is_some_and(|long| names.contains(&long))
}

fn write_command(page: &mut String, command: &Command, before: &str) {
    let name = format!("{before} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    write!(page, "\n## {name}\n\n{}.\n", one_line(&about)).expect("memory takes it");
    let all: Vec<&Arg> = command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && !matches!(arg.get_id().as_str(), "help" | "version"))
        .collect();
    let has = |name: &str| all.iter().any(|arg| arg.get_long() == Some(name));
    let (calls, prints) = (has("token-file") && has("context"), has("output"));
    let is_common = |arg: &Arg| (calls && is_one_of(arg, &CONNECTION)) || (prints && is_one_of(arg, &OUTPUT));
    let own: Vec<&Arg> = all.iter().copied().filter(|arg| !is_common(arg)).collect();
    // The options of `lockgate lock` are those of `lockgate lock run`.
    if !own.is_empty() && !command.has_subcommands() {
        page.push('\n');
        write_table(page, &own);
    }
    let calls = calls && !command.has_subcommands();
    let connection = calls.then_some("[connection options](#connection-options)");
    let output = prints.then_some("[output options](#output-options)");
    let common: Vec<&str> = connection.into_iter().chain(output).collect();
    if !common.is_empty() {
        write!(page, "\nIt takes the {}.\n", common.join(" and the ")).expect("memory takes it");
    }
    for inner in visible(command) {
        write_command(page, inner, &name);
    }
}

fn write_table(page: &mut String, arguments: &[&Arg]) {
    page.push_str("| argument | meaning |\n|---|---|\n");
    for arg in arguments {
        let values = arg.get_value_names().unwrap_or_default();
        let values: Vec<&str> = values.iter().map(|value| value.as_str()).collect();
        let name = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(long)) => format!("-{short}, --{long}"),
            (Some(short), None) => format!("-{short}"),
            (None, Some(long)) => format!("--{long}"),
            (None, None) => String::new(),
        };
        let takes_value = arg.get_action().takes_values();
        let mut shown = match (name.is_empty(), takes_value) {
            (true, _) => values.join(" "),
            (false, true) => format!("{name} {}", values.join(" ")),
            (false, false) => name,
        };
        if shown.is_empty() {
            shown = arg.get_id().to_string();
        }
        if arg.get_num_args().is_some_and(|count| count.max_values() > 1) || arg.is_last_set() {
            shown.push('…');
        }
        let help = arg.get_long_help().or(arg.get_help());
        let mut meaning = one_line(&help.map(ToString::to_string).unwrap_or_default());
        let possible: Vec<String> = match takes_value {
            true => arg
                .get_possible_values()
                .iter()
                .map(|value| format!("`{}`", value.get_name()))
                .collect(),
            false => Vec::new(),
        };
        if !possible.is_empty() {
            write!(meaning, ": {}", possible.join(", ")).expect("memory takes it");
        }
        let defaults: Vec<String> = arg
            .get_default_values()
            .iter()
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .filter(|value| takes_value && value != "``")
            .collect();
        if !defaults.is_empty() {
            write!(meaning, " (default {})", defaults.join(", ")).expect("memory takes it");
        }
        if let Some(variable) = arg.get_env() {
            write!(meaning, ". Variable: `{}`", variable.to_string_lossy()).expect("memory takes it");
        }
        writeln!(
            page,
            "| `{}` | {} |",
            shown.replace('|', "\\|"),
            meaning.replace('|', "\\|")
        )
        .expect("memory takes it");
    }
}

/// Returns a help text on one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn command_reference_is_up_to_date() {
    let mut program = program(&[]);
    program.build();
    let expected = page(&program);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    if std::env::var_os("UPDATE_GOLDENFILES").is_some() {
        std::fs::write(&path, &expected).expect("the page is written");
    }
    let page = std::fs::read_to_string(&path).expect("the page exists");
    assert!(
        page == expected,
        "docs/reference/commands.md is not up to date: write it again with UPDATE_GOLDENFILES=1, and review the difference"
    );
}
