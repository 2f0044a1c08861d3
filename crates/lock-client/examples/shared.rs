//! Shared locks: any number of readers together, and a writer alone.

mod servers;

use std::error::Error;

use lock_client::{AcquireOptions, LockClient};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let session = client.session().name("example: shared").open().await?;
    let first = session
        .acquire("examples/shared", AcquireOptions::shared())
        .await?;
    let second = session
        .acquire("examples/shared", AcquireOptions::shared())
        .await?;
    println!(
        "two readers, with the tokens {} and {}",
        first.fencing_token(),
        second.fencing_token()
    );
    match session
        .acquire("examples/shared", AcquireOptions::exclusive().try_only())
        .await
    {
        Err(error) if error.is_not_free() => println!("a writer has to wait: {error}"),
        other => drop(other?),
    }
    first.release().await?;
    second.release().await?;
    let writer = session
        .acquire("examples/shared", AcquireOptions::exclusive())
        .await?;
    println!("the writer, with the token {}", writer.fencing_token());
    writer.release().await?;
    session.close().await?;
    Ok(())
}
