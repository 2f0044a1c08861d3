//! Slow changes in the log, with the time of each step.

use std::fs;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::harness::{TestCluster, eventually};
use crate::scrape::Scrape;

#[tokio::test]
async fn slow_commit_is_logged() {
    let cluster = TestCluster::start_with("[log]\nslow_ms = 300\nformat = \"json\"\n").await;
    let leader = cluster.leader_now().await;
    let followers = cluster.followers().await;
    let (client, session) = cluster.session(leader, "slow").await;
    drop(client);
    let before = Scrape::of(&cluster, leader).await;
    // The followers do not answer for a while, and the leader has not noticed it when the change is
    // requested.
    for follower in &followers {
        cluster.signal(*follower, Signal::SIGSTOP).expect("the node runs");
    }
    let body = json!({"session": session.id()});
    let asked = cluster.send(leader, "POST", "/v1/locks/orders/7/acquire", &body);
    let wakes = async {
        // The change is proposed when it is counted.
        eventually("the change is proposed", async || {
            let now = Scrape::of(&cluster, leader).await;
            now.value("lockgate_proposals{work=\"new\"}") > 0.0
        })
        .await;
        // The delay itself: no condition is awaited here.
        tokio::time::sleep(std::time::Duration::from_millis(400)).await;
        for follower in &followers {
            cluster.signal(*follower, Signal::SIGCONT).expect("the node runs");
        }
    };
    let (granted, ()) = tokio::join!(asked, wakes);
    assert_eq!(granted.status, 200, "{}", granted.json());
    let log = cluster
        .node(leader)
        .expect("it is one of the cluster's")
        .log_file();
    let line = || -> Option<Value> {
        let text = fs::read_to_string(&log).expect("the log can be read");
        let lines = text
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut slow = lines.filter(|line| line["target"] == "lockgate::slow");
        slow.find(|line| line["fields"]["what"] == "acquire /locks/orders/7")
    };
    eventually("the log has the line", async || line().is_some()).await;
    let line = line().expect("the log had the line");
    let ms = |name: &str| {
        line["fields"][name]
            .as_u64()
            .unwrap_or_else(|| panic!("{name}: {line}"))
    };
    assert!(ms("took_ms") >= 300, "{line}");
    let parts = ms("queue_ms") + ms("commit_ms") + ms("apply_ms") + ms("reply_ms");
    // Each part is rounded down.
    assert!((parts..parts + 4).contains(&ms("took_ms")), "{line}");
    assert!(ms("queue_ms") + ms("commit_ms") >= 300, "{line}");
    assert_eq!(line["fields"]["outcome"], "done");
    let after = Scrape::of(&cluster, leader).await;
    let ended = "lockgate_proposals_ended_total{outcome=\"done\"}";
    assert!(after.value(ended) > before.value(ended));
}
