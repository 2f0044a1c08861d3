//! Members that come and go, through Lockgate's own HTTP interface, as an operator does it.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};

use super::software::Node;
use super::{Cluster, START_PATIENCE};
use crate::http;
use crate::network::Slot;

/// A change waits for an election, for a node that catches up, and for its commitment.
const CHANGE_PATIENCE: Duration = Duration::from_secs(60);

/// One node says how it went within this.
const ANSWER_PATIENCE: Duration = Duration::from_secs(15);

/// Between two tries.
const PAUSE: Duration = Duration::from_millis(100);

/// A node that was removed ends by itself within this, if it hears of it.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

impl Cluster {
    /// What the leader says of the cluster.
    pub async fn status(&self) -> anyhow::Result<Value> {
        let leader = self.wait_leader(CHANGE_PATIENCE).await?;
        http::get(self.node(leader).addresses.http, "/v1/cluster", ANSWER_PATIENCE).await
    }

    /// What one node says of itself and the cluster.
    pub async fn status_of(&self, slot: Slot) -> anyhow::Result<Value> {
        http::get(self.node(slot).addresses.http, "/v1/cluster", ANSWER_PATIENCE).await
    }

    /// The ids of the members, as the leader has them.
    pub async fn member_ids(&self) -> anyhow::Result<Vec<u64>> {
        let status = self.status().await?;
        let members = status["members"].as_array().context("a cluster has members")?;
        Ok(members
            .iter()
            .filter_map(|member| member["node_id"].as_u64())
            .collect())
    }

    /// A node that was never there, at a free place: from its configuration to its vote.
    pub async fn add(&self, slot: Slot) -> anyhow::Result<u64> {
        let place = self.place(slot);
        ensure!(self.pid(slot).is_none(), "there is a node at place {slot}");
        let id = self.status().await?["next_node_id"]
            .as_u64()
            .context("an id is free")?;
        let node = Node {
            id,
            dir: self.dir.join(format!("node-{id}")),
            ..place.node()
        };
        std::fs::create_dir_all(&node.dir).with_context(|| node.dir.display().to_string())?;
        let mut all: Vec<Node> = self.members().into_iter().map(|slot| self.node(slot)).collect();
        all.retain(|other| other.slot != slot);
        all.push(node.clone());
        self.software.configure(&node, &all, true)?;
        place.set_node(node.clone());
        self.start(slot)?;
        self.wait_listening(slot).await?;
        let addresses = json!({
            "node_id": id,
            "peer": node.peer_as_seen.to_string(),
            "http": node.addresses.http.to_string(),
        });
        self.change(Method::POST, "/v1/cluster/members", &addresses)
            .await?;
        place.set_member(true);
        self.wait_ready(slot, START_PATIENCE).await?;
        let promote = format!("/v1/cluster/members/{id}/promote");
        self.change(Method::POST, &promote, &Value::Null).await?;
        Ok(id)
    }

    /// The node at this place goes for ever; dead or alive.
    pub async fn remove(&self, slot: Slot) -> anyhow::Result<u64> {
        let place = self.place(slot);
        let id = self.node(slot).id;
        let is_dead = self.pid(slot).is_none();
        place.set_may_end(true);
        let path = format!("/v1/cluster/members/{id}?force={is_dead}");
        self.change(Method::DELETE, &path, &Value::Null).await?;
        place.set_member(false);
        if place.wait_ended(LEAVES_WITHIN).await.is_err() {
            self.kill(slot).await?;
        }
        Ok(id)
    }

    async fn wait_listening(&self, slot: Slot) -> anyhow::Result<()> {
        let begun = Instant::now();
        let node = self.node(slot);
        while http::get(node.addresses.http, "/healthz", ANSWER_PATIENCE)
            .await
            .is_err()
        {
            if self.pid(slot).is_none() {
                bail!("node {} ended:\n{}", node.id, self.place(slot).log_tail());
            }
            ensure!(
                begun.elapsed() < START_PATIENCE,
                "node {} does not listen",
                node.id
            );
            tokio::time::sleep(PAUSE).await;
        }
        Ok(())
    }

    /// Asks for a change at the leader, again and again until it is so.
    async fn change(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let refused = match self.leader().await {
                None => "nobody leads".to_owned(),
                Some(leader) => {
                    let leader = self.node(leader).addresses.http;
                    match http::call(leader, method.clone(), path, body, ANSWER_PATIENCE).await {
                        Ok(answer) if (200..300).contains(&answer.status) => return Ok(()),
                        Ok(answer) => answer.json().to_string(),
                        Err(error) => format!("{error:#}"),
                    }
                }
            };
            ensure!(begun.elapsed() < CHANGE_PATIENCE, "{method} {path}: {refused}");
            tokio::time::sleep(PAUSE).await;
        }
    }
}
