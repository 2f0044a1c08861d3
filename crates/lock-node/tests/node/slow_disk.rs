//! Slow and stalled disks: another node leads, and no other node waits for them.

use std::time::Duration;

use lock_node::{AlarmKind, NodeConfig};

use crate::cluster::{Cluster, eventually, put};

/// Interval of checks of the disk that delays no test.
fn watchful(config: &mut NodeConfig) {
    config.raft.disk.check_interval = Duration::from_millis(20);
    config.raft.disk.stall = Duration::from_millis(300);
    config.raft.disk.hand_over_pause = Duration::from_millis(500);
}

#[tokio::test]
async fn leader_with_a_stalled_disk_hands_over_and_writes_continue() {
    let mut cluster = Cluster::start_troubled(3, watchful).await;
    let stalled = cluster.leader().await;
    let other = cluster.follower().await;
    let node = cluster.node(other).clone();
    put(&node, "/before", "x").await;
    cluster.troubled[&stalled].set_stalled(true);
    // The others form a quorum without it.
    put(&node, "/during", "x").await;
    let mut written = 0;
    while node.status().leader.is_none_or(|leader| leader == stalled) {
        put(&node, &format!("/n{written}"), "x").await;
        written += 1;
    }
    put(&node, "/after", "x").await;
    eventually("there is an alarm", || {
        let alarms = node.status().alarms;
        let alarm = alarms.iter().find(|alarm| alarm.node_id == Some(stalled));
        alarm.is_some_and(|alarm| alarm.kind == AlarmKind::SlowDisk)
    })
    .await;

    cluster.troubled[&stalled].set_stalled(false);
    let back = cluster.node(stalled).clone();
    eventually("it catches up", || {
        back.status().applied_index == node.status().applied_index
    })
    .await;
    eventually("the alarm is over", || node.status().alarms.is_empty()).await;
    assert_ne!(cluster.leader().await, stalled);
    cluster.stop_all().await;
}

#[tokio::test]
async fn writes_do_not_wait_for_a_stalled_follower() {
    let mut cluster = Cluster::start_troubled(3, watchful).await;
    let stalled = cluster.follower().await;
    let leader = cluster.leader().await;
    let node = cluster.node(leader).clone();
    cluster.troubled[&stalled].set_stalled(true);
    for n in 0..200 {
        put(&node, &format!("/n{n}"), "x").await;
    }
    let third = *cluster
        .nodes
        .keys()
        .find(|id| **id != leader && **id != stalled)
        .unwrap();
    let third = cluster.node(third).clone();
    eventually("the third keeps up", || {
        third.status().applied_index == node.status().applied_index
    })
    .await;
    assert_eq!(cluster.leader().await, leader);
    cluster.troubled[&stalled].set_stalled(false);
    let back = cluster.node(stalled).clone();
    eventually("it catches up", || {
        back.status().applied_index == node.status().applied_index
    })
    .await;
    cluster.stop_all().await;
}

#[tokio::test]
async fn leadership_stays_if_all_disks_are_slow() {
    let mut cluster = Cluster::start_troubled(3, watchful).await;
    let leader = cluster.leader().await;
    let node = cluster.node(leader).clone();
    let term = node.status().term;
    cluster
        .troubled
        .values()
        .for_each(|disk| disk.set_delay(Duration::from_millis(60)));
    for n in 0..30 {
        put(&node, &format!("/n{n}"), "x").await;
    }
    assert_eq!((cluster.leader().await, node.status().term), (leader, term));
    cluster.stop_all().await;
}
