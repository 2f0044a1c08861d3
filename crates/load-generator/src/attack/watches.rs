//! Attack in which one ZooKeeper client watches many absent znodes.

use anyhow::Context;
use zk_wire::Request;

use super::{AttackContext, AttackOutcome};
use crate::nodes::Nodes;
use crate::zookeeper::session::Session;

/// Requests that are sent before their replies are read.
const BATCH_SIZE: usize = 1_000;

/// Arms the watches and keeps them until the attack ends.
pub async fn arm(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let server = context.nodes.iter().find_map(|node| node.zookeeper.clone());
    let server = server.context("no node has a ZooKeeper port")?;
    let server = Nodes::new(vec![server], context.callers.credentials().clone());
    let mut session = Session::open(&server, 0).await?;
    let mut outcome = AttackOutcome::default();
    let mut number = 0;
    while number < context.watches && !context.stop.is_cancelled() {
        let last = (number + BATCH_SIZE).min(context.watches);
        let some: Vec<Request> = (number..last)
            .map(|number| Request::Exists {
                path: format!("/attack/{number}"),
                watch: true,
            })
            .collect();
        number = last;
        outcome.attempts += some.len() as u64;
        for reply in session.call_all(&some).await? {
            match reply {
                // The znode is absent, and its creation is watched.
                Ok(_) | Err(zk_wire::ErrorCode::NO_NODE) => outcome.accepted += 1,
                Err(code) => outcome.answer(code.to_string()),
            }
        }
    }
    context.stop.cancelled().await;
    session.close().await?;
    Ok(outcome)
}
