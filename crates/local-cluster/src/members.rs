//! Membership changes of a running cluster over HTTP, for the command line. The module knows no processes:
//! the nodes may run anywhere.

use std::time::Duration;

use anyhow::{Context, bail};
use cli_support::api_client::ApiClient;
use cli_support::credentials::Credentials;
use cli_support::http_client;
use raft_node::{MemberAddress, NodeId};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Total time in which one change is tried at the nodes: longer than an election, and than the commit of a
/// change.
const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Response timeout of one node. The node itself reports an unknown outcome earlier.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// Time for the view of one node, when another one cannot serve.
const VIEW_TIMEOUT: Duration = Duration::from_secs(2);

/// Interval at which a learner's progress is queried.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Client for membership changes.
#[derive(Debug)]
pub struct Members {
    client: ApiClient,
    nodes: Vec<String>,
}

/// Result of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeResult {
    /// True if the cluster was changed; false if the requested state existed already.
    pub changed: bool,
    /// Warnings about the new state.
    pub warnings: Vec<String>,
}

impl Members {
    /// Creates a client of these nodes (each `host:port`), of which at least one must be available.
    pub fn at(nodes: &[String]) -> Self {
        Self {
            client: ApiClient::new(nodes, 0, CHANGE_TIMEOUT),
            nodes: nodes.to_vec(),
        }
    }

    /// Sets the credentials.
    pub fn with(self, credentials: Credentials) -> Self {
        Self {
            client: self.client.with(credentials),
            ..self
        }
    }

    /// Returns the cluster as a node sees it: the document of `GET /v1/cluster`, of a node that serves if there is
    /// one. A node without a quorum knows nothing of the others.
    pub async fn status(&mut self) -> anyhow::Result<Value> {
        let first = self
            .client
            .call("GET", "/v1/cluster", &Value::Null, ANSWER_TIMEOUT);
        let mut status = first.await?.json();
        for node in &self.nodes {
            if status["ready"] == true {
                break;
            }
            let request = http_client::request_as(node, self.client.credentials(), "GET", "/v1/cluster", "");
            if let Ok(Ok(response)) = tokio::time::timeout(VIEW_TIMEOUT, request).await
                && response.json()["ready"] == true
            {
                status = response.json();
            }
        }
        Ok(status)
    }

    /// Fails if the node is not a member.
    pub async fn require(&mut self, id: NodeId) -> anyhow::Result<()> {
        let status = self.status().await?;
        let mut members = status["members"].as_array().into_iter().flatten();
        if !members.any(|member| member["node_id"] == id) {
            bail!("node {id} is not a member of the cluster");
        }
        Ok(())
    }

    /// Returns the id for the next new node.
    pub async fn next_id(&mut self) -> anyhow::Result<NodeId> {
        let status = self.status().await?;
        status["next_node_id"]
            .as_u64()
            .context("the response has no next_node_id: the node runs an older version")
    }

    /// Adds a node as a learner.
    pub async fn add(&mut self, id: NodeId, address: &MemberAddress) -> anyhow::Result<ChangeResult> {
        let body = json!({ "node_id": id, "peer": address.peer, "http": address.http });
        self.change("POST", "/v1/cluster/members", &body).await
    }

    /// Removes a member.
    pub async fn remove(&mut self, id: NodeId, force: bool) -> anyhow::Result<ChangeResult> {
        let path = format!("/v1/cluster/members/{id}?force={force}");
        self.change("DELETE", &path, &Value::Null).await
    }

    /// Promotes a learner to a voter as soon as it has caught up; fails after `wait`.
    pub async fn promote(&mut self, id: NodeId, wait: Duration) -> anyhow::Result<ChangeResult> {
        let path = format!("/v1/cluster/members/{id}/promote");
        let deadline = Instant::now() + wait;
        loop {
            match self
                .client
                .call("POST", &path, &Value::Null, ANSWER_TIMEOUT)
                .await
            {
                Ok(response) => return Ok(changed(&response.json())),
                Err(error) if error.code() == "not_caught_up" && Instant::now() < deadline => {}
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Demotes a voter to a learner.
    pub async fn demote(&mut self, id: NodeId, force: bool) -> anyhow::Result<ChangeResult> {
        let path = format!("/v1/cluster/members/{id}/demote?force={force}");
        self.change("POST", &path, &Value::Null).await
    }

    /// Changes the addresses of a member.
    pub async fn set_address(&mut self, id: NodeId, address: &MemberAddress) -> anyhow::Result<ChangeResult> {
        let body = json!({ "peer": address.peer, "http": address.http });
        self.change("PUT", &format!("/v1/cluster/members/{id}"), &body)
            .await
    }

    /// Transfers leadership; `None`: to the voter with the longest log.
    pub async fn move_leader(&mut self, to: Option<NodeId>) -> anyhow::Result<ChangeResult> {
        self.change("POST", "/v1/cluster/leader", &json!({ "node_id": to }))
            .await
    }

    /// Waits until a node knows a leader and returns its id.
    pub async fn leader(&mut self) -> anyhow::Result<NodeId> {
        let deadline = Instant::now() + CHANGE_TIMEOUT;
        loop {
            if let Some(leader) = self.status().await?["leader"].as_u64() {
                return Ok(leader);
            }
            if Instant::now() >= deadline {
                bail!("no node knows a leader");
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    async fn change(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<ChangeResult> {
        match self.client.call(method, path, body, ANSWER_TIMEOUT).await {
            Ok(response) => Ok(changed(&response.json())),
            Err(error) => Err(error.into()),
        }
    }
}

fn changed(document: &Value) -> ChangeResult {
    let warnings = document["warnings"].as_array();
    ChangeResult {
        changed: document["changed"] == true,
        warnings: warnings
            .into_iter()
            .flatten()
            .filter_map(|warning| warning.as_str().map(str::to_owned))
            .collect(),
    }
}
