//! Files, ports and configurations of a local cluster. The module starts no processes.
//!
//! | path below the cluster's directory | contents |
//! |---|---|
//! | `node-N/config.toml` | the node's configuration, written once |
//! | `node-N/data/` | its log, vote and snapshots |
//! | `node-N/log` | its log output, appended at every start |
//! | `node-N/pid` | claimed by its process, see [`super::process`] |
//! | `admin.token` | the administrator's token of a secured cluster |
//! | `node-N.removed/` | the files of a node that was removed from the cluster |

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use raft_node::{MemberAddress, NodeId};
use serde::Deserialize;

use crate::ports::{check_free, free_ports};

/// Base port for HTTP: node N uses this port + N.
pub const HTTP_BASE_PORT: u16 = 7400;

/// Base port for peer connections: node N uses this port + N.
pub const PEER_BASE_PORT: u16 = 7500;

/// Base port for ZooKeeper clients: node N uses this port + N, so that the first node has ZooKeeper's
/// standard port.
pub const ZOOKEEPER_BASE_PORT: u16 = 2180;

/// Base port for Redis clients: node N uses this port + N. Redis itself, whose standard port is 6379, may run beside the nodes.
pub const REDIS_BASE_PORT: u16 = 6380;

/// Maximum number of nodes. More nodes on one machine would only compete for its cores; Raft gains nothing
/// beyond seven.
pub const MAX_NODES: u64 = 9;

/// Value of `zookeeper_listen` in the configuration of a node that does not serve ZooKeeper clients.
const NOT_SERVED: &str = "off";

/// Port for ZooKeeper clients if a configuration does not name one.
const DEFAULT_ZOOKEEPER_PORT: u16 = 2181;

/// Name of the cluster.
pub const CLUSTER: &str = "local";

/// Ports of a new cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ports {
    /// Node N uses `http + N`, `peer + N` and `zookeeper + N`.
    Fixed {
        /// Base port for HTTP.
        http: u16,
        /// Base port for peers.
        peer: u16,
        /// Base port for ZooKeeper clients.
        zookeeper: u16,
    },
    /// Free ports, chosen at random.
    Free,
}

/// Node of a local cluster: its files and its addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalNode {
    /// Node id.
    pub id: NodeId,
    /// Directory of the node.
    pub dir: PathBuf,
    /// HTTP address: `host:port`.
    pub http: String,
    /// Peer address: `host:port`.
    pub peer: String,
    /// Address for ZooKeeper clients: `host:port`; `None` if the node does not serve them.
    pub zookeeper: Option<String>,
    /// Address for Redis clients: `host:port`; `None` if the node does not serve them.
    pub redis: Option<String>,
    /// True if the node serves nobody before the cluster is secured.
    pub requires_access: bool,
}

impl LocalNode {
    /// Returns all addresses at which the node listens.
    pub fn addresses(&self) -> impl Iterator<Item = &str> {
        [&self.http, &self.peer]
            .into_iter()
            .chain(&self.zookeeper)
            .chain(&self.redis)
            .map(String::as_str)
    }

    /// Returns the path of the configuration.
    pub fn config_file(&self) -> PathBuf {
        self.dir.join("config.toml")
    }

    /// Returns the directory of the log, the vote and the snapshots.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the path of the log output.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }

    /// Returns the path of the pid file.
    pub fn pid_file(&self) -> PathBuf {
        self.dir.join("pid")
    }
}

/// Settings of a node's configuration that the launcher needs. The node itself reads and checks all of them.
#[derive(Debug, Deserialize)]
struct NodeSettings {
    node_id: NodeId,
    members: BTreeMap<String, MemberAddress>,
    http_listen: Option<String>,
    zookeeper_listen: Option<String>,
    redis_listen: Option<String>,
    #[serde(default)]
    access: AccessSettings,
}

/// Section `[access]`.
#[derive(Debug, Default, Deserialize)]
struct AccessSettings {
    #[serde(default)]
    required: bool,
}

impl NodeSettings {
    /// Returns the address for ZooKeeper clients, with the node's own defaults: the standard port, on the
    /// host of HTTP.
    fn zookeeper_address(&self, own: &MemberAddress) -> Option<String> {
        match self.zookeeper_listen.as_deref() {
            Some(NOT_SERVED) => None,
            Some(address) => Some(address.to_owned()),
            None => {
                let http = self.http_listen.as_deref().unwrap_or(&own.http);
                let (host, _) = http.rsplit_once(':')?;
                Some(format!("{host}:{DEFAULT_ZOOKEEPER_PORT}"))
            }
        }
    }
}

/// Reads the nodes of the cluster in `dir`, sorted by id; empty if there is no cluster.
pub fn read(dir: &Path) -> anyhow::Result<Vec<LocalNode>> {
    let mut nodes = Vec::new();
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(nodes),
        Err(error) => return Err(error).with_context(|| dir.display().to_string()),
    };
    for entry in entries {
        let name = entry.with_context(|| dir.display().to_string())?.file_name();
        let id = name.to_str().and_then(|name| name.strip_prefix("node-"));
        let Some(id) = id.and_then(|id| id.parse::<NodeId>().ok()) else {
            continue;
        };
        let dir = dir.join(name);
        let file = dir.join("config.toml");
        if !file.exists() {
            continue;
        }
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let settings: NodeSettings = toml::from_str(&text).with_context(|| file.display().to_string())?;
        ensure!(settings.node_id == id, "{}: node_id is not {id}", file.display());
        let own = settings.members.get(&id.to_string());
        let own = own.with_context(|| format!("{}: no address of node {id}", file.display()))?;
        nodes.push(LocalNode {
            id,
            dir,
            http: own.http.clone(),
            peer: own.peer.clone(),
            zookeeper: settings.zookeeper_address(own),
            redis: settings.redis_listen.filter(|address| address != NOT_SERVED),
            requires_access: settings.access.required,
        });
    }
    nodes.sort_by_key(|node| node.id);
    Ok(nodes)
}

/// Configures one more node for a cluster of `nodes`, with the settings of the first of them. The new node
/// waits until the others add it.
pub fn add(nodes: &[LocalNode], id: NodeId) -> anyhow::Result<LocalNode> {
    let first = nodes.first().context("a cluster has a node")?;
    ensure!(
        (nodes.len() as u64) < MAX_NODES,
        "a cluster on one machine has 1 to {MAX_NODES} nodes"
    );
    ensure!(id > 0, "ids of nodes start at 1");
    let [peer, http, zookeeper] = match bases(nodes) {
        Some(bases) => {
            let mut addresses = [const { String::new() }; 3];
            for (address, base) in addresses.iter_mut().zip(bases) {
                let port = u16::try_from(u64::from(base) + id).context("the ports end at 65535")?;
                *address = local(port);
                check_free(id, address)?;
            }
            addresses
        }
        None => match free_ports(3)?[..] {
            [peer, http, zookeeper] => [peer, http, zookeeper].map(local),
            _ => bail!("too few free ports"),
        },
    };
    let zookeeper = first.zookeeper.is_some().then_some(zookeeper);
    let redis = redis_address(nodes, id)?;
    let text = fs::read_to_string(first.config_file()).context("reading a configuration to start from")?;
    let mut table: toml::Table = text.parse().context("reading a configuration to start from")?;
    let number = i64::try_from(id).context("the id is too large")?;
    table.insert("node_id".into(), number.into());
    table.insert("join".into(), true.into());
    let listen = zookeeper.as_deref().unwrap_or(NOT_SERVED);
    table.insert("zookeeper_listen".into(), listen.into());
    let listen = redis.as_deref().unwrap_or(NOT_SERVED);
    table.insert("redis_listen".into(), listen.into());
    let mut members = toml::Table::new();
    let others = nodes.iter().map(|node| (node.id, &node.peer, &node.http));
    for (id, peer, http) in others.chain([(id, &peer, &http)]) {
        let mut member = toml::Table::new();
        member.insert("peer".into(), peer.as_str().into());
        member.insert("http".into(), http.as_str().into());
        members.insert(id.to_string(), member.into());
    }
    table.insert("members".into(), members.into());
    let parent = first
        .dir
        .parent()
        .context("a node's directory is in the cluster's")?;
    let dir = parent.join(format!("node-{id}"));
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let node = LocalNode {
        id,
        dir,
        http,
        peer,
        zookeeper,
        redis,
        requires_access: first.requires_access,
    };
    let file = node.config_file();
    fs::write(
        &file,
        format!("# Written by `lockgate member add`. All settings and their defaults: cluster/node-1.toml in the sources.\n{table}"),
    )
    .with_context(|| file.display().to_string())?;
    Ok(node)
}

/// Renames the directory of a node that was removed, and returns the new path.
pub fn put_aside(node: &LocalNode) -> anyhow::Result<PathBuf> {
    let aside = node.dir.with_extension("removed");
    fs::rename(&node.dir, &aside).with_context(|| node.dir.display().to_string())?;
    Ok(aside)
}

/// Returns the ports of a fictitious node 0, for peers, HTTP and ZooKeeper clients, if all nodes' ports
/// follow their ids. The standard base port is assumed for nodes that do not serve ZooKeeper clients.
fn bases(nodes: &[LocalNode]) -> Option<[u16; 3]> {
    let mut all = nodes.iter().map(|node| {
        let zookeeper = match &node.zookeeper {
            Some(address) => base(address, node.id)?,
            None => ZOOKEEPER_BASE_PORT,
        };
        Some([base(&node.peer, node.id)?, base(&node.http, node.id)?, zookeeper])
    });
    let first = all.next()??;
    // Any ports of a single node follow its id; only the standard ones are certainly no coincidence.
    let standard = first == [PEER_BASE_PORT, HTTP_BASE_PORT, ZOOKEEPER_BASE_PORT];
    (all.all(|other| other == Some(first)) && (nodes.len() > 1 || standard)).then_some(first)
}

/// Returns the port of a fictitious node 0 if the port of this node follows its id.
fn base(address: &str, id: NodeId) -> Option<u16> {
    let port: u16 = address.strip_prefix("127.0.0.1:")?.parse().ok()?;
    port.checked_sub(u16::try_from(id).ok()?)
}

/// Returns the address for Redis clients of one more node; `None` if the first node does not serve them.
fn redis_address(nodes: &[LocalNode], id: NodeId) -> anyhow::Result<Option<String>> {
    let mut bases = nodes.iter().map(|node| base(node.redis.as_deref()?, node.id));
    let Some(first) = nodes.first().filter(|first| first.redis.is_some()) else {
        return Ok(None);
    };
    let base = base(first.redis.as_deref().unwrap_or_default(), first.id);
    let follows = base.is_some() && bases.all(|other| other == base);
    let base = base.filter(|base| follows && (nodes.len() > 1 || *base == REDIS_BASE_PORT));
    redis_port(base, id).map(Some)
}

/// Returns an address for Redis clients: of the port that follows the node's id, or without a base of a free one.
fn redis_port(base: Option<u16>, id: NodeId) -> anyhow::Result<String> {
    let Some(base) = base else {
        return Ok(local(free_ports(1)?[0]));
    };
    let port = u16::try_from(u64::from(base) + id).context("the ports end at 65535")?;
    check_free(id, &local(port))?;
    Ok(local(port))
}

/// Adds an address for Redis clients to the configurations of a new cluster: `base` + N for node N, or without a base a free port.
pub fn serve_redis(nodes: &mut BTreeMap<NodeId, LocalNode>, base: Option<u16>) -> anyhow::Result<()> {
    let addresses: anyhow::Result<Vec<_>> = nodes.keys().map(|id| redis_port(base, *id)).collect();
    for (node, address) in nodes.values_mut().zip(addresses?) {
        let file = node.config_file();
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let line = format!("redis_listen = \"{address}\"\nzookeeper_listen = ");
        let text = text.replacen("zookeeper_listen = ", &line, 1);
        fs::write(&file, text).with_context(|| file.display().to_string())?;
        node.redis = Some(address);
    }
    Ok(())
}

fn local(port: u16) -> String {
    format!("{}:{port}", Ipv4Addr::LOCALHOST)
}

/// Writes the configurations of a new cluster of `count` nodes to `dir`. `settings` is added to each: lines
/// of TOML.
pub fn create(dir: &Path, count: u64, ports: Ports, settings: &str) -> anyhow::Result<Vec<LocalNode>> {
    ensure!(
        (1..=MAX_NODES).contains(&count),
        "a cluster on one machine has 1 to {MAX_NODES} nodes"
    );
    let addresses = addresses(count, ports)?;
    // Check before writing, because written configurations are not changed later. Ports that were just found
    // free need no check.
    if let Ports::Fixed { .. } = ports {
        for (id, (member, zookeeper)) in &addresses {
            for address in [&member.http, &member.peer, zookeeper] {
                check_free(*id, address)?;
            }
        }
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    // The nodes' configurations contain paths; a relative directory would depend on the working directory.
    let dir = dir.canonicalize().with_context(|| dir.display().to_string())?;
    for id in addresses.keys() {
        let dir = dir.join(format!("node-{id}"));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        let file = dir.join("config.toml");
        fs::write(&file, configuration(*id, &addresses, settings))
            .with_context(|| file.display().to_string())?;
    }
    read(&dir)
}

/// Addresses of each node: as a member, and for ZooKeeper clients.
type Addresses = BTreeMap<NodeId, (MemberAddress, String)>;

fn addresses(count: u64, ports: Ports) -> anyhow::Result<Addresses> {
    let mut free = match ports {
        Ports::Fixed { .. } => Vec::new(),
        Ports::Free => free_ports(3 * count as usize)?,
    };
    (1..=count)
        .map(|id| {
            let (peer, http, zookeeper) = match ports {
                Ports::Fixed {
                    http,
                    peer,
                    zookeeper,
                } => {
                    let at = |base: u16| base.checked_add(id as u16).context("the ports end at 65535");
                    (at(peer)?, at(http)?, at(zookeeper)?)
                }
                Ports::Free => match (free.pop(), free.pop(), free.pop()) {
                    (Some(peer), Some(http), Some(zookeeper)) => (peer, http, zookeeper),
                    _ => bail!("too few free ports"),
                },
            };
            let member = MemberAddress {
                peer: local(peer),
                http: local(http),
            };
            Ok((id, (member, local(zookeeper))))
        })
        .collect()
}

fn configuration(id: NodeId, addresses: &Addresses, settings: &str) -> String {
    let mut text = format!(
        "# Written by `lockgate dev up`. All settings and their defaults: cluster/node-1.toml in the sources.\n\
         node_id = {id}\ncluster = \"{CLUSTER}\"\ndata_dir = \"data\"\npid_file = \"pid\"\nzookeeper_listen = \"{}\"\n",
        addresses[&id].1
    );
    let mut write = |line: std::fmt::Arguments| text.write_fmt(line).expect("a String takes all");
    write(format_args!("{}\n", settings.trim_end()));
    for (id, (member, _)) in addresses {
        write(format_args!(
            "\n[members.{id}]\npeer = \"{}\"\nhttp = \"{}\"\n",
            member.peer, member.http
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn created_cluster_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), []);
        // `free_ports` does not reserve the consecutive ports of the cluster, so another process may use one
        // of them.
        let mut attempts = (0..100).map(|_| {
            let base = free_ports(1).unwrap()[0];
            let ports = Ports::Fixed {
                http: base,
                peer: base + 10,
                zookeeper: base + 20,
            };
            create(dir.path(), 3, ports, "").map(|created| (base, created))
        });
        let (base, created) = attempts.find_map(Result::ok).unwrap();
        assert_eq!(created, read(&dir.path().canonicalize().unwrap()).unwrap());
        assert_eq!(created[2].http, format!("127.0.0.1:{}", base + 3));
        assert_eq!(created[2].peer, format!("127.0.0.1:{}", base + 13));
        assert_eq!(created[2].zookeeper, Some(format!("127.0.0.1:{}", base + 23)));
    }

    #[test]
    fn added_node_continues_the_ports_and_settings() {
        let dir = tempfile::tempdir().unwrap();
        let base = free_ports(1).unwrap()[0];
        let ports = Ports::Fixed {
            http: base,
            peer: base + 10,
            zookeeper: base + 20,
        };
        let created = create(dir.path(), 3, ports, "[raft]\nheartbeat_ms = 50\n").unwrap();
        let mut created: BTreeMap<_, _> = created.into_iter().map(|node| (node.id, node)).collect();
        serve_redis(&mut created, Some(base + 30)).unwrap();
        let created: Vec<_> = created.into_values().collect();
        assert_eq!(created, read(&dir.path().canonicalize().unwrap()).unwrap());
        assert_eq!(created[1].redis, Some(format!("127.0.0.1:{}", base + 32)));
        let added = add(&created, 7).unwrap();
        assert_eq!(added.http, format!("127.0.0.1:{}", base + 7));
        assert_eq!(added.redis, Some(format!("127.0.0.1:{}", base + 37)));
        let text = fs::read_to_string(added.config_file()).unwrap();
        let table: toml::Table = text.parse().unwrap();
        assert_eq!(table["join"].as_bool(), Some(true));
        assert_eq!(table["raft"]["heartbeat_ms"].as_integer(), Some(50));
        assert_eq!(table["members"].as_table().unwrap().len(), 4);
        let all = read(&dir.path().canonicalize().unwrap()).unwrap();
        assert_eq!(all.iter().map(|node| node.id).collect::<Vec<_>>(), [1, 2, 3, 7]);
        let aside = put_aside(&all[1]).unwrap();
        assert!(aside.ends_with("node-2.removed"));
        assert_eq!(read(dir.path()).unwrap().len(), 3);

        let elsewhere = tempfile::tempdir().unwrap();
        let free = create(elsewhere.path(), 2, Ports::Free, "").unwrap();
        assert!(!free.contains(&add(&free, 3).unwrap()));
    }
}
