//! Secured cluster of the launcher, and a worker with a small role, from the command line.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use local_cluster::LocalCluster;
use serde_json::Value;

use super::{
    LaunchedCluster, NOT_ALLOWED, assert_not_logged, id_of, operator_token, run, run_in, secret_of, succeeds,
    text,
};
use crate::harness::LOCKGATE;

#[tokio::test]
async fn worker_can_lock_only_within_its_grants() {
    let place = LaunchedCluster(tempfile::tempdir().unwrap());
    let dir = place.0.path();
    let up = [
        "cluster",
        "up",
        "--dir",
        text(dir),
        "--ephemeral-ports",
        "--tls",
        "--secure",
    ];
    let said = succeeds(&up).await;
    assert!(said.contains("is its administrator's token"), "{said}");
    assert_eq!(said.matches("follower").count(), 2, "{said}");
    let cluster = LocalCluster::open(dir, Path::new(LOCKGATE)).unwrap();
    let (admin, ca) = (dir.join("admin.token"), dir.join("ca.pem"));
    let mode = |file: &Path| fs::metadata(file).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&admin), 0o600);
    let operators: Vec<PathBuf> = cluster
        .ids()
        .into_iter()
        .map(|id| operator_token(&cluster, id))
        .collect();
    assert!(operators.iter().all(|file| mode(file) == 0o600));
    let mut secrets: Vec<String> = operators.iter().map(|file| secret_of(file)).collect();

    let servers = cluster.http_addresses().join(",");
    let at = ["--server", &servers, "--ca", text(&ca)];
    let as_admin = [&at[..], &["--token-file", text(&admin)]].concat();
    let with = |words: &[&'static str], more: &[&str]| -> Vec<String> {
        words
            .iter()
            .copied()
            .chain(more.iter().copied())
            .map(str::to_owned)
            .collect()
    };
    let call = async |words: &[&'static str], more: &[&str]| {
        let all = with(words, more);
        succeeds(&all.iter().map(String::as_str).collect::<Vec<_>>()).await
    };

    // A caller without a token has no rights.
    let nobody = run(&[&["locks"][..], &at].concat()).await;
    assert_eq!(
        (nobody.code, nobody.out.as_str()),
        (NOT_ALLOWED, ""),
        "{nobody:?}"
    );
    let said = call(&["access", "show"], &at).await;
    assert!(said.contains("is secured") && said.contains("nobody"), "{said}");

    let said = call(&["policy", "set", "worker", "lock:orders"], &as_admin).await;
    assert_eq!(said, "role worker allows lock:orders\n");
    let worker = dir.join("worker.token");
    let create = [&as_admin[..], &["--out", text(&worker)]].concat();
    let words = [
        "token",
        "create",
        "--role",
        "worker",
        "--expires-in",
        "1h",
        "--description",
        "night shift",
    ];
    let said = call(&words, &create).await;
    assert!(said.contains("of role worker: valid until 2"), "{said}");
    assert_eq!(mode(&worker), 0o600);
    secrets.extend([secret_of(&admin), secret_of(&worker)]);

    // The worker can lock below /locks/orders, at every node, and with its token from a file or the
    // environment.
    let as_worker = [&at[..], &["--token-file", text(&worker)]].concat();
    let locked = async |arguments: &[&str], lock: &str| {
        run(&[&["lock"][..], arguments, &[lock, "--", "echo", "held"]].concat()).await
    };
    for node in cluster.http_addresses() {
        let one = [
            "--server",
            &node,
            "--ca",
            text(&ca),
            "--token-file",
            text(&worker),
        ];
        let ran = locked(&one, "orders/1").await;
        assert_eq!((ran.code, ran.out.as_str()), (0, "held\n"), "{ran:?}");
    }
    let token = fs::read_to_string(&worker).unwrap();
    let environment = [("LOCKGATE_TOKEN", token.trim())];
    // The command gets the token only with --pass-token.
    let command = [
        "orders/1",
        "--",
        "sh",
        "-c",
        "echo held ${LOCKGATE_TOKEN:-without}",
    ];
    for (option, has) in [(&[][..], "without"), (&["--pass-token"], token.trim())] {
        let ran = run_in(&environment, &[&["lock"][..], &at, option, &command].concat()).await;
        assert_eq!((ran.code, ran.out), (0, format!("held {has}\n")), "{}", ran.err);
    }
    // Everything else is rejected.
    let elsewhere = locked(&as_worker, "invoices/1").await;
    assert_eq!(
        (elsewhere.code, elsewhere.out.as_str()),
        (NOT_ALLOWED, ""),
        "{elsewhere:?}"
    );
    assert!(elsewhere.err.contains("/locks/invoices/1"), "{elsewhere:?}");
    let backup = dir.join("backup");
    for words in [
        &["create", "/orders", "x"][..],
        &["snapshot", "save", text(&backup)],
        &["member", "list"],
        &["status"],
        &["token", "list"],
        &["policy", "set", "worker", "all:/"],
        &["break", "orders/1", "--reason", "mine", "--all"],
    ] {
        let ran = run(&[words, &as_worker].concat()).await;
        assert_eq!(
            (ran.code, ran.out.as_str()),
            (NOT_ALLOWED, ""),
            "{words:?}: {ran:?}"
        );
    }

    // The administrator's view of the token.
    let listed = call(&["token", "list", "--json"], &as_admin).await;
    let tokens: Value = serde_json::from_str(&listed).unwrap();
    let shown = tokens
        .as_array()
        .unwrap()
        .iter()
        .find(|token| token["role"] == "worker")
        .unwrap();
    assert_eq!(shown["id"], id_of(&worker));
    assert_eq!(shown["description"], "night shift");
    assert!(
        shown["expires_at"].is_string() && shown["token"].is_null(),
        "{shown}"
    );
    assert_eq!(
        call(&["policy", "show", "worker"], &as_admin).await,
        "lock:/locks/orders\n"
    );

    // A token file that other users can read is rejected, and a token is not sent without TLS.
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o644)).unwrap();
    let refused = locked(&as_worker, "orders/1").await;
    assert!(
        refused.err.contains("others can read or change this secret"),
        "{refused:?}"
    );
    fs::set_permissions(&worker, fs::Permissions::from_mode(0o600)).unwrap();
    let plain = run(&[
        "locks",
        "--server",
        "192.0.2.1:7400",
        "--token-file",
        text(&worker),
    ])
    .await;
    assert!(plain.code == 2 && plain.err.contains("without TLS"), "{plain:?}");
    assert!(plain.err.contains("--insecure"), "{plain:?}");

    // The launcher uses its administrator's token.
    let grown = succeeds(&["member", "add", "--dir", text(dir), "--voter"]).await;
    assert!(grown.contains("node 4 has a vote"), "{grown}");
    let cluster = LocalCluster::open(dir, Path::new(LOCKGATE)).unwrap();
    secrets.push(secret_of(&operator_token(&cluster, 4)));
    succeeds(&["cluster", "down", "--dir", text(dir)]).await;
    let left: Vec<_> = cluster
        .ids()
        .into_iter()
        .filter(|id| operator_token(&cluster, *id).exists())
        .collect();
    assert_eq!(left, [0; 0], "operators' tokens are left");
    assert_not_logged(cluster.nodes().map(|node| node.log_file()), secrets.iter());
}
