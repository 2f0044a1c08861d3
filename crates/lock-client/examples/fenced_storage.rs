//! Storage that checks fencing tokens: it refuses late writes.
//!
//! `cargo run -p lock-client --example fenced_storage`, with `lockgate dev up` running or LOCKGATE_SERVERS set.

mod servers;

use std::error::Error;

use lock_client::{AcquireOptions, FencingToken, LockClient};

/// Guarded storage: a file, a table, a device. Of the lock it knows only the largest token that it has seen.
#[derive(Default)]
struct Account {
    balance: i64,
    largest: Option<FencingToken>,
}

/// A later grant was used already.
#[derive(Debug, thiserror::Error)]
#[error("the token {token} is older than {largest}")]
struct TooLate {
    token: FencingToken,
    largest: FencingToken,
}

impl Account {
    /// Reads count too: from now on earlier grants change nothing.
    fn balance(&mut self, token: FencingToken) -> Result<i64, TooLate> {
        self.check(token)?;
        Ok(self.balance)
    }

    fn set_balance(&mut self, token: FencingToken, balance: i64) -> Result<(), TooLate> {
        self.check(token)?;
        self.balance = balance;
        Ok(())
    }

    fn check(&mut self, token: FencingToken) -> Result<(), TooLate> {
        match self.largest {
            Some(largest) if token < largest => Err(TooLate { token, largest }),
            _ => {
                self.largest = Some(token);
                Ok(())
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::new(servers::addresses())?;
    let mut account = Account::default();
    let anna = client.session().name("example: anna").open().await?;
    let bert = client.session().name("example: bert").open().await?;

    let annas = anna
        .acquire("examples/account", AcquireOptions::exclusive())
        .await?;
    let seen = account.balance(annas.fencing_token())?;

    // Now Anna's program is paused for longer than her session lives. To save time an operator breaks the lock.
    client
        .break_lock("examples/account", annas.holder(), "to show what happens")
        .await?;
    let berts = bert
        .acquire("examples/account", AcquireOptions::exclusive())
        .await?;
    let balance = account.balance(berts.fencing_token())?;
    account.set_balance(berts.fencing_token(), balance + 20)?;

    // Anna's program continues, and would overwrite Bert's payment.
    match account.set_balance(annas.fencing_token(), seen + 10) {
        Err(too_late) => println!("refused: {too_late}"),
        Ok(()) => return Err("Bert's money is lost".into()),
    }
    println!("the balance is {}", account.balance(berts.fencing_token())?);
    berts.release().await?;
    anna.close().await?;
    bert.close().await?;
    Ok(())
}
