//! Attack in which one ZooKeeper client watches many absent znodes.

use zk_wire::Request;

use super::lock_znodes::zookeeper_nodes;
use super::{AttackContext, RETRY_PAUSE};
use crate::zookeeper::session::Session;

/// Requests that are sent before their replies are read.
const BATCH_SIZE: usize = 1_000;

/// Arms the watches and keeps them until the attack ends.
pub async fn arm(context: &AttackContext) -> anyhow::Result<()> {
    let servers = zookeeper_nodes(context)?;
    context
        .repeat(1, RETRY_PAUSE, async |number| {
            let mut session = Session::open_once(&servers, number).await?;
            for first in (0..context.watches).step_by(BATCH_SIZE) {
                let last = (first + BATCH_SIZE).min(context.watches);
                let some: Vec<Request> = (first..last)
                    .map(|number| Request::Exists {
                        path: format!("/attack/{number}"),
                        watch: true,
                    })
                    .collect();
                for reply in session.call_all(&some).await? {
                    match reply {
                        // The znode is absent, and its creation is watched.
                        Ok(_) | Err(zk_wire::ErrorCode::NO_NODE) => context.accepted(),
                        Err(code) => context.rejected(code.to_string()),
                    }
                }
            }
            Err(session.idle().await)
        })
        .await;
    Ok(())
}
