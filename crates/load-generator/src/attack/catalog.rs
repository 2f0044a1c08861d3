//! List of the attacks: what each does, and which callers make it.

use clap::ValueEnum;
use serde::Serialize;

use super::AttackContext;
use super::callers::Caller;
use super::held::{self, Connections, Port};
use super::{floods, large, lock_znodes, queues, watches};

/// Attack on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Request heads that arrive byte by byte, at the HTTP port
    SlowHttp,
    /// Request bodies that arrive byte by byte, at the HTTP port
    SlowBodies,
    /// Connect requests that arrive byte by byte, at the ZooKeeper port
    SlowZookeeper,
    /// Commands that arrive byte by byte, at the Redis port
    SlowRedis,
    /// Handshakes that arrive byte by byte, at the peer port
    SlowPeers,
    /// Connections without any request, at the HTTP port
    Idle,
    /// Connections with half a request head, at the HTTP port
    HalfHeads,
    /// Unfinished TLS handshakes, at every port. A server without TLS treats them as malformed requests
    HalfHandshakes,
    /// Pipelined requests for a page whose responses are never read, with a small receive buffer
    Unread,
    /// Connections that are opened and closed at the maximum rate, at every port
    Reconnects,
    /// The same with a complete TLS handshake each: the most expensive operation of an unknown caller. Skipped without TLS
    Handshakes,
    /// Malformed first bytes on new connections, at every port
    Garbage,
    /// Bodies that exceed the limit by one byte
    LargeBodies,
    /// Valid bodies of 1 MB, many at a time
    LargeWrites,
    /// Paths of depth 10,000
    DeepPaths,
    /// Reads of locks, znodes and sessions that do not exist or that the caller may not see
    Lookups,
    /// Operations that are refused, with reasons of 1,000 control characters
    Refusals,
    /// Many tries at a time to acquire a held lock: each needs a permit of new requests
    NewRequests,
    /// Many renewals of a lease at a time: each needs a permit of maintenance
    Renewals,
    /// Many acquires that wait
    Waits,
    /// One lock whose queue is full, and whose waiters are granted all at once
    Queue,
    /// Locks that stay closed after their release
    ClosedLocks,
    /// Many event streams of sessions
    Streams,
    /// Many subscriptions of the event feed
    Feed,
    /// Many watches of one client
    Watches,
    /// Session with many locks that is read and closed repeatedly
    LargeSession,
    /// Lists of locks and sessions, and the graph of waits, while a session holds many locks
    Lists,
    /// Write requests without a session, each with a new request ID that the server has to store
    RequestIds,
    /// Many locks that are acquired and released at the maximum rate, for the shared history and event buffers
    Holds,
    /// Znodes below a lock's that belong to no session, from a ZooKeeper client
    LockZnodes,
    // Last, because its sessions remain for a while.
    /// Sessions, as many as possible
    Sessions,
}

impl Attack {
    /// Returns all attacks in the order in which they run.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Returns the name on the command line and in results.
    pub fn name(self) -> String {
        let value = self.to_possible_value().expect("no attack is hidden");
        value.get_name().to_owned()
    }

    /// Returns the callers of a secured cluster that make the attack. An attack for which the server has to store something is made by
    /// the caller with rights only; without rights it is refused like [`Attack::NewRequests`].
    pub(super) fn callers(self) -> &'static [Caller] {
        match self {
            Self::SlowHttp
            | Self::SlowBodies
            | Self::SlowZookeeper
            | Self::SlowRedis
            | Self::SlowPeers
            | Self::Idle
            | Self::HalfHeads
            | Self::HalfHandshakes
            | Self::Unread
            | Self::Reconnects
            | Self::Handshakes
            | Self::Garbage => &[Caller::Stranger],
            Self::LargeBodies
            | Self::LargeWrites
            | Self::DeepPaths
            | Self::Lookups
            | Self::Refusals
            | Self::NewRequests
            | Self::Lists
            | Self::Feed
            | Self::Sessions => &Caller::ALL,
            Self::Renewals
            | Self::Waits
            | Self::Queue
            | Self::ClosedLocks
            | Self::Streams
            | Self::Watches
            | Self::LargeSession
            | Self::RequestIds
            | Self::Holds
            | Self::LockZnodes => &[Caller::Prefix],
        }
    }

    /// Runs the attack until it is stopped.
    pub(super) async fn run(self, context: &AttackContext) -> anyhow::Result<()> {
        match self {
            Self::SlowHttp => {
                held::drip(context, Port::Http, b"GET /v1/cluster HTTP/1.1\r\nx-slow: ").await;
            }
            Self::SlowBodies => {
                let head = b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n";
                held::drip(context, Port::Http, head).await;
            }
            // The length of a connect request, without the request.
            Self::SlowZookeeper => held::drip(context, Port::ZooKeeper, &[0, 0, 0, 45]).await,
            // A command of two arguments, without them.
            Self::SlowRedis => held::drip(context, Port::Redis, b"*2\r\n$4096\r\n").await,
            Self::SlowPeers => held::drip(context, Port::Peers, &[]).await,
            Self::Idle => held::hold(context, Connections::default(), async |_| Ok(Vec::new())).await,
            Self::HalfHeads => {
                let half = b"GET /v1/cluster HTT";
                held::hold(context, Connections::default(), async |_| Ok(half.to_vec())).await;
            }
            Self::HalfHandshakes => {
                let connections = Connections {
                    ports: &Port::ALL,
                    bare: true,
                    ..Connections::default()
                };
                // The start of a ClientHello.
                let hello = [22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3];
                held::hold(context, connections, async |_| Ok(hello.to_vec())).await;
            }
            Self::Unread => held::unread(context).await,
            Self::Reconnects => floods::reconnects(context).await,
            Self::Handshakes => floods::handshakes(context).await,
            Self::Garbage => floods::garbage(context).await,
            Self::LargeBodies => floods::large_bodies(context).await,
            Self::LargeWrites => floods::large_writes(context).await,
            Self::DeepPaths => floods::deep_paths(context).await,
            Self::Lookups => floods::lookups(context).await,
            Self::Refusals => floods::refusals(context).await,
            Self::NewRequests => queues::new_requests(context).await?,
            Self::Renewals => queues::renewals(context).await,
            Self::Waits => queues::waits(context).await?,
            Self::Queue => queues::full(context).await,
            Self::ClosedLocks => queues::closed_locks(context).await,
            Self::Streams => held::streams(context).await,
            Self::Feed => held::feed(context).await,
            Self::Watches => watches::arm(context).await?,
            Self::LargeSession => large::session(context).await,
            Self::Lists => large::lists(context).await?,
            Self::RequestIds => large::request_ids(context).await?,
            Self::Holds => queues::holds(context).await,
            Self::LockZnodes => lock_znodes::create(context).await?,
            Self::Sessions => floods::sessions(context).await,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_equal_in_json_and_arguments() {
        for attack in Attack::all() {
            assert_eq!(serde_json::to_value(attack).unwrap(), attack.name());
        }
    }
}
