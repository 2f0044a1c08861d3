//! Usage errors: wrong arguments end every command with exit code 2 and a line that names them, before it
//! connects to a server.

use std::process::Output;

use tokio::process::Command;

use crate::harness::LOCKGATE;

/// Address without a server: a command that connects to it ends with another code.
const NOBODY: &str = "127.0.0.1:1";

async fn lockgate(arguments: &[&str], servers: &str) -> Output {
    Command::new(LOCKGATE)
        .args(arguments)
        .env("LOCKGATE_SERVERS", servers)
        .output()
        .await
        .unwrap()
}

/// Commands that call a running cluster, each with valid arguments.
const CLIENTS: &[&[&str]] = &[
    &["lock", "job", "--", "true"],
    &["locks"],
    &["show", "job"],
    &["break", "job", "--reason", "test"],
    &["request-release", "job", "--reason", "test"],
    &["drain", "job"],
    &["limit", "job", "3"],
    &["sessions"],
    &["history", "job"],
    &["ls", "/"],
    &["get", "/a"],
    &["set", "/a", "b"],
    &["create", "/a"],
    &["rm", "/a"],
    &["stat", "/a"],
    &["watch", "/a"],
    &["access", "show"],
    &["token", "list"],
    &["policy", "list"],
    &["auth", "policy", "list"],
    &["namespace", "list"],
    &["status"],
    &["events"],
    &["lock", "list"],
    &["lock", "graph"],
    &["lock", "check", "job", "1"],
    &["session", "list"],
    &["session", "show", "a"],
    &["session", "end", "a"],
    &["znode", "get", "/a"],
    &["znode", "acl", "get", "/a"],
    &["znode", "transaction", "[]"],
    &["member", "list"],
    &["snapshot", "save", "/nowhere/backup"],
];

const WRONG_SERVERS: [&str; 4] = ["127.0.0.1:7401,", "127.0.0.1", "nonsense", ","];

#[tokio::test]
async fn clients_refuse_wrong_servers() {
    for command in CLIENTS {
        for servers in WRONG_SERVERS {
            let option = [*command, &["--server", servers]].concat();
            // Before the command of `lockgate lock`.
            let option = match command[0] {
                "lock" if command[1] == "job" => vec!["lock", "job", "--server", servers, "--", "true"],
                _ => option,
            };
            assert_usage(&option, NOBODY, "is not the address of a server").await;
        }
        for servers in WRONG_SERVERS {
            assert_usage(command, servers, "LOCKGATE_SERVERS").await;
        }
    }
}

/// Wrong arguments, and the text that the error contains.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "Usage"),
    (&["nonsense"], "nonsense"),
    (&["serve", "--nonsense"], "--nonsense"),
    (&["config"], "Usage"),
    (&["config", "nonsense"], "nonsense"),
    (&["cluster"], "Usage"),
    (&["cluster", "up", "--nodes", "three"], "three"),
    (&["cluster", "up", "--http-base-port", "70000"], "70000"),
    (&["cluster", "kill"], "NODE"),
    (&["cluster", "stop", "-1"], "-1"),
    (&["cluster", "kill", "nobody", "--dir", "/nowhere"], "nobody"),
    (&["cluster", "stop", "first"], "first"),
    (&["cluster", "snapshot", "--node", "first"], "first"),
    (&["member", "demote", "first"], "first"),
    (&["member", "remove", "first"], "first"),
    (&["member", "add", "first"], "first"),
    (&["member", "move-leader", "first"], "first"),
    (&["member", "remove", "2"], "--yes"),
    (&["member", "list", "--context", "nowhere"], "nowhere"),
    (&["status", "--every", "soon"], "soon"),
    (&["context", "show", "nowhere"], "nowhere"),
    (&["znode", "acl", "set", "/a", "world"], "SCHEME:ID:PERMS"),
    (&["znode", "transaction", "{"], "JSON"),
    (
        &[
            "member",
            "set-address",
            "2",
            "--peer",
            "nonsense",
            "--http",
            "a:1",
        ],
        "--peer",
    ),
    (&["snapshot"], "Usage"),
    (&["snapshot", "inspect"], "FILE"),
    (&["snapshot", "inspect", "file", "--list", "nonsense"], "nonsense"),
    (&["snapshot", "save"], "FILE"),
    (&["snapshot", "restore"], "FILE"),
    (&["cert", "nonsense"], "nonsense"),
    (&["cert", "ca", "--valid-for", "36h"], "whole days"),
    (
        &["cert", "node", "--cluster", "c", "--node", "first", "--host", "h"],
        "first",
    ),
    (
        &["cert", "node", "--cluster", "c", "--node", "1", "--host", ""],
        "--host",
    ),
    (&["cert", "client", "--name", ""], "--name"),
    (&["access"], "Usage"),
    (&["token", "create"], "--role"),
    (&["token", "create", "--role", "two words"], "two words"),
    (
        &["token", "create", "--role", "worker", "--expires-in", "soon"],
        "soon",
    ),
    (&["policy", "set", "worker"], "GRANTS"),
    (&["policy", "set", "two words", "all:/"], "two words"),
    (&["policy", "set", "worker", "fly:/"], "fly"),
    (&["namespace", "set", "a/b"], "a/b"),
    (&["namespace", "show", "locks"], "locks"),
    (
        &["namespace", "set", "a", "--requests-per-second", "0"],
        "--requests-per-second",
    ),
    (&["bench", "nonsense"], "nonsense"),
    (&["bench", "lock", "--clients", "0"], "client"),
    (&["bench", "lock", "--seconds", "0"], "second"),
    (&["bench", "failover", "--kills", "0"], "kill"),
    (&["bench", "lock", "--server", "nonsense"], "--server"),
    (&["bench", "watch", "--seconds", "0"], "second"),
    (&["migrate"], "--from"),
    (&["migrate", "--from", "a:b", "--to", NOBODY], "\"b\""),
    (&["migrate", "--from", NOBODY, "--to", "nonsense"], "--server"),
    (&["lock", "job"], "COMMAND"),
    (&["lock", "job", "true"], "COMMAND"),
    (&["lock", "job", "--wait", "soon", "--", "true"], "soon"),
    (&["lock", "job", "--wait", "8days", "--", "true"], "7days"),
    (&["lock", "job", "--try", "--wait", "1s", "--", "true"], "--try"),
    (&["lock", "job", "--ttl", "x", "--", "true"], "--ttl"),
    (&["lock", "job", "--permits", "2", "--", "true"], "--semaphore"),
    (&["lock", "job", "--semaphore", "-1", "--", "true"], "-1"),
    (
        &["lock", "job", "--shared", "--semaphore", "2", "--", "true"],
        "--shared",
    ),
    (&["lock", "job", "--lock-delay", "2min", "--", "true"], "1m"),
    (
        &["lock", "job", "--on-release-request", "shrug", "--", "true"],
        "shrug",
    ),
    (&["break", "job"], "--reason"),
    (
        &["break", "job", "--reason", "r", "--all", "--holder", "h"],
        "--all",
    ),
    (&["request-release", "job"], "--reason"),
    (&["revoke", "job", "--reason", "r"], "request-release"),
    (&["limit", "job"], "LIMIT"),
    (&["limit", "job", "many"], "many"),
    (&["limit", "job", "3", "--unset"], "--unset"),
    (&["show"], "NAME"),
    (&["get", "no/slash"], "no/slash"),
    (&["completions", "cobol"], "cobol"),
];

#[tokio::test]
async fn commands_refuse_wrong_arguments() {
    for (arguments, named) in WRONG {
        assert_usage(arguments, NOBODY, named).await;
    }
}

#[tokio::test]
async fn empty_variable_is_ignored() {
    let output = lockgate(&["locks", "--server", NOBODY, "--patience", "10ms"], "").await;
    assert_eq!(output.status.code(), Some(69), "{output:?}");
}

async fn assert_usage(arguments: &[&str], servers: &str, named: &str) {
    let output = lockgate(arguments, servers).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(2),
        "{arguments:?}, {servers}: {stderr}"
    );
    assert!(stderr.contains(named), "{arguments:?}, {servers}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {output:?}");
}
