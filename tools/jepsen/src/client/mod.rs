//! Clients of the systems under test, and what they may conclude from each response.

mod result;
mod caller;
mod connection;
mod contender;
mod etcd;
mod guard;
mod lock;
mod mutex;
mod redis;
mod session;
mod store;
mod store_lockgate;
mod zookeeper;

pub use caller::{Caller, Reply, TIMEOUT};
pub use contender::{Contend, LeaseAnswer, Polled, poll, read_lease, release_lease, renew, session_of};
pub use etcd::{EtcdMutex, EtcdStore};
pub use guard::LockgateMutex;
pub use lock::{Acquire, Granted, release};
pub use mutex::Mutex;
pub use redis::{RedisClient, RedisReply};
pub use result::CallResult;
pub use session::{Liveness, Session, nanos};
pub use store::{Freshness, Store, Versioned};
pub use store_lockgate::LockgateStore;
pub use zookeeper::{Client as ZooKeeperClient, ZooKeeperMutex, ZooKeeperStore};
