//! Attack in which a ZooKeeper client creates znodes below a lock's znode that belong to no session.

use anyhow::Context;
use bytes::Bytes;

use super::{AttackContext, RETRY_PAUSE};
use crate::nodes::Nodes;
use crate::zookeeper::client;
use crate::zookeeper::session::Session;

/// Requests that are sent before their replies are read.
const BATCH_SIZE: usize = 100;

/// The lock's znode.
const LOCK: &str = "/locks/attack/znodes";

/// Creates znodes until the attack ends, and deletes them.
pub async fn create(context: &AttackContext) -> anyhow::Result<()> {
    let servers = zookeeper_nodes(context)?;
    context
        .repeat(1, RETRY_PAUSE, async |number| {
            let mut session = Session::open_once(&servers, number).await?;
            let parents = ["/locks", "/locks/attack", LOCK];
            session
                .call_all(&parents.map(|path| client::create(path.to_owned(), Bytes::new())))
                .await?;
            for first in (0..).step_by(BATCH_SIZE) {
                // Every second one has a contender's name.
                let name = |number: usize| match number % 2 {
                    0 => format!("{LOCK}/lock-{number:010}"),
                    _ => format!("{LOCK}/n{number}"),
                };
                let some: Vec<_> = (first..first + BATCH_SIZE)
                    .map(|number| client::create(name(number), Bytes::new()))
                    .collect();
                for reply in session.call_all(&some).await? {
                    match reply {
                        Ok(_) => context.accepted(),
                        Err(code) => context.rejected(code.to_string()),
                    }
                }
            }
            Ok(())
        })
        .await;
    let mut connection = context.admin.connect_patiently(0).await?;
    let path = format!("/v1/znodes{LOCK}?recursive=true");
    let deleted = connection.send("DELETE", &path, "").await?;
    context.answer(format!("deletion: {}", deleted.status));
    Ok(())
}

/// Returns the addresses for ZooKeeper clients, with the attacker's credentials.
pub fn zookeeper_nodes(context: &AttackContext) -> anyhow::Result<Nodes> {
    let server = context.nodes.iter().find_map(|node| node.zookeeper.clone());
    let server = server.context("no node has a ZooKeeper port")?;
    Ok(Nodes::new(vec![server], context.callers.credentials().clone()))
}
