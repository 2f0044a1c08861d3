//! Cluster of three nodes inside one program, and locks of the program without a socket.
//!
//!     cargo run -p lockgate --example embedded
//!
//! In production each node runs in a program of its own, on a machine of its own. Each program does what
//! `start_node` does.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use local_cluster::ports::free_ports;
use lockgate::lock_client::{AcquireOptions, CreateMode, Error as LockError, Loss, Transaction};
use lockgate::lock_node::{MemberAddress, NodeId};
use lockgate::{Lockgate, StartError};

const NODES: u64 = 3;

/// Time limit of an election on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(30);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let data = std::env::temp_dir().join(format!("lockgate-embedded-{}", std::process::id()));
    // Three machines would have names of their own.
    let ports = free_ports(2 * NODES as usize)?;
    let address = |port: u16| format!("127.0.0.1:{port}");
    let member = |pair: &[u16]| MemberAddress {
        peer: address(pair[0]),
        http: address(pair[1]),
    };
    let members: BTreeMap<_, _> = (1..).zip(ports.chunks_exact(2).map(member)).collect();

    let mut servers = Vec::new();
    for id in 1..=NODES {
        servers.push(start_node(id, &members, &data).await?);
    }
    let outcome = take_locks(&servers).await;

    for server in servers {
        server.stop().await;
    }
    std::fs::remove_dir_all(&data)?;
    outcome
}

async fn start_node(
    id: NodeId,
    members: &BTreeMap<NodeId, MemberAddress>,
    data: &Path,
) -> Result<Lockgate, StartError> {
    Lockgate::builder()
        .node_id(id)
        .cluster("embedded")
        .members(members.clone())
        .data_dir(data.join(id.to_string()))
        .start()
        .await
}

async fn take_locks(servers: &[Lockgate]) -> Result<(), Box<dyn Error>> {
    for server in servers {
        server.ready(READY_WITHIN).await?;
    }
    // Each session is opened at another node; they compete all the same.
    let anna = servers[0].open_session("anna").await?;
    let bert = servers[1].open_session("bert").await?;

    let guard = anna
        .acquire("orders/42", AcquireOptions::exclusive().note("invoicing"))
        .await?;
    println!(
        "anna holds {} with the fencing token {}",
        guard.lock(),
        guard.fencing_token()
    );

    match bert
        .acquire("orders/42", AcquireOptions::exclusive().try_only())
        .await
    {
        Err(error) => println!("bert is refused: {error}"),
        Ok(_) => return Err("the lock was granted twice".into()),
    }

    // Bert waits at his node, while Anna releases the lock at hers.
    let (granted, released) = tokio::join!(
        bert.acquire("orders/42", AcquireOptions::exclusive()),
        guard.release()
    );
    released?;
    let guard = granted?;
    println!(
        "bert holds {} with the fencing token {}",
        guard.lock(),
        guard.fencing_token()
    );

    // A guarded write is made while the lock is held, or not at all.
    let note = |text: &str| Transaction::new().create("/invoice-42-", text, CreateMode::PersistentSequential);
    for result in guard.write(note("by bert")).await? {
        println!("bert has written: {result}");
    }
    servers[2]
        .client()
        .break_lock(guard.lock(), guard.holder(), "maintenance")
        .await?;
    match guard.write(note("too late")).await {
        Err(error @ LockError::Lost(Loss::Broken { .. })) => println!("bert's write is refused: {error}"),
        Err(error) => return Err(error.into()),
        Ok(_) => return Err("a write was made without the lock".into()),
    }

    // Any number of readers, or at most two holders of one permit each.
    let readers = (
        anna.acquire("catalogue", AcquireOptions::shared()).await?,
        bert.acquire("catalogue", AcquireOptions::shared()).await?,
    );
    println!("anna and bert both read {}", readers.0.lock());
    let _first = anna.acquire("printers", AcquireOptions::semaphore(2)).await?;
    let _second = anna.acquire("printers", AcquireOptions::semaphore(2)).await?;
    let short_wait = AcquireOptions::semaphore(2).wait_at_most(Duration::from_millis(50));
    match bert.acquire("printers", short_wait).await {
        Err(error) => println!("bert is refused: {error}"),
        Ok(_) => return Err("three permits of two were granted".into()),
    }

    // Closing a session releases all of its locks.
    anna.close().await?;
    bert.close().await?;
    if let Some(address) = servers[0].http_address() {
        println!("HTTP was served meanwhile at http://{address}");
    }
    Ok(())
}
