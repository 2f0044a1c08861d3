//! Nodes under load: their addresses, and the credentials of every request to them.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use cli_support::api_client::{ApiClient, CallError};
use cli_support::credentials::Credentials;
use cli_support::ensure_usage;
use cli_support::http_client::Connection;
use serde_json::Value;
use tokio::time::Instant;

/// Response timeout of the query for the leader: a healthy node responds at once.
const LEADER_QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// Time for which a busy node is called again.
const CONNECT_PATIENCE: Duration = Duration::from_secs(20);

/// Pause between two such calls.
const CONNECT_RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Addresses of nodes, with the credentials of their clients.
#[derive(Debug, Clone)]
pub struct Nodes {
    addresses: Vec<String>,
    credentials: Credentials,
    sources: Vec<IpAddr>,
}

impl Nodes {
    /// Creates a list of nodes.
    ///
    /// # Panics
    ///
    /// If there are no addresses.
    pub fn new(addresses: Vec<String>, credentials: Credentials) -> Self {
        assert!(!addresses.is_empty(), "a load needs at least one node");
        Self {
            addresses,
            credentials,
            sources: Vec::new(),
        }
    }

    /// Sets the addresses of this machine that ZooKeeper clients connect from, in turn; with none, the system
    /// chooses.
    pub fn called_from(mut self, sources: Vec<IpAddr>) -> Self {
        self.sources = sources;
        self
    }

    /// Returns only the node with this number, counted from 1.
    pub fn only(mut self, number: usize) -> anyhow::Result<Self> {
        let count = self.count();
        ensure_usage!(
            (1..=count).contains(&number),
            "there is no server {number} among {count}"
        );
        self.addresses = vec![self.addresses.swap_remove(number - 1)];
        Ok(self)
    }

    /// Returns only the current leader. A node that does not respond does not lead.
    pub async fn only_leader(mut self) -> anyhow::Result<Self> {
        let mut silent = None;
        for address in std::mem::take(&mut self.addresses) {
            let mut node = ApiClient::new(std::slice::from_ref(&address), 0, LEADER_QUERY_TIMEOUT)
                .with(self.credentials.clone());
            let request = node.call("GET", "/v1/cluster", &Value::Null, LEADER_QUERY_TIMEOUT);
            let status = match request.await {
                Ok(response) => response.json(),
                Err(CallError::NoAnswer(why)) => {
                    silent = Some(why);
                    continue;
                }
                Err(rejected) => {
                    return Err(rejected).with_context(|| format!("querying {address} for the leader"));
                }
            };
            if status["leader"].is_u64() && status["leader"] == status["node_id"] {
                self.addresses = vec![address];
                return Ok(self);
            }
        }
        match silent {
            Some(why) => bail!("none of the nodes that respond is the leader: {why}"),
            None => bail!("none of the nodes is the leader"),
        }
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// Returns the node's address for the client with this number: clients are spread in turn.
    pub fn address(&self, number: usize) -> &str {
        &self.addresses[number % self.addresses.len()]
    }

    /// Returns the local address for the client with this number, unless the system chooses. Successive
    /// rounds over all nodes use successive addresses, so that each node is reached from each address.
    pub fn source(&self, number: usize) -> Option<IpAddr> {
        let turn = number / self.count();
        (!self.sources.is_empty()).then(|| self.sources[turn % self.sources.len()])
    }

    /// Returns the same nodes in rotated order, beginning with the given one.
    pub fn beginning_with(&self, number: usize) -> Self {
        let mut nodes = self.clone();
        nodes.addresses.rotate_left(number % self.addresses.len());
        nodes
    }

    /// Returns the credentials.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns a client that begins with the given node, and switches to others when it gets no response.
    pub fn client(&self, number: usize, timeout: Duration) -> ApiClient {
        ApiClient::new(&self.addresses, number, timeout).with(self.credentials.clone())
    }

    /// Connects to the given node, and tries again for some time while it is too busy or full.
    pub async fn connect_patiently(&self, number: usize) -> anyhow::Result<Connection> {
        let deadline = Instant::now() + CONNECT_PATIENCE;
        loop {
            match self.connect(number).await {
                Err(_) if Instant::now() < deadline => tokio::time::sleep(CONNECT_RETRY_PAUSE).await,
                connected => return connected,
            }
        }
    }

    /// Connects to the given node.
    pub async fn connect(&self, number: usize) -> anyhow::Result<Connection> {
        let address = self.address(number);
        let connection = Connection::connect_as(address, &self.credentials).await;
        connection.with_context(|| format!("connecting to {address}"))
    }
}

impl From<Vec<String>> for Nodes {
    /// Creates a list of nodes without credentials.
    fn from(addresses: Vec<String>) -> Self {
        Self::new(addresses, Credentials::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_called_from_every_address() {
        let sources = ["127.0.0.1", "127.0.0.2", "127.0.0.3"].map(|source| source.parse().unwrap());
        let nodes = Nodes::from(["a:1", "b:1", "c:1"].map(str::to_owned).to_vec());
        assert_eq!(nodes.source(7), None);
        let nodes = nodes.called_from(sources.to_vec());
        let pairs: std::collections::BTreeSet<_> = (0..9)
            .map(|number| (nodes.address(number), nodes.source(number)))
            .collect();
        assert_eq!(pairs.len(), 9);
    }

    #[test]
    fn one_node_is_chosen_by_its_number() {
        let nodes = Nodes::from(["a:1", "b:1"].map(str::to_owned).to_vec());
        assert_eq!(nodes.clone().only(2).unwrap().address(5), "b:1");
        for number in [0, 3] {
            assert!(nodes.clone().only(number).is_err());
        }
    }
}
