//! Lockgate is a lock server without external dependencies: a few nodes replicate a ZooKeeper-like tree through Raft, and clients take
//! exclusive, shared and semaphore locks over HTTP.
//!
//! This crate is the program `lockgate`, and the server as a library. A [`Lockgate`] is a node inside a Rust program. It serves HTTP like
//! any other node, and the program takes locks with [`Lockgate::client`], a client of [`lock_client`] without a socket:
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
//! // This write is made only if the lock is held at that moment.
//! guard.write(Transaction::new().set("/orders/42", "invoiced", None)).await?;
//! guard.release().await?;
//!
//! session.close().await?;
//! server.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! The page `docs/start/embed.md` of the repository describes runtimes, blocking programs, readiness, shutdown, defaults and tests.
//!
//! `lock_api` documents the guarantees of locks, `lock_node` replicates the state, and `znode_store` decides every command. This crate only
//! starts and stops them.
//!
//! # Features
//!
//! These are on by default. A program that embeds a node uses `default-features = false`, and adds what it needs:
//!
//! - `tls`: connections of clients and peers over TLS, for members on several machines. Without it [`Builder::tls`] fails.
//! - `zookeeper`: the front end for clients of ZooKeeper. Without it [`Builder`] has no methods for it.
//! - `history`: the history of locks. Without it a node keeps none and rejects requests for it.
//! - `cli`: the program with its configuration files, command line, and launcher of local clusters. It includes the three above.
//! - `bench`: `lockgate bench`, the load generator.
//! - `migrate`: `lockgate migrate`, which moves the tree of a ZooKeeper ensemble.
//!
//! Off by default is `testing`: a node for the tests of programs that take locks (module `testing`).

mod in_process;
mod operator;
mod server;
mod start_error;
#[cfg(feature = "testing")]
pub mod testing;
mod transport;
mod setup_notice;
mod redis;
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
pub mod log_writer;
#[cfg(feature = "cli")]
mod serve;
#[cfg(feature = "cli")]
pub mod snapshot;
#[cfg(feature = "cli")]
pub mod traces;

pub use server::{Builder, LiveSettings, Lockgate, NotReady};
pub use start_error::StartError;
pub use transport::TlsConfig;

pub use lock_api;
pub use lock_client;
pub use lock_node;
/// Former name of [`lock_node`], for programs that use it.
#[doc(hidden)]
pub use lock_node as raft_node;
pub use redis_front;
pub use transport_security;
#[cfg(feature = "zookeeper")]
pub use zk_front;
pub use znode_store;
