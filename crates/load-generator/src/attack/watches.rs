//! One client of ZooKeeper that watches very many znodes that there are not.

use anyhow::Context;
use zk_wire::Request;

use super::{Got, Means};
use crate::nodes::Nodes;
use crate::zookeeper::session::Session;

/// So many are asked for before their answers are looked at.
const AT_A_TIME: usize = 1_000;

/// Arms them, and keeps them until the attack is over.
pub async fn arm(means: &Means) -> anyhow::Result<Got> {
    let server = means.nodes.iter().find_map(|node| node.zookeeper.clone());
    let server = server.context("no node serves clients of ZooKeeper")?;
    let server = Nodes::new(vec![server], means.callers.credentials().clone());
    let mut session = Session::open(&server, 0).await?;
    let mut got = Got::default();
    let mut number = 0;
    while number < means.watches && !means.over.is_cancelled() {
        let last = (number + AT_A_TIME).min(means.watches);
        let some: Vec<Request> = (number..last)
            .map(|number| Request::Exists {
                path: format!("/attack/{number}"),
                watch: true,
            })
            .collect();
        number = last;
        got.tried += some.len() as u64;
        for outcome in session.call_all(&some).await? {
            match outcome {
                // Not being there is what is watched.
                Ok(_) | Err(zk_wire::ErrorCode::NO_NODE) => got.let_in += 1,
                Err(code) => got.answer(code.to_string()),
            }
        }
    }
    means.over.cancelled().await;
    session.close().await?;
    Ok(got)
}
