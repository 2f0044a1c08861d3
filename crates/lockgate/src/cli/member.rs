//! `lockgate member`: members of a cluster, on this machine or anywhere, and changes of them.

use std::time::Duration;

use clap::{Args, Subcommand};
use cli_support::confirm::Confirmation;
use cli_support::connection_options::addresses;
use cli_support::credentials::Credentials;
use cli_support::format::Output;
use cli_support::output::shown;
use cli_support::usage::UsageError;
use local_cluster::STOP_TIMEOUT;
use local_cluster::location::{Location, Place};
use local_cluster::members::{ChangeResult, Members};
use lock_node::{MemberAddress, NodeId};
use serde_json::{Value, json};

use super::dev::NodeName;
use super::table::table;

/// Cluster of a command, and the format of its result.
#[derive(Debug, Args)]
pub struct Target {
    #[command(flatten)]
    location: Location,
    #[command(flatten)]
    output: Output,
}

impl Target {
    fn find(&self) -> anyhow::Result<Place> {
        self.location.find()
    }
}

/// Changes of the membership.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show the members of the cluster
    #[command(alias = "members")]
    List {
        #[command(flatten)]
        at: Target,
    },
    /// Add a node as a learner, which replicates everything and has no vote. In a cluster on this machine the
    /// node is also configured and started; elsewhere start it before, with `join = true`
    Add {
        #[command(flatten)]
        at: Target,
        /// The new node's id, never used before (in a cluster on this machine: the next one)
        id: Option<NodeId>,
        /// Address of the new node for its peers
        #[arg(long, value_name = "HOST:PORT", requires = "http")]
        peer: Option<String>,
        /// Address of the new node for HTTP
        #[arg(long, value_name = "HOST:PORT", requires = "peer")]
        http: Option<String>,
        /// Promote it as soon as it has caught up
        #[arg(long)]
        voter: bool,
        /// Time to catch up
        #[arg(long, value_name = "TIME", default_value = "5min", value_parser = humantime::parse_duration)]
        wait: Duration,
    },
    /// Promote a learner to a voter as soon as it has caught up
    Promote {
        #[command(flatten)]
        at: Target,
        /// The node's id
        id: NodeId,
        /// Time to catch up
        #[arg(long, value_name = "TIME", default_value = "5min", value_parser = humantime::parse_duration)]
        wait: Duration,
    },
    /// Demote a voter to a learner
    Demote {
        #[command(flatten)]
        at: Target,
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
        confirmation: Confirmation,
        #[command(flatten)]
        at: Target,
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
        confirmation: Confirmation,
        #[command(flatten)]
        at: Target,
        /// Id of the old node
        id: NodeId,
        /// The new node's id, never used before (in a cluster on this machine: the next one)
        #[arg(long, value_name = "ID")]
        with: Option<NodeId>,
        /// Address of the new node for its peers
        #[arg(long, value_name = "HOST:PORT", requires = "http")]
        peer: Option<String>,
        /// Address of the new node for HTTP
        #[arg(long, value_name = "HOST:PORT", requires = "peer")]
        http: Option<String>,
        /// Time to catch up
        #[arg(long, value_name = "TIME", default_value = "5min", value_parser = humantime::parse_duration)]
        wait: Duration,
    },
    /// Move leadership to another voter
    MoveLeader {
        #[command(flatten)]
        at: Target,
        /// Id of the new leader (the voter with most of the log if not given)
        id: Option<NodeId>,
    },
    /// Set the addresses of a node. A node whose own configuration changes announces them itself
    SetAddress {
        #[command(flatten)]
        at: Target,
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

impl Command {
    /// Returns the format of the result.
    fn output(&self) -> Output {
        match self {
            Self::List { at }
            | Self::Add { at, .. }
            | Self::Promote { at, .. }
            | Self::Demote { at, .. }
            | Self::Remove { at, .. }
            | Self::Replace { at, .. }
            | Self::MoveLeader { at, .. }
            | Self::SetAddress { at, .. } => at.output,
        }
    }
}

/// Result of a command, for people and for programs.
struct Report {
    text: String,
    document: Value,
}

impl Report {
    /// Creates the report of a change, after which this is true of the node.
    fn of(node: NodeId, change: &ChangeResult, now: String) -> Self {
        let mut text = match change.changed {
            true => now,
            false => format!("{now}, as before"),
        };
        for warning in &change.warnings {
            text.push_str(&format!("\nNote: {warning}."));
        }
        let document = json!({ "node_id": node, "changed": change.changed, "warnings": change.warnings });
        Self { text, document }
    }
}

/// Runs a command.
pub async fn run(command: Command) -> anyhow::Result<()> {
    let output = command.output();
    let Report { text, document } = report(command).await?;
    output.say(&document, || text)
}

/// Runs a command. Returns its report.
async fn report(command: Command) -> anyhow::Result<Report> {
    match command {
        Command::List { at } => {
            let mut status = at.find()?.members()?.status().await?;
            let text = members_table(&status);
            let document = status["members"].take();
            Ok(Report { text, document })
        }
        Command::Add {
            at,
            id,
            peer,
            http,
            voter,
            wait,
        } => {
            let wait = voter.then_some(wait);
            add(at.find()?, id, peer.zip(http), wait).await
        }
        Command::Promote { at, id, wait } => {
            let mut members = at.find()?.members()?;
            let promoted = members.promote(id, wait).await?;
            Ok(Report::of(id, &promoted, format!("node {id} has a vote")))
        }
        Command::Demote { at, id, force } => {
            let mut members = at.find()?.members()?;
            let id = named(&mut members, id).await?;
            let demoted = members.demote(id, force).await?;
            Ok(Report::of(id, &demoted, format!("node {id} is a learner")))
        }
        Command::Remove {
            at,
            id,
            force,
            confirmation,
        } => {
            let place = at.find()?;
            let id = named(&mut place.members()?, id).await?;
            confirmation.require(&format!("This removes node {id} from the cluster"))?;
            remove(place, id, force).await
        }
        Command::Replace {
            at,
            id,
            with,
            peer,
            http,
            wait,
            confirmation,
        } => {
            let place = at.find()?;
            place.members()?.require(id).await?;
            confirmation.require(&format!("This removes node {id} from the cluster"))?;
            let added = add(place, with, peer.zip(http), Some(wait)).await?;
            let removed = remove(at.find()?, id, false).await?;
            let text = format!("{}\n{}", added.text, removed.text);
            let document = json!({ "added": added.document, "removed": removed.document });
            Ok(Report { text, document })
        }
        Command::MoveLeader { at, id } => {
            let mut members = at.find()?.members()?;
            let moved = members.move_leader(id).await?;
            let leader = match id {
                Some(id) => id,
                None => members.leader().await?,
            };
            Ok(Report::of(leader, &moved, format!("node {leader} leads")))
        }
        Command::SetAddress { at, id, peer, http } => {
            let address = member_address(peer, http)?;
            let set = at.find()?.members()?.set_address(id, &address).await?;
            let MemberAddress { peer, http } = address;
            Ok(Report::of(
                id,
                &set,
                format!("node {id} has the address {peer} for its peers and {http} for clients"),
            ))
        }
    }
}

/// Adds a node: in a cluster on this machine it is configured and started; elsewhere it waits at its address.
async fn add(
    place: Place,
    id: Option<NodeId>,
    address: Option<(String, String)>,
    wait: Option<Duration>,
) -> anyhow::Result<Report> {
    let (mut members, id, mut report) = match (place, id, address) {
        (Place::Local(mut cluster), id, None) => {
            let (id, added) = cluster.add_learner(id).await?;
            let url = cluster.url_of(cluster.node(id)?);
            let now = format!("node {id} is a learner and serves at {url}");
            (cluster.members()?, id, Report::of(id, &added, now))
        }
        (place @ Place::Servers(_), Some(id), Some((peer, http))) => {
            let address = member_address(peer, http)?;
            let mut members = place.members()?;
            let added = members.add(id, &address).await?;
            let now = format!("node {id} is a learner");
            (members, id, Report::of(id, &added, now))
        }
        (Place::Local(_), _, Some(_)) => {
            let message =
                "a node of a cluster on this machine gets its addresses itself: omit --peer and --http";
            return Err(UsageError(message.to_owned()).into());
        }
        (Place::Servers(_), _, _) => {
            let message = "to add a node elsewhere, give its id, --peer and --http";
            return Err(UsageError(message.to_owned()).into());
        }
    };
    let Some(wait) = wait else {
        let next = format!("\nGive it a vote with `lockgate member promote {id}`.");
        report.text.push_str(&next);
        return Ok(report);
    };
    let promoted = members.promote(id, wait).await?;
    let promoted = Report::of(id, &promoted, format!("node {id} has a vote"));
    let text = format!("{}\n{}", report.text, promoted.text);
    let document = promoted.document;
    Ok(Report { text, document })
}

/// Removes a member. In a cluster on this machine its process is stopped and its files are moved aside.
async fn remove(place: Place, id: NodeId, force: bool) -> anyhow::Result<Report> {
    let removed = place.members()?.remove(id, force).await?;
    let mut report = Report::of(id, &removed, format!("node {id} is not a member"));
    if let Some(mut cluster) = place.local()
        && cluster.node(id).is_ok()
    {
        let aside = cluster.put_aside(id, STOP_TIMEOUT).await?;
        let aside = aside.display().to_string();
        report.text.push_str(&format!("\nIts files are in {aside} now."));
        report.document["files"] = aside.into();
    }
    Ok(report)
}

/// Returns the members as a table.
fn members_table(status: &Value) -> String {
    let serves = status["ready"] == true;
    let members = status["members"].as_array().into_iter().flatten();
    let rows: Vec<_> = members
        .map(|member| {
            let text = |field: &str| member[field].as_str().unwrap_or_default().to_owned();
            let lag = match (&member["lag"], serves) {
                // A node without a quorum knows nothing of the progress of the others.
                (_, false) => "?".to_owned(),
                (Value::Null, _) => "-".to_owned(),
                (lag, _) => lag.to_string(),
            };
            // A candidate has a vote, and does not lead.
            let role = text("role").replace("candidate", "follower");
            [
                member["node_id"].to_string(),
                role,
                lag,
                text("peer"),
                text("http"),
            ]
        })
        .collect();
    let mut text = table(["NODE", "ROLE", "LAG", "PEER", "HTTP"], &rows);
    if !serves {
        let why = shown(
            status["not_ready_reason"]
                .as_str()
                .unwrap_or("no reason was given"),
        );
        text.push_str(&format!(
            "\nNode {} cannot serve, and its view may be old: {why}",
            status["node_id"]
        ));
    }
    let retired = status["retired_node_ids"].as_array().into_iter().flatten();
    let retired: Vec<_> = retired
        .map(|range| match (&range["first"], &range["last"]) {
            (first, last) if first == last => first.to_string(),
            (first, last) => format!("{first}-{last}"),
        })
        .collect();
    if !retired.is_empty() {
        text.push_str(&format!("\nRetired node ids: {}.", retired.join(", ")));
    }
    text
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
