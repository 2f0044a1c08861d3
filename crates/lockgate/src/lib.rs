//! Lockgate is a lock server that needs nothing beside itself: a few nodes agree through Raft on a
//! ZooKeeper-like tree, and exclusive, shared and semaphore locks are what clients build on it over HTTP.
//!
//! This crate is the program `lockgate`, and the server as a library. A node inside a Rust program is a
//! [`Lockgate`]; it serves HTTP like any other node, and the program takes locks by [`Lockgate::client`], a client of
//! [`lock_client`] without a socket:
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use lockgate::Lockgate;
//! use lockgate::lock_client::{AcquireOptions, Transaction};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Lockgate::builder()
//!     .node_id(1)
//!     .cluster("orders")
//!     .member(1, "127.0.0.1:7500", "127.0.0.1:7400")
//!     .data_dir("/var/lib/orders/lockgate")
//!     .start()
//!     .await?;
//! server.ready(Duration::from_secs(30)).await?;
//!
//! let session = server.open_session("worker-7").await?;
//! let guard = session.acquire("orders/42", AcquireOptions::exclusive()).await?;
//! println!("nobody else writes to order 42, and {} proves it", guard.fencing_token());
//!
//! // A write into the cluster's own tree that is made only if the lock is held at that very moment.
//! guard.write(Transaction::new().set("/orders/42", "invoiced", None)).await?;
//! guard.release().await?;
//!
//! session.close().await?;
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! The page `docs/embedding.md` of the repository has more: runtimes, threads that block, the order of a
//! shutdown, and the defaults.
//!
//! What a lock guarantees, and to whom, stands in `lock_api`; how it is replicated in `raft_node`; and how it is
//! decided in `znode_store`. Nothing here decides anything about locks: this crate starts things and ends them.
//!
//! # Features
//!
//! These are on by default. Programs that embed the server need none of them but perhaps `tls`
//! (`default-features = false`).
//!
//! - `cli`: the program with its configuration files and its command line, the launcher of local clusters included.
//! - `bench`: `lockgate bench`, the load generator.
//! - `migrate`: `lockgate migrate`, which moves the tree of a ZooKeeper ensemble.
//! - `tls`: connections of clients and peers over TLS. Programs on several machines want it; without it a node has thirty crates fewer.
//!
//! Off by default is `testing`: a node for the tests of programs that take locks.

mod in_process;
mod operator;
mod server;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod unsecured;
#[cfg(feature = "zookeeper")]
mod zookeeper;
#[cfg(not(feature = "zookeeper"))]
#[path = "no_zookeeper.rs"]
mod zookeeper;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod config;
#[cfg(feature = "cli")]
pub mod log_lines;
#[cfg(feature = "cli")]
mod serve;
#[cfg(feature = "cli")]
pub mod snapshot;
#[cfg(feature = "cli")]
pub mod traces;

pub use server::{Builder, Lockgate, NotReady, Reconfigured, StartError};
pub use transport::TlsConfig;

pub use lock_api;
pub use lock_client;
pub use raft_node;
pub use transport_security;
#[cfg(feature = "zookeeper")]
pub use zk_front;
pub use znode_store;
