//! Revocation: a holder is asked to give its lock up, and does so when it has come to a good end.
//!
//! `cargo run -p lock-client --example revocation`, with `lockgate cluster up` running or LOCKGATE_SERVERS set.

mod servers;

use std::error::Error;
use std::time::Duration;

use lock_client::{AcquireOptions, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client
        .session()
        .ttl(Duration::from_secs(2))
        .name("example: revocation")
        .open()
        .await?;
    let guard = session
        .acquire("examples/revocation", AcquireOptions::exclusive())
        .await?;
    client
        .revoke("examples/revocation", None, "the machine is needed")
        .await?;
    // A holder hears of it with its next heartbeat.
    let asked = guard.revoke_requested().await;
    println!("I am asked to go: {}", asked.reason);
    guard.answer("at the end of this batch").await?;
    guard.release().await?;
    session.close().await?;
    Ok(())
}
