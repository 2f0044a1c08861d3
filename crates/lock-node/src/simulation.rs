//! The seam for a simulation of whole clusters in one thread (feature `simulation`): that of replication, and what a node does to its state.

use std::cell::RefCell;
use std::rc::Rc;

pub use raft_node::simulation::Host as ReplicationHost;
pub use raft_node::simulation::{DiskTiming, DiskWork, Line, Listening, Place, ReadHalf, WriteHalf, is_on};
use znode_store::{Event, SessionId, Store, Zxid};

/// Machine that a simulated node runs on.
pub trait Host: ReplicationHost {
    /// Returns the number of ephemeral znodes of ended sessions that an entry removes, the same at all machines; `None`: as many as elsewhere.
    fn removals_per_entry(&self) -> Option<usize> {
        None
    }
    /// A command at `zxid` was a sign of life of this session.
    fn heard(&self, _zxid: Zxid, _session: SessionId) {}
    /// A command was applied: `store` is the state after it. Called in the order of the log, under the state's lock.
    fn carried_out(&self, at: Place, zxid: Zxid, events: &[Event], store: &Store);
    /// The state was replaced by a snapshot's, which ends at `at`.
    fn replaced(&self, at: Place, store: &Store);
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Sets the machine on whose behalf this thread works from now on. Returns the former one.
pub fn enter(host: Option<Rc<dyn Host>>) -> Option<Rc<dyn Host>> {
    raft_node::simulation::enter(host.clone().map(|host| host as Rc<dyn ReplicationHost>));
    HOST.with(|current| current.replace(host))
}

/// Asks the host, if there is one.
pub(crate) fn ask<T>(question: impl FnOnce(&dyn Host) -> T) -> Option<T> {
    let host = HOST.with(|current| current.borrow().clone());
    host.map(|host| question(&*host))
}
