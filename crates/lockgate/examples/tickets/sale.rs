//! Sale of the tickets, with and without the lock, and its result. A test runs it too.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cli_support::api_client::{ApiClient, CallError, RenewedSession};
use local_cluster::{LocalCluster, START_TIMEOUT};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

/// Lock of the sale.
const LOCK: &str = "tickets/concert";

/// Duration of a payment, in which others would read the same ticket.
const PAYMENT: Duration = Duration::from_millis(5);

/// Timeout of a buyer's session: a buyer that hangs for longer loses its place.
const SESSION_TTL: Duration = Duration::from_secs(10);

/// Time limit of a request, over all nodes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Poll interval of the sale, to kill the leader in time.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Any error of a sale.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// Line of the ledger: a sold ticket.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sold {
    ticket: usize,
    buyer: usize,
    /// Fencing token of the lock under which it was sold; 0 without a lock.
    token: u64,
}

/// Result of a sale.
#[derive(Debug)]
pub struct Sale {
    tickets: usize,
    sold: Vec<Sold>,
    /// Number of requests that were sent again to another node.
    pub retries: u64,
    /// Killed node, and the pause of the sale after its death.
    pub killed: Option<(u64, Duration)>,
    took: Duration,
}

impl Sale {
    /// Returns whether every ticket was sold exactly once, under strictly increasing tokens.
    pub fn is_fair(&self) -> bool {
        self.sold.len() == self.tickets && self.sold_twice() == 0 && self.tokens_increase()
    }

    /// Returns the number of tickets that were sold more than once.
    pub fn sold_twice(&self) -> usize {
        let mut count = BTreeMap::<usize, usize>::new();
        for sold in &self.sold {
            *count.entry(sold.ticket).or_default() += 1;
        }
        count.values().filter(|count| **count > 1).count()
    }

    /// Returns whether each sale had a larger fencing token than the one before.
    pub fn tokens_increase(&self) -> bool {
        self.sold.windows(2).all(|pair| pair[0].token < pair[1].token)
    }
}

impl fmt::Display for Sale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buyers: std::collections::BTreeSet<_> = self.sold.iter().map(|sold| sold.buyer).collect();
        writeln!(
            f,
            "{} tickets: {} sold to {} buyers in {:.1} s, {} of them more than once",
            self.tickets,
            self.sold.len(),
            buyers.len(),
            self.took.as_secs_f64(),
            self.sold_twice()
        )?;
        if let Some((node, pause)) = self.killed {
            writeln!(
                f,
                "node {node}, the leader, was killed halfway and started again; the next ticket was sold {} ms \
                 after its death; {} requests went to another node",
                pause.as_millis(),
                self.retries
            )?;
            let tokens = if self.tokens_increase() {
                "strictly increase"
            } else {
                "DO NOT INCREASE"
            };
            writeln!(f, "the fencing tokens {tokens} from sale to sale")?;
        }
        f.write_str(if self.is_fair() {
            "every ticket was sold exactly once"
        } else {
            "the concert is oversold"
        })
    }
}

/// Sells all tickets under the lock; kills the leader halfway and starts it again.
pub async fn sell_out(
    cluster: &mut LocalCluster,
    ledger: &Path,
    buyers: usize,
    tickets: usize,
) -> Result<Sale, Error> {
    let begin = Instant::now();
    tokio::fs::write(ledger, "").await?;
    let nodes = cluster.http_addresses();
    let mut tasks = JoinSet::new();
    for buyer in 0..buyers {
        tasks.spawn(buy(nodes.clone(), buyer, ledger.to_owned(), tickets));
    }

    wait_for_sales(ledger, tickets / 2, &mut tasks).await?;
    let leader = cluster.leader(START_TIMEOUT).await?;
    cluster.kill(leader).await?;
    let (death, sold_at_death) = (Instant::now(), read(ledger).await?.len());
    // The current holder needs no leader to write its ticket; the next holder does.
    wait_for_sales(ledger, (sold_at_death + 2).min(tickets), &mut tasks).await?;
    let pause = death.elapsed();
    cluster.start(leader)?;

    let mut retries = 0;
    while let Some(bought) = tasks.join_next().await {
        retries += bought??;
    }
    cluster.wait_ready(&[leader], START_TIMEOUT).await?;
    let sold = read(ledger).await?;
    Ok(Sale {
        tickets,
        sold,
        retries,
        killed: Some((leader, pause)),
        took: begin.elapsed(),
    })
}

/// Waits until this number of tickets is sold, or a buyer fails.
async fn wait_for_sales(
    ledger: &Path,
    count: usize,
    tasks: &mut JoinSet<Result<u64, Error>>,
) -> Result<(), Error> {
    while read(ledger).await?.len() < count {
        tokio::select! {
            Some(ended) = tasks.join_next() => {
                ended??;
                return Err("a buyer left before the concert was sold out".into());
            }
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
    Ok(())
}

/// Buyer: buys ticket after ticket until there are no more. Returns its retries.
async fn buy(nodes: Vec<String>, buyer: usize, ledger: PathBuf, tickets: usize) -> Result<u64, Error> {
    let mut client = ApiClient::new(&nodes, buyer, TIMEOUT);
    let session = RenewedSession::open(&mut client, SESSION_TTL, &format!("buyer {buyer}")).await?;
    loop {
        let held = client.acquire(session.id(), LOCK).await?;
        let bought = buy_next(&ledger, buyer, tickets, held.fencing_token).await?;
        client.release(session.id(), &held).await?;
        if !bought {
            client
                .close_session(session.id())
                .await
                .map_err(|error: CallError| error.to_string())?;
            return Ok(client.retries());
        }
    }
}

/// Check, then act: correct only if no other buyer does it at the same time.
async fn buy_next(ledger: &Path, buyer: usize, tickets: usize, token: u64) -> Result<bool, Error> {
    let sold = read(ledger).await?.len();
    if sold >= tickets {
        return Ok(false);
    }
    tokio::time::sleep(PAYMENT).await;
    let mut file = tokio::fs::OpenOptions::new().append(true).open(ledger).await?;
    file.write_all(format!("ticket {} buyer {buyer} token {token}\n", sold + 1).as_bytes())
        .await?;
    file.flush().await?;
    Ok(true)
}

/// Sells all tickets without a lock and without a cluster.
pub async fn sell_out_without_lock(ledger: &Path, buyers: usize, tickets: usize) -> Result<Sale, Error> {
    let begin = Instant::now();
    tokio::fs::write(ledger, "").await?;
    let mut tasks = JoinSet::new();
    for buyer in 0..buyers {
        let ledger = ledger.to_owned();
        tasks.spawn(async move {
            while buy_next(&ledger, buyer, tickets, 0).await? {}
            Ok::<_, Error>(())
        });
    }
    while let Some(bought) = tasks.join_next().await {
        bought??;
    }
    let sold = read(ledger).await?;
    Ok(Sale {
        tickets,
        sold,
        retries: 0,
        killed: None,
        took: begin.elapsed(),
    })
}

async fn read(ledger: &Path) -> Result<Vec<Sold>, Error> {
    let text = tokio::fs::read_to_string(ledger).await?;
    text.lines()
        .map(|line| parse(line).ok_or_else(|| bad_line(line).into()))
        .collect()
}

fn parse(line: &str) -> Option<Sold> {
    match line.split(' ').collect::<Vec<_>>()[..] {
        ["ticket", ticket, "buyer", buyer, "token", token] => Some(Sold {
            ticket: ticket.parse().ok()?,
            buyer: buyer.parse().ok()?,
            token: token.parse().ok()?,
        }),
        _ => None,
    }
}

fn bad_line(line: &str) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("not a line of the ledger: {line:?}"),
    )
}
