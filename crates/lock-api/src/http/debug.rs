//! Routes for tests of a node with fail points. Other builds do not have them.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use lock_node::fail_points::{self, Action};
use serde::{Deserialize, Serialize};

use super::Shared;
use super::extract::{HandlerResult, no_content, ok, parse, read_body};
use super::problem::Problem;

#[derive(Serialize)]
struct PointAnswer {
    passed: u64,
    acted: u64,
}

#[derive(Serialize)]
struct DebugAnswer {
    node_id: u64,
    leader: Option<u64>,
    term: u64,
    applied_index: u64,
    zxid: u64,
    /// Digest as text, because half of its values exceed the numbers of JSON.
    digest: String,
    points: BTreeMap<&'static str, PointAnswer>,
}

/// `GET /v1/debug`: digest of the state, and counts of the fail points.
pub async fn get(State(api): State<Shared>) -> HandlerResult {
    let status = api.node.status();
    let position = api.node.state_position();
    let points = fail_points::counts().into_iter().map(|(name, count)| {
        let answer = PointAnswer {
            passed: count.passed,
            acted: count.acted,
        };
        (name, answer)
    });
    Ok(ok(&DebugAnswer {
        node_id: status.node_id,
        leader: status.leader,
        term: status.term,
        applied_index: position.index,
        zxid: position.zxid,
        digest: format!("{:016x}", position.digest),
        points: points.collect(),
    }))
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
enum FailPointAction {
    Off,
    Panic,
    Error,
    DelayMs(u64),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FailPointBody<'a> {
    name: &'a str,
    action: FailPointAction,
    #[serde(default = "once")]
    times: usize,
}

fn once() -> usize {
    1
}

/// `PUT /v1/debug/fail-points`: sets the action of a fail point, or removes it.
pub async fn set_fail_point(State(api): State<Shared>, body: Body) -> HandlerResult {
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let order: FailPointBody<'_> = parse(&bytes)?;
    let action = match order.action {
        FailPointAction::Off => {
            fail_points::call_off(order.name);
            return Ok(no_content());
        }
        FailPointAction::Panic => Action::Panic,
        FailPointAction::Error => Action::Error,
        FailPointAction::DelayMs(ms) => Action::Delay(Duration::from_millis(ms)),
    };
    fail_points::order(order.name, action, order.times).map_err(Problem::bad_request)?;
    Ok(no_content())
}

/// `POST /v1/debug/snapshot`: writes a snapshot.
pub async fn snapshot(State(api): State<Shared>) -> HandlerResult {
    api.node.make_snapshot().await?;
    Ok(no_content())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LeaderBody {
    to: u64,
}

/// `POST /v1/debug/leader`: begins a leadership transfer.
pub async fn transfer_leadership(State(api): State<Shared>, body: Body) -> HandlerResult {
    let bytes = read_body(body, api.config().max_body_bytes, api.config().body_timeout).await?;
    let LeaderBody { to } = parse(&bytes)?;
    let begun = api.node.hand_leadership_to(to).await;
    begun.map_err(Problem::bad_request)?;
    Ok(no_content())
}
