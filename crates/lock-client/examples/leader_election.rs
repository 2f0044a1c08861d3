//! Leader election: two candidates, one leads at a time.

mod servers;

use std::error::Error;

use lock_client::LockClient;
use lock_client::recipes::Election;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let sessions = [client.session().open().await?, client.session().open().await?];
    let [first, second] = sessions
        .clone()
        .map(|session| Election::new(session, "examples/leader"));
    let leader = first.campaign("10.0.0.1").await?;
    let heir = tokio::spawn(async move { second.campaign("10.0.0.2").await });
    for candidate in Election::candidates(&client, "examples/leader").await? {
        println!("{} of term {}", candidate.name, candidate.term);
    }
    leader.check()?;
    leader.resign().await?;
    let heir = heir.await??;
    println!("the second one leads, in term {}", heir.term());
    heir.resign().await?;
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}
