//! Re-entry: the same owner within a session re-enters at once, and the lock is free after the last release.

mod servers;

use std::error::Error;

use lock_client::{AcquireOptions, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: reentrant").open().await?;
    let mine = || AcquireOptions::exclusive().reentrant("task 1");
    let outer = session.acquire("examples/reentrant", mine()).await?;
    let inner = session.acquire("examples/reentrant", mine()).await?;
    println!(
        "entered {} times with the token {}",
        inner.hold_count(),
        inner.fencing_token()
    );
    println!("{} entry is left", inner.release().await?);
    println!("{} are left", outer.release().await?);
    session.close().await?;
    Ok(())
}
