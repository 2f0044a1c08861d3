//! Tests of what all commands have in common: the way to name a cluster, the format of results, durations, short
//! forms and confirmations. New commands are found by walking over the definitions.

use std::ffi::OsString;

use clap::{Arg, Command};

use super::{client, program};

/// Options that name a cluster and the caller.
const CONNECTION: [&str; 7] = ["server", "context", "ca", "cert", "key", "token-file", "insecure"];

/// Commands that call no running cluster, or only the nodes of a directory of this machine. `bench failover`,
/// `restart` and `catch-up` kill the nodes that they measure.
const LOCAL: [&str; 13] = [
    "lockgate dev ",
    "lockgate context ",
    "lockgate serve",
    "lockgate config ",
    "lockgate snapshot inspect",
    "lockgate snapshot restore",
    "lockgate cert ",
    "lockgate openapi",
    "lockgate completions",
    "lockgate man",
    "lockgate bench failover",
    "lockgate bench restart",
    "lockgate bench catch-up",
];

/// Commands without a result in several formats: they run something, print a file, or print a sentence that
/// confirms a change. `migrate` reports its progress, with `--json` as events.
const WITHOUT_RESULT: [&str; 33] = [
    "lockgate dev down",
    "lockgate dev snapshot",
    "lockgate dev kill",
    "lockgate dev stop",
    "lockgate lock run",
    "lockgate lock drain",
    "lockgate lock limit",
    "lockgate election run",
    "lockgate election resign",
    "lockgate lease release",
    "lockgate mcp",
    "lockgate session end",
    "lockgate znode rm",
    "lockgate znode acl set",
    "lockgate namespace delete",
    "lockgate auth token revoke",
    "lockgate auth policy set",
    "lockgate auth policy delete",
    "lockgate auth policy certificate set",
    "lockgate auth policy certificate delete",
    "lockgate context use",
    "lockgate serve",
    "lockgate config reload",
    "lockgate config reference",
    "lockgate config sample",
    "lockgate snapshot restore",
    "lockgate cert ca",
    "lockgate cert node",
    "lockgate cert client",
    "lockgate migrate",
    "lockgate openapi",
    "lockgate completions",
    "lockgate man",
];

/// Adds the commands below `command` that do something themselves, with their full names.
fn leaves(command: &Command, name: &str, found: &mut Vec<(String, Command)>) {
    let inner: Vec<&Command> = command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help")
        .collect();
    if inner.is_empty() {
        found.push((name.to_owned(), command.clone()));
    }
    for inner in inner {
        leaves(inner, &format!("{name} {}", inner.get_name()), found);
    }
}

/// Returns the commands that do something themselves, without short forms.
fn commands() -> Vec<(String, Command)> {
    let mut program = program(&[]);
    program.build();
    let mut found = Vec::new();
    for command in program.get_subcommands().filter(|command| !command.is_hide_set()) {
        if command.get_name() != "help" {
            leaves(command, &format!("lockgate {}", command.get_name()), &mut found);
        }
    }
    assert!(found.len() > 60, "only {} commands were found", found.len());
    found
}

fn has(command: &Command, long: &str) -> bool {
    command
        .get_arguments()
        .any(|argument| argument.get_long() == Some(long))
}

/// Parses a command line as the program does.
fn parses(line: &str) -> Result<(), clap::Error> {
    let arguments: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    program(&arguments).try_get_matches_from(&arguments).map(drop)
}

#[test]
fn every_command_that_calls_a_cluster_takes_the_same_connection_options() {
    for (name, command) in commands() {
        let is_local = LOCAL.iter().any(|local| name.starts_with(local));
        for option in CONNECTION {
            assert!(is_local || has(&command, option), "{name} has no --{option}");
        }
        assert!(!is_local || !has(&command, "server"), "{name} calls a cluster");
        assert!(
            !has(&command, "node") || is_local,
            "{name}: --node names no server"
        );
    }
}

#[test]
fn every_command_that_prints_a_result_takes_a_format() {
    for (name, command) in commands() {
        let has_result = !WITHOUT_RESULT.contains(&name.as_str());
        assert_eq!(has(&command, "output"), has_result, "{name}");
        assert!(!has_result || has(&command, "json"), "{name}");
        if has_result {
            let output = command
                .get_arguments()
                .find(|argument| argument.get_long() == Some("output"));
            let values = output.expect("checked").get_possible_values();
            let values: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
            assert_eq!(values, ["table", "json", "yaml"], "{name}");
        }
    }
}

#[test]
fn durations_are_written_with_their_unit() {
    let is_duration = |argument: &&Arg| {
        let names = argument.get_value_names().unwrap_or_default();
        names.iter().any(|name| name == "TIME")
    };
    let mut count = 0;
    for (name, command) in commands() {
        for argument in command.get_arguments() {
            let long = argument.get_long().unwrap_or_default();
            let unit = ["seconds", "ms", "minutes", "hours", "days"];
            assert!(
                !unit.iter().any(|unit| long.ends_with(unit)),
                "{name}: --{long} has its unit in its name"
            );
        }
        for argument in command.get_arguments().filter(is_duration) {
            count += 1;
            for default in argument.get_default_values() {
                let default = default.to_string_lossy();
                humantime::parse_duration(&default)
                    .unwrap_or_else(|error| panic!("{name}: {default}: {error}"));
            }
        }
    }
    assert!(count > 30, "only {count} durations were found");
    for line in [
        "lockgate lock a --wait 30s --ttl 1min --grace 500ms --lock-delay 5s -- true",
        "lockgate locks --patience 2s",
        "lockgate create /a --ttl 1h",
        "lockgate token create --role r --expires-in 30d",
        "lockgate status --watch --every 500ms",
        "lockgate member promote 4 --wait 10min",
        "lockgate cert ca --valid-for 365d",
        "lockgate bench lock --duration 30s --warmup 0s",
        // Older names of scripts, which take a number alone.
        "lockgate bench lock --seconds 30 --warmup 0",
        "lockgate cert ca --days 365",
    ] {
        parses(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

#[test]
fn short_forms_have_the_arguments_of_the_long_forms() {
    let mut program = program(&[]);
    program.build();
    let long_form = |name: &str| {
        let path: &[&str] = match name {
            "locks" => &["lock", "list"],
            "sessions" => &["session", "list"],
            "show" | "break" | "request-release" | "drain" | "limit" | "history" => &["lock", name],
            "acquire" | "renew" | "release" => &["lease", name],
            "access" | "token" | "policy" => &["auth", name],
            _ => &["znode", name],
        };
        let found = path
            .iter()
            .try_fold(&program, |command, word| command.find_subcommand(word));
        found
            .unwrap_or_else(|| panic!("there is no command {path:?}"))
            .clone()
    };
    let described = |command: &Command| {
        let mut found = Vec::new();
        leaves(command, "", &mut found);
        let arguments = |command: &Command| {
            let ids = command
                .get_arguments()
                .map(|argument| argument.get_id().to_string());
            ids.collect::<Vec<_>>()
        };
        let found = found
            .iter()
            .map(|(name, command)| (name.clone(), arguments(command)));
        found.collect::<Vec<_>>()
    };
    for name in client::SHORT_FORMS {
        let short = program.find_subcommand(name).expect(name);
        assert!(short.is_hide_set(), "help lists the long form of {name} only");
        assert_eq!(described(short), described(&long_form(name)), "{name}");
    }
    // `cluster` is the other name of `dev` and `member`.
    let cluster = program.find_subcommand("cluster").expect("an alias");
    let mut both = described(program.find_subcommand("dev").expect("a command"));
    both.extend(described(program.find_subcommand("member").expect("a command")));
    assert_eq!(described(cluster), both);
    assert!(parses("lockgate cluster members").is_ok());
}

#[test]
fn changes_of_members_that_cannot_be_undone_need_a_confirmation() {
    for (name, command) in commands() {
        let is_final = matches!(
            name.as_str(),
            "lockgate member remove" | "lockgate member replace"
        );
        assert_eq!(has(&command, "yes"), is_final, "{name}");
    }
}

#[test]
fn nouns_have_verbs_for_everything_that_the_api_offers() {
    for line in [
        "lockgate status --watch",
        "lockgate dev up",
        "lockgate dev down",
        "lockgate dev status",
        "lockgate dev kill leader",
        "lockgate dev stop 2",
        "lockgate member list",
        "lockgate member add 4 --peer a:1 --http a:2",
        "lockgate member remove 4 --yes",
        "lockgate member promote 4",
        "lockgate member demote 4",
        "lockgate member move-leader 2",
        "lockgate member set-address 2 --peer a:1 --http a:2",
        "lockgate lock run a b -- true",
        "lockgate lock a b --owner me --name job -- true",
        "lockgate lock graph",
        "lockgate lock check a 7",
        "lockgate session list",
        "lockgate session show 1a",
        "lockgate session end 1a --reason stuck",
        "lockgate events orders/ --follow",
        "lockgate znode acl get /a",
        "lockgate znode acl set /a world:anyone:r",
        "lockgate znode transaction []",
        "lockgate auth token list",
        "lockgate snapshot save file --server a:1 --server b:1",
        "lockgate bench lock --server a:1,b:1 --context production",
        "lockgate context use production",
    ] {
        parses(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}
