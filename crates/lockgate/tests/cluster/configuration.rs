//! `lockgate config`: the errors that it reports before a node has to, and the reload of a running node.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate::lock_node::NodeId;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::command_line::{lockgate, succeeds};
use crate::harness::{TestCluster, eventually};

/// Runs `lockgate config` with these arguments and this file. Returns the exit status and the output.
async fn config(command: &str, file: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let file = file.to_str().unwrap();
    let mut all = vec!["config", command, "--config", file];
    all.extend(arguments);
    let output = lockgate(&all).await;
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

async fn findings(file: &Path) -> (Option<i32>, Value) {
    let (status, said) = config("check", file, &["--json"]).await;
    (status, serde_json::from_str(&said).expect("JSON"))
}

/// Writes the configuration of a node that is not started, with free ports.
fn alone(dir: &Path, more: &str) -> PathBuf {
    let file = dir.join("node.toml");
    let text = format!(
        "node_id = 1\ncluster = \"checked\"\ndata_dir = \"data\"\nzookeeper_listen = \"off\"\nhttp_listen = \"127.0.0.1:0\"\n\
         peer_listen = \"127.0.0.1:0\"\n{more}\n[members.1]\npeer = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\n"
    );
    fs::write(&file, text).unwrap();
    file
}

#[tokio::test]
async fn valid_configuration_passes_and_the_check_leaves_no_files() {
    let dir = TempDir::new().unwrap();
    let file = alone(dir.path(), "");
    let (status, said) = config("check", &file, &[]).await;
    assert_eq!((status, said.as_str()), (Some(0), "the configuration is good\n"));
    let (status, document) = findings(&file).await;
    assert_eq!(status, Some(0));
    assert_eq!(document, json!({ "good": true, "errors": [], "warnings": [] }));
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "the check leaves no files"
    );
    // A sample is valid, except that its ports may be in use.
    let sample = dir.path().join("sample.toml");
    let printed = succeeds(&["config", "sample", "--node", "2"]).await;
    fs::write(&sample, printed).unwrap();
    let (status, said) = config("check", &sample, &[]).await;
    assert_eq!(status, Some(0), "{said}");
}

#[tokio::test]
async fn check_reports_unusable_files_and_addresses() {
    let dir = TempDir::new().unwrap();
    let there = dir.path();
    fs::write(there.join("data"), "a file").unwrap();
    fs::write(there.join("cert.pem"), "nothing").unwrap();
    let tls = "pid_file = \"nowhere/pid\"\nadmin_listen = \"192.0.2.1:7600\"\n\
               [tls]\ncertificate = \"cert.pem\"\nkey = \"no-key.pem\"\nca = \"cert.pem\"\npeer_certificate = \"peer.pem\"\n\
               peer_key = \"no-peer-key.pem\"\npeer_ca = \"peer.pem\"";
    let (status, document) = findings(&alone(there, tls)).await;
    assert_eq!(status, Some(1));
    assert_eq!(document["good"], false);
    let errors = document["errors"].as_array().unwrap();
    let about = |setting: &str| {
        let found = errors.iter().find(|error| error["setting"] == setting);
        let found = found.unwrap_or_else(|| panic!("nothing about {setting}: {document}"));
        found["problem"].as_str().unwrap().to_owned()
    };
    assert!(about("data_dir").ends_with("data is not a directory"));
    assert!(about("pid_file").contains("does not exist"));
    assert!(about("admin_listen").contains("192.0.2.1:7600 is not an address of this machine"));
    for (setting, file) in [
        ("tls.key", "no-key.pem"),
        ("tls.peer_certificate", "peer.pem"),
        ("tls.peer_key", "no-peer-key.pem"),
        ("tls.peer_ca", "peer.pem"),
    ] {
        assert!(about(setting).contains(file), "{document}");
    }
    assert_eq!(errors.len(), 7, "{document}");

    let tls = "[tls]\ncertificate = \"cert.pem\"\nkey = \"cert.pem\"\nca = \"cert.pem\"";
    fs::remove_file(there.join("data")).unwrap();
    let (status, document) = findings(&alone(there, tls)).await;
    assert_eq!(status, Some(1));
    let message = document["errors"].to_string();
    assert!(
        message.contains("cert.pem: there is no certificate in it"),
        "{message}"
    );
}

#[tokio::test]
async fn certificates_keys_and_directories_must_belong_to_the_node() {
    let mut cluster = TestCluster::configure_secured();
    let file = cluster.node(1).unwrap().config_file();
    let (status, said) = config("check", &file, &[]).await;
    assert_eq!(status, Some(0), "{said}");

    // With another node id the certificate does not match, and after a start the data directory belongs to
    // another node.
    cluster.up(local_cluster::START_TIMEOUT).await.unwrap();
    let (status, document) = findings(&file).await;
    assert_eq!(status, Some(0), "{document}");
    let message = document["warnings"].to_string();
    assert!(!message.contains("_listen"), "its ports are its own: {message}");
    let text = fs::read_to_string(&file).unwrap();
    let other = file.with_file_name("other.toml");
    fs::write(&other, text.replace("node_id = 1\n", "node_id = 2\n")).unwrap();
    let (status, document) = findings(&other).await;
    assert_eq!(status, Some(1));
    let message = document["errors"].to_string();
    assert!(message.contains("belongs to node 1 of cluster"), "{message}");
    assert!(message.contains("it is node 1"), "{message}");

    // A key that other users can read.
    let key = text.lines().find_map(|line| line.strip_prefix("key = ")).unwrap();
    let key = file.parent().unwrap().join(key.trim_matches('"'));
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (status, document) = findings(&file).await;
    assert_eq!(status, Some(1));
    let message = document["errors"].to_string();
    assert!(
        message.contains("\"setting\":\"tls.key\"") && message.contains("chmod 600"),
        "{message}"
    );
}

/// Returns the log of a node.
fn log(cluster: &TestCluster, id: NodeId) -> String {
    fs::read_to_string(cluster.node(id).unwrap().log_file()).unwrap()
}

async fn logged(cluster: &TestCluster, id: NodeId, text: &str) {
    eventually(text, async || log(cluster, id).contains(text)).await;
}

/// Returns the status of a request with a body of 3,000 bytes.
async fn large_note(cluster: &TestCluster) -> u16 {
    let body = json!({ "name": "x".repeat(3_000) });
    cluster.send(1, "POST", "/v1/sessions", &body).await.status
}

#[tokio::test]
async fn reload_applies_live_settings_and_rejects_invalid_files() {
    let cluster = TestCluster::start().await;
    let node = cluster.node(1).unwrap();
    let (file, pid_file) = (node.config_file(), node.pid_file());
    let before = fs::read_to_string(&file).unwrap();
    let was = large_note(&cluster).await;
    assert_ne!(was, 413);

    fs::write(
        &file,
        format!("{before}\n[http]\nmax_body_bytes = 2000\n[load]\nmax_outstanding = 500\n\
             [disk]\nlow_water_bytes = 1000000000000000\nsegment_bytes = 8388608\n[sessions]\nmax_ms = 60000\n\
             [limits]\nchildren = 999\n[log]\nlevel = \"info,openraft=debug\"\nslow_ms = 1\n"),
    )
    .unwrap();
    let (status, said) = config("reload", &file, &[]).await;
    assert_eq!(status, Some(0), "{said}");
    logged(&cluster, 1, "setting applied: http.max_body_bytes: 65536 -> 2000").await;
    logged(&cluster, 1, "setting applied: load.max_outstanding: 10000 -> 500").await;
    logged(
        &cluster,
        1,
        "setting needs a restart: disk.segment_bytes: 16777216 -> 8388608",
    )
    .await;
    // No disk has that much free space; and sessions have a shorter maximum timeout from now on.
    let metric = async |line: &str| {
        let metrics = cluster.send(1, "GET", "/metrics", &Value::Null).await;
        String::from_utf8(metrics.body.to_vec()).unwrap().contains(line)
    };
    eventually("its disk counts as nearly full", async || {
        metric("\nlockgate_disk_low 1\n").await
    })
    .await;
    let opened = cluster
        .send(1, "POST", "/v1/sessions", &json!({"ttl_ms": 300_000}))
        .await;
    assert_eq!(opened.json()["ttl_ms"], 60_000, "{}", opened.json());
    eventually("slow requests are logged", async || {
        cluster.send(1, "POST", "/v1/sessions", &json!({})).await;
        log(&cluster, 1).contains(" WARN lockgate::slow: ")
    })
    .await;
    // The leader's limits apply to the cluster.
    let limits = async || {
        let page = cluster
            .send(1, "GET", "/v1/mirror?limit=1&linearizable=true", &Value::Null)
            .await;
        page.json()["limits"]["children"].as_u64()
    };
    assert_eq!(
        cluster
            .send(1, "POST", "/v1/cluster/leader", &json!({"node_id": 1}))
            .await
            .status,
        200
    );
    eventually("its limits apply", async || limits().await == Some(999)).await;
    assert_eq!(large_note(&cluster).await, 413);
    // The library openraft logs, as a directive names it.
    eventually("the log has debug lines", async || {
        log(&cluster, 1).contains(" DEBUG ")
    })
    .await;
    // At most the configured number, or fewer while requests take long.
    let metrics = cluster.send(1, "GET", "/metrics", &Value::Null).await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let limit = metrics
        .lines()
        .find_map(|line| line.strip_prefix("lockgate_proposals_limit "));
    let limit: u64 = limit.expect("the metric exists").parse().unwrap();
    assert!(limit <= 500, "{limit}");

    // An invalid file is rejected as a whole: by the command, and by the node that gets the signal from
    // elsewhere.
    fs::write(
        &file,
        format!("{before}\n[http]\nmax_body_bytes = 4000\nmax_connections = \"many\"\n"),
    )
    .unwrap();
    let (status, said) = config("reload", &file, &[]).await;
    assert_eq!(status, Some(1));
    assert!(
        said.contains("http.max_connections: must be a whole number")
            && said.contains("nothing was reloaded"),
        "{said}"
    );
    let process = fs::read_to_string(&pid_file).unwrap();
    let sent = Command::new("kill")
        .args(["-HUP", process.trim()])
        .status()
        .unwrap();
    assert!(sent.success());
    logged(
        &cluster,
        1,
        "the configuration has errors; nothing of it is applied",
    )
    .await;
    assert!(log(&cluster, 1).contains("http.max_connections: must be a whole number"));
    assert_eq!(
        large_note(&cluster).await,
        413,
        "the node keeps its configuration"
    );

    // Valid after a restart, but not together with the settings that need one.
    fs::write(
        &file,
        format!("{before}\n[raft]\nheartbeat_ms = 30\nelection_min_ms = 150\nelection_max_ms = 200\n[sessions]\nmin_ms = 500\n"),
    )
    .unwrap();
    let (status, said) = config("reload", &file, &[]).await;
    assert_eq!(status, Some(0), "{said}");
    logged(
        &cluster,
        1,
        "contradicts settings that cannot change before a restart",
    )
    .await;
    assert_eq!(large_note(&cluster).await, 413, "nothing of it is applied");

    // The first file again: a setting that is no longer set has its default.
    fs::write(&file, &before).unwrap();
    let (status, said) = config("reload", &file, &[]).await;
    assert_eq!(status, Some(0), "{said}");
    logged(&cluster, 1, "setting applied: http.max_body_bytes: 2000 -> 65536").await;
    assert_eq!(large_note(&cluster).await, was);
    eventually("its disk has room again", async || {
        metric("\nlockgate_disk_low 0\n").await
    })
    .await;
    eventually("as many children as before", async || {
        limits().await == Some(1_000_000)
    })
    .await;
    let (status, said) = config("reload", &file, &[]).await;
    assert_eq!(status, Some(0), "{said}");
    logged(&cluster, 1, "the configuration is unchanged").await;
}
