//! What is promised of connections, seen from both ends: who is refused and in which words, what a change of files does, and
//! what one slow client costs the others.

#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod support;
mod peers;
mod clients;
mod files;
mod reload;
mod slow;
mod stream;
