//! The Rust client of Lockgate: sessions that are kept alive, locks whose loss is told in time, and the tree of znodes.
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
//! # What a holder may believe
//!
//! A **session** lives as long as its heartbeats reach the cluster. The client counts its time from when the last confirmed
//! heartbeat was *sent*, on a clock that goes on while the machine is suspended, less a [`Margin`]. The cluster counts from
//! when it heard of it, which is later. So the client knows of a loss before the cluster gives the lock to somebody
//! else, if the machine's clock is not slower than the margin allows:
//!
//! - [`LockGuard::check`] looks at the clock at that very moment. Ask it before each step; a process that was paused beyond
//!   its time is told so by it, whichever task runs first.
//! - [`LockGuard::lost`] is a future that completes at the loss, to be raced against the work. It says how: that somebody broke the
//!   lock ([`Loss::Broken`]), for instance, and that is told at once.
//! - [`LockSession::standing`] says earlier that heartbeats fail: [`Standing::Uncertain`].
//!
//! Between a check and the write that follows, a process can still be paused for as long as the scheduler likes. Only the
//! storage itself can refuse such a write: by the [`FencingToken`], or, if it is a znode, by [`Transaction::held`].
//!
//! # What becomes of a request
//!
//! Requests go to one server, and on to the next one when it dies, is silent, or cannot serve. Every change carries a
//! request id, so it is made once however often it is sent. An acquire that waits keeps its place in the queue in this.
//! All servers answer the same; the one that leads the cluster does so a round trip earlier, and [`ClientBuilder::at_leader`] asks it.
//! What comes out is one of five, which never mix: [`Error::Refused`] (the cluster has decided, and changed nothing; it is
//! not sent again), [`Error::Unavailable`] (nothing was done), [`Error::Unknown`] (perhaps), [`Error::Lost`].
//!
//! [`Error::Stopped`] says that the client was [shut down](LockClient::shut_down). [`Error::is_retryable`] tells where the same call may
//! succeed later.
//!
//! # Threads and runtimes
//!
//! Calls run on the tokio runtime of their caller. Connections, heartbeats, and the requests that a dropped guard still has to send, run on one
//! thread of the client's own, or on the runtime that [`ClientBuilder::runtime`] names. So a session does not end with the runtime that it was
//! opened on, and its heartbeats go on while the program's threads are blocked. Guards may be dropped on any thread. [`blocking`] has the
//! same calls for programs without a runtime.
//!
//! # Cancel safety
//!
//! Every future may be dropped at any time, for example by `tokio::select!`:
//!
//! | dropped | what follows |
//! |---|---|
//! | [`LockSession::acquire`], [`acquire_all`](LockSession::acquire_all), [`LockGuard::upgrade`] | the call leaves the queue, and what it was granted in the same moment is released |
//! | [`LockGuard::release`], a guard | the lock is released |
//! | [`LockSession::close`], the last clone of a session and its last guard | the session is closed |
//! | [`LockGuard::lost`], [`revoke_requested`](LockGuard::revoke_requested), [`LockSession::lost`] | nothing; call it again |
//! | [`LockGuard::downgrade`] | the guard counts as downgraded |
//! | a change of the tree, or by an operator | the change is made or not, as after [`Error::Unknown`] |
//! | a read or a watch | nothing is read; events between two watches are missed, unless [`Znodes::watch_after`] says what was seen |
//!
//! All of that happens in the background, for at most the session's time. A program that is about to end has no background: what it does
//! not await (`release`, `close`) ends with the session's time.
//!
//! # Panics
//!
//! No call panics, but those of [`blocking`] on a thread of an asynchronous runtime, and asynchronous calls outside of a tokio runtime or on one
//! without timers. `check`, `loss`, `is_lost` and drops need no runtime.
//!
//! # Who calls
//!
//! A secured cluster wants to know: by a [`Token`] ([`ClientBuilder::token`]), or by the certificate that is shown over TLS. What it does
//! not allow is refused with [`Code::Unauthenticated`] (nobody who counts) or [`Code::Forbidden`] (not with this role), and not sent
//! again. Sessions are their openers': all that is asked in the name of a session is asked with the token that opened it, whatever the
//! [`TokenProvider`] gives by then, and its next token is for the next session. When the token of a session is revoked or expires, the
//! session is not renewed any more, and ends, with all its locks, when its time is over. So open a new session before that.
//!
//! # Modes
//!
//! | | |
//! |---|---|
//! | [`AcquireOptions::exclusive`] | one holder; [`LockGuard::downgrade`] goes on as a reader without a gap |
//! | [`AcquireOptions::shared`] | any number of readers |
//! | [`AcquireOptions::upgradeable`] | one among the readers, who may become exclusive: [`LockGuard::upgrade`] |
//! | [`AcquireOptions::semaphore`] | permits up to a limit |
//! | [`AcquireOptions::reentrant`] | entered again by the same owner |
//! | [`LockSession::acquire_all`] | several locks of any modes, all or none |
//!
//! Each has an example, and [`recipes`] has what is built on them. Somebody may ask for a lock ([`LockClient::revoke`]), of which its
//! guard tells ([`LockGuard::revoke_requested`]).
//!
//! # What is absent
//!
//! Nothing here knows Raft, or which server leads: any server will do. Nothing here decides who holds
//! a lock. The crate needs Linux, for the clock that counts suspend, and tokio.

mod client;
mod session;
mod session_core;
mod shutdown;
mod options;
mod acquire;
mod guard;
mod znodes;
mod looks;
pub mod blocking;
pub mod recipes;
mod access;
mod access_grant;
mod grant;
mod error;

mod background;
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

pub use access::{Access, AccessView, Caller, CertificateView, NewToken, RoleView, TokenView};
pub use client::{AddressError, ClientBuilder, LockClient};
pub use deadline::Margin;
pub use error::{Code, Error, Loss, Refusal};
pub use access_grant::{BadGrant, Grant, GrantPlace};
pub use guard::{FencingToken, LockGuard, LockGuards};
pub use life::{Revocation, Standing};
pub use looks::{Contender, LockSummary, LockView, Place, SessionView};
pub use options::{AcquireOptions, ContenderNames, LockSet, Mode, Wait};
pub use session::{LockSession, SessionBuilder};
pub use token::{Token, TokenError, TokenFile, TokenProvider, is_on_this_machine};
/// By what servers with TLS are known, and what is shown to them; see [`ClientBuilder::tls`].
pub use transport_security::{ClientTls, TlsError};
pub use znodes::{Child, CreateMode, Stat, Transaction, WatchKind, Znode, ZnodeEvent, Znodes};
