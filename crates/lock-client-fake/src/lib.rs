//! Lockgate cluster in memory, for the tests of programs that use [`lock_client`].
//!
//! ```
//! use lock_client::{AcquireOptions, Loss};
//! use lock_client_fake::FakeCluster;
//!
//! # async fn test() -> Result<(), lock_client::Error> {
//! let cluster = FakeCluster::new();
//! let session = cluster.client().session().open().await?;
//! let guard = session.acquire("orders/42", AcquireOptions::exclusive()).await?;
//! // How does the program react to the loss of its lock?
//! cluster.break_lock("orders/42", "test");
//! assert!(matches!(guard.lost().await, Loss::Broken { .. }));
//! # Ok(())
//! # }
//! # tokio::runtime::Runtime::new().unwrap().block_on(test()).unwrap();
//! ```
//!
//! Clients are the real ones: they send HTTP over a pipe in memory. [`znode_store`], the state machine of the servers, decides about locks,
//! sessions, leases and znodes, so a program meets the rules of a real cluster. There is no second description of them here.
//!
//! # What is absent
//!
//! Time: a session or a lease ends when it is closed, or by [`FakeCluster::expire_sessions`]. Lock delays, bounds of a hold
//! ([`max_hold`](lock_client::AcquireOptions::max_hold)) and the TTL of znodes have no effect. There is no access control, no history, and no
//! failure of a server: for those start a node by `lockgate::testing::TestServer`, or a cluster by `lockgate dev`.

mod api;
mod documents;
mod server;
mod state;

use std::fmt;
use std::sync::Arc;

use lock_client::{ClientBuilder, LockClient};
use znode_store::{Command, LockCommand, LockName, Request, SessionId};

use crate::state::{Shared, TERM};

/// Cluster in memory. Clones are the same cluster. Its methods may be called on any thread.
#[derive(Clone, Default)]
pub struct FakeCluster(Arc<Shared>);

impl fmt::Debug for FakeCluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeCluster")
    }
}

impl FakeCluster {
    /// Empty cluster.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a client of this cluster. Each call returns another client, as for another program.
    pub fn client(&self) -> LockClient {
        let built = self.builder().build();
        built.expect("a server in the same process needs no address")
    }

    /// Returns a builder of a client of this cluster, for more options.
    pub fn builder(&self) -> ClientBuilder {
        let shared = self.0.clone();
        LockClient::in_process(move || Ok(server::connect(&shared)))
    }

    /// Breaks a lock at all its holders, as an operator does. Returns the number of holders.
    pub fn break_lock(&self, lock: &str, reason: &str) -> usize {
        let Ok(lock) = LockName::parse(lock) else {
            return 0;
        };
        let holders = self.0.read(|state| state.store.holds_of(&lock));
        let broken = holders.iter().filter(|hold| {
            let command = LockCommand::Break {
                lock: lock.clone(),
                holder: hold.holder.to_string(),
                by: "test".into(),
                reason: reason.into(),
            };
            // A refusal means that the holder has released meanwhile.
            self.0.apply(Request::internal(Command::Lock(command))).is_ok()
        });
        broken.count()
    }

    /// Ends all sessions and leases, as if no heartbeat had arrived for their TTL.
    pub fn expire_sessions(&self) {
        let (sessions, as_of) = self.0.read(|state| {
            let sessions = state.store.sessions();
            let ids: Vec<SessionId> = sessions.iter().map(|session| session.session).collect();
            (ids, state.store.zxid())
        });
        let command = Command::ExpireSessions {
            sessions,
            term: TERM,
            as_of,
        };
        let expired = self.0.apply(Request::internal(command));
        expired.expect("the state knows no later term");
    }
}
