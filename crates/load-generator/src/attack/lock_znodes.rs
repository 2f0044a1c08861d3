//! Attack in which a ZooKeeper client creates znodes below a lock's znode that belong to no session.

use anyhow::Context;
use bytes::Bytes;

use super::{AttackContext, AttackOutcome};
use crate::nodes::Nodes;
use crate::zookeeper::client;
use crate::zookeeper::session::Session;

/// Requests that are sent before their replies are read.
const BATCH_SIZE: usize = 100;

/// The lock's znode.
const LOCK: &str = "/locks/attack-znodes";

/// Creates znodes until the attack ends, and deletes them if the caller may.
pub async fn create(context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let server = context.nodes.iter().find_map(|node| node.zookeeper.clone());
    let server = server.context("no node has a ZooKeeper port")?;
    let server = Nodes::new(vec![server], context.callers.credentials().clone());
    let mut session = Session::open(&server, 0).await?;
    let mut outcome = AttackOutcome::default();
    let parents = ["/locks", LOCK].map(|path| client::create(path.to_owned(), Bytes::new()));
    session.call_all(&parents).await?;
    let mut number = 0;
    while !context.stop.is_cancelled() {
        // Every second one has a contender's name.
        let name = |number: usize| match number % 2 {
            0 => format!("{LOCK}/lock-{number:010}"),
            _ => format!("{LOCK}/n{number}"),
        };
        let some: Vec<_> = (number..number + BATCH_SIZE)
            .map(|number| client::create(name(number), Bytes::new()))
            .collect();
        number += BATCH_SIZE;
        outcome.attempts += some.len() as u64;
        for reply in session.call_all(&some).await? {
            match reply {
                Ok(_) => outcome.accepted += 1,
                Err(code) => outcome.answer(code.to_string()),
            }
        }
    }
    session.close().await?;
    let mut connection = context.callers.connect(0).await?;
    let path = format!("/v1/znodes{LOCK}?recursive=true");
    let deleted = connection.send("DELETE", &path, "").await?;
    outcome.answer(format!("deletion: {}", deleted.status));
    Ok(outcome)
}
