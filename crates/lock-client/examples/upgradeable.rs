//! Upgrade and downgrade: a reader that may write later shares the lock with readers, and excludes them while it writes.
//!
//! `cargo run -p lock-client --example upgradeable`, with `lockgate dev up` running or LOCKGATE_SERVERS set.

mod servers;

use std::error::Error;

use lock_client::{AcquireOptions, LockClient, Wait};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: upgradeable").open().await?;
    let reader = session.acquire("examples/book", AcquireOptions::shared()).await?;
    let mut editor = session
        .acquire("examples/book", AcquireOptions::upgradeable())
        .await?;
    println!("{:?} beside a reader", editor.mode());
    match editor.upgrade(Wait::Try).await {
        Err(error) if error.is_not_free() => println!("not alone yet: {error}"),
        other => other?,
    }
    reader.release().await?;
    editor.upgrade(Wait::Forever).await?;
    println!("{:?}, with the token {}", editor.mode(), editor.fencing_token());
    // Without a gap in which another client could write.
    editor.downgrade().await?;
    let other = session
        .acquire("examples/book", AcquireOptions::shared().try_only())
        .await?;
    println!("{:?}, and others read again", editor.mode());
    other.release().await?;
    editor.release().await?;
    session.close().await?;
    Ok(())
}
