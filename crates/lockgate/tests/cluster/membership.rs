//! Changes of the membership while the leader dies: a retried change is made once.

use std::collections::BTreeSet;
use std::time::Duration;

use local_cluster::START_TIMEOUT;
use local_cluster::members::Members;

use crate::harness::{TIMEOUT, TestCluster, eventually, rounds};

/// Kills the leader at any moment of a change. The caller retries, and the change is made once, or it never
/// was.
#[tokio::test]
async fn membership_change_is_made_once_or_not_when_the_leader_dies() {
    let mut cluster = TestCluster::start().await;
    for round in 0..rounds(3) as u64 {
        let leader = cluster.leader_now().await;
        let subject = cluster.followers().await[0];
        let survivors: Vec<String> = cluster
            .nodes()
            .filter(|node| node.id != leader)
            .map(|node| node.http.clone())
            .collect();
        // Of three voters two are left when the leader dies, so the third cannot be demoted then. Therefore a
        // voter is demoted and promoted before, and one of the two changes is pending.
        let mut members = Members::at(&survivors);
        let change = tokio::spawn(async move {
            let demoted = members.demote(subject, false).await;
            let promoted = members.promote(subject, TIMEOUT).await;
            (demoted, promoted)
        });
        // Later in the change in each round, by microseconds: a commit takes a few milliseconds.
        tokio::time::sleep(Duration::from_micros(500 * (1 + round * 7 % 23))).await;
        cluster.kill(leader).await.unwrap();
        // With two voters and a dead leader there is no majority until the leader restarts.
        cluster.up(START_TIMEOUT).await.unwrap();
        let (demoted, promoted) = change.await.unwrap();
        if let Err(error) = demoted {
            let text = error.to_string();
            assert!(
                text.contains("not a majority") || text.contains("in progress") || text.contains("no answer"),
                "{text}"
            );
        }
        promoted.unwrap();
        let mut views = BTreeSet::new();
        let ids = cluster.ids();
        eventually("all nodes see three voters", async || {
            views.clear();
            for id in &ids {
                let Some(view) = cluster.view_of(*id).await.unwrap() else {
                    return false;
                };
                let voters = view
                    .members
                    .iter()
                    .filter(|member| member.role != lockgate::lock_node::Role::Learner);
                views.insert(voters.count());
            }
            views.iter().eq([3].iter())
        })
        .await;
    }
    let mut client = cluster.client(1);
    let session = client.open_session(TIMEOUT, "after").await.unwrap();
    client.acquire(&session, "after").await.unwrap();
}
