//! Ports of the loopback interface for nodes: which ones are free.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use raft_node::NodeId;

/// Range of ports for [`free_ports`]: above the well-known ones, and below the range of ephemeral ports, so
/// that no outgoing connection occupies a node's port while the node is down.
const FREE_PORTS: Range<u16> = 10_240..32_000;

/// Number of retries when an address is in use, and the pause between them. A process that another thread
/// forks has a copy of every socket, including those closed a moment ago, until it executes its program.
const BIND_RETRIES: (u32, Duration) = (20, Duration::from_millis(10));

/// Fails if a process listens at an address that a node is configured for.
pub fn check_free(id: NodeId, address: &str) -> anyhow::Result<()> {
    let (times, pause) = BIND_RETRIES;
    let mut bound = TcpListener::bind(address);
    for _ in 0..times {
        match &bound {
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => std::thread::sleep(pause),
            _ => break,
        }
        bound = TcpListener::bind(address);
    }
    bound
        .map(drop)
        .with_context(|| format!("node {id} cannot have the address {address}"))
}

/// Ports that [`free_ports`] has returned in this process. They stay reserved while their nodes are down.
static RESERVED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// Returns ports of the loopback interface on which no process listens and which this process has not
/// reserved before, for clusters that must not disturb each other. Another process may take a port before it
/// is used; with a random choice out of 20,000 that is rare.
///
/// The function connects to a port to check that no process listens there. It does not bind the port: a child
/// process that another thread forks at that moment would inherit the socket and hold the port until it
/// executes its program.
pub fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let mut free = Vec::new();
    for _ in 0..FREE_PORTS.len() {
        let mut bits = [0; 4];
        getrandom::fill(&mut bits).map_err(|error| anyhow!("no random numbers: {error}"))?;
        let port = FREE_PORTS.start + (u32::from_le_bytes(bits) % FREE_PORTS.len() as u32) as u16;
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
        if refused
            && RESERVED
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .insert(port)
        {
            free.push(port);
        }
        if free.len() == count {
            return Ok(free);
        }
    }
    bail!(
        "cannot find {count} free ports between {} and {}",
        FREE_PORTS.start,
        FREE_PORTS.end
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_ports_are_different() {
        let mut ports = free_ports(20).unwrap();
        ports.sort_unstable();
        ports.dedup();
        assert_eq!(ports.len(), 20);
    }
}
