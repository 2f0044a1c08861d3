//! Thirty buyers sell out a concert of a hundred tickets, at three nodes, while the leader is killed.
//!
//!     cargo run -p lockgate --example tickets
//!     cargo run -p lockgate --example tickets -- --without-lock
//!
//! Every buyer counts the tickets that are left, pays, and takes the next one: check, then act, on a file
//! that all buyers share. Under the lock each ticket is sold once, also across the leader's death; without it
//! the concert is oversold.
//!
//! The nodes are real processes of this same executable, called with `serve`.

mod sale;

use std::process::ExitCode;

use local_cluster::{LocalCluster, Ports, START_TIMEOUT};

const BUYERS: usize = 30;
const TICKETS: usize = 100;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("serve") => lockgate::cli::main(),
        None => demo(true),
        Some("--without-lock") => demo(false),
        Some(other) => {
            eprintln!("{other}: the only argument is --without-lock");
            ExitCode::FAILURE
        }
    }
}

fn demo(locked: bool) -> ExitCode {
    let outcome = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run(locked)));
    match outcome {
        Ok(fair) if fair == locked => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("tickets: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the sale. Returns whether every ticket was sold exactly once.
async fn run(locked: bool) -> Result<bool, sale::Error> {
    let dir = std::env::temp_dir().join(format!("lockgate-tickets-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    let ledger = dir.join("ledger.txt");
    let sale = if locked {
        let mut cluster = LocalCluster::create(
            &dir.join("cluster"),
            &std::env::current_exe()?,
            3,
            Ports::Free,
            "",
        )?;
        let sold = async {
            println!("Starting three nodes in {}", dir.display());
            cluster.up(START_TIMEOUT).await?;
            println!("{BUYERS} buyers, {TICKETS} tickets, one lock; the leader will be killed halfway");
            sale::sell_out(&mut cluster, &ledger, BUYERS, TICKETS).await
        };
        let sale = sold.await;
        cluster.kill_now();
        sale.inspect_err(|_| eprintln!("What the nodes have written is left in {}", dir.display()))?
    } else {
        println!("{BUYERS} buyers, {TICKETS} tickets, no lock");
        sale::sell_out_without_lock(&ledger, BUYERS, TICKETS).await?
    };
    println!("{sale}");
    std::fs::remove_dir_all(&dir)?;
    Ok(sale.is_fair())
}
