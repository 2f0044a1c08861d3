//! `/zookeeper/config`: the servers of the ensemble, for `config` of `zkCli.sh` and for `getConfig`. The
//! stored znode has no data. Each node knows the members, and inserts them into its reply when a client reads
//! the znode's data or stat.

use std::fmt::Write as _;

use bytes::Bytes;
use lock_node::{ClusterStatus, Node, Role};
use zk_wire::{MultiResult, Reply, Request};

/// Path of the znode.
const CONFIG: &str = "/zookeeper/config";

/// Inserts the members into a reply about the znode. A cluster of one node leaves the data empty, like a
/// standalone ZooKeeper.
pub(crate) fn fill_in(node: &Node, request: &Request, reply: &mut Reply) {
    let is_config = |request: &Request| matches!(request, Request::GetData { path, .. } | Request::Exists { path, .. } if path == CONFIG);
    let items = match request {
        Request::MultiRead(items) => items.iter().any(is_config).then_some(&items[..]),
        request if is_config(request) => Some(&[][..]),
        _ => None,
    };
    let Some(items) = items else {
        return;
    };
    let status = node.status();
    if status.members.len() < 2 {
        return;
    }
    let text = Bytes::from(servers(&status, node.membership_index()));
    let length = i32::try_from(text.len()).expect("a cluster has few members");
    match reply {
        Reply::Stat(stat) => stat.data_length = length,
        Reply::Data(data, stat) => (*data, stat.data_length) = (Some(text), length),
        Reply::Results(results) => {
            for (_, result) in items.iter().zip(results).filter(|(item, _)| is_config(item)) {
                if let MultiResult::GetData(data, stat) = result {
                    (*data, stat.data_length) = (Some(text.clone()), length);
                }
            }
        }
        _ => {}
    }
}

/// Formats the members as ZooKeeper does, with the version of the membership. A member's HTTP port replaces
/// ZooKeeper's election port, because ZooKeeper's Java client rejects a server whose two ports are equal. The
/// addresses for clients are left out: a node knows only its own, and Curator would replace its connection
/// string by those in this znode.
fn servers(status: &ClusterStatus, version: u64) -> String {
    let mut text = String::new();
    for member in &status.members {
        let (id, peer) = (member.node_id, &member.peer);
        let port = member.http.rsplit_once(':').map_or("", |(_, port)| port);
        let role = match member.role {
            Role::Learner => "observer",
            Role::Leader | Role::Follower | Role::Candidate => "participant",
        };
        writeln!(text, "server.{id}={peer}:{port}:{role}").expect("a String takes everything");
    }
    write!(text, "version={version:x}").expect("a String takes everything");
    text
}
