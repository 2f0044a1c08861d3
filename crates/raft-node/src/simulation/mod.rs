//! The seam for a simulation of whole clusters in one thread (feature `simulation`): who simulates a machine is asked
//! here what a node otherwise asks the operating system, and is told what a node does that no client sees.
//!
//! A host is entered before anything of its node runs and left afterwards; where none is entered, as in every program that
//! serves anybody, the node does what it does without the feature. Randomness is not here: a simulation replaces
//! the system call.

mod stream;

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::rc::Rc;

use futures_util::future::BoxFuture;
pub(crate) use raft_log::simulation::wait_for_disk;
pub use raft_log::simulation::{DiskTiming, DiskWork, is_on};

pub use self::stream::{Line, Listening, PeerListener, PeerStream, Protected, ReadHalf, WriteHalf};

/// A position in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// The term of the entry.
    pub term: u64,
    /// Its index.
    pub index: u64,
}

/// The machine that a simulated node runs on.
pub trait Host: DiskTiming {
    /// Its wall clock, in milliseconds since 1970.
    fn wall_clock_ms(&self) -> u64;
    /// Calls an address. Ready when the other side is reached, or known not to be.
    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Line>>;
    /// A vote is on the disk: in this term, for this node, which leads if it is `committed`.
    fn voted(&self, term: u64, candidate: u64, committed: bool);
    /// An entry stands in the log from now on, with its bytes, behind another one.
    fn appended(&self, at: Place, payload: &[u8], before: Option<Place>);
    /// The entry at `at` was applied, and with it all before it.
    fn applied(&self, at: Place, payload: &[u8]);
}

thread_local! {
    static HOST: RefCell<Option<Rc<dyn Host>>> = const { RefCell::new(None) };
}

/// Says on whose behalf this thread works from now on. Answers with who it was before.
pub fn enter(host: Option<Rc<dyn Host>>) -> Option<Rc<dyn Host>> {
    raft_log::simulation::enter(host.clone().map(|host| host as Rc<dyn DiskTiming>));
    HOST.with(|current| current.replace(host))
}

/// Asks the host, if there is one.
pub(crate) fn request<T>(question: impl FnOnce(&dyn Host) -> T) -> Option<T> {
    let host = HOST.with(|current| current.borrow().clone());
    host.map(|host| question(&*host))
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.term, self.index)
    }
}
