//! Disks that become full under real nodes: the data, the lock history and the process ids are on them.

use local_cluster::START_TIMEOUT;
use serde_json::{Value, json};

use crate::harness::{TestCluster, assert_refused, eventually};
use crate::small_disks::SmallDisks;

const DISK_BYTES: u64 = 64 * 1024 * 1024;
const BALLAST_BYTES: usize = 20 * 1024 * 1024;
const SETTINGS: &str = "[snapshots]\nevery_entries = 100\nkeep_entries = 10\n\
    [disk]\nlow_water_bytes = 8388608\nresume_bytes = 10485760\nsegment_bytes = 4194304\ncheck_interval_ms = 100\n";
/// Size of a reserved segment, as in the settings.
const SPARE_BYTES: u64 = 4 * 1024 * 1024;
const LOCKS: usize = 40;
const DATA_BYTES: usize = 32 * 1024;
/// Limit of writes; more would not fit on the disk in any case.
const MOST_WRITES: usize = 2_000;

async fn create(
    cluster: &TestCluster,
    node: u64,
    path: &str,
    data: &str,
) -> cli_support::http_client::Response {
    let body = json!({ "data": data, "parents": true });
    cluster
        .send(node, "POST", &format!("/v1/znodes{path}"), &body)
        .await
}

async fn is_read_only(cluster: &TestCluster, node: u64) -> bool {
    let status = cluster.send(node, "GET", "/v1/cluster", &Value::Null).await;
    status.json()["read_only"] == json!(true)
}

#[tokio::test]
async fn full_disk_allows_releases_and_loses_nothing() {
    let mut disks = match SmallDisks::configure(DISK_BYTES, SETTINGS) {
        Ok(disks) => disks,
        Err(error) => {
            eprintln!("SKIPPED: separate disks cannot be mounted here: {error}");
            return;
        }
    };
    disks.put_ballast(BALLAST_BYTES);
    disks.cluster.up(START_TIMEOUT).await.unwrap();
    let (mut keeper, session) = disks.cluster.session(1, "keeper").await;
    let (mut closer, closed) = disks.cluster.session(2, "closer").await;
    let mut locks = Vec::new();
    for number in 0..LOCKS {
        locks.push(
            keeper
                .acquire(session.id(), &format!("full/{number}"))
                .await
                .unwrap(),
        );
    }
    closer.acquire(closed.id(), "full/closed").await.unwrap();

    // Writes until the cluster rejects them.
    let data = "x".repeat(DATA_BYTES);
    let mut written = Vec::new();
    loop {
        let path = format!("/full/{}", written.len());
        let answer = create(&disks.cluster, 1 + written.len() as u64 % 3, &path, &data).await;
        if answer.status != 201 {
            assert_refused(&answer, 507, "read_only");
            break;
        }
        written.push(path);
        assert!(written.len() < MOST_WRITES, "the disks are still not full");
    }
    // The disks are fullest while snapshots are made and deleted; afterwards there may be free space again.
    // So a foreign file takes all that is left, except for the segments that the logs have reserved.
    eventually("every log has its reserved segments", async || {
        disks.have_spares(SPARE_BYTES)
    })
    .await;
    for node in disks.cluster.ids() {
        eventually(
            "every node reports a full disk and a read-only cluster",
            async || {
                disks.fill_up();
                let metrics = disks.cluster.send(node, "GET", "/metrics", &Value::Null).await;
                let metrics = String::from_utf8(metrics.body).unwrap();
                let told = |line: &str| metrics.lines().any(|other| other == line);
                let full = format!("lockgate_alarm_active{{kind=\"disk_low\",node=\"{node}\"}} 1");
                is_read_only(&disks.cluster, node).await && told("lockgate_read_only 1") && told(&full)
            },
        )
        .await;
    }
    keeper.heartbeat(session.id()).await.unwrap();
    for lock in locks.drain(..LOCKS / 2) {
        keeper.release(session.id(), &lock).await.unwrap();
    }

    // Each node dies and starts on its full disk, including the leader.
    for node in disks.cluster.ids() {
        disks.cluster.kill(node).await.unwrap();
        disks.cluster.up(START_TIMEOUT).await.unwrap();
        let lock = locks.pop().unwrap();
        keeper.release(session.id(), &lock).await.unwrap();
    }
    closer.close_session(closed.id()).await.unwrap();
    eventually(
        "the cluster is read-only under its new leader as well",
        async || {
            disks.fill_up();
            let answer = create(&disks.cluster, 1, "/full/more", "x").await;
            answer.code() == "read_only"
        },
    )
    .await;

    disks.free_space();
    eventually("the cluster accepts writes again", async || {
        create(&disks.cluster, 2, "/full/after", "x").await.status == 201
    })
    .await;
    for node in disks.cluster.ids() {
        let mut client = disks.cluster.client_of(node);
        for lock in &locks {
            assert!(client.check(lock).await.unwrap(), "node {node} lost {lock:?}");
        }
        for path in &written {
            let found = disks.cluster.get(node, &format!("/v1/znodes{path}")).await;
            assert_eq!(found["data"], json!(data), "node {node} lost {path}");
        }
    }
    let gone = disks.cluster.get(1, "/v1/locks/full/closed").await;
    assert_eq!(gone["holders"], json!([]));
}
