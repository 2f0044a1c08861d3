//! Lock service, and its HTTP API.
//!
//! Two layers; the lower one does not depend on the upper one:
//!
//! - [`locks`] turns a call (*acquire this lock, wait at most 10 s*) into commands of the replicated state
//!   machine, waits for the result without polling, and cleans up after a caller that disconnects. It does not know
//!   HTTP; a program that embeds a node uses it directly.
//! - [`http`] serves the same calls, and sessions, znodes and watches, to all other clients: JSON over HTTP/1.1.
//!
//! # Vocabulary
//!
//! A **session** represents a live client: it lives as long as the client sends heartbeats, and all its locks end with
//! it. A **lock** is a znode below `/locks`; a **contender** is a child of that znode, made by one *acquire* and
//! owned by its session. The oldest contenders with compatible modes are the **holders**, the others
//! are the **queue**. The name of a contender's znode is the **holder** in a *release*, and the position of the log at
//! which it was created is the **fencing token** of its grant. The **owner** is the scope of re-entrancy within a session.
//!
//! # Guarantees
//!
//! - At most one exclusive holder, or any number of shared ones, or permits up to the limit, at every position
//!   of the log. Of two conflicting grants the later has the larger fencing token.
//! - First come, first served, over all modes. A release wakes the new holders, and no other waiters.
//! - A holder keeps its lock until it releases it, its session ends, or an operator breaks it.
//! - A caller that hangs up while it waits leaves the queue; a try that fails leaves nothing behind.
//! - A request that carries a `request_id` may be sent again, to any node: it has one effect.
//! - An error code tells if the request may have had an effect: refusals, `unavailable` and `read_only`
//!   mean no, `outcome_unknown` means perhaps.
//!
//! # Reads
//!
//! A node answers reads from its own state, which may lag behind the cluster's, but never behind an earlier answer of
//! the same node. With `?linearizable=true` the node first applies all entries that were committed before the read. The
//! check of a fencing token is always linearizable.
//!
//! # Callers
//!
//! A call carries the proven identities of its caller. The state machine authorizes changes by the access control lists of
//! the znodes, and in a secured cluster by policies; reads are authorized by the same rules. Over HTTP the identities are
//! the address of the connection, its certificate ([`http::Peer`]) and the token of the request. In a program
//! [`Locks::on_behalf_of`] sets them; without it the caller has the rights of `world:anyone`.
//!
//! # Names in addresses
//!
//! `POST /v1/locks/orders/42/acquire` acquires the lock `orders/42`: the last segment is the verb. A lock whose
//! own name ends in a verb's word is addressed with its slash encoded: `orders%2Facquire` is the lock
//! `orders/acquire`. So proxies between a client and a node must pass `%2F` on unchanged.
//!
//! # A server in a few lines
//!
//! ```no_run
//! # async fn example(node: lock_node::Node) -> std::io::Result<()> {
//! use lock_api::Locks;
//! use lock_api::http::{HttpConfig, router, serve};
//! use tokio_util::sync::CancellationToken;
//!
//! let (locks, config, stop) = (Locks::new(node.clone()), HttpConfig::default(), CancellationToken::new());
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:7400").await?;
//! let router = router(node.clone(), locks.clone(), config.clone());
//! // Without TLS; an overloaded node sheds load.
//! let serving = serve(listener, router, config, None, Some(node.clone()), stop.cancelled());
//! let stopping = async {
//!     tokio::signal::ctrl_c().await.expect("signals can be listened for");
//!     stop.cancel(); // no new callers
//!     locks.close().await; // waiting callers get an answer
//!     node.stop().await;
//! };
//! tokio::join!(serving, stopping);
//! # Ok(())
//! # }
//! ```
//!
//! # Not part of this crate
//!
//! This crate does not decide about holders: the state machine does (`znode_store`). It does not know Raft, a disk or
//! an encoding of the log. Nothing in [`locks`] knows HTTP, and no route knows a status: [`http::problem`] holds the
//! one table.

pub mod locks;

pub mod http;

pub use locks::{Lease, LeaseStatus, Leased, LockError, LockPage, Locks, PlaceOutcome, WaitFor};
