//! Rust client of the Lockgate lock server: sessions with automatic heartbeats, lock guards that report a loss in time, and the tree of
//! znodes.
//!
//! ```no_run
//! use std::time::Duration;
//! use lock_client::{AcquireOptions, LockClient};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = LockClient::new(["127.0.0.1:7401", "127.0.0.1:7402", "127.0.0.1:7403"])?;
//! let session = client.session().name("invoicing").ttl(Duration::from_secs(10)).open().await?;
//!
//! let guard = session.acquire("orders/42", AcquireOptions::exclusive()).await?;
//! tokio::select! {
//!     done = write_invoice(guard.fencing_token()) => done?,
//!     loss = guard.lost() => return Err(loss.into()),
//! }
//! guard.release().await?;
//! session.close().await?;
//! # Ok(())
//! # }
//! # async fn write_invoice(_token: lock_client::FencingToken) -> Result<(), std::io::Error> { Ok(()) }
//! ```
//!
//! # Guarantees to a holder
//!
//! A **session** lives as long as its heartbeats reach the cluster. The client counts the session's TTL from when it *sent* the last
//! confirmed heartbeat, on a clock that counts suspend, less a [`Margin`]. The cluster counts from when the heartbeat arrived, which is
//! later. So the client detects a loss before the cluster grants the lock to another session, if the machine's clock is not slower than
//! the margin allows:
//!
//! - [`LockGuard::check`] reads the clock. Call it before each step: after a pause beyond the TTL it reports the loss, whichever task runs
//!   first.
//! - [`LockGuard::lost`] is a future that completes at the loss, with the reason, for example [`Loss::Broken`]. Race it against the work.
//! - [`LockSession::state`] reports earlier that heartbeats fail: [`SessionState::Uncertain`].
//!
//! Between a check and the following write the scheduler can still pause the process. Only the storage itself can refuse such a write: by
//! the [`FencingToken`], or, for a znode, by [`Transaction::held`].
//!
//! # Requests and their outcomes
//!
//! The client sends a request to one server, and to the next one if that server fails, does not answer, or cannot serve. Every change has
//! a request id, so the cluster makes it once however often it is sent. A waiting acquire keeps its place in the queue. All servers give
//! the same answers; the leader saves a round trip, and [`ClientBuilder::at_leader`] prefers it.
//!
//! | error | meaning |
//! |---|---|
//! | [`Error::Refused`] | the cluster decided against the request and changed nothing; the client does not retry it |
//! | [`Error::Unavailable`] | nothing was done |
//! | [`Error::Unknown`] | the change may have been made |
//! | [`Error::Lost`] | the session or the lock is lost |
//! | [`Error::Stopped`] | the client was [shut down](LockClient::shut_down) |
//!
//! [`Error::is_retryable`] is true if the same call may succeed later.
//!
//! # Threads and runtimes
//!
//! Calls run on the tokio runtime of their caller. Connections, heartbeats, and the last requests of dropped guards run on one thread of
//! the client, or on the runtime given to [`ClientBuilder::runtime`]. So a session outlives the runtime that opened it, and its heartbeats
//! continue while the program's threads are blocked. Guards may be dropped on any thread. [`blocking`] has the same calls for programs
//! without a runtime.
//!
//! # Cancel safety
//!
//! Every future may be dropped at any time, for example by `tokio::select!`:
//!
//! | dropped | effect |
//! |---|---|
//! | [`LockSession::acquire`], [`acquire_all`](LockSession::acquire_all), [`LockGuard::upgrade`] | the call leaves the queue, and a grant of the same moment is released |
//! | [`LockGuard::release`], a guard | the lock is released |
//! | [`LockSession::close`], the last clone of a session and its last guard | the session is closed |
//! | [`LockGuard::lost`], [`release_requested`](LockGuard::release_requested), [`LockSession::lost`] | none; call it again |
//! | [`LockGuard::downgrade`] | the guard counts as downgraded |
//! | [`LockClient::acquire_lease`] | the call leaves the queue, and a grant of the same moment is released |
//! | [`LockClient::acquire_leases`] | the leases are released |
//! | [`Lease::renew`], [`release`](Lease::release) | the lease is renewed or not, released or not |
//! | a [`Lease`] | none: it holds its lock until its time is over |
//! | a change of the tree, or by an operator | the change is made or not, as after [`Error::Unknown`] |
//! | a read | none |
//! | a watch | none; use [`Znodes::watch_after`] to miss no event between two watches |
//!
//! The client does this in the background, for at most the session's TTL. A program that ends has no background: await `release` and
//! `close`, or the lock is held until the TTL is over.
//!
//! # Panics
//!
//! Asynchronous calls panic outside of a tokio runtime, and on a runtime without timers. Calls of [`blocking`] panic on a thread of an
//! asynchronous runtime. `check`, `loss`, `is_lost` and drops need no runtime. Nothing else panics.
//!
//! # Authentication
//!
//! A secured cluster identifies a caller by a [`Token`] ([`ClientBuilder::token`]), or by a TLS client certificate. It refuses a request
//! with [`Code::Unauthenticated`] without valid proof, and with [`Code::Forbidden`] if the role does not allow it; the client does not
//! retry either. A session belongs to the token that opened it: the client sends that token with every request of the session, even if the
//! [`TokenProvider`] has a newer one, which is used for the next session. When the token of a session is revoked or expires, heartbeats
//! fail, and the session ends with all its locks after its TTL. Open a new session before that.
//!
//! # Modes
//!
//! | | |
//! |---|---|
//! | [`AcquireOptions::exclusive`] | one holder; [`LockGuard::downgrade`] makes it a reader without a gap |
//! | [`AcquireOptions::shared`] | any number of readers |
//! | [`AcquireOptions::upgradeable`] | one of the readers, which can become exclusive: [`LockGuard::upgrade`] |
//! | [`AcquireOptions::semaphore`] | permits up to a limit |
//! | [`AcquireOptions::reentrant`] | acquired again by the same owner |
//! | [`LockSession::acquire_all`] | several locks of any modes, all or none |
//!
//! Each has an example, and [`recipes`] builds on them. [`LockClient::request_release`] asks a holder to release its lock;
//! [`LockGuard::release_requested`] notifies the holder.
//!
//! # Leases
//!
//! [`LockClient::acquire_lease`] acquires a lock for a time, without a session: for programs that do not live as long as the lock. Nothing
//! renews a [`Lease`] but [`Lease::renew`]. Any process that knows its [key](Lease::key) can renew and release it: [`LockClient::lease`].
//! [`LockClient::acquire_leases`], [`renew_leases`](LockClient::renew_leases) and [`release_leases`](LockClient::release_leases) take many at
//! once.
//!
//! # Counts, logs and traces
//!
//! [`LockClient::stats`] returns counts for metrics. The client logs by `tracing`: losses as warnings, retries for debugging. It has spans of
//! the level debug: `lockgate.acquire`, and `lockgate.request` for each attempt at a server. [`ClientBuilder::traceparent`] passes on the trace
//! context of the caller.
//!
//! # What is absent
//!
//! The client does not know Raft, needs no particular server, and does not decide which session holds a lock. It needs Linux, for
//! the clock that counts suspend, and tokio.

mod client;
mod session;
mod shutdown;
mod options;
mod acquire;
mod guard;
mod lease;
mod acquire_lease;
mod lease_batch;
mod znodes;
mod views;
pub mod blocking;
pub mod recipes;
mod access;
mod access_grant;
mod namespaces;
mod fencing_token;
mod grant;
mod error;
mod stats;

mod background;
mod session_core;
mod life;
mod heartbeat;
mod follow;
mod sse;
mod deadline;
mod clock;

mod token;
mod servers;
mod http;
mod connector;
mod encode;
mod words;

pub use access::{Access, AccessView, Caller, CallerKind, CertificateView, NewToken, RoleView, TokenView};
pub use access_grant::{AccessGrant, AccessGrantError, AccessScope, Right};
pub use client::{AddressError, ClientBuilder, LockClient};
pub use deadline::Margin;
pub use error::{Code, Error, Loss, Refusal};
pub use fencing_token::FencingToken;
pub use guard::{LockGuard, LockGuards};
pub use lease::{Lease, LeaseHandle, LeaseView};
pub use life::{ReleaseRequest, SessionState};
pub use namespaces::{NamespaceQuotas, NamespaceUsage, NamespaceView};
pub use options::{AcquireOptions, ContenderNames, LockSet, Mode, Wait};
pub use session::{LockSession, SessionBuilder};
pub use stats::Stats;
pub use token::{Token, TokenError, TokenFile, TokenProvider, is_on_this_machine};
/// Authorities and client certificate for servers with TLS; see [`ClientBuilder::tls`].
pub use transport_security::{ClientTls, TlsError};
pub use views::{Contender, LockSummary, LockView, SessionLock, SessionView};
pub use znodes::{Child, CreateMode, Stat, Transaction, WatchKind, Znode, ZnodeChange, ZnodeEvent, Znodes};
