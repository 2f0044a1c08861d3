//! Mutex of this crate. With the feature `lock-order` a thread panics when it takes two of them in the opposite order to an earlier one, by
//! any thread. Mutexes that belong to condition variables are not among them; they are taken alone.

#[cfg(not(feature = "lock-order"))]
pub use parking_lot::Mutex;
#[cfg(feature = "lock-order")]
pub use tracing_mutex::parkinglot::Mutex;
