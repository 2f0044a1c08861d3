//! Leases by the command line, as scripts use them.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::Command;
use tokio::time::Instant;

use super::commands::{fails, json, lockgate, stdout_of};
use crate::harness::{LOCKGATE, TestCluster, eventually};

#[tokio::test]
async fn script_acquires_a_lease_and_others_renew_and_release_it_while_the_leader_is_killed() {
    let mut cluster = TestCluster::start().await;
    let script = [
        r#"lease=$($LOCKGATE acquire reports/nightly --ttl 30s --note script --shell) || exit; "#,
        r#"eval "$lease"; $LOCKGATE renew --ttl 20s && echo $LOCKGATE_LEASE"#,
    ];
    let shell = async |script: &str| {
        let output = Command::new("sh")
            .args(["-c", script])
            .env("LOCKGATE", LOCKGATE)
            .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
            .output();
        output.await.unwrap()
    };
    let output = shell(&script.concat()).await;
    assert!(output.status.success(), "{output:?}");
    // Without the lock neither this script nor a careless one goes on.
    let refused = shell(&script.concat()).await;
    assert_eq!(refused.status.code(), Some(75), "{refused:?}");
    let careless = r#"eval "$($LOCKGATE acquire reports/nightly --ttl 30s --shell)" && echo works"#;
    let refused = shell(careless).await;
    assert_eq!((refused.status.code(), refused.stdout), (Some(1), Vec::new()));
    let output = String::from_utf8(output.stdout).unwrap();
    assert!(output.contains("ttl         20s"), "{output}");
    let lease = output.lines().last().unwrap();

    let refused = fails(&cluster, 75, &["acquire", "reports/nightly", "--ttl", "30s"]).await;
    assert!(refused.contains("reports/nightly"), "{refused}");
    let begun = Instant::now();
    let wait = ["acquire", "reports/nightly", "--ttl", "30s", "--wait", "1s"];
    let refused = fails(&cluster, 75, &wait).await;
    assert!(refused.contains("was not granted within 1s"), "{refused}");
    assert!(begun.elapsed() >= Duration::from_secs(1));

    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    let renewed = json(&cluster, &["lease", "renew", lease]).await;
    assert_eq!(
        (&renewed["state"], &renewed["ttl_ms"]),
        (&"holds".into(), &20_000.into())
    );
    let seen = json(&cluster, &["lease", "show", lease]).await;
    assert_eq!(seen["fencing_token"], renewed["fencing_token"]);
    assert_eq!(stdout_of(&cluster, &["release", lease]).await, "released\n");
    assert_eq!(stdout_of(&cluster, &["release", lease]).await, "released\n");
    fails(&cluster, 79, &["renew", lease]).await;
}

#[tokio::test]
async fn waiting_lease_outlives_its_time_to_live_and_is_granted_the_lock() {
    let cluster = TestCluster::start().await;
    let held = json(&cluster, &["acquire", "job", "--ttl", "1h"]).await;
    let waiter = async {
        json(
            &cluster,
            &[
                "acquire",
                "job",
                "--ttl",
                "2s",
                "--wait",
                "1min",
                "--max-hold",
                "1s",
            ],
        )
        .await
    };
    let release = async {
        eventually("the waiter has outlived its time to live", async || {
            let sessions = json(&cluster, &["session", "list"]).await;
            let mut sessions = sessions.as_array().unwrap().iter();
            sessions
                .any(|session| session["awaited"][0].is_object() && session["age_ms"].as_u64() > Some(2_500))
        })
        .await;
        let lease = held["lease"].as_str().unwrap();
        stdout_of(&cluster, &["release", lease]).await;
    };
    let (granted, ()) = tokio::join!(waiter, release);
    assert!(
        granted["fencing_token"].as_u64() > held["fencing_token"].as_u64(),
        "{granted}"
    );
    // The lock is free after the maximum time of the hold, or at the end of the lease.
    let lease = granted["lease"].as_str().unwrap().to_owned();
    eventually("the lease has ended", async || {
        lockgate(&cluster, &["renew", &lease]).await.status.code() == Some(79)
    })
    .await;
}

#[tokio::test]
async fn interrupted_wait_gives_up_its_place() {
    let cluster = TestCluster::start().await;
    json(&cluster, &["acquire", "job", "--ttl", "1h"]).await;
    let waiter = Command::new(LOCKGATE)
        .args(["acquire", "job", "--ttl", "1h", "--wait", "1h"])
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    cluster.wait_queued(1, "job", 1).await;
    let id = Pid::from_raw(waiter.id().unwrap().cast_signed());
    // The handler is installed a moment after the waiter has its place.
    eventually("the waiter has a handler", async || handles(id, Signal::SIGTERM)).await;
    kill(id, Signal::SIGTERM).unwrap();
    let output = waiter.wait_with_output().await.unwrap();
    assert_eq!(
        output.status.code(),
        Some(128 + Signal::SIGTERM as i32),
        "{output:?}"
    );
    let lock = json(&cluster, &["show", "job"]).await;
    assert_eq!(lock["queue"], Value::Array(Vec::new()));
}

/// Returns whether a process has a handler for a signal, by proc(5).
fn handles(process: Pid, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let caught = status
        .lines()
        .find_map(|line| line.strip_prefix("SigCgt:"))
        .unwrap();
    u64::from_str_radix(caught.trim(), 16).unwrap() & 1 << (signal as u32 - 1) != 0
}
