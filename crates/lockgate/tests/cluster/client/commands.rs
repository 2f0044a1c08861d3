//! Commands on locks, sessions and znodes, as a user types them.

use std::process::Output;

use lock_client::AcquireOptions;
use serde_json::Value;
use tokio::process::Command;

use crate::harness::{LOCKGATE, TestCluster, eventually};

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
async fn stdout_of(cluster: &TestCluster, arguments: &[&str]) -> String {
    let output = lockgate(cluster, arguments).await;
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

async fn json(cluster: &TestCluster, arguments: &[&str]) -> Value {
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
    let list = stdout_of(&cluster, &["locks"]).await;
    assert_eq!(
        list.lines().collect::<Vec<_>>(),
        [
            "LOCK       MODE       HOLDERS  WAITING",
            "orders/42  exclusive  1        1"
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
    let asked = stdout_of(&cluster, &["revoke", "orders/42", "--reason", "maintenance"]).await;
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

    let existing = ["watch", "/config/size", "--once", "--after", "0"];
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
