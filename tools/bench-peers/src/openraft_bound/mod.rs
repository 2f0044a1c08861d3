//! A minimal server of three processes with openraft and HTTP: the upper bound for a lock server built on
//! these two.
//!
//! It has as much of Lockgate's HTTP API as its lock loads need, so `lockgate bench lock` measures it.
//! Followers forward requests to the leader. The leader gathers them into entries; openraft replicates an
//! entry; two of three logs sync it; then the leader applies it and replies. The only state is the holders
//! and waiters of locks.
//!
//! The first process stands for election when it starts, and no other ever does. Entries stay in memory for
//! as long as a follower may need them; nothing is read back from the disk. A follower does not receive the
//! commit index, which it does not need. openraft learns of the leader's own disk and of the slower follower
//! together with the faster follower's response, as in Lockgate.

mod follower;
mod frames;
mod http;
mod leader;
mod locks;
mod log_file;
mod log_store;
mod network;
mod request;
mod state_machine;
mod wire;

pub use follower::follow;
pub use leader::lead;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use openraft::type_config::alias as of;
use openraft::{BasicNode, Config, SnapshotPolicy};

use self::log_store::LogStore;
use self::network::Network;
use self::state_machine::StateMachine;

/// The first process, which is the leader.
const LEADER: u64 = 0;

/// Numbers of all three processes.
const MEMBERS: [u64; 3] = [LEADER, 1, 2];

/// Interval of the leader's heartbeats, and the election timeout. No other process ever becomes leader.
const HEARTBEAT_MS: u64 = 250;
const ELECTION_TIMEOUT_MS: u64 = 10_000;

/// Maximum number of messages in the queues between openraft's tasks, as in Lockgate.
const CHANNEL_SIZE: u64 = 4096;

/// openraft's type configuration.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Types;

impl openraft::RaftTypeConfig for Types {
    type D = Requests;
    type R = ();
    type NodeId = u64;
    type Node = BasicNode;
    type Term = u64;
    type LeaderId = openraft::impls::leader_id_std::LeaderId<u64, u64>;
    type Vote = openraft::impls::Vote<Self::LeaderId>;
    type Payload = openraft::EntryPayload<Requests, u64, BasicNode>;
    type Entry = openraft::Entry<of::CommittedLeaderIdOf<Self>, Self::Payload>;
    type AsyncRuntime = openraft_rt_tokio::TokioRuntime;
    type Responder<T>
        = openraft::impls::OneshotResponder<Self, T>
    where
        T: Send + 'static;
    type Batch<T>
        = openraft::impls::InlineBatch<T>
    where
        T: Send + 'static;
    type ErrorSource = openraft::impls::BoxedErrorSource;
}

type Raft = openraft::Raft<Types, StateMachine>;
type Entry = of::EntryOf<Types>;
type LogId = of::LogIdOf<Types>;
type Payload = of::PayloadOf<Types>;
type Vote = of::VoteOf<Types>;

/// Contents of an entry: requests in their frames.
#[derive(Debug, Clone)]
struct Requests(Bytes);

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Starts openraft in one of the processes.
async fn start(node: u64, network: Network, store: LogStore, machine: StateMachine) -> anyhow::Result<Raft> {
    let config = Config {
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: ELECTION_TIMEOUT_MS,
        election_timeout_max: 2 * ELECTION_TIMEOUT_MS,
        enable_elect: false,
        snapshot_policy: SnapshotPolicy::Never,
        api_channel_size: Some(CHANNEL_SIZE),
        notification_channel_size: Some(CHANNEL_SIZE),
        ..Config::default()
    };
    let config = Arc::new(config.validate()?);
    let started = Raft::new(node, config, network, store, machine).await;
    started.context("starting openraft")
}

fn membership() -> openraft::Membership<u64, BasicNode> {
    let all: BTreeSet<u64> = MEMBERS.into();
    openraft::Membership::new_with_defaults(vec![all], [])
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use load_generator::load::Plan;
    use load_generator::nodes::Nodes;
    use tokio::net::TcpListener;

    use super::*;

    /// Listeners and files of the three processes.
    struct Endpoints {
        clients: [TcpListener; 3],
        servers: [String; 3],
        followers: [TcpListener; 2],
        others: [String; 2],
        logs: [PathBuf; 3],
        _dir: tempfile::TempDir,
    }

    impl Endpoints {
        async fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let bind = async || TcpListener::bind("127.0.0.1:0").await.unwrap();
            let at = |one: &TcpListener| one.local_addr().unwrap().to_string();
            let clients = [bind().await, bind().await, bind().await];
            let followers = [bind().await, bind().await];
            Self {
                servers: clients.each_ref().map(at),
                others: followers.each_ref().map(at),
                clients,
                followers,
                logs: ["1", "2", "3"].map(|name| dir.path().join(name)),
                _dir: dir,
            }
        }
    }

    /// Runs the three processes.
    async fn serve(endpoints: Endpoints) -> anyhow::Result<()> {
        let ([of_leader, of_second, of_third], [second, third]) = (endpoints.clients, endpoints.followers);
        let logs = endpoints.logs;
        let led = lead(of_leader, &endpoints.others, &logs[0]);
        let followed = (
            follow(1, of_second, second, &logs[1]),
            follow(2, of_third, third, &logs[2]),
        );
        tokio::try_join!(led, followed.0, followed.1).map(|_| ())
    }

    #[tokio::test]
    async fn lockgate_load_generator_acquires_locks() {
        let endpoints = Endpoints::new().await;
        let nodes = Nodes::from(endpoints.servers.to_vec());
        let load = async {
            let plan = Plan::new(nodes, Duration::ZERO, Duration::from_secs(2));
            tokio::select! {
                served = serve(endpoints) => panic!("a server ended: {:?}", served.err()),
                report = plan.lock_cycles(5) => report.unwrap(),
            }
        };
        let local = tokio::task::LocalSet::new();
        let report = local
            .run_until(tokio::time::timeout(Duration::from_secs(60), load))
            .await;
        let report = report.expect("the load ends in time");
        assert_eq!(report.errors, 0, "{:?}", report.first_error);
        assert!(report.operation.count > 0);
    }
}
