//! Comparison of docs/reference/metrics.md with the metrics of nodes: names, types and labels are equal.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::harness::{TestCluster, eventually};
use crate::project::file;
use crate::scrape::Scrape;
use crate::zookeeper::ask_once;

/// Starts clusters with every metric: certificates, an alarm, locks below a prefix, clients of both kinds.
pub async fn all_metrics() -> Scrape {
    // No disk has that much free space, so every node raises its alarm, and the cluster is read-only.
    let mut cluster = TestCluster::configure_secured_with(
        "[disk]\nlow_water_bytes = 1000000000000000\n[metrics]\nlock_prefixes = \"orders/\"\n",
    );
    cluster
        .up(local_cluster::START_TIMEOUT)
        .await
        .expect("the cluster starts");
    let leader = cluster.leader_now().await;
    let mut seen = Scrape::default();
    eventually("the alarms are exported", async || {
        seen = Scrape::of(&cluster, leader).await;
        seen.types.contains_key("lockgate_alarm_active")
    })
    .await;
    // A node reports its own disk at once; the leader checks all disks a little later.
    eventually("the cluster is read-only", async || {
        let asked = cluster.send(leader, "POST", "/v1/sessions", &json!({})).await;
        (asked.status, asked.code().as_str()) == (507, "read_only")
    })
    .await;
    let made = cluster
        .send(leader, "POST", "/v1/cluster/snapshot", &Value::Null)
        .await;
    assert_eq!(made.status, 200, "{}", made.json());
    let saved = cluster.send(leader, "GET", "/v1/snapshot", &Value::Null).await;
    assert_eq!(saved.status, 200);
    eventually("the backup is exported", async || {
        let now = Scrape::of(&cluster, leader).await;
        now.types.contains_key("lockgate_backup_last_timestamp_seconds")
    })
    .await;
    let seen = seen.and(Scrape::of(&cluster, leader).await);

    // A cluster with clients of ZooKeeper and Redis, which is not read-only. Spans without a collector are
    // counted all the same.
    let mut plain = TestCluster::configure("[traces]\nendpoint = \"http://127.0.0.1:1\"\n");
    plain.serve_redis(None).expect("there are free ports");
    plain
        .up(local_cluster::START_TIMEOUT)
        .await
        .expect("the cluster starts");
    let node = plain.node(1).expect("there is a node 1").clone();
    ask_once(&node.zookeeper.expect("the node has a ZooKeeper port")).await;
    let redis = TcpStream::connect(node.redis.expect("the node has a Redis port")).await;
    let mut redis = redis.expect("the node serves Redis clients");
    redis.write_all(b"GET a\r\n").await.expect("the node reads it");
    eventually("all members know quotas", async || {
        let quotas = json!({"locks": 1});
        plain
            .send(1, "PUT", "/v1/namespaces/billing", &quotas)
            .await
            .status
            == 200
    })
    .await;
    eventually("the clients were counted", async || {
        let now = Scrape::of(&plain, 1).await;
        let counted = |name| now.types.contains_key(name);
        counted("lockgate_zookeeper_requests") && counted("lockgate_redis_commands")
    })
    .await;
    seen.and(Scrape::of(&plain, 1).await)
}

/// Returns the rows of the tables: the type and the labels of each name.
pub fn documented() -> BTreeMap<String, (String, BTreeSet<String>)> {
    let text = file("docs/reference/metrics.md");
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    let rows = rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [name, kind, labels, meaning] = cells[..] else {
            panic!("four cells: {line}")
        };
        assert!(!meaning.is_empty(), "{line}");
        let labels = labels.split('`').skip(1).step_by(2).map(str::to_owned).collect();
        (name.trim_matches('`').to_owned(), (kind.to_owned(), labels))
    });
    let mut documented = BTreeMap::new();
    for (name, row) in rows {
        assert_eq!(documented.insert(name.clone(), row), None, "{name} occurs twice");
    }
    documented
}

#[tokio::test]
async fn documentation_and_exported_metrics_agree() {
    let seen = all_metrics().await;
    let exported: BTreeMap<String, (String, BTreeSet<String>)> = seen
        .types
        .iter()
        .map(|(family, kind)| {
            let name = match kind.as_str() {
                "counter" => format!("{family}_total"),
                _ => family.clone(),
            };
            (name, (kind.clone(), seen.labels[family].clone()))
        })
        .collect();
    let documented = documented();
    let missing: Vec<_> = exported
        .iter()
        .filter(|(name, _)| !documented.contains_key(*name))
        .collect();
    assert!(missing.is_empty(), "docs/reference/metrics.md lacks {missing:#?}");
    for (name, row) in &documented {
        let actual = exported
            .get(name)
            .unwrap_or_else(|| panic!("no node exports {name}"));
        assert_eq!(row, actual, "docs/reference/metrics.md: {name}");
    }
}

#[test]
fn names_follow_the_conventions_of_prometheus() {
    for (name, (kind, _)) in documented() {
        let rest = name
            .strip_prefix("lockgate_")
            .or_else(|| name.strip_prefix("process_"))
            .unwrap_or_else(|| panic!("{name} has a prefix"));
        assert_eq!(kind == "counter", rest.ends_with("_total"), "{name}");
        for part in [
            "_ms",
            "_milliseconds",
            "_us",
            "_minutes",
            "_kb",
            "_mb",
            "_percent",
        ] {
            assert!(!rest.contains(part), "{name} is in a base unit");
        }
        assert!(
            rest.chars()
                .all(|letter| letter.is_ascii_lowercase() || letter == '_'),
            "{name}"
        );
    }
}
