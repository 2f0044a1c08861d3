//! Detection of mixed-up data directories. A node with the data directory of another cluster is a member of
//! that cluster, and may even be ready there.

use std::collections::BTreeMap;

use raft_node::NodeId;

use super::NodeReport;

/// Returns a description of the problem if the nodes' data directories belong to several clusters. A node
/// that does not respond or has no cluster yet is ignored.
pub fn mixed_directories(reports: &[NodeReport]) -> Option<String> {
    let mut clusters: BTreeMap<&str, Vec<NodeId>> = BTreeMap::new();
    for report in reports {
        if let Some(cluster) = &report.cluster_id {
            clusters.entry(cluster).or_default().push(report.id);
        }
    }
    if clusters.len() < 2 {
        return None;
    }
    // The largest group first: most likely the nodes of the others are the wrong ones.
    let mut groups: Vec<_> = clusters.into_iter().collect();
    groups.sort_by_key(|(_, ids)| std::cmp::Reverse(ids.len()));
    let described = groups.iter().map(|(cluster, ids)| {
        let ids: Vec<String> = ids.iter().map(NodeId::to_string).collect();
        let nodes = if ids.len() == 1 { "node" } else { "nodes" };
        format!("{nodes} {} of cluster {cluster}", ids.join(", "))
    });
    let described: Vec<String> = described.collect();
    Some(format!(
        "the nodes have data directories of different clusters: {}. Stop the nodes that do not belong here (`lockgate dev stop`) \
         and restore their own data directories",
        described.join("; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_directories_of_several_clusters_are_reported() {
        let report = |id: u64, cluster: Option<&str>| NodeReport {
            id: NodeId::from(id),
            pid: Some(1),
            role: None,
            cluster_id: cluster.map(str::to_owned),
            ready: true,
            alarms: Vec::new(),
            url: String::new(),
            peer: String::new(),
            data_dir: "data".into(),
            log: "log".into(),
        };
        let own = Some("aa");
        assert_eq!(
            mixed_directories(&[report(1, own), report(2, None), report(3, own)]),
            None
        );
        let problem = mixed_directories(&[report(1, Some("00")), report(2, own), report(3, own)]).unwrap();
        assert!(
            problem.contains("nodes 2, 3 of cluster aa; node 1 of cluster 00"),
            "{problem}"
        );
    }
}
