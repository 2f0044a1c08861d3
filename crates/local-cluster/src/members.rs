//! Changes of a running cluster's members over its HTTP interface, for the command line. It knows no processes: the
//! cluster may be anywhere.

use std::time::Duration;

use anyhow::{Context, bail};
use cli_support::api_client::{ApiClient, CallError};
use cli_support::credentials::Credentials;
use raft_node::{MemberAddress, NodeId, Role};
use serde_json::{Value, json};
use tokio::time::Instant;

/// How long nodes are tried for one change: longer than an election, and than a change may take to be committed.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long one node may take to answer. It gives the outcome as unknown before.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(15);

/// How often a learner's progress is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// A cluster whose members are to be changed.
#[derive(Debug)]
pub struct Members {
    client: ApiClient,
}

/// What is so after a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Changed {
    /// Whether anything was done; `false`: it was so already.
    pub changed: bool,
    /// What to know all the same.
    pub warnings: Vec<String>,
}

impl Members {
    /// The cluster of these nodes (each `host:port`), of which at least one must live.
    pub fn at(nodes: &[String]) -> Self {
        Self {
            client: ApiClient::new(nodes, 0, PATIENCE),
        }
    }

    /// Calls them with whatever is there to protect that, and to say who calls.
    pub fn with(self, credentials: Credentials) -> Self {
        Self {
            client: self.client.with(credentials),
        }
    }

    /// The cluster as a node sees it: the document of `GET /v1/cluster`.
    pub async fn look(&mut self) -> anyhow::Result<Value> {
        let answer = self
            .client
            .call("GET", "/v1/cluster", &Value::Null, ANSWER_TIMEOUT)
            .await?;
        Ok(answer.json())
    }

    /// Fails if a node is no member.
    pub async fn require(&mut self, id: NodeId) -> anyhow::Result<()> {
        let seen = self.look().await?;
        let mut members = seen["members"].as_array().into_iter().flatten();
        if !members.any(|member| member["node_id"] == id) {
            bail!("node {id} is no member of the cluster");
        }
        Ok(())
    }

    /// The id for the next new node.
    pub async fn next_id(&mut self) -> anyhow::Result<NodeId> {
        let seen = self.look().await?;
        seen["next_node_id"]
            .as_u64()
            .context("the node does not say which id is free")
    }

    /// Takes a node in as a learner.
    pub async fn add(&mut self, id: NodeId, address: &MemberAddress) -> anyhow::Result<Changed> {
        let body = json!({ "node_id": id, "peer": address.peer, "http": address.http });
        self.change("POST", "/v1/cluster/members", &body).await
    }

    /// Removes a member.
    pub async fn remove(&mut self, id: NodeId, force: bool) -> anyhow::Result<Changed> {
        let path = format!("/v1/cluster/members/{id}?force={force}");
        self.change("DELETE", &path, &Value::Null).await
    }

    /// Makes a learner a voter, as soon as it has caught up; gives up after `wait`.
    pub async fn promote(&mut self, id: NodeId, wait: Duration) -> anyhow::Result<Changed> {
        let path = format!("/v1/cluster/members/{id}/promote");
        let deadline = Instant::now() + wait;
        loop {
            match self
                .client
                .call("POST", &path, &Value::Null, ANSWER_TIMEOUT)
                .await
            {
                Ok(answer) => return Ok(changed(&answer.json())),
                Err(error) if error.code() == "not_caught_up" && Instant::now() < deadline => {}
                Err(error) => return Err(plain(error)),
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Makes a voter a learner.
    pub async fn demote(&mut self, id: NodeId, force: bool) -> anyhow::Result<Changed> {
        let path = format!("/v1/cluster/members/{id}/demote?force={force}");
        self.change("POST", &path, &Value::Null).await
    }

    /// Tells the cluster where a member is found.
    pub async fn set_address(&mut self, id: NodeId, address: &MemberAddress) -> anyhow::Result<Changed> {
        let body = json!({ "peer": address.peer, "http": address.http });
        self.change("PUT", &format!("/v1/cluster/members/{id}"), &body)
            .await
    }

    /// Moves leadership; `None`: to the voter that has most of the log.
    pub async fn move_leader(&mut self, to: Option<NodeId>) -> anyhow::Result<Changed> {
        self.change("POST", "/v1/cluster/leader", &json!({ "node_id": to }))
            .await
    }

    /// The leader that a node knows.
    pub async fn leader(&mut self) -> anyhow::Result<NodeId> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(leader) = self.look().await?["leader"].as_u64() {
                return Ok(leader);
            }
            if Instant::now() >= deadline {
                bail!("no node knows a leader");
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// The members as a table.
    pub async fn table(&mut self) -> anyhow::Result<String> {
        let seen = self.look().await?;
        let mut text = String::from("node  role       lag      peer                   http");
        for member in seen["members"].as_array().into_iter().flatten() {
            let role: Option<Role> = serde_json::from_value(member["role"].clone()).ok();
            let role = match role {
                Some(Role::Leader) => "leader",
                Some(Role::Learner) => "learner",
                Some(Role::Follower | Role::Candidate) => "follower",
                None => "?",
            };
            let lag = member["lag"]
                .as_u64()
                .map_or("-".to_owned(), |lag| lag.to_string());
            let word = |name: &str| member[name].as_str().unwrap_or_default().to_owned();
            text.push_str(&format!(
                "\n{:<4}  {role:<9}  {lag:<7}  {:<21}  {}",
                member["node_id"].as_u64().unwrap_or_default(),
                word("peer"),
                word("http")
            ));
        }
        let retired = seen["retired_node_ids"].as_str().unwrap_or_default();
        if !retired.is_empty() {
            text.push_str(&format!("\nNever given again: {retired}."));
        }
        Ok(text)
    }

    async fn change(&mut self, method: &str, path: &str, body: &Value) -> anyhow::Result<Changed> {
        match self.client.call(method, path, body, ANSWER_TIMEOUT).await {
            Ok(answer) => Ok(changed(&answer.json())),
            Err(error) => Err(plain(error)),
        }
    }
}

fn changed(document: &Value) -> Changed {
    let warnings = document["warnings"].as_array();
    Changed {
        changed: document["changed"] == true,
        warnings: warnings
            .into_iter()
            .flatten()
            .filter_map(|warning| warning.as_str().map(str::to_owned))
            .collect(),
    }
}

/// What the cluster said, without the status and the code that stand before it for programs.
fn plain(error: CallError) -> anyhow::Error {
    match error {
        CallError::Rejected { detail, .. } => anyhow::anyhow!(detail),
        other => other.into(),
    }
}
