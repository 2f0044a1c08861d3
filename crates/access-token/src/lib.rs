//! Tokens at the doors of a node: what their owners have ([`TokenText`]), and what the cluster knows of it ([`Standing`]).
//!
//! The cluster's state has hashes only (`znode_store::Token`), and decides what a token allows. That somebody has a token is
//! found out here, whichever protocol it is shown by.

mod secret;
mod standing;

pub use secret::{OperatorToken, Secret, TokenText};
pub use standing::Standing;
