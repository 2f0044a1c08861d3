//! An exclusive lock: one holder, and work that ends when the lock is lost.
//!
//! `cargo run -p lock-client --example exclusive`, with `lockgate dev up` running or LOCKGATE_SERVERS set.

mod servers;

use std::error::Error;
use std::io;

use lock_client::{AcquireOptions, FencingToken, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: exclusive").open().await?;
    let guard = session
        .acquire("examples/exclusive", AcquireOptions::exclusive())
        .await?;
    tokio::select! {
        done = work(guard.fencing_token()) => done?,
        loss = guard.lost() => return Err(loss.into()),
    }
    guard.release().await?;
    session.close().await?;
    Ok(())
}

/// Work under the lock. Its storage should check the token.
async fn work(token: FencingToken) -> io::Result<()> {
    println!("nobody else works here; my token is {token}");
    Ok(())
}
