//! Leader election: one candidate leads at a time, hands over to another one, and an observer sees each leader.

mod servers;

use std::error::Error;

use lock_client::LockClient;
use lock_client::recipes::Election;

const ELECTION: &str = "examples/leader";

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let sessions = [client.session().open().await?, client.session().open().await?];
    let [first, second] = sessions.clone().map(|session| Election::new(session, ELECTION));
    let mut observer = Election::observe(&client, ELECTION);
    let leader = first.campaign("10.0.0.1").await?;
    println!("the observer sees {:?}", observer.next().await?);

    // It asks the leader to hand over. The leader finishes its work, and does so.
    let preferred = tokio::spawn(async move { second.campaign_as_preferred("10.0.0.2").await });
    let asked = leader.resign_requested().await;
    leader.check()?;
    if let Some(leader) = leader.hand_over(&asked.reason).await? {
        println!("{} does not wait", asked.reason);
        leader.resign().await?;
    }
    let heir = preferred.await??;
    println!("10.0.0.2 leads, in term {}", heir.term());
    for candidate in Election::candidates(&client, ELECTION).await? {
        println!("{} of term {}", candidate.name, candidate.term);
    }
    heir.resign().await?;
    for session in sessions {
        session.close().await?;
    }
    Ok(())
}
