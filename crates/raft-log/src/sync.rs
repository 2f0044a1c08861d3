//! Mutexes and read-write locks of a node's crates. With the feature `lock-order` a thread panics when it takes two of them in the opposite
//! order to an earlier one, by any thread: such an order lets two threads wait for each other without end. Mutexes that belong to condition
//! variables are not among them; they are taken alone.

#[cfg(not(feature = "lock-order"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(feature = "lock-order")]
pub use tracing_mutex::parkinglot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
