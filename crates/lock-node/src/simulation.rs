//! Interface to a simulation of whole clusters in one thread (feature `simulation`). It extends that of replication by reports of each change of a
//! node's state.

use std::cell::RefCell;
use std::rc::Rc;

pub use raft_node::simulation::Host as ReplicationHost;
pub use raft_node::simulation::{DiskTiming, DiskWork, Line, Listening, Place, ReadHalf, WriteHalf, is_on};
use znode_store::{Event, SessionId, Store, Zxid};

/// Machine that a simulated node runs on.
pub trait Host: ReplicationHost {
    /// Returns the number of ephemeral znodes of ended sessions that one entry removes, or `None` for the default. It must be the same on all
    /// machines.
    fn removals_per_entry(&self) -> Option<usize> {
        None
    }
    /// Reports that this node sends a heartbeat of this session to the leader.
    fn heartbeat_sent(&self, _session: SessionId) {}
    /// Reports that the command at `zxid` renewed this session.
    fn note_activity(&self, _zxid: Zxid, _session: SessionId) {}
    /// Reports that a command was applied. `store` is the state after it. Called in log order, under the lock of the state.
    fn command_applied(&self, at: Place, zxid: Zxid, events: &[Event], store: &Store);
    /// Reports that the state was replaced by that of a snapshot, which ends at `at`.
    fn replaced(&self, at: Place, store: &Store);
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Sets the machine that this thread simulates from now on. Returns the former one.
pub fn enter(host: Option<Rc<dyn Host>>) -> Option<Rc<dyn Host>> {
    raft_node::simulation::enter(host.clone().map(|host| host as Rc<dyn ReplicationHost>));
    HOST.with(|current| current.replace(host))
}

/// Calls the current machine, if there is one, and returns its result.
pub(crate) fn ask<T>(call: impl FnOnce(&dyn Host) -> T) -> Option<T> {
    let host = HOST.with(|current| current.borrow().clone());
    host.map(|host| call(&*host))
}
