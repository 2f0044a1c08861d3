//! Whoever asks for a change of the members while the leader dies asks again, and it is done once.

use std::collections::BTreeSet;
use std::time::Duration;

use local_cluster::START_TIMEOUT;
use local_cluster::members::Members;

use crate::harness::{TIMEOUT, TestCluster, eventually, rounds};

/// The leader dies at any moment of a change. Whoever asked asks again, and it is done once, or it never was.
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
        // Of three voters two are left when the leader dies: the third cannot lose its vote then. So a vote is
        // taken and given before, and what hangs in the air is one of the two.
        let mut members = Members::at(&survivors);
        let change = tokio::spawn(async move {
            let demoted = members.demote(subject, false).await;
            let given = members.promote(subject, TIMEOUT).await;
            (demoted, given)
        });
        // Later and later in the change, by the microsecond: a commit takes a few milliseconds.
        tokio::time::sleep(Duration::from_micros(500 * (1 + round * 7 % 23))).await;
        cluster.kill(leader).await.unwrap();
        // With two voters and the leader dead there is no majority until it is back.
        cluster.up(START_TIMEOUT).await.unwrap();
        let (demoted, given) = change.await.unwrap();
        if let Err(error) = demoted {
            let text = error.to_string();
            assert!(
                text.contains("no majority") || text.contains("in progress") || text.contains("no answer"),
                "{text}"
            );
        }
        given.unwrap();
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
                    .filter(|member| member.role != lockgate::raft_node::Role::Learner);
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
