//! Hook for simulations of whole clusters in one thread (feature `simulation`). The host that simulates a
//! machine replaces the operating system's clock, network and disk, and is notified of steps of a node that
//! no client sees.
//!
//! A host is entered before any code of its node runs and left afterwards. Without a host, as in every
//! production program, a node behaves as without the feature. Randomness is not part of this: a simulation
//! replaces the system call.

mod stream;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;

use futures_util::future::BoxFuture;
pub(crate) use raft_log::simulation::wait_for_disk;
pub use raft_log::simulation::{DiskTiming, DiskWork, is_on};

pub use self::stream::{Line, Listening, PeerListener, PeerStream, Protected, ReadHalf, WriteHalf};

/// Position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// Term of the entry.
    pub term: u64,
    /// Index of the entry.
    pub index: u64,
}

/// Machine that a simulated node runs on.
pub trait Host: DiskTiming {
    /// Returns its wall clock, in milliseconds since 1970.
    fn wall_clock_ms(&self) -> u64;
    /// Connects to an address. Completes when the other side is reached, or known to be unreachable.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Line>>;
    /// Notifies that a vote is on the disk, for `candidate` in `term`; the candidate leads if the vote is `committed`.
    fn voted(&self, term: u64, candidate: u64, committed: bool);
    /// Notifies that an entry was appended to the log after the entry `before`.
    fn appended(&self, at: Place, payload: &[u8], before: Option<Place>);
    /// Notifies that the entry at `at` and all earlier ones were applied.
    fn applied(&self, at: Place, payload: &[u8]);
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Sets the host for which this thread works from now on. Returns the previous one.
pub fn enter(host: Option<Rc<dyn Host>>) -> Option<Rc<dyn Host>> {
    raft_log::simulation::enter(host.clone().map(|host| host as Rc<dyn DiskTiming>));
    HOST.with(|current| current.replace(host))
}

/// Calls the host, if there is one.
pub(crate) fn request<T>(question: impl FnOnce(&dyn Host) -> T) -> Option<T> {
    let host = HOST.with(|current| current.borrow().clone());
    host.map(|host| question(&*host))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}
