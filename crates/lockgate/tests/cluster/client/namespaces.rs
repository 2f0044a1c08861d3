//! `lockgate namespace`: quotas hold when the leader is killed, and refusals name the quota.

use serde_json::json;

use super::commands::{fails, json as json_of, stdout_of};
use crate::harness::{TIMEOUT, TestCluster, eventually};

#[tokio::test]
async fn quotas_of_a_namespace_outlive_the_leader() {
    let mut cluster = TestCluster::start().await;
    let set = [
        "namespace",
        "set",
        "billing",
        "--locks",
        "1",
        "--requests-per-second",
        "500",
    ];
    assert_eq!(
        stdout_of(&cluster, &set).await,
        "namespace            billing\n\
         sessions             0/-\n\
         locks                0/1\n\
         znodes               0/-\n\
         bytes                0/-\n\
         requests per second  500\n"
    );
    let acquire = |lock: &'static str| ["lease", "acquire", lock, "--ttl", "1h"];
    let lease = json_of(&cluster, &acquire("billing/a")).await["lease"].clone();
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();

    // Each command finds the next leader itself.
    let refused = fails(&cluster, 1, &acquire("billing/b")).await;
    assert_eq!(
        refused,
        "lockgate: the quota of namespace billing for locks is 1, and this would make it 2\n"
    );
    stdout_of(&cluster, &acquire("shop/b")).await;
    let list = stdout_of(&cluster, &["namespace", "list"]).await;
    let [head, row] = list.lines().collect::<Vec<_>>()[..] else {
        panic!("{list}");
    };
    assert!(head.starts_with("NAMESPACE  SESSIONS  LOCKS"), "{list}");
    let cells: Vec<_> = row.split_whitespace().collect();
    assert_eq!(
        (cells[0], cells[1], cells[2], cells[5]),
        ("billing", "1/-", "1/1", "500")
    );
    let shown = json_of(&cluster, &["namespace", "show", "billing"]).await;
    assert_eq!(
        (&shown["usage"]["locks"], &shown["quotas"]["locks"]),
        (&json!(1), &json!(1))
    );

    // The killed node comes back and has the same usage.
    cluster.up(TIMEOUT).await.unwrap();
    eventually("the killed node has caught up", async || {
        let answer = cluster
            .send(leader, "GET", "/v1/namespaces/billing", &json!(null))
            .await;
        answer.status == 200 && answer.json()["usage"] == shown["usage"]
    })
    .await;
    stdout_of(&cluster, &["lease", "release", lease.as_str().unwrap()]).await;
    stdout_of(&cluster, &acquire("billing/b")).await;
    assert_eq!(
        stdout_of(&cluster, &["namespace", "delete", "billing"]).await,
        "namespace billing has no quotas\n"
    );
    stdout_of(&cluster, &acquire("billing/c")).await;
    let again = fails(&cluster, 1, &["namespace", "delete", "billing"]).await;
    assert_eq!(again, "lockgate: the namespace billing has no quotas\n");
}
