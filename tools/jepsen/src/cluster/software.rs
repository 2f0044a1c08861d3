//! What can be tested: how its nodes are configured, started and asked. Lockgate, and others for comparison.

use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::future::BoxFuture;

use crate::network::{Addresses, Slot};

/// One node: its identity, its files, and where it is.
#[derive(Clone, Debug)]
pub struct Node {
    /// The place where it is.
    pub slot: Slot,
    /// Its id. A node that replaces another one has an id of its own at the same place.
    pub id: u64,
    /// Its directory. `data` in it is what a disk fault is about.
    pub dir: PathBuf,
    /// Where it listens.
    pub addresses: Addresses,
    /// Where the others are told to find it: not where it listens if a proxy is between.
    pub peer_as_seen: SocketAddr,
}

impl Node {
    /// Its log, vote and snapshots.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// What it prints.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }
}

/// How a node's process is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// More variables of its environment.
    pub environment: Vec<(String, String)>,
}

/// A system under test.
pub trait Software: Send + Sync {
    /// Writes what the node needs before its first start, into its directory, which is there. `all` are the nodes at the
    /// beginning and the node itself; `joins`: it is to be added to a cluster that exists.
    fn configure(&self, node: &Node, all: &[Node], joins: bool) -> anyhow::Result<()>;

    /// What is to be started.
    fn start(&self, node: &Node) -> Start;

    /// Whether it serves.
    fn is_ready<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, bool>;

    /// The id of the leader that this node knows, and the term or epoch in which it leads.
    fn leader<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Option<(u64, u64)>>;

    /// A word for where the node's state is, and a digest of it; `None`: it has no such thing. Two nodes with the same
    /// position must have the same digest.
    fn digest<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, anyhow::Result<Option<(u64, String)>>>;
}
