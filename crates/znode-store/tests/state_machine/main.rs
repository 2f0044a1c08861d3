//! The state machine, tested through its boundary alone: requests in, replies and events out, reads.
//!
//! `scripts` runs tests/scripts/*.txt, which state one rule each; `model` compares the store with a naive
//! one on random requests. To take the present output of the scripts as the expected one, run with
//! UPDATE_GOLDENFILES=1 and review the difference.

mod lock_script;
mod replicas;
mod script;
