//! The locks of this crate. With the feature `lock-order` a thread panics that takes two of them in the order opposite to that in which any
//! thread has ever taken them: one day two threads would each wait for the other. (Locks that condition variables belong to are taken
//! alone, and are not among them.)

#[cfg(not(feature = "lock-order"))]
pub use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
#[cfg(feature = "lock-order")]
pub use tracing_mutex::parkinglot::{Mutex, MutexGuard, RwLock, RwLockReadGuard};
