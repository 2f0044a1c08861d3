//! Several locks at once: all of them or none, and no deadlock with other callers of the same locks.
//!
//! `cargo run -p lock-client --example several`, with `lockgate dev up` running or LOCKGATE_SERVERS set.

mod servers;

use std::error::Error;

use lock_client::{AcquireOptions, LockClient, LockSet};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: several").open().await?;
    let transfer = |from: &str, to: &str| {
        LockSet::new()
            .with(&format!("examples/account/{from}"), AcquireOptions::exclusive())
            .with(&format!("examples/account/{to}"), AcquireOptions::exclusive())
            .with("examples/bookings", AcquireOptions::semaphore(10))
    };
    let guards = session.acquire_all(transfer("anna", "bert")).await?;
    for guard in guards.guards() {
        println!(
            "{} is mine, with the token {}",
            guard.lock(),
            guard.fencing_token()
        );
    }
    match session.acquire_all(transfer("bert", "anna").try_only()).await {
        Err(error) if error.is_not_free() => println!("the way back has to wait: {error}"),
        other => drop(other?),
    }
    guards.release().await?;
    session
        .acquire_all(transfer("bert", "anna"))
        .await?
        .release()
        .await?;
    session.close().await?;
    Ok(())
}
