//! `lockgate cluster add`, `remove`, `promote` and others: changes of the membership, of a cluster on this
//! machine or anywhere.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use cli_support::connection_options::{ConnectionOptions, addresses};
use cli_support::credentials::Credentials;
use cli_support::usage::UsageError;
use local_cluster::members::{ChangeResult, Members};
use local_cluster::{LocalCluster, STOP_TIMEOUT};
use lock_node::{MemberAddress, NodeId};

use super::NodeName;

/// Cluster to change.
#[derive(Debug, Args)]
pub struct ClusterLocation {
    /// Directory of a cluster on this machine
    #[arg(long, default_value = "lockgate-data")]
    dir: PathBuf,
    /// Address of a node's HTTP API of a cluster elsewhere (HOST:PORT), instead of --dir
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "dir")]
    node: Vec<String>,
    /// For --node; a cluster on this machine has its own credentials
    #[command(flatten)]
    secured: ConnectionOptions,
}

/// Changes of the membership.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the members of the cluster
    Members {
        #[command(flatten)]
        at: ClusterLocation,
    },
    /// Add a node as a learner, which replicates everything and has no vote. In a cluster on this machine the
    /// node is also configured and started; elsewhere start it before, with `join = true`
    Add {
        #[command(flatten)]
        at: ClusterLocation,
        /// The new node's id, never used before (in a cluster on this machine: the next one)
        id: Option<NodeId>,
        /// Address of the new node for its peers
        #[arg(long, value_name = "HOST:PORT", requires = "node")]
        peer: Option<String>,
        /// Address of the new node for HTTP
        #[arg(long, value_name = "HOST:PORT", requires = "node")]
        http: Option<String>,
        /// Promote it as soon as it has caught up
        #[arg(long)]
        voter: bool,
        /// Time to catch up, in seconds
        #[arg(long, default_value_t = 300)]
        wait_s: u64,
    },
    /// Promote a learner to a voter as soon as it has caught up
    Promote {
        #[command(flatten)]
        at: ClusterLocation,
        /// The node's id
        id: NodeId,
        /// Time to catch up, in seconds
        #[arg(long, default_value_t = 300)]
        wait_s: u64,
    },
    /// Demote a voter to a learner
    Demote {
        #[command(flatten)]
        at: ClusterLocation,
        /// The node's id, or "leader"
        id: NodeName,
        /// Also if the remaining voters have no majority now
        #[arg(long)]
        force: bool,
    },
    /// Remove a node, dead or alive, permanently. In a cluster on this machine its process is stopped and its
    /// files are moved aside
    Remove {
        #[command(flatten)]
        at: ClusterLocation,
        /// The node's id, or "leader"
        id: NodeName,
        /// Also if the remaining voters have no majority now
        #[arg(long)]
        force: bool,
    },
    /// Replace a node that lost its data directory, was restored from an old one, or has a wrong state: the
    /// new node replicates everything from the others and gets a vote, then the old one is removed. In a
    /// cluster on this machine the new node is also configured and started; elsewhere start it before, with
    /// `join = true`
    Replace {
        #[command(flatten)]
        at: ClusterLocation,
        /// Id of the old node
        id: NodeId,
        /// The new node's id, never used before (in a cluster on this machine: the next one)
        #[arg(long, value_name = "ID")]
        with: Option<NodeId>,
        /// Address of the new node for its peers
        #[arg(long, value_name = "HOST:PORT", requires = "node")]
        peer: Option<String>,
        /// Address of the new node for HTTP
        #[arg(long, value_name = "HOST:PORT", requires = "node")]
        http: Option<String>,
        /// Time to catch up, in seconds
        #[arg(long, default_value_t = 300)]
        wait_s: u64,
    },
    /// Move leadership to another voter
    MoveLeader {
        #[command(flatten)]
        at: ClusterLocation,
        /// Id of the new leader (the voter with most of the log if not given)
        id: Option<NodeId>,
    },
    /// Set the addresses of a node. A node whose own configuration changes announces them itself
    SetAddress {
        #[command(flatten)]
        at: ClusterLocation,
        /// The node's id
        id: NodeId,
        /// Address of the node for its peers
        #[arg(long, value_name = "HOST:PORT")]
        peer: String,
        /// Address of the node for HTTP
        #[arg(long, value_name = "HOST:PORT")]
        http: String,
    },
}

/// Runs a command. Returns its report.
pub async fn run(command: Command, executable: &Path) -> anyhow::Result<String> {
    match command {
        Command::Members { at } => members(&at, executable)?.table().await,
        Command::Add {
            at,
            id,
            peer,
            http,
            voter,
            wait_s,
        } => {
            let wait = voter.then(|| Duration::from_secs(wait_s));
            match at.node.is_empty() {
                true => add_local(&at.dir, executable, id, wait).await,
                false => add_elsewhere(&at, executable, (id, peer, http), wait).await,
            }
        }
        Command::Promote { at, id, wait_s } => {
            let mut members = members(&at, executable)?;
            let promoted = members.promote(id, Duration::from_secs(wait_s)).await?;
            Ok(said(&promoted, format!("node {id} has a vote")))
        }
        Command::Demote { at, id, force } => {
            let mut members = members(&at, executable)?;
            let id = named(&mut members, id).await?;
            let demoted = members.demote(id, force).await?;
            Ok(said(&demoted, format!("node {id} is a learner")))
        }
        Command::Remove { at, id, force } => {
            let id = named(&mut members(&at, executable)?, id).await?;
            remove(&at, executable, id, force).await
        }
        Command::Replace {
            at,
            id,
            with,
            peer,
            http,
            wait_s,
        } => {
            members(&at, executable)?.require(id).await?;
            let wait = Some(Duration::from_secs(wait_s));
            let added = match at.node.is_empty() {
                true => add_local(&at.dir, executable, with, wait).await?,
                false => add_elsewhere(&at, executable, (with, peer, http), wait).await?,
            };
            let removed = remove(&at, executable, id, false).await?;
            Ok(format!("{added}\n{removed}"))
        }
        Command::MoveLeader { at, id } => {
            let mut members = members(&at, executable)?;
            let moved = members.move_leader(id).await?;
            let leader = match id {
                Some(id) => id,
                None => members.leader().await?,
            };
            Ok(said(&moved, format!("node {leader} leads")))
        }
        Command::SetAddress { at, id, peer, http } => {
            let address = member_address(peer, http)?;
            let mut members = members(&at, executable)?;
            let set = members.set_address(id, &address).await?;
            let MemberAddress { peer, http } = address;
            Ok(said(
                &set,
                format!("node {id} has the address {peer} for its peers and {http} for clients"),
            ))
        }
    }
}

/// Adds a node that waits on another machine.
async fn add_elsewhere(
    at: &ClusterLocation,
    executable: &Path,
    (id, peer, http): (Option<NodeId>, Option<String>, Option<String>),
    wait: Option<Duration>,
) -> anyhow::Result<String> {
    let (Some(id), Some(peer), Some(http)) = (id, peer, http) else {
        let message = "to add a node elsewhere, give its id, --peer and --http";
        return Err(UsageError(message.to_owned()).into());
    };
    let address = member_address(peer, http)?;
    let mut members = members(at, executable)?;
    let added = members.add(id, &address).await?;
    let said = said(&added, format!("node {id} is a learner"));
    promoted(&mut members, id, wait, said).await
}

/// Removes a member. In a cluster on this machine its process is stopped and its files are moved aside.
async fn remove(at: &ClusterLocation, executable: &Path, id: NodeId, force: bool) -> anyhow::Result<String> {
    let removed = members(at, executable)?.remove(id, force).await?;
    let mut text = said(&removed, format!("node {id} is not a member"));
    if at.node.is_empty() {
        let mut cluster = LocalCluster::open(&at.dir, executable)?;
        if cluster.node(id).is_ok() {
            let aside = cluster.put_aside(id, STOP_TIMEOUT).await?;
            text.push_str(&format!("\nIts files are in {} now.", aside.display()));
        }
    }
    Ok(text)
}

/// Configures and starts a new node on this machine, and adds it.
async fn add_local(
    dir: &Path,
    executable: &Path,
    id: Option<NodeId>,
    wait: Option<Duration>,
) -> anyhow::Result<String> {
    let mut cluster = LocalCluster::open(dir, executable)?;
    let (id, added) = cluster.add_learner(id).await?;
    let url = cluster.url_of(cluster.node(id)?);
    let said = said(&added, format!("node {id} is a learner and serves at {url}"));
    promoted(&mut cluster.members()?, id, wait, said).await
}

/// Promotes an added node if `wait` is given.
async fn promoted(
    members: &mut Members,
    id: NodeId,
    wait: Option<Duration>,
    said_before: String,
) -> anyhow::Result<String> {
    let Some(wait) = wait else {
        return Ok(format!(
            "{said_before}\nGive it a vote with `lockgate cluster promote {id}`."
        ));
    };
    let promoted = members.promote(id, wait).await?;
    Ok(format!(
        "{said_before}\n{}",
        said(&promoted, format!("node {id} has a vote"))
    ))
}

fn members(at: &ClusterLocation, executable: &Path) -> anyhow::Result<Members> {
    match at.node.is_empty() {
        true => LocalCluster::open(&at.dir, executable)?.members(),
        false => {
            let credentials = at.secured.credentials()?;
            let nodes = addresses("--node", &at.node, &credentials)?;
            Ok(Members::at(&nodes).with(credentials))
        }
    }
}

/// Checks the addresses of a node. The other nodes must be able to connect to both.
fn member_address(peer: String, http: String) -> Result<MemberAddress, UsageError> {
    for (option, address) in [("--peer", &peer), ("--http", &http)] {
        addresses(option, std::slice::from_ref(address), &Credentials::default())?;
    }
    Ok(MemberAddress { peer, http })
}

async fn named(members: &mut Members, node: NodeName) -> anyhow::Result<NodeId> {
    match node {
        NodeName::Leader => members.leader().await,
        NodeName::Id(id) => Ok(id),
    }
}

fn said(changed: &ChangeResult, now: String) -> String {
    let mut text = match changed.changed {
        true => now,
        false => format!("{now}, as before"),
    };
    for warning in &changed.warnings {
        text.push_str(&format!("\nNote: {warning}."));
    }
    text
}
