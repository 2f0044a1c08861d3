//! A guarded write: made while the lock is held, or not at all.

mod servers;

use std::error::Error;

use lock_client::{AcquireOptions, Code, CreateMode, LockClient, Transaction};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: guarded write").open().await?;
    let znodes = session.znodes();
    match znodes
        .create("/example-order", "open", CreateMode::Persistent, false)
        .await
    {
        Err(error) if error.is(Code::NodeExists) => {}
        other => drop(other?),
    }
    let guard = session
        .acquire("examples/order", AcquireOptions::exclusive())
        .await?;
    let paid = Transaction::new()
        .held(&guard)
        .set("/example-order", "paid", None);
    znodes.commit(paid.clone()).await?;
    println!("written under the lock");

    // An operator breaks the lock, and this program has not noticed yet.
    client
        .break_lock("examples/order", guard.holder(), "to show what happens")
        .await?;
    match znodes.commit(paid).await {
        Err(error) if error.is(Code::NotHolder) => println!("too late, and not written: {error}"),
        other => drop(other?),
    }
    session.close().await?;
    Ok(())
}
