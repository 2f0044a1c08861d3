//! Release request: an operator asks a holder to release its lock, and the holder finishes its work first.
//!
//! `cargo run -p lock-client --example release_request`, with `lockgate dev up` running or LOCKGATE_SERVERS set.

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
        .name("example: release request")
        .open()
        .await?;
    let guard = session
        .acquire("examples/release-request", AcquireOptions::exclusive())
        .await?;
    client
        .request_release("examples/release-request", None, "the machine is needed")
        .await?;
    // A holder receives the request with its event stream, or with its next heartbeat.
    let asked = guard.release_requested().await;
    println!("I am asked to go: {}", asked.reason);
    guard.answer("at the end of this batch").await?;
    guard.release().await?;
    session.close().await?;
    Ok(())
}
