//! Whom a load is put on, and as whom: the nodes' addresses, and what protects and accompanies every request to them.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, bail};
use cli_support::api_client::{ApiClient, CallError};
use cli_support::credentials::Credentials;
use cli_support::ensure_usage;
use cli_support::http_client::Connection;
use serde_json::Value;

/// How long a node may leave the question who leads without an answer: it knows, or it is not well.
const LEADER_KNOWN_WITHIN: Duration = Duration::from_secs(2);

/// Some nodes, and what callers of them have.
#[derive(Debug, Clone)]
pub struct Nodes {
    addresses: Vec<String>,
    credentials: Credentials,
    sources: Vec<IpAddr>,
}

impl Nodes {
    /// The nodes at these addresses, of which there is at least one.
    pub fn new(addresses: Vec<String>, credentials: Credentials) -> Self {
        assert!(!addresses.is_empty(), "a load needs a node to go to");
        Self {
            addresses,
            credentials,
            sources: Vec::new(),
        }
    }

    /// The same nodes for clients of ZooKeeper that call from these addresses of this machine, by turns; none leaves it to the system.
    pub fn called_from(mut self, sources: Vec<IpAddr>) -> Self {
        self.sources = sources;
        self
    }

    /// Only the node with this number, counted from 1 as people do.
    pub fn only(mut self, number: usize) -> anyhow::Result<Self> {
        let count = self.count();
        ensure_usage!(
            (1..=count).contains(&number),
            "there is no server {number} among {count}"
        );
        self.addresses = vec![self.addresses.swap_remove(number - 1)];
        Ok(self)
    }

    /// Only the node that leads now, whichever it is. One that does not answer does not lead.
    pub async fn only_leader(mut self) -> anyhow::Result<Self> {
        let mut silent = None;
        for address in std::mem::take(&mut self.addresses) {
            let mut node = ApiClient::new(std::slice::from_ref(&address), 0, LEADER_KNOWN_WITHIN)
                .with(self.credentials.clone());
            let asked = node.call("GET", "/v1/cluster", &Value::Null, LEADER_KNOWN_WITHIN);
            let seen = match asked.await {
                Ok(answer) => answer.json(),
                Err(CallError::NoAnswer(why)) => {
                    silent = Some(why);
                    continue;
                }
                Err(refused) => return Err(refused).with_context(|| format!("asking {address} who leads")),
            };
            if seen["leader"].is_u64() && seen["leader"] == seen["node_id"] {
                self.addresses = vec![address];
                return Ok(self);
            }
        }
        match silent {
            Some(why) => bail!("none of the nodes that answer leads: {why}"),
            None => bail!("none of the nodes to call leads"),
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.addresses.len()
    }

    /// The address of the node whose turn it is for the client with this number.
    pub fn address(&self, number: usize) -> &str {
        &self.addresses[number % self.addresses.len()]
    }

    /// The address that the client with this number calls from, if it is not left to the system. Whoever goes round all nodes in the
    /// meantime comes to each of them from each address.
    pub fn source(&self, number: usize) -> Option<IpAddr> {
        let turn = number / self.count();
        (!self.sources.is_empty()).then(|| self.sources[turn % self.sources.len()])
    }

    /// The same nodes, of which another one comes first.
    pub fn beginning_with(&self, number: usize) -> Self {
        let mut nodes = self.clone();
        nodes.addresses.rotate_left(number % self.addresses.len());
        nodes
    }

    /// What callers have.
    pub fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// A client that begins with that node, and goes to others when it gets no answer.
    pub fn client(&self, number: usize, patience: Duration) -> ApiClient {
        ApiClient::new(&self.addresses, number, patience).with(self.credentials.clone())
    }

    /// A connection to that node.
    pub async fn connect(&self, number: usize) -> anyhow::Result<Connection> {
        let address = self.address(number);
        let connection = Connection::connect_as(address, &self.credentials).await;
        connection.with_context(|| format!("connecting to {address}"))
    }
}

impl From<Vec<String>> for Nodes {
    /// Nodes that ask for nothing.
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
