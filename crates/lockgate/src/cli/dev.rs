//! `lockgate dev`: starts, stops and kills the nodes of a cluster on this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, bail, ensure};
use clap::{Args, Subcommand};
use cli_support::format::Output;
use cli_support::output::{say, shown};
use local_cluster::secured::SETTINGS as SECURED;
use local_cluster::{
    HTTP_BASE_PORT, LocalCluster, NodeReport, PEER_BASE_PORT, Ports, REDIS_BASE_PORT, START_TIMEOUT,
    STOP_TIMEOUT, ZOOKEEPER_BASE_PORT, mixed_directories,
};
use lock_node::{Alarm, NodeId, Role, SnapshotMade};

/// Default number of nodes of a new cluster: the fewest that survive the loss of one.
const DEFAULT_NODES: u64 = 3;

/// Directory of a local cluster.
#[derive(Debug, Args)]
pub struct Dir {
    /// Directory of the cluster
    #[arg(long, default_value = "lockgate-data")]
    dir: PathBuf,
}

/// Node as a command names it.
#[derive(Debug, Clone, Copy)]
pub enum NodeName {
    /// The current leader.
    Leader,
    /// A node by its id.
    Id(NodeId),
}

impl FromStr for NodeName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "leader" => Ok(Self::Leader),
            id => id
                .parse()
                .map(Self::Id)
                .map_err(|_| format!("{id:?} is neither a node's id nor \"leader\"")),
        }
    }
}

/// Commands on a local cluster.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start all nodes that are not running, and wait until they serve
    Up {
        #[command(flatten)]
        dir: Dir,
        /// Number of nodes of a new cluster (3 if not given)
        #[arg(long)]
        nodes: Option<u64>,
        /// Number of additional learners of a new cluster, which replicate everything and have no vote:
        /// observers
        #[arg(long, value_name = "COUNT")]
        learners: Option<u64>,
        /// Node N of a new cluster serves HTTP on this port + N (7400 if not given)
        #[arg(long, value_name = "PORT", conflicts_with = "ephemeral_ports")]
        http_base_port: Option<u16>,
        /// Node N of a new cluster listens for its peers on this port + N (7500 if not given)
        #[arg(long, value_name = "PORT", conflicts_with = "ephemeral_ports")]
        peer_base_port: Option<u16>,
        /// Node N of a new cluster serves clients of ZooKeeper on this port + N (2180 if not given)
        #[arg(long, value_name = "PORT", conflicts_with = "ephemeral_ports")]
        zookeeper_base_port: Option<u16>,
        /// Serve Redis clients, too: node N of a new cluster on port 6380 + N
        #[arg(long)]
        redis: bool,
        /// Use any free ports for a new cluster
        #[arg(long)]
        ephemeral_ports: bool,
        /// Create certificates for a new cluster, which then uses only TLS
        #[arg(long)]
        tls: bool,
        /// Secure the cluster: roles decide what each caller may do, and DIR/admin.token is its
        /// administrator's token
        #[arg(long)]
        secure: bool,
        #[command(flatten)]
        output: Output,
    },
    /// Stop all nodes; their data stays
    Down {
        #[command(flatten)]
        dir: Dir,
    },
    /// Show the process, role, address and data directory of every node
    Status {
        #[command(flatten)]
        dir: Dir,
        #[command(flatten)]
        output: Output,
    },
    /// Make nodes write a snapshot of their state now, and truncate their logs
    Snapshot {
        #[command(flatten)]
        dir: Dir,
        /// Only this node: its id, or "leader"
        #[arg(long)]
        node: Option<NodeName>,
    },
    /// Kill a node with SIGKILL; `dev up` starts it again
    Kill {
        #[command(flatten)]
        dir: Dir,
        /// The node's id, or "leader"
        node: NodeName,
    },
    /// Stop a node gracefully, after it has transferred leadership; `dev up` starts it again
    Stop {
        #[command(flatten)]
        dir: Dir,
        /// The node's id, or "leader"
        node: NodeName,
    },
}

/// Runs a command.
pub async fn run(command: Command) -> anyhow::Result<()> {
    let executable = std::env::current_exe().context("finding this program's own file")?;
    let open = |dir: &Dir| LocalCluster::open(&dir.dir, &executable);
    match command {
        Command::Up {
            dir,
            nodes,
            learners,
            http_base_port,
            peer_base_port,
            zookeeper_base_port,
            redis,
            ephemeral_ports,
            tls,
            secure,
            output,
        } => {
            let ports = match (http_base_port, peer_base_port, zookeeper_base_port) {
                _ if ephemeral_ports => Some(Ports::Free),
                (None, None, None) => None,
                (http, peer, zookeeper) => Some(Ports::Fixed {
                    http: http.unwrap_or(HTTP_BASE_PORT),
                    peer: peer.unwrap_or(PEER_BASE_PORT),
                    zookeeper: zookeeper.unwrap_or(ZOOKEEPER_BASE_PORT),
                }),
            };
            let wanted = UpOptions {
                nodes,
                learners,
                ports,
                redis,
                tls,
                secure,
            };
            up(&dir.dir, &executable, wanted, output).await
        }
        Command::Down { dir } => {
            let mut cluster = open(&dir)?;
            // One by one, so that each node can transfer leadership. Stopping all at once would leave the
            // last ones without a quorum; no data would be lost, but their callers would get errors.
            for id in cluster.ids() {
                let ran = cluster.pid(id)?.is_some();
                let orderly = cluster.stop(id, STOP_TIMEOUT).await?;
                say(match (ran, orderly) {
                    (false, _) => format!("node {id} was not running"),
                    (true, true) => format!("node {id} has stopped"),
                    (true, false) => format!("node {id} did not stop in time and was killed"),
                })?;
            }
            Ok(())
        }
        Command::Status { dir, output } => {
            let reports = open(&dir)?.status().await?;
            output.say(&reports, || table(&reports))
        }
        Command::Snapshot { dir, node } => {
            let cluster = open(&dir)?;
            let ids = match node {
                Some(node) => vec![named(&cluster, node).await?],
                None => cluster.ids(),
            };
            for id in ids {
                let SnapshotMade {
                    index,
                    bytes,
                    duration_ms,
                    ..
                } = cluster.snapshot(id).await?;
                say(format!(
                    "node {id} has a snapshot up to entry {index}: {bytes} bytes in {duration_ms} ms"
                ))?;
            }
            Ok(())
        }
        Command::Kill { dir, node } => {
            let mut cluster = open(&dir)?;
            let id = named(&cluster, node).await?;
            ensure!(cluster.kill(id).await?, "node {id} is not running");
            say(format!("node {id} is dead; `lockgate dev up` starts it again"))
        }
        Command::Stop { dir, node } => {
            let mut cluster = open(&dir)?;
            let id = named(&cluster, node).await?;
            ensure!(
                cluster.stop(id, STOP_TIMEOUT).await?,
                "node {id} did not stop in time and was killed"
            );
            say(format!(
                "node {id} has stopped; `lockgate dev up` starts it again"
            ))
        }
    }
}

async fn named(cluster: &LocalCluster, node: NodeName) -> anyhow::Result<NodeId> {
    match node {
        NodeName::Leader => cluster.leader(START_TIMEOUT).await,
        NodeName::Id(id) => Ok(id),
    }
}

/// Options of `lockgate dev up`.
struct UpOptions {
    nodes: Option<u64>,
    learners: Option<u64>,
    ports: Option<Ports>,
    redis: bool,
    tls: bool,
    secure: bool,
}

async fn up(dir: &Path, executable: &Path, wanted: UpOptions, output: Output) -> anyhow::Result<()> {
    let UpOptions {
        nodes,
        learners,
        ports,
        redis,
        tls,
        secure,
    } = wanted;
    let mut cluster = match LocalCluster::open(dir, executable) {
        Ok(cluster) => {
            let count = cluster.ids().len() as u64;
            if nodes.is_some_and(|wanted| wanted != count)
                || learners.is_some()
                || ports.is_some()
                || (redis && cluster.nodes().any(|node| node.redis.is_none()))
                || (tls && !cluster.is_secured())
            {
                bail!(
                    "{} already has a cluster of {count} nodes, whose size, ports and certificates do not change: omit these \
                     options, or use another --dir; `lockgate member add` adds a node",
                    dir.display()
                );
            }
            cluster
        }
        Err(_) => {
            let standard = Ports::Fixed {
                http: HTTP_BASE_PORT,
                peer: PEER_BASE_PORT,
                zookeeper: ZOOKEEPER_BASE_PORT,
            };
            let count = nodes.unwrap_or(DEFAULT_NODES);
            let ports = ports.unwrap_or(standard);
            let settings = if secure { SECURED } else { "" };
            let mut cluster = match tls {
                true => LocalCluster::create_secured(dir, executable, count, ports, settings)?,
                false => LocalCluster::create(dir, executable, count, ports, settings)?,
            };
            if redis {
                cluster.serve_redis((ports != Ports::Free).then_some(REDIS_BASE_PORT))?;
            }
            cluster
        }
    };
    let mut started = cluster.up(START_TIMEOUT).await?;
    // Also a cluster whose securing was interrupted.
    if secure || cluster.requires_access() {
        cluster.secure().await?;
    }
    // A node knows its role a moment after it can serve; the table should show it.
    cluster.leader(START_TIMEOUT).await?;
    for _ in 0..learners.unwrap_or(0) {
        started.push(cluster.add_learner(None).await?.0);
    }
    let reports = cluster.status().await?;
    if output.is_document() {
        return output.say(&reports, String::new);
    }
    say(match started.len() {
        0 => format!("All nodes in {} were already running.", dir.display()),
        count => format!("Started {count} of {} nodes in {}.", reports.len(), dir.display()),
    })?;
    say(table(&reports))?;
    let redis: Vec<_> = cluster.nodes().filter_map(|node| node.redis.as_deref()).collect();
    if !redis.is_empty() {
        say(format!("\nRedis clients: {}.", redis.join(", ")))?;
    }
    if let Some(file) = cluster.admin_token_file() {
        say(format!(
            "\nThe cluster is secured. {} is its administrator's token, for --token-file.",
            file.display()
        ))?;
    }
    say(next_steps(&reports, dir, &cluster))
}

fn table(reports: &[NodeReport]) -> String {
    let here = std::env::current_dir().unwrap_or_default();
    let mut text = String::from("node  pid      role       url                     data");
    for report in reports {
        let pid = report.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let role = match (report.pid, report.role) {
            (None, _) => "dead",
            (_, None) => "silent",
            (_, Some(_)) if !report.ready => "not ready",
            (_, Some(Role::Leader)) => "leader",
            (_, Some(Role::Follower)) => "follower",
            (_, Some(Role::Candidate)) => "candidate",
            (_, Some(Role::Learner)) => "learner",
        };
        let data = report
            .data_dir
            .strip_prefix(&here)
            .unwrap_or(&report.data_dir)
            .display();
        let (id, url) = (report.id, &report.url);
        text.push_str(&format!("\n{id:<4}  {pid:<7}  {role:<9}  {url:<22}  {data}"));
    }
    if let Some(warning) = mixed_directories(reports) {
        text.push_str(&format!("\n\nNote: {warning}."));
    }
    for alarm in alarms(reports) {
        let of = alarm
            .node_id
            .map_or("the cluster".to_owned(), |id| format!("node {id}"));
        let kind = alarm.kind.word();
        text.push_str(&format!("\n\nALARM {kind} of {of}: {}", shown(&alarm.detail)));
        text.push_str(&format!("\n  What to do: {}", shown(&alarm.action)));
    }
    text
}

/// Returns each alarm once: every node reports all of them.
fn alarms(reports: &[NodeReport]) -> Vec<&Alarm> {
    let mut alarms = BTreeMap::new();
    for alarm in reports.iter().flat_map(|report| &report.alarms) {
        alarms.entry((alarm.kind, alarm.node_id)).or_insert(alarm);
    }
    alarms.into_values().collect()
}

fn next_steps(reports: &[NodeReport], dir: &Path, cluster: &LocalCluster) -> String {
    let secured = cluster.is_secured();
    let admin = cluster.admin_token_file();
    // With TLS curl needs the authority and a client certificate.
    let curl = match secured {
        true => {
            let file = |name| dir.join(name).display().to_string();
            let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
            format!("curl -s --cacert {ca} --cert {cert} --key {key}")
        }
        false => "curl -s".to_owned(),
    };
    // The header comes from standard input, because other users can see the arguments of a program.
    let curl = match &admin {
        Some(file) => format!(
            "sed 's/^/Authorization: Bearer /' {} | {curl} -H @-",
            file.display()
        ),
        None => curl,
    };
    let first = &reports[0].url;
    let last = &reports[reports.len() - 1].url;
    // The name by which this program was called: it need not be on the search path.
    let lockgate = std::env::args().next().unwrap_or_else(|| "lockgate".to_owned());
    let dir = match dir == Path::new("lockgate-data") {
        true => String::new(),
        false => format!(" --dir {}", dir.display()),
    };
    let bench = match secured || admin.is_some() || !cfg!(feature = "bench") {
        // The load generator for locks has neither TLS nor tokens.
        true => String::new(),
        false => format!("\n  {lockgate} bench lock{dir} --clients 1,16,64"),
    };
    format!(
        "\nWhat to try next:\n\
         \n  # A session holds your locks. It ends after ttl_ms without a heartbeat.\
         \n  {curl} {first}/v1/sessions -d '{{\"ttl_ms\": 60000}}'\
         \n  # Acquire a lock at one node, and show it at another.\
         \n  {curl} {first}/v1/locks/orders/42/acquire -d '{{\"session\": \"SESSION\"}}'\
         \n  {curl} {last}/v1/locks/orders/42\
         \n  # Kill the leader. The lock is still held.\
         \n  {lockgate} dev kill leader{dir}\
         \n  {curl} {last}/v1/locks/orders/42\
         \n  {lockgate} dev up{dir}\
         \n  # Measure, and stop.\
         {bench}\
         \n  {lockgate} dev down{dir}"
    )
}
