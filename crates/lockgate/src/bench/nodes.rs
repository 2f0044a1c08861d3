//! Whom a load is put on, and as whom: the nodes' addresses, and what protects and accompanies every request to them.

use anyhow::Context;

use std::time::Duration;

use crate::api_client::ApiClient;
use crate::credentials::Credentials;
use crate::http_client::Connection;

/// Some nodes, and what callers of them have.
#[derive(Debug, Clone)]
pub struct Nodes {
    addresses: Vec<String>,
    credentials: Credentials,
}

impl Nodes {
    /// The nodes at these addresses, of which there is at least one.
    pub fn new(addresses: Vec<String>, credentials: Credentials) -> Self {
        assert!(!addresses.is_empty(), "a load needs a node to go to");
        Self {
            addresses,
            credentials,
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
