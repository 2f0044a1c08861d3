//! The routes that change who is a member of the cluster, and who leads. What may be changed is decided by the leader,
//! in `raft_node::membership`.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Uri;
use raft_node::{MemberAddress, MemberStatus, MembershipChange, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::audit;
use super::exchange::{Answer, no_query, ok, parse, query, read_body};
use super::openapi::words;
use super::problem::Problem;
use super::{Api, Peer, Shared};

/// What is so after a change.
#[derive(Serialize, ToSchema)]
pub struct MembersAnswer {
    /// Whether anything was done; `false`: it was so already.
    changed: bool,
    /// What to know all the same.
    warnings: Vec<String>,
    /// The leader, if this node knows one.
    #[schema(value_type = Option<words::NodeId>, required)]
    leader: Option<NodeId>,
    /// All members, as this node sees them.
    members: Vec<MemberStatus>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddBody {
    #[schema(value_type = words::NodeId)]
    node_id: NodeId,
    #[schema(value_type = words::HostPort)]
    peer: String,
    #[schema(value_type = words::HostPort)]
    http: String,
}

/// `POST /v1/cluster/members`
pub async fn add(State(api): State<Shared>, caller: Peer, uri: Uri, body: Body) -> Answer {
    no_query(&uri)?;
    let AddBody { node_id, peer, http } = parse(&read(&api, body).await?)?;
    let address = MemberAddress { peer, http };
    change(&api, &caller, MembershipChange::Add { node_id, address }).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForceQuery {
    /// Whether to do it although the voters that remain could not decide anything now.
    #[serde(default)]
    force: bool,
}

/// `DELETE /v1/cluster/members/{id}?force=`
pub async fn remove(State(api): State<Shared>, caller: Peer, Path(id): Path<String>, uri: Uri) -> Answer {
    let ForceQuery { force } = query(&uri)?;
    let node_id = node_id(&id)?;
    change(&api, &caller, MembershipChange::Remove { node_id, force }).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AddressBody {
    #[schema(value_type = words::HostPort)]
    peer: String,
    #[schema(value_type = words::HostPort)]
    http: String,
}

/// `PUT /v1/cluster/members/{id}`: the member's addresses.
pub async fn set_address(
    State(api): State<Shared>,
    caller: Peer,
    Path(id): Path<String>,
    uri: Uri,
    body: Body,
) -> Answer {
    no_query(&uri)?;
    let node_id = node_id(&id)?;
    let AddressBody { peer, http } = parse(&read(&api, body).await?)?;
    let address = MemberAddress { peer, http };
    change(&api, &caller, MembershipChange::SetAddress { node_id, address }).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NoBody {}

/// `POST /v1/cluster/members/{id}/promote`
pub async fn promote(
    State(api): State<Shared>,
    caller: Peer,
    Path(id): Path<String>,
    uri: Uri,
    body: Body,
) -> Answer {
    no_query(&uri)?;
    let node_id = node_id(&id)?;
    let NoBody {} = parse(&read(&api, body).await?)?;
    change(&api, &caller, MembershipChange::Promote { node_id }).await
}

/// `POST /v1/cluster/members/{id}/demote?force=`
pub async fn demote(
    State(api): State<Shared>,
    caller: Peer,
    Path(id): Path<String>,
    uri: Uri,
    body: Body,
) -> Answer {
    let ForceQuery { force } = query(&uri)?;
    let node_id = node_id(&id)?;
    let NoBody {} = parse(&read(&api, body).await?)?;
    change(&api, &caller, MembershipChange::Demote { node_id, force }).await
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaderBody {
    #[serde(default)]
    #[schema(value_type = Option<words::NodeId>)]
    node_id: Option<NodeId>,
}

/// `POST /v1/cluster/leader`
pub async fn move_leader(State(api): State<Shared>, caller: Peer, uri: Uri, body: Body) -> Answer {
    no_query(&uri)?;
    let LeaderBody { node_id } = parse(&read(&api, body).await?)?;
    change(&api, &caller, MembershipChange::MoveLeader { to: node_id }).await
}

async fn read(api: &Api, body: Body) -> Result<axum::body::Bytes, Problem> {
    read_body(body, api.config().max_body_bytes, api.config().body_timeout).await
}

async fn change(api: &Api, caller: &Peer, change: MembershipChange) -> Answer {
    let (action, what) = account_of(&change);
    let entry = audit::begin(caller, action, what);
    let done = entry.end(api.node.change_membership(change).await)?;
    // As this node sees it, which may be a moment behind what the leader has just committed.
    let status = api.node.status();
    Ok(ok(&MembersAnswer {
        changed: done.changed,
        warnings: done.warnings,
        leader: status.leader,
        members: status.members,
    }))
}

fn account_of(change: &MembershipChange) -> (&'static str, String) {
    let forced = |force: &bool| if *force { ", by force" } else { "" };
    match change {
        MembershipChange::Add { node_id, address } => {
            ("add_member", format!("node {node_id} at {address:?}"))
        }
        MembershipChange::Remove { node_id, force } => {
            ("remove_member", format!("node {node_id}{}", forced(force)))
        }
        MembershipChange::Promote { node_id } => ("promote_member", format!("node {node_id}")),
        MembershipChange::Demote { node_id, force } => {
            ("demote_member", format!("node {node_id}{}", forced(force)))
        }
        MembershipChange::SetAddress { node_id, address } => {
            ("move_member", format!("node {node_id} to {address:?}"))
        }
        MembershipChange::MoveLeader { to: Some(node_id) } => ("move_leader", format!("to node {node_id}")),
        MembershipChange::MoveLeader { to: None } => {
            ("move_leader", "to whoever has most of the log".to_owned())
        }
    }
}

fn node_id(text: &str) -> Result<NodeId, Problem> {
    text.parse()
        .map_err(|_| Problem::bad_request("the id of a node is a number"))
}
