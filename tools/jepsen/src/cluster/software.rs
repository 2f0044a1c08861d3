//! Interface of the systems under test: configuration, start and queries of nodes. Implemented by Lockgate,
//! and by others for comparison.

use std::net::SocketAddr;
use std::path::PathBuf;

use futures_util::future::BoxFuture;

use crate::network::{Addresses, Slot};

/// Identity, files and addresses of one node.
#[derive(Clone, Debug)]
pub struct Node {
    /// The slot of the node.
    pub slot: Slot,
    /// Node id. A node that replaces another one has a new id in the same slot.
    pub id: u64,
    /// Directory of the node. Disk faults affect the `data` directory in it.
    pub dir: PathBuf,
    /// Addresses on which the node listens.
    pub addresses: Addresses,
    /// Peer address that the other nodes are configured with; differs from the listen address if a proxy is
    /// between.
    pub peer_as_seen: SocketAddr,
}

impl Node {
    /// Returns the directory of log, vote and snapshots.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// Returns the file with the node's output.
    pub fn log_file(&self) -> PathBuf {
        self.dir.join("log")
    }
}

/// Command that starts a node's process.
#[derive(Clone, Debug)]
pub struct StartCommand {
    /// Path of the program.
    pub program: PathBuf,
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// Additional environment variables.
    pub environment: Vec<(String, String)>,
}

/// System under test.
pub trait Software: Send + Sync {
    /// Writes the files that the node needs before its first start into its directory, which exists. `all`
    /// are the initial nodes and the node itself. With `joins` the node is going to be added to an existing
    /// cluster.
    fn configure(&self, node: &Node, all: &[Node], joins: bool) -> anyhow::Result<()>;

    /// Returns the command that starts the node.
    fn start(&self, node: &Node) -> StartCommand;

    /// Returns whether the node serves.
    fn is_ready<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, bool>;

    /// Returns the id of the leader that this node knows, and the leader's term or epoch.
    fn leader<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Option<(u64, u64)>>;

    /// Returns the position of the node's state and a digest of that state; `None` if the system has no
    /// digest. Two nodes at the same position must have the same digest.
    fn digest<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, anyhow::Result<Option<(u64, String)>>>;
}
