//! Accept loop of a front end, with connection limits and fair pacing of reads. It knows neither the protocol
//! nor TLS: the caller of [`serve`] turns each socket into a connection.
//!
//! The decisions are the same for every protocol. A listener limits the number of connections in total and
//! per client address ([`ConnectionLimits`]). It rejects a connection above a limit at once, so that the
//! client can try another node; in the kernel's backlog the client would learn nothing until its own timeout.
//! Connections are accepted and read in turn ([`Socket`]), so that other work of the node proceeds however many
//! clients connect or send at once. [`LogLimit`] bounds the log lines about rejected clients. An IPv6 address counts as its
//! 64-bit network, because the owner of one address of the network usually controls all of them.
//!
//! Two things are deliberately absent. The rate of new connections is not limited, because rejecting one
//! costs hardly less than accepting it. And TLS clients get no response when rejected, because that would
//! need a handshake.

mod accept;
mod handshake_thread;
mod log_limit;
mod metrics;
mod connection_limits;
mod read_pacing;
mod shares;

pub use accept::{Listener, serve};
pub use connection_limits::{ConnectionLimiter, ConnectionLimits, LiveConnectionLimits, client_network};
pub use log_limit::{LogLimit, abridged};
pub use metrics::{ConnectionCounts, ConnectionMetrics};
pub use read_pacing::{PacedReadHalf, ReadDelay, ReadPacer, Socket};
pub use shares::{Share, Shares};
