//! Access tokens: their text as owners have it ([`TokenText`]), and their validity as a node knows it
//! ([`Standing`]).
//!
//! The cluster's state holds only hashes (`znode_store::Token`) and decides what a token allows. This crate
//! verifies that a client possesses a token, for both protocols.

mod secret;
mod standing;

pub use secret::{OperatorToken, Secret, TokenText};
pub use standing::Standing;
