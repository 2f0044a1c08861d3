//! Leases by the command line, as scripts use them.

use std::time::Duration;

use tokio::process::Command;
use tokio::time::Instant;

use super::commands::{fails, json, lockgate, stdout_of};
use crate::harness::{LOCKGATE, TestCluster, eventually};

#[tokio::test]
async fn script_acquires_a_lease_and_others_renew_and_release_it_while_the_leader_is_killed() {
    let mut cluster = TestCluster::start().await;
    let script = [
        r#"eval "$($LOCKGATE acquire reports/nightly --ttl 30s --note script --shell)" && "#,
        r#"$LOCKGATE renew --ttl 20s && echo $LOCKGATE_LEASE"#,
    ];
    let output = Command::new("sh")
        .args(["-c", &script.concat()])
        .env("LOCKGATE", LOCKGATE)
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .output()
        .await
        .unwrap();
    assert!(output.status.success(), "{output:?}");
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
