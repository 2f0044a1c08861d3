//! Routes that change the members of the cluster, and the leader. The leader decides which changes are possible,
//! in `lock_node::membership`.

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::Uri;
use lock_node::{DiskReport, MemberAddress, MemberNews, MemberStatus, MembershipChange, NodeId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::audit;
use super::extract::{HandlerResult, no_query, ok, parse, query, read_body};
use super::openapi::words;
use super::problem::Problem;
use super::{Api, Peer, Shared};

/// Result of a change.
#[derive(Serialize, ToSchema)]
pub struct MembersAnswer {
    /// `false` if the change was in effect already.
    changed: bool,
    /// Warnings.
    warnings: Vec<String>,
    /// Id of the leader, if this node knows it.
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
pub async fn add(State(api): State<Shared>, caller: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let AddBody { node_id, peer, http } = parse(&read(&api, body).await?)?;
    let address = MemberAddress { peer, http };
    change(&api, &caller, MembershipChange::Add { node_id, address }).await
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ForceQuery {
    /// Make the change although the remaining voters have no majority now.
    #[serde(default)]
    force: bool,
}

/// `DELETE /v1/cluster/members/{id}?force=`
pub async fn remove(
    State(api): State<Shared>,
    caller: Peer,
    Path(id): Path<String>,
    uri: Uri,
) -> HandlerResult {
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
) -> HandlerResult {
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
) -> HandlerResult {
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
) -> HandlerResult {
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
    /// Reason, for the audit log.
    #[serde(default)]
    #[schema(value_type = Option<words::Reason>)]
    reason: Option<String>,
}

/// `POST /v1/cluster/leader`
pub async fn move_leader(State(api): State<Shared>, caller: Peer, uri: Uri, body: Body) -> HandlerResult {
    no_query(&uri)?;
    let LeaderBody { node_id, reason } = parse(&read(&api, body).await?)?;
    change_for(
        &api,
        &caller,
        MembershipChange::MoveLeader { to: node_id },
        reason.as_deref(),
    )
    .await
}

/// Condition of a member, as the leader knows it.
#[derive(Serialize, ToSchema)]
#[schema(as = MemberCondition)]
pub struct ConditionAnswer {
    #[schema(value_type = words::NodeId)]
    node_id: NodeId,
    /// Last entry known to be on the member's disk.
    #[schema(required)]
    matched_index: Option<u64>,
    /// Number of entries by which the member is behind the leader's last entry.
    #[schema(required)]
    lag: Option<u64>,
    /// Report about its disk; `null` if it has not answered for some seconds.
    #[schema(required)]
    disk: Option<DiskAnswer>,
}

/// Report of a node about its disk.
#[derive(Serialize, ToSchema)]
#[schema(as = Disk)]
pub struct DiskAnswer {
    /// Free bytes in the file system of the data directory; `null` if the file system does not answer.
    #[schema(required)]
    free_bytes: Option<u64>,
    /// Free bytes below which the disk counts as nearly full.
    low_water_bytes: u64,
    /// `true` if it has little space left.
    low: bool,
    /// `true` if the log is full, and takes no entries.
    log_full: bool,
    /// Usual duration of a sync of the log; `null` if there were none lately.
    #[schema(required)]
    sync_us: Option<u64>,
}

impl From<DiskReport> for DiskAnswer {
    fn from(report: DiskReport) -> Self {
        Self {
            free_bytes: report.free_bytes,
            low_water_bytes: report.low_water_bytes,
            low: report.low,
            log_full: report.log_full,
            sync_us: report.sync_us,
        }
    }
}

/// The answer of `GET /v1/cluster/members`.
#[derive(Serialize, ToSchema)]
pub struct ConditionsAnswer {
    /// Members, by id.
    members: Vec<ConditionAnswer>,
}

/// `GET /v1/cluster/members`: condition of all members. Only the leader knows it, so every other node asks the leader.
pub async fn conditions(State(api): State<Shared>, uri: Uri) -> HandlerResult {
    no_query(&uri)?;
    let news = api.node.members_news().await?;
    let condition = |news: MemberNews| ConditionAnswer {
        node_id: news.node_id,
        matched_index: news.matched_index,
        lag: news.lag,
        disk: news.disk.map(DiskAnswer::from),
    };
    let members = news.into_iter().map(condition).collect();
    Ok(ok(&ConditionsAnswer { members }))
}

async fn read(api: &Api, body: Body) -> Result<axum::body::Bytes, Problem> {
    read_body(body, api.config().max_body_bytes, api.config().body_timeout).await
}

async fn change(api: &Api, caller: &Peer, change: MembershipChange) -> HandlerResult {
    change_for(api, caller, change, None).await
}

async fn change_for(
    api: &Api,
    caller: &Peer,
    change: MembershipChange,
    reason: Option<&str>,
) -> HandlerResult {
    let (action, what) = audited_action(&change);
    let what = audit::with_reason(what, reason)?;
    let entry = api.audit_log.begin(caller, action, what);
    let done = entry.end(api.node.change_membership(change).await)?;
    // The state of this node may be a moment behind the change that the leader has just committed.
    let status = api.node.status();
    Ok(ok(&MembersAnswer {
        changed: done.changed,
        warnings: done.warnings,
        leader: status.leader,
        members: status.members,
    }))
}

fn audited_action(change: &MembershipChange) -> (&'static str, String) {
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
            ("move_leader", "to the voter with the longest log".to_owned())
        }
    }
}

fn node_id(text: &str) -> Result<NodeId, Problem> {
    text.parse()
        .map_err(|_| Problem::bad_request("the id of a node is a number"))
}
