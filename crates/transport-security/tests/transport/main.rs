//! Tests of TLS connections from both ends: rejections and their messages, reload of changed files, and
//! isolation from slow clients.

#![allow(clippy::unwrap_used)] // test helpers

mod support;
mod peers;
mod clients;
mod files;
mod reload;
mod slow;
mod stream;
