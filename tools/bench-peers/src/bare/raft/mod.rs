//! The least with openraft: the same three processes with the same clients, but openraft says what is stored where and what is
//! committed, by terms and votes, and its state machine answers. So it bounds what Lockgate can do as long as it is made of that.
//!
//! The first process asks to be elected when it begins, and nobody else ever does. Who waits for what is known to it alone. Entries
//! are kept in memory for as long as a follower may want them, and nothing is read again from the disk. Nobody is told of what is
//! committed who need not know, and openraft hears of its own disk and of the slower follower together with what it waits for: that
//! is what helped Lockgate most, so the bound has it, too.

mod leader;
mod log;
mod machine;
mod network;
mod server;
mod wire;

pub use leader::lead;
pub use server::follow;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use openraft::type_config::alias as of;
use openraft::{BasicNode, Config, SnapshotPolicy};

use self::log::Store;
use self::machine::Machine;
use self::network::Network;

/// The first process, which leads.
const LEADER: u64 = 0;

/// All three.
const MEMBERS: [u64; 3] = [LEADER, 1, 2];

/// How often the leader says that it is there, and how long nobody may hear of it: nobody is elected in its place.
const HEARTBEAT_MS: u64 = 250;
const SILENCE_MS: u64 = 10_000;

/// Messages that wait between the tasks of openraft, as many as Lockgate lets wait.
const WAITING: u64 = 4096;

/// What openraft is made of here.
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

type Raft = openraft::Raft<Types, Machine>;
type Entry = of::EntryOf<Types>;
type LogId = of::LogIdOf<Types>;
type Payload = of::PayloadOf<Types>;
type Vote = of::VoteOf<Types>;

/// What one entry carries: requests in their frames.
#[derive(Debug, Clone)]
struct Requests(Bytes);

impl fmt::Display for Requests {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

/// Starts openraft in one of the processes.
async fn start(node: u64, network: Network, store: Store, machine: Machine) -> anyhow::Result<Raft> {
    let config = Config {
        heartbeat_interval: HEARTBEAT_MS,
        election_timeout_min: SILENCE_MS,
        election_timeout_max: 2 * SILENCE_MS,
        enable_elect: false,
        snapshot_policy: SnapshotPolicy::Never,
        api_channel_size: Some(WAITING),
        notification_channel_size: Some(WAITING),
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
