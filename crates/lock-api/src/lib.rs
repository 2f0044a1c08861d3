//! Lock service, and its HTTP API.
//!
//! Two layers, of which the lower one stands alone:
//!
//! - [`locks`] turns a call (*acquire this lock, wait at most 10 s*) into commands of the replicated state
//!   machine, waits for the verdict without polling, and cleans up after a caller that goes away. It knows no
//!   HTTP; a program that embeds a node uses it directly.
//! - [`http`] serves the same calls, and sessions, znodes and watches, to everybody else: JSON over HTTP/1.1.
//!
//! # Vocabulary
//!
//! A **session** is a client's life sign: it lives as long as its heartbeats come, and all its locks end with
//! it. A **lock** is a znode below `/locks`; a **contender** is a child of that znode, made by one *acquire* and
//! owned by its session. The oldest contenders that get along with each other are the **holders**, the others
//! are the **queue**. A contender's node name is the **holder** that *release* names, and the position at which it
//! was made is the **fencing token** of its grant. The **owner** is the scope of re-entrancy within a session.
//!
//! # What is promised
//!
//! - At most one exclusive holder, or any number of shared ones, or permits up to the limit, at every position
//!   of the log. Of two conflicting grants the later has the larger fencing token.
//! - First come, first served, over all modes. A release wakes the new holders, and no other waiters.
//! - A holder keeps its lock until it releases it, its session ends, or an operator breaks it.
//! - A caller that hangs up while it waits leaves the queue; a try that fails leaves nothing behind.
//! - A request that carries a `request_id` may be sent again, to any node: it has one effect.
//! - An error says whether something may have been done: refused and `unavailable` mean no,
//!   `outcome_unknown` means perhaps.
//!
//! # Reads
//!
//! A node answers reads from its own state, which may be a little behind the cluster's, though never behind
//! what the same node has said before. `?linearizable=true` waits until the node knows all that was committed
//! before; the check of a fencing token always does.
//!
//! # Callers
//!
//! A call carries what its caller has proven to be, and the state machine decides by the access control lists of the
//! znodes, and in a secured cluster by policies, what it may do; reads ask the same. Over HTTP a caller is the address
//! of its connection, its certificate ([`http::Peer`]) and its token. In a program [`Locks::on_behalf_of`] sets it;
//! without it the caller has the rights of the whole world.
//!
//! # Names in addresses
//!
//! `POST /v1/locks/orders/42/acquire` acquires the lock `orders/42`: the last segment is the verb. A lock whose
//! own name ends in a verb's word is reached with its slash encoded: `orders%2Facquire` is the lock
//! `orders/acquire`. So whatever stands between a client and a node must pass `%2F` on as it is.
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
//! // Without TLS; while the node has enough to do it takes in nothing new.
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
//! # What is absent
//!
//! This crate does not decide about holders: the state machine does (`znode_store`). It does not know Raft, a disk or
//! an encoding of the log. Nothing in [`locks`] knows HTTP, and no route knows a status: [`http::problem`] holds the
//! one table.

pub mod locks;

pub mod http;

pub use locks::{LockError, LockPage, Locks, WaitFor};
