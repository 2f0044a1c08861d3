//! Membership changes through Lockgate's HTTP API, as an operator makes them.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hyper::Method;
use serde_json::{Value, json};

use super::software::Node;
use super::{Cluster, START_TIMEOUT};
use crate::http;
use crate::network::Slot;

/// Time limit of a change: an election, a node that catches up, and the commit.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit of one response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Delay between two attempts.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Time limit within which a removed node exits by itself, if it learns of its removal.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);

impl Cluster {
    /// Returns the leader's view of the cluster.
    pub async fn status(&self) -> anyhow::Result<Value> {
        let leader = self.wait_leader(CHANGE_TIMEOUT).await?;
        http::get(self.node(leader).addresses.http, "/v1/cluster", ANSWER_TIMEOUT).await
    }

    /// Returns the view of one node of itself and the cluster.
    pub async fn status_of(&self, slot: Slot) -> anyhow::Result<Value> {
        http::get(self.node(slot).addresses.http, "/v1/cluster", ANSWER_TIMEOUT).await
    }

    /// Returns the ids of the members according to the leader.
    pub async fn member_ids(&self) -> anyhow::Result<Vec<u64>> {
        let status = self.status().await?;
        let members = status["members"].as_array().context("a cluster has members")?;
        Ok(members
            .iter()
            .filter_map(|member| member["node_id"].as_u64())
            .collect())
    }

    /// Adds a new node in a free slot, from its configuration to its vote; returns its id.
    pub async fn add(&self, slot: Slot) -> anyhow::Result<u64> {
        let process = self.process(slot);
        ensure!(self.pid(slot).is_none(), "slot {slot} already has a node");
        let id = self.status().await?["next_node_id"]
            .as_u64()
            .context("the status has a free node id")?;
        let node = Node {
            id,
            dir: self.dir.join(format!("node-{id}")),
            ..process.node()
        };
        std::fs::create_dir_all(&node.dir).with_context(|| node.dir.display().to_string())?;
        let mut all: Vec<Node> = self.members().into_iter().map(|slot| self.node(slot)).collect();
        all.retain(|other| other.slot != slot);
        all.push(node.clone());
        self.software.configure(&node, &all, true)?;
        process.set_node(node.clone());
        self.start(slot)?;
        self.wait_listening(slot).await?;
        let addresses = json!({
            "node_id": id,
            "peer": node.peer_as_seen.to_string(),
            "http": node.addresses.http.to_string(),
        });
        self.change(Method::POST, "/v1/cluster/members", &addresses)
            .await?;
        process.set_member(true);
        self.wait_ready(slot, START_TIMEOUT).await?;
        let promote = format!("/v1/cluster/members/{id}/promote");
        self.change(Method::POST, &promote, &Value::Null).await?;
        Ok(id)
    }

    /// Removes the node in this slot permanently, whether it runs or not; returns its id.
    pub async fn remove(&self, slot: Slot) -> anyhow::Result<u64> {
        let process = self.process(slot);
        let id = self.node(slot).id;
        let is_dead = self.pid(slot).is_none();
        process.set_may_end(true);
        let path = format!("/v1/cluster/members/{id}?force={is_dead}");
        self.change(Method::DELETE, &path, &Value::Null).await?;
        process.set_member(false);
        if process.wait_ended(LEAVES_WITHIN).await.is_err() {
            self.kill(slot).await?;
        }
        Ok(id)
    }

    async fn wait_listening(&self, slot: Slot) -> anyhow::Result<()> {
        let begun = Instant::now();
        let node = self.node(slot);
        while http::get(node.addresses.http, "/healthz", ANSWER_TIMEOUT)
            .await
            .is_err()
        {
            if self.pid(slot).is_none() {
                bail!("node {} ended:\n{}", node.id, self.process(slot).log_tail());
            }
            ensure!(
                begun.elapsed() < START_TIMEOUT,
                "node {} does not listen",
                node.id
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    /// Requests a change from the leader and repeats the request until it succeeds.
    async fn change(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let refused = match self.leader().await {
                None => "no leader".to_owned(),
                Some(leader) => {
                    let leader = self.node(leader).addresses.http;
                    match http::call(leader, method.clone(), path, body, ANSWER_TIMEOUT).await {
                        Ok(answer) if (200..300).contains(&answer.status) => return Ok(()),
                        Ok(answer) => answer.json().to_string(),
                        Err(error) => format!("{error:#}"),
                    }
                }
            };
            ensure!(begun.elapsed() < CHANGE_TIMEOUT, "{method} {path}: {refused}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
