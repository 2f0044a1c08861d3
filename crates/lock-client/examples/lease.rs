//! Lease: a lock for a time, which another process continues and releases by its key.

mod servers;

use std::error::Error;
use std::time::Duration;

use lock_client::{AcquireOptions, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let options = AcquireOptions::exclusive().note("nightly report");
    let lease = client
        .acquire_lease("examples/lease", Duration::from_secs(60), options)
        .await?;
    println!(
        "mine for {:?}, with the token {}",
        lease.expires_in(),
        lease.fencing_token()
    );
    // Another process would get the key by a file or an environment variable that nobody else can read.
    let key = lease.key().to_owned();

    let mut continued = client.lease(&key).renew(None).await?;
    continued.check()?;
    continued.renew(Some(Duration::from_secs(600))).await?;
    continued.release().await?;
    Ok(())
}
