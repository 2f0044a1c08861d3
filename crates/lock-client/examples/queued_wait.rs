//! Wait in the queue without an open connection: a lease keeps its place while it is renewed, whatever proxies do.

mod servers;

use std::error::Error;
use std::time::Duration;

use lock_client::{AcquireOptions, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let acquire = |options| client.acquire_lease("examples/queued-wait", Duration::from_secs(10), options);
    let first = acquire(AcquireOptions::exclusive()).await?;
    let bounded = AcquireOptions::exclusive().wait_at_most(Duration::from_millis(100));
    match acquire(bounded).await {
        Err(error) if error.is_not_free() => println!("not granted in time: {error}"),
        other => drop(other?),
    }
    let release = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        first.release().await
    };
    let (second, released) = tokio::join!(acquire(AcquireOptions::exclusive()), release);
    released?;
    let second = second?;
    println!("granted after a wait: {}", second.fencing_token());
    second.release().await?;
    Ok(())
}
