//! Commands on locks, sessions and znodes, as a user types them.

use std::process::Output;

use lock_client::AcquireOptions;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::harness::{LOCKGATE, TIMEOUT, TestCluster, eventually};

/// Runs a command against the cluster.
pub async fn lockgate(cluster: &TestCluster, arguments: &[&str]) -> Output {
    Command::new(LOCKGATE)
        .args(arguments)
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .output()
        .await
        .unwrap()
}

/// Runs a command that must succeed. Returns its standard output.
pub async fn stdout_of(cluster: &TestCluster, arguments: &[&str]) -> String {
    let output = lockgate(cluster, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must succeed. Returns its result as JSON.
pub async fn json(cluster: &TestCluster, arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout_of(cluster, &[arguments, &["--json"]].concat()).await).unwrap()
}

/// Runs a command that must end with this code. Returns the one line of its error.
pub async fn fails(cluster: &TestCluster, code: i32, arguments: &[&str]) -> String {
    let output = lockgate(cluster, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    stderr
}

#[tokio::test]
async fn locks_and_sessions_are_shown_and_broken() {
    let cluster = TestCluster::start().await;
    let (anna, bert) = (
        cluster.lock_session("anna").await,
        cluster.lock_session("bert").await,
    );
    let held = anna
        .acquire("orders/42", AcquireOptions::exclusive().note("invoicing"))
        .await
        .unwrap();
    let wait = {
        let bert = bert.clone();
        tokio::spawn(async move { bert.acquire("orders/42", AcquireOptions::exclusive()).await })
    };
    cluster.wait_queued(1, "orders/42", 1).await;
    let since = json(&cluster, &["show", "orders/42"]).await["holders"][0]["since_at"].clone();
    let since = since.as_str().unwrap();
    let list = stdout_of(&cluster, &["lock", "list"]).await;
    assert_eq!(stdout_of(&cluster, &["locks"]).await, list);
    assert_eq!(
        list.lines().collect::<Vec<_>>(),
        [
            "LOCK       MODE       HOLDERS  WAITING  SESSION           SINCE                     NOTE"
                .to_owned(),
            format!(
                "orders/42  exclusive  1        1        {}  {since}  invoicing",
                anna.id()
            ),
        ]
    );
    assert_eq!(
        json(&cluster, &["locks", "nothing/"]).await,
        serde_json::json!([])
    );
    assert_eq!(
        json(&cluster, &["locks", "orders/"]).await[0]["lock"],
        "orders/42"
    );
    let shown = stdout_of(&cluster, &["show", "orders/42"]).await;
    assert!(shown.starts_with("orders/42: exclusive\n"), "{shown}");
    for part in [
        "holds",
        "waits 1",
        held.holder(),
        "invoicing",
        anna.id(),
        bert.id(),
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let view = json(&cluster, &["show", "orders/42"]).await;
    assert_eq!(view["queue"][0]["position"], 1);
    assert_eq!(stdout_of(&cluster, &["lock", "show", "orders/42"]).await, shown);
    assert_eq!(stdout_of(&cluster, &["show", "unknown"]).await, "unknown: free\n");
    let graph = stdout_of(&cluster, &["lock", "graph"]).await;
    assert!(graph.lines().count() == 2 && graph.contains(bert.id()), "{graph}");
    let token = held.fencing_token().to_string();
    let checked = stdout_of(&cluster, &["lock", "check", "orders/42", &token]).await;
    assert!(checked.contains("is held"), "{checked}");
    let stderr = fails(&cluster, 1, &["lock", "check", "orders/42", "1"]).await;
    assert!(stderr.contains("is not held"), "{stderr}");
    let yaml = stdout_of(&cluster, &["lock", "list", "-o", "yaml"]).await;
    assert!(yaml.starts_with("- first_holder:\n    address: "), "{yaml}");
    let sessions = stdout_of(&cluster, &["sessions"]).await;
    assert_eq!(sessions.lines().count(), 3, "{sessions}");
    assert_eq!(json(&cluster, &["sessions"]).await.as_array().unwrap().len(), 2);

    // Text of a client does not control the terminal.
    let noted = AcquireOptions::exclusive().note("one\ntwo\u{1b}[2J");
    let noted = anna.acquire("noted", noted).await.unwrap();
    let shown = stdout_of(&cluster, &["show", "noted"]).await;
    assert!(
        shown.ends_with("one\\ntwo\\u{1b}[2J\n") && shown.lines().count() == 3,
        "{shown}"
    );
    noted.release().await.unwrap();
    eventually("its hold is in the history", async || {
        json(&cluster, &["history", "noted"]).await["history"][0]["ended"] == "released"
    })
    .await;
    let history = stdout_of(&cluster, &["history", "noted"]).await;
    assert!(
        history.ends_with("one\\ntwo\\u{1b}[2J\n") && history.lines().count() == 2,
        "{history}"
    );
    let nobody = ["history", "noted", "--server", "127.0.0.1:1"];
    let stderr = fails(&cluster, 69, &nobody).await;
    assert!(stderr.contains("no node has a history"), "{stderr}");

    let broken = stdout_of(&cluster, &["break", "orders/42", "--reason", "maintenance"]).await;
    assert_eq!(broken, format!("{} has lost the lock orders/42\n", held.holder()));
    let _berts = wait.await.unwrap().unwrap();
    let stderr = fails(&cluster, 1, &["break", "unknown", "--reason", "x"]).await;
    assert_eq!(stderr, "lockgate: the lock unknown has no holder\n");
    let asked = stdout_of(
        &cluster,
        &["request-release", "orders/42", "--reason", "maintenance"],
    )
    .await;
    assert_eq!(asked, "1 holder got the request\n");
    assert!(
        stdout_of(&cluster, &["show", "orders/42"])
            .await
            .contains("release requested")
    );
    stdout_of(&cluster, &["drain", "orders/42"]).await;
    let shown = stdout_of(&cluster, &["show", "orders/42"]).await;
    assert!(shown.starts_with("orders/42: exclusive, draining"), "{shown}");
    let stderr = fails(&cluster, 75, &["lock", "orders/42", "--try", "--", "true"]).await;
    assert!(stderr.contains("drained"), "{stderr}");
    stdout_of(&cluster, &["drain", "orders/42", "--off"]).await;
    assert_eq!(json(&cluster, &["show", "orders/42"]).await["draining"], false);

    let first = anna.acquire("book", AcquireOptions::shared()).await.unwrap();
    let _second = bert.acquire("book", AcquireOptions::shared()).await.unwrap();
    let stderr = fails(&cluster, 1, &["break", "book", "--reason", "x"]).await;
    assert!(stderr.contains("the lock book has 2 holders"), "{stderr}");
    stdout_of(
        &cluster,
        &["break", "book", "--reason", "x", "--holder", first.holder()],
    )
    .await;
    stdout_of(&cluster, &["break", "book", "--reason", "x", "--all"]).await;
    assert_eq!(
        json(&cluster, &["show", "book"]).await["holders"],
        serde_json::json!([])
    );
}

#[tokio::test]
async fn znodes_are_created_read_written_watched_and_removed() {
    let cluster = TestCluster::start().await;
    let created = stdout_of(&cluster, &["create", "/config/size", "12", "--parents"]).await;
    assert_eq!(created, "/config/size\n");
    assert_eq!(stdout_of(&cluster, &["get", "/config/size"]).await, "12\n");
    assert_eq!(
        stdout_of(&cluster, &["set", "/config/size", "-1", "--version", "0"]).await,
        "version 1\n"
    );
    let stderr = fails(&cluster, 1, &["set", "/config/size", "14", "--version", "0"]).await;
    assert!(stderr.contains("version"), "{stderr}");
    assert_eq!(json(&cluster, &["get", "/config/size"]).await["data"], "-1");
    let set = json(&cluster, &["set", "/config/size", "-1"]).await;
    assert_eq!(set["version"], 2);
    let created = json(&cluster, &["create", "/config/bytes"]).await;
    assert_eq!(
        (&created["path"], &created["stat"]["version"]),
        (&"/config/bytes".into(), &0.into())
    );
    let znodes = cluster.lock_client().znodes();
    znodes.set("/config/bytes", [0xff, 0xfe], None).await.unwrap();
    let bytes = json(&cluster, &["get", "/config/bytes"]).await;
    assert_eq!(
        (&bytes["data"], &bytes["data_base64"]),
        (&Value::Null, &"//4=".into())
    );
    assert_eq!(
        lockgate(&cluster, &["get", "/config/bytes"]).await.stdout,
        [0xff, 0xfe]
    );
    znodes.delete("/config/bytes", None, false).await.unwrap();
    let numbered = ["create", "/config/n-", "--mode", "persistent-sequential"];
    assert_eq!(stdout_of(&cluster, &numbered).await, "/config/n-0000000002\n");
    stdout_of(&cluster, &["create", "/config/soon", "--ttl", "1h"]).await;
    assert_eq!(
        json(&cluster, &["stat", "/config/soon"]).await["ttl_ms"],
        3_600_000
    );
    let stat = stdout_of(&cluster, &["stat", "/config/size"]).await;
    assert!(stat.contains("version          2\n"), "{stat}");
    assert_eq!(
        stdout_of(&cluster, &["ls", "/config"]).await,
        "n-0000000002\nsize\nsoon\n"
    );
    let long = stdout_of(&cluster, &["ls", "-l", "/config"]).await;
    assert!(long.starts_with("NAME") && long.contains("size"), "{long}");
    assert_eq!(json(&cluster, &["ls", "/config"]).await[1]["name"], "size");

    let mut watch = Command::new(LOCKGATE)
        .args(["watch", "/config/flag", "--once", "--json"])
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // The moment at which the watch is set is unknown here, so changes are made until the command has ended.
    while watch.try_wait().unwrap().is_none() {
        znodes
            .create("/config/flag", "", lock_client::CreateMode::Persistent, false)
            .await
            .unwrap();
        znodes.delete("/config/flag", None, false).await.unwrap();
    }
    let output = watch.wait_with_output().await.unwrap();
    let event: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(event["path"], "/config/flag");

    let existing = ["watch", "/config/size", "--once", "--zxid", "0"];
    assert!(stdout_of(&cluster, &existing).await.starts_with("created "));

    let stderr = fails(&cluster, 1, &["rm", "/config"]).await;
    assert!(stderr.contains("children"), "{stderr}");
    assert_eq!(stdout_of(&cluster, &["rm", "-r", "/config"]).await, "");
    fails(&cluster, 1, &["get", "/config"]).await;
    for no_path in [
        ["get", "config"],
        ["rm", "config"],
        ["ls", "config"],
        ["watch", "config"],
    ] {
        let stderr = fails(&cluster, 2, &no_path).await;
        assert!(stderr.contains("it has to begin with a slash"), "{stderr}");
    }
    let nobody = ["ls", "/", "--server", "127.0.0.1:1", "--patience", "100ms"];
    let stderr = fails(&cluster, 69, &nobody).await;
    assert!(
        stderr.starts_with("lockgate: no server could serve the request: 127.0.0.1:1"),
        "{stderr}"
    );
    fails(&cluster, 2, &["ls", "/", "--server", "nonsense"]).await;
    let completions = stdout_of(&cluster, &["completions", "bash"]).await;
    assert!(completions.contains("lockgate"));
}

#[tokio::test]
async fn access_control_lists_and_transactions_are_written() {
    let cluster = TestCluster::start().await;
    stdout_of(&cluster, &["znode", "create", "/a", "1"]).await;
    stdout_of(
        &cluster,
        &["znode", "acl", "set", "/a", "world:anyone:rwa", "ip:::1:d"],
    )
    .await;
    let list = stdout_of(&cluster, &["znode", "acl", "get", "/a"]).await;
    assert_eq!(
        list,
        "SCHEME  ID      PERMS\nworld   anyone  rwa\nip      ::1     d\n"
    );
    let stderr = fails(
        &cluster,
        1,
        &["znode", "acl", "set", "/a", "world:anyone:r", "--version", "0"],
    )
    .await;
    assert!(stderr.contains("version"), "{stderr}");
    let operations = r#"[{"check": {"path": "/a", "version": 0}}, {"set": {"path": "/a", "data": "2"}}]"#;
    let results = json(&cluster, &["znode", "transaction", operations]).await;
    assert_eq!(results["results"][1]["set"]["stat"]["version"], 1);
    let stderr = fails(&cluster, 1, &["znode", "transaction", operations]).await;
    assert!(stderr.contains("version 1, not 0"), "{stderr}");
    assert_eq!(stdout_of(&cluster, &["get", "/a"]).await, "2\n");
}

#[tokio::test]
async fn sessions_are_shown_and_ended_and_events_are_printed() {
    let cluster = TestCluster::start().await;
    let anna = cluster.lock_session("anna").await;
    let held = anna.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let shown = stdout_of(&cluster, &["session", "show", anna.id()]).await;
    assert!(
        shown.contains("name     anna\n") && shown.contains("holds    job ("),
        "{shown}"
    );
    stdout_of(&cluster, &["session", "end", anna.id(), "--reason", "test"]).await;
    held.lost().await;
    let stderr = fails(&cluster, 1, &["session", "end", "none"]).await;
    assert!(stderr.contains("none"), "{stderr}");
    eventually("the node has told the end", async || {
        let events = stdout_of(&cluster, &["events", "--last", "1000"]).await;
        events.contains("granted") && events.contains("session_ended")
    })
    .await;
    let of_others = stdout_of(&cluster, &["events", "other/", "--last", "1000"]).await;
    assert_eq!(of_others, "");
}

#[tokio::test]
async fn status_fails_and_names_the_node_that_does_not_answer() {
    let mut cluster = TestCluster::start().await;
    let session = cluster.lock_session("anna").await;
    let _held = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    let status = stdout_of(&cluster, &["status"]).await;
    assert_eq!(status.lines().count(), 5, "{status}");
    assert!(status.contains(": 1 sessions, 1 locks in use, "), "{status}");
    let status = json(&cluster, &["status"]).await;
    assert_eq!(status["problems"], serde_json::json!([]));
    assert_eq!(status["alarms"], serde_json::json!([]));
    assert!(
        status["leader"].is_u64() && status["read_only"] == false,
        "{status}"
    );
    for member in status["members"].as_array().unwrap() {
        assert!(member["lag"].is_u64() && member["ready"] == true, "{member}");
        assert!(member["disk"]["free_bytes"].is_u64(), "{member}");
        assert_eq!(member["version"], env!("CARGO_PKG_VERSION"));
    }
    let follower = cluster.followers().await[0];
    cluster.kill(follower).await.unwrap();
    // The others are found from one address.
    let leader = cluster.leader_now().await;
    let output = lockgate(&cluster, &["status", "--server", &cluster.http(leader)]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains(&format!("PROBLEM: node {follower} does not answer")),
        "{text}"
    );
    // Without a quorum a node knows nothing of the others.
    for id in cluster.ids() {
        if id != leader && id != follower {
            cluster.kill(id).await.unwrap();
        }
    }
    eventually("the last node knows that it is cut off", async || {
        let members = stdout_of(&cluster, &["member", "list", "--server", &cluster.http(leader)]).await;
        members.contains("cannot serve") && members.lines().skip(1).take(3).all(|line| line.contains("  ?  "))
    })
    .await;
}

#[tokio::test]
async fn contexts_name_clusters() {
    use std::os::unix::fs::PermissionsExt as _;

    let cluster = TestCluster::start().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("lockgate/config.toml");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let servers = cluster.http_addresses();
    let text = format!(
        "[contexts.here]\nservers = {servers:?}\n[contexts.nobody]\nservers = [\"127.0.0.1:1\"]\ntoken = \"lg_secret\"\n"
    );
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(LOCKGATE);
        command.args(arguments).env("XDG_CONFIG_HOME", home.path());
        let output = command.env_remove("LOCKGATE_SERVERS").output().await.unwrap();
        let texts = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!texts.concat().contains("secret"), "{texts:?}");
        (output.status.code().unwrap(), texts)
    };
    let backup = home.path().join("backup");
    let backup = backup.to_str().unwrap();
    for (command, output) in [
        (&["locks"][..], "LOCK"),
        (&["member", "list"], "NODE"),
        (&["status"], "Cluster "),
        (&["snapshot", "save", backup], backup),
        (
            &[
                "bench",
                "lock",
                "--clients",
                "1",
                "--duration",
                "1s",
                "--warmup",
                "0s",
            ],
            "workload",
        ),
    ] {
        let (code, [stdout, stderr]) = run(&[command, &["--context", "here"]].concat()).await;
        assert!(
            code == 0 && stdout.starts_with(output),
            "{command:?}: {stdout}{stderr}"
        );
    }
    // The option may be repeated, and a server that does not answer is skipped.
    let two = ["locks", "--server", "127.0.0.1:1", "--server", &servers[0]];
    assert_eq!(run(&two).await.0, 0);
    let (code, [_, stderr]) = run(&["locks", "--context", "nobody", "--patience", "100ms"]).await;
    assert!(code == 69 && stderr.contains("127.0.0.1:1"), "{stderr}");
    let (code, [_, stderr]) = run(&["locks", "--context", "unknown"]).await;
    assert!(code == 2 && stderr.contains("there are here, nobody"), "{stderr}");
    assert_eq!(run(&["context", "use", "here"]).await.0, 0);
    assert_eq!(run(&["member", "list"]).await.0, 0);
    let (_, [list, _]) = run(&["context", "list"]).await;
    assert!(list.contains("*  here"), "{list}");
    let (_, [shown, _]) = run(&["context", "show", "nobody"]).await;
    assert!(shown.contains("(hidden)"), "{shown}");
}

#[tokio::test]
async fn status_is_watched_until_its_reader_ends() {
    let cluster = TestCluster::start().await;
    let mut watch = Command::new(LOCKGATE)
        .args(["status", "--watch", "--every", "50ms", "-o", "json"])
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    for _ in 0..3 {
        let line = lines.next_line().await.unwrap().expect("a line");
        let status: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(status["problems"], serde_json::json!([]));
    }
    drop(lines);
    let ended = tokio::time::timeout(TIMEOUT, watch.wait()).await;
    assert_eq!(ended.expect("it ends").unwrap().code(), Some(0));
}

#[tokio::test]
async fn events_are_followed_over_the_end_of_a_node() {
    let mut cluster = TestCluster::start().await;
    let first = cluster.followers().await[0];
    let mut servers = vec![cluster.http(first)];
    servers.extend(
        cluster
            .http_addresses()
            .into_iter()
            .filter(|one| *one != cluster.http(first)),
    );
    let mut follow = Command::new(LOCKGATE)
        .args(["events", "orders/", "--follow", "-o", "json"])
        .env("LOCKGATE_SERVERS", servers.join(","))
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines();
    let session = cluster.lock_session("anna").await;
    for name in ["orders/1", "orders/2"] {
        let held = session.acquire(name, AcquireOptions::exclusive()).await.unwrap();
        held.release().await.unwrap();
        for event in ["granted", "lost"] {
            let line = tokio::time::timeout(TIMEOUT, lines.next_line())
                .await
                .expect("an event");
            let line: Value = serde_json::from_str(&line.unwrap().unwrap()).unwrap();
            assert_eq!((&line["event"], &line["lock"]), (&event.into(), &name.into()));
        }
        // The stream continues at the next server, without a gap.
        cluster.kill(first).await.unwrap();
    }
}

#[tokio::test]
async fn results_are_printed_as_table_json_or_yaml() {
    let cluster = TestCluster::start().await;
    let session = cluster.lock_session("anna").await;
    let _a = session.acquire("a", AcquireOptions::exclusive()).await.unwrap();
    let _b = session.acquire("b", AcquireOptions::exclusive()).await.unwrap();
    for command in [
        &["locks"][..],
        &["lock", "show", "a"],
        &["lock", "graph"],
        &["lock", "history", "a"],
        &["lock", "request-release", "a", "--reason", "test"],
        &["session", "list"],
        &["session", "show", session.id()],
        &["member", "list"],
        &["status"],
        &["znode", "ls", "/"],
        &["znode", "stat", "/"],
        &["znode", "acl", "get", "/"],
        &["auth", "access", "show"],
        &["lock", "break", "b", "--reason", "test"],
    ] {
        let is_change = command.contains(&"break");
        let mut formats = vec!["json", "yaml", "table"];
        formats.truncate(if is_change { 1 } else { 3 });
        for format in formats {
            let printed = stdout_of(&cluster, &[command, &["-o", format]].concat()).await;
            let parsed = serde_json::from_str::<Value>(&printed);
            assert_eq!(
                parsed.is_ok(),
                format == "json",
                "{command:?} {format}: {printed}"
            );
            assert!(
                format != "yaml" || printed.contains(": "),
                "{command:?}: {printed}"
            );
        }
    }
}
