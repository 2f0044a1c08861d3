//! Maximum time of a hold: the lock of a program that hangs goes to the next waiter, even if heartbeats continue.

mod servers;

use std::error::Error;
use std::time::Duration;

use lock_client::{AcquireOptions, LockClient, Loss};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: maximum hold").open().await?;
    let options = AcquireOptions::exclusive().max_hold(Duration::from_millis(200));
    let guard = session.acquire("examples/max-hold", options).await?;
    tokio::select! {
        () = std::future::pending() => println!("this job hangs"),
        loss = guard.lost() => {
            assert_eq!(loss, Loss::MaxHold);
            println!("{loss}");
        }
    }
    session.close().await?;
    Ok(())
}
