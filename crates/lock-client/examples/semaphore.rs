//! Semaphore: at most ten permits are granted at a time, several of them together.

mod servers;

use std::error::Error;
use std::time::Duration;

use lock_client::{AcquireOptions, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: semaphore").open().await?;
    let permits = |permits| {
        AcquireOptions::semaphore(10)
            .permits(permits)
            .wait_at_most(Duration::from_millis(100))
    };
    let eight = session.acquire("examples/semaphore", permits(8)).await?;
    match session.acquire("examples/semaphore", permits(3)).await {
        Err(error) if error.is_not_free() => println!("three are not free beside the eight: {error}"),
        other => drop(other?),
    }
    eight.release().await?;
    let three = session.acquire("examples/semaphore", permits(3)).await?;
    println!("now {} are mine", three.permits());
    three.release().await?;
    session.close().await?;
    Ok(())
}
