//! `lockgate election`: a command that runs while its candidate leads.

use lock_client::recipes::Election;
use nix::sys::signal::Signal;

use local_cluster::process::send_signal;

use super::commands::{fails, json, lockgate};
use super::lock_command::{exit_of, line, pid, start_command};
use crate::harness::{TestCluster, eventually};

/// Command of a leader: prints its term, and ends with 3 when it is asked to.
const LEAD: [&str; 4] = [
    "--",
    "sh",
    "-c",
    "trap 'echo bye; exit 3' TERM; echo $LOCKGATE_FENCING_TOKEN; while :; do sleep 0.02; done",
];

/// Returns the arguments of a candidate.
fn candidate<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [
        &["election", "run", "leader", "--candidate", name],
        more,
        &LEAD[..],
    ]
    .concat()
}

fn term(line: &str) -> u64 {
    line.parse().expect("a term")
}

#[tokio::test]
async fn leader_hands_over_to_the_candidate_that_an_operator_names() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let (mut observer, mut seen) = start_command(&cluster, &["election", "observe", "leader"]);
    assert_eq!(line(&mut seen).await, "no candidate leads");
    fails(
        &cluster,
        75,
        &["election", "resign", "leader", "--reason", "maintenance"],
    )
    .await;

    let (first, mut of_first) = start_command(&cluster, &candidate("a", &[]));
    let first_term = term(&line(&mut of_first).await);
    assert_eq!(line(&mut seen).await, format!("a leads in term {first_term}"));
    let (second, mut of_second) = start_command(&cluster, &candidate("b", &[]));
    cluster.wait_queued(1, "leader", 1).await;
    let (third, mut of_third) = start_command(&cluster, &candidate("c", &[]));
    cluster.wait_queued(1, "leader", 2).await;
    let shown = json(&cluster, &["election", "show", "leader"]).await;
    assert_eq!(shown["leader"]["candidate"], "a");
    assert_eq!(shown["leader"]["term"], first_term);
    assert_eq!(shown["waiting"][0]["candidate"], "b");
    assert_eq!(shown["waiting"][1]["candidate"], "c");

    let stderr = fails(&cluster, 75, &["election", "resign", "leader", "--to", "d"]).await;
    assert!(stderr.contains("no candidate d waits"), "{stderr}");
    let hand_over = ["election", "resign", "leader", "--to", "c"];
    assert!(lockgate(&cluster, &hand_over).await.status.success());
    assert_eq!(line(&mut of_first).await, "bye");
    let (code, stderr) = exit_of(first).await;
    assert_eq!(code, Some(3), "{stderr}");
    let third_term = term(&line(&mut of_third).await);
    assert!(third_term > first_term);
    // Between the two nobody leads, also while "b" holds the lock and gives it on. The observer sees that only if it looks just then.
    let mut leads = line(&mut seen).await;
    if leads == "no candidate leads" {
        leads = line(&mut seen).await;
    }
    assert_eq!(leads, format!("c leads in term {third_term}"));

    // The other candidate leads after the one that was named.
    let resign = ["election", "resign", "leader", "--reason", "maintenance"];
    assert!(lockgate(&cluster, &resign).await.status.success());
    let second_term = term(&line(&mut of_second).await);
    assert!(second_term > third_term);
    assert_eq!(line(&mut seen).await, format!("b leads in term {second_term}"));
    assert_eq!(exit_of(third).await.0, Some(3));

    send_signal(pid(&second), Signal::SIGTERM).unwrap();
    assert_eq!(exit_of(second).await.0, Some(3));
    assert_eq!(line(&mut seen).await, "no candidate leads");
    assert_eq!(Election::candidates(&client, "leader").await, Ok(Vec::new()));
    send_signal(pid(&observer), Signal::SIGINT).unwrap();
    assert!(observer.wait().await.unwrap().success());
}

#[tokio::test]
async fn preferred_candidate_replaces_a_leader() {
    let cluster = TestCluster::start().await;
    let (leader, mut of_leader) = start_command(&cluster, &candidate("a", &[]));
    let first_term = term(&line(&mut of_leader).await);
    let (_waiter, _of_waiter) = start_command(&cluster, &candidate("b", &[]));
    cluster.wait_queued(1, "leader", 1).await;
    let (_preferred, mut of_preferred) = start_command(&cluster, &candidate("c", &["--preferred"]));
    assert!(term(&line(&mut of_preferred).await) > first_term);
    assert_eq!(exit_of(leader).await.0, Some(3));
    eventually("the first waiter is in the queue again", async || {
        let shown = json(&cluster, &["election", "show", "leader"]).await;
        shown["leader"]["candidate"] == "c" && shown["waiting"][0]["candidate"] == "b"
    })
    .await;
    let late = candidate("d", &["--wait", "50ms"]);
    let stderr = fails(&cluster, 75, &late).await;
    assert!(stderr.contains("not granted within 50ms"), "{stderr}");
}
