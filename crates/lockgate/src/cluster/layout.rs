//! Where a local cluster's files are, which ports it takes, and how its nodes are configured. Starts nothing.
//!
//! | path below the cluster's directory | what it is |
//! |---|---|
//! | `node-N/config.toml` | the node's configuration, written once |
//! | `node-N/data/` | its log, vote and snapshots |
//! | `node-N/log` | what it logs, appended at every start |
//! | `node-N/pid` | claimed by its process, see [`super::process`] |

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail, ensure};
use raft_node::{MemberAddress, NodeId};

use crate::config::ServeConfig;

/// Node N of a cluster on one machine serves HTTP on this port + N.
pub const HTTP_BASE_PORT: u16 = 7400;

/// Node N of a cluster on one machine listens for its peers on this port + N.
pub const PEER_BASE_PORT: u16 = 7500;

/// More nodes on one machine would only compete for its cores; Raft gains nothing beyond seven.
pub const MAX_NODES: u64 = 9;

/// Free ports are taken from here: above the well-known ones, and below the range from which operating systems
/// serve outgoing connections, so that none of those sits on a node's port while the node is down.
const FREE_PORTS: Range<u16> = 10_240..32_000;

/// Which ports a new cluster takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// Node N takes `http + N` and `peer + N`.
    Fixed {
        /// For HTTP.
        http: u16,
        /// For peers.
        peer: u16,
    },
    /// Whichever are free at the moment.
    Free,
}

/// A node of a local cluster: where its files are and where it listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNode {
    /// Its id.
    pub id: NodeId,
    /// Its directory.
    pub dir: PathBuf,
    /// Where it serves HTTP: `host:port`.
    pub http: String,
    /// Where it listens for its peers: `host:port`.
    pub peer: String,
}

impl LocalNode {
    /// Its configuration.
    pub fn config_file(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// Its log, vote and snapshots.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What it logs.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// What its process claims.
    pub fn pid_file(&self) -> PathBuf {
        self.dir.join("pid")
    }
}

/// The nodes of the cluster in `dir`; none if there is no cluster.
pub fn read(dir: &Path) -> anyhow::Result<Vec<LocalNode>> {
    let mut nodes = Vec::new();
    for id in 1..=MAX_NODES {
        let dir = dir.join(format!("node-{id}"));
        let file = dir.join("config.toml");
        if !file.exists() {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        // As the node will read it, but for the environment, which belongs to whoever starts it.
        let config =
            ServeConfig::parse(&text, &dir, &|_| None).with_context(|| file.display().to_string())?;
        ensure!(
            config.node.node_id == id,
            "{}: node_id is not {id}",
            file.display()
        );
        let own = config.node.members[&id].clone();
        nodes.push(LocalNode {
            id,
            dir,
            http: own.http,
            peer: own.peer,
        });
    }
    Ok(nodes)
}

/// Writes the configurations of a new cluster of `count` nodes to `dir`. `settings` is added to each: lines of
/// TOML.
pub fn create(dir: &Path, count: u64, ports: Ports, settings: &str) -> anyhow::Result<Vec<LocalNode>> {
    ensure!(
        (1..=MAX_NODES).contains(&count),
        "a cluster on one machine has 1 to {MAX_NODES} nodes"
    );
    let members = members(count, ports)?;
    // Before anything is written: what stands in a configuration stays as it is.
    for (id, member) in &members {
        check_free(*id, &member.http)?;
        check_free(*id, &member.peer)?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    // The nodes' configurations name each other; a relative directory would depend on where one stands.
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    for id in members.keys() {
        let dir = dir.join(format!("node-{id}"));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let file = dir.join("config.toml");
        fs::write(&file, configuration(*id, &members, settings))
            .with_context(|| file.display().to_string())?;
    }
    read(&dir)
}

fn members(count: u64, ports: Ports) -> anyhow::Result<BTreeMap<NodeId, MemberAddress>> {
    let local = |port: u16| format!("{}:{port}", Ipv4Addr::LOCALHOST);
    let mut free = match ports {
        Ports::Fixed { .. } => Vec::new(),
        Ports::Free => free_ports(2 * count as usize)?,
    };
    (1..=count)
        .map(|id| {
            let (peer, http) = match ports {
                Ports::Fixed { http, peer } => {
                    let at = |base: u16| base.checked_add(id as u16).context("the ports end at 65535");
                    (at(peer)?, at(http)?)
                }
                Ports::Free => match (free.pop(), free.pop()) {
                    (Some(peer), Some(http)) => (peer, http),
                    _ => bail!("too few free ports"),
                },
            };
            Ok((
                id,
                MemberAddress {
                    peer: local(peer),
                    http: local(http),
                },
            ))
        })
        .collect()
}

fn configuration(id: NodeId, members: &BTreeMap<NodeId, MemberAddress>, settings: &str) -> String {
    let mut text = format!(
        "# Written by `lockgate cluster up`. All settings and their defaults: cluster/node-1.toml in the sources.\n\
         node_id = {id}\ncluster = \"local\"\ndata_dir = \"data\"\npid_file = \"pid\"\n"
    );
    let mut write = |line: std::fmt::Arguments| text.write_fmt(line).expect("a String takes all");
    write(format_args!("{}\n", settings.trim_end()));
    for (id, member) in members {
        write(format_args!(
            "\n[members.{id}]\npeer = \"{}\"\nhttp = \"{}\"\n",
            member.peer, member.http
        ));
    }
    text
}

/// Fails if somebody listens at an address that a node is to have.
pub fn check_free(id: NodeId, address: &str) -> anyhow::Result<()> {
    TcpListener::bind(address)
        .map(drop)
        .with_context(|| format!("node {id} cannot have the address {address}"))
}

/// Ports on the loopback interface that nobody listens on, for clusters that must not disturb each other. One
/// may be taken by somebody else before it is used; with a random choice out of 20,000 that is rare.
pub fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let mut held = Vec::new();
    for _ in 0..FREE_PORTS.len() {
        let mut bits = [0; 4];
        getrandom::fill(&mut bits).map_err(|error| anyhow!("no random numbers: {error}"))?;
        let port = FREE_PORTS.start + (u32::from_le_bytes(bits) % FREE_PORTS.len() as u32) as u16;
        // Held until all are found, so that none is found twice.
        if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            held.push((port, listener));
        }
        if held.len() == count {
            return Ok(held.into_iter().map(|(port, _)| port).collect());
        }
    }
    bail!(
        "there are no {count} free ports between {} and {}",
        FREE_PORTS.start,
        FREE_PORTS.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_created_cluster_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        let base = free_ports(1).unwrap()[0];
        let ports = Ports::Fixed {
            http: base,
            peer: base + 10,
        };
        let created = create(dir.path(), 3, ports, "").unwrap();
        assert_eq!(created, read(&dir.path().canonicalize().unwrap()).unwrap());
        assert_eq!(created[2].http, format!("127.0.0.1:{}", base + 3));
        assert_eq!(created[2].peer, format!("127.0.0.1:{}", base + 13));
    }

    #[test]
    fn free_ports_are_different() {
        let mut ports = free_ports(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
