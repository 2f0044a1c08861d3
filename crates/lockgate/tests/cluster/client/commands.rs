//! The commands that look at locks, sessions and znodes, as a user types them.

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

/// Runs one that must succeed; what it printed.
async fn says(cluster: &TestCluster, arguments: &[&str]) -> String {
    let output = lockgate(cluster, arguments).await;
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {told}");
    String::from_utf8(output.stdout).unwrap()
}

async fn json(cluster: &TestCluster, arguments: &[&str]) -> Value {
    serde_json::from_str(&says(cluster, &[arguments, &["--json"]].concat()).await).unwrap()
}

/// Runs one that must end with this code; the one line that says why.
pub async fn fails(cluster: &TestCluster, code: i32, arguments: &[&str]) -> String {
    let output = lockgate(cluster, arguments).await;
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    told
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
    let list = says(&cluster, &["locks"]).await;
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
    let shown = says(&cluster, &["show", "orders/42"]).await;
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
    assert_eq!(says(&cluster, &["lock", "show", "orders/42"]).await, shown);
    assert_eq!(says(&cluster, &["show", "unknown"]).await, "unknown: free\n");
    let sessions = says(&cluster, &["sessions"]).await;
    assert_eq!(sessions.lines().count(), 3, "{sessions}");
    assert_eq!(json(&cluster, &["sessions"]).await.as_array().unwrap().len(), 2);

    // What a client says of itself is no command to the terminal.
    let noted = AcquireOptions::exclusive().note("one\ntwo\u{1b}[2J");
    let noted = anna.acquire("noted", noted).await.unwrap();
    let shown = says(&cluster, &["show", "noted"]).await;
    assert!(
        shown.ends_with("one\\ntwo\\u{1b}[2J\n") && shown.lines().count() == 3,
        "{shown}"
    );
    noted.release().await.unwrap();
    eventually("its hold is remembered", async || {
        json(&cluster, &["history", "noted"]).await["history"][0]["ended"] == "released"
    })
    .await;
    let history = says(&cluster, &["history", "noted"]).await;
    assert!(
        history.ends_with("one\\ntwo\\u{1b}[2J\n") && history.lines().count() == 2,
        "{history}"
    );
    let nobody = ["history", "noted", "--server", "127.0.0.1:1"];
    let told = fails(&cluster, 69, &nobody).await;
    assert!(told.contains("no node has a history"), "{told}");

    let broken = says(&cluster, &["break", "orders/42", "--reason", "maintenance"]).await;
    assert_eq!(broken, format!("{} has lost the lock orders/42\n", held.holder()));
    let _berts = wait.await.unwrap().unwrap();
    let told = fails(&cluster, 1, &["break", "unknown", "--reason", "x"]).await;
    assert_eq!(told, "lockgate: nobody holds the lock unknown\n");
    let asked = says(&cluster, &["revoke", "orders/42", "--reason", "maintenance"]).await;
    assert_eq!(asked, "1 holder was asked\n");
    assert!(
        says(&cluster, &["show", "orders/42"])
            .await
            .contains("is asked to go")
    );
    says(&cluster, &["drain", "orders/42"]).await;
    let shown = says(&cluster, &["show", "orders/42"]).await;
    assert!(shown.starts_with("orders/42: exclusive, drained"), "{shown}");
    let told = fails(&cluster, 75, &["lock", "orders/42", "--try", "--", "true"]).await;
    assert!(told.contains("drained"), "{told}");
    says(&cluster, &["drain", "orders/42", "--off"]).await;
    assert_eq!(json(&cluster, &["show", "orders/42"]).await["draining"], false);

    let first = anna.acquire("book", AcquireOptions::shared()).await.unwrap();
    let _second = bert.acquire("book", AcquireOptions::shared()).await.unwrap();
    let told = fails(&cluster, 1, &["break", "book", "--reason", "x"]).await;
    assert!(told.contains("2 hold the lock book"), "{told}");
    says(
        &cluster,
        &["break", "book", "--reason", "x", "--holder", first.holder()],
    )
    .await;
    says(&cluster, &["break", "book", "--reason", "x", "--all"]).await;
    assert_eq!(
        json(&cluster, &["show", "book"]).await["holders"],
        serde_json::json!([])
    );
}

#[tokio::test]
async fn znodes_are_created_read_written_watched_and_removed() {
    let cluster = TestCluster::start().await;
    let created = says(&cluster, &["create", "/config/size", "12", "--parents"]).await;
    assert_eq!(created, "/config/size\n");
    assert_eq!(says(&cluster, &["get", "/config/size"]).await, "12\n");
    assert_eq!(
        says(&cluster, &["set", "/config/size", "-1", "--version", "0"]).await,
        "version 1\n"
    );
    let told = fails(&cluster, 1, &["set", "/config/size", "14", "--version", "0"]).await;
    assert!(told.contains("version"), "{told}");
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
    assert_eq!(says(&cluster, &numbered).await, "/config/n-0000000002\n");
    says(&cluster, &["create", "/config/soon", "--ttl", "1h"]).await;
    assert_eq!(
        json(&cluster, &["stat", "/config/soon"]).await["ttl_ms"],
        3_600_000
    );
    let stat = says(&cluster, &["stat", "/config/size"]).await;
    assert!(stat.contains("version          2\n"), "{stat}");
    assert_eq!(
        says(&cluster, &["ls", "/config"]).await,
        "n-0000000002\nsize\nsoon\n"
    );
    let long = says(&cluster, &["ls", "-l", "/config"]).await;
    assert!(long.starts_with("NAME") && long.contains("size"), "{long}");
    assert_eq!(json(&cluster, &["ls", "/config"]).await[1]["name"], "size");

    let mut watch = Command::new(LOCKGATE)
        .args(["watch", "/config/flag", "--once", "--json"])
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    // When it is armed cannot be seen from outside; so until it has ended.
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
    assert!(says(&cluster, &existing).await.starts_with("created "));

    let told = fails(&cluster, 1, &["rm", "/config"]).await;
    assert!(told.contains("children"), "{told}");
    assert_eq!(says(&cluster, &["rm", "-r", "/config"]).await, "");
    fails(&cluster, 1, &["get", "/config"]).await;
    for no_path in [
        ["get", "config"],
        ["rm", "config"],
        ["ls", "config"],
        ["watch", "config"],
    ] {
        let told = fails(&cluster, 2, &no_path).await;
        assert!(told.contains("it has to begin with a slash"), "{told}");
    }
    let nobody = ["ls", "/", "--server", "127.0.0.1:1", "--patience", "100ms"];
    let told = fails(&cluster, 69, &nobody).await;
    assert!(
        told.starts_with("lockgate: no server could serve the request: 127.0.0.1:1"),
        "{told}"
    );
    fails(&cluster, 2, &["ls", "/", "--server", "nonsense"]).await;
    let completions = says(&cluster, &["completions", "bash"]).await;
    assert!(completions.contains("lockgate"));
}
