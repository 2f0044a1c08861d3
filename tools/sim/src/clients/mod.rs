//! Clients: they open sessions and stop the heartbeats of some, acquire locks, write, read and watch through
//! any node, and repeat a request under the same id when there is no response. Their actions are drawn from
//! the seed; the responses go to the invariants.

mod call;
mod client;
pub mod messages;
mod tasks;

pub use self::call::{answer, perform, send};
pub use self::client::{Client, Environment};
pub use self::messages::{ClientId, ClientRequest, ClientResponse, LeaseWait, OpId};
pub use self::tasks::{REGISTERS, UNIQUE, locks};
