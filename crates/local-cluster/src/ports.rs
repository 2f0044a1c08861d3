//! Ports of the loopback interface for nodes: which ones are free, and which ones a process has reserved.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::Uid;
use raft_node::NodeId;

use crate::process;

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
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => std::thread::sleep(pause),
            _ => break,
        }
        bound = TcpListener::bind(address);
    }
    bound
        .map(drop)
        .with_context(|| format!("node {id} cannot have the address {address}"))
}

/// File in the directory for temporary files whose bytes stand for ports: a process that holds the record lock of byte N has reserved port N.
/// The kernel releases the locks of a process when it ends. The file has no contents.
const RESERVATIONS: &str = "lockgate-ports";

/// Ports that this process has reserved. They stay reserved while their nodes are down: clients of a dead node must not reach another cluster.
struct Reservations {
    /// Kept open: closing any handle of the file would release all locks of this process.
    file: File,
    /// The kernel does not refuse a process its own locks.
    own: BTreeSet<u16>,
}

static RESERVED: Mutex<Option<Reservations>> = Mutex::new(None);

impl Reservations {
    fn open() -> anyhow::Result<Self> {
        // Each user has a file, because no other may lock it.
        let path = std::env::temp_dir().join(format!("{RESERVATIONS}-{}", Uid::effective()));
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        let own = BTreeSet::new();
        Ok(Self { file, own })
    }

    /// Returns whether the port was free and is now reserved until this process ends.
    fn reserve(&mut self, port: u16) -> io::Result<bool> {
        if self.own.contains(&port) {
            return Ok(false);
        }
        let byte = process::write_lock(port.into(), 1);
        match fcntl(&self.file, FcntlArg::F_SETLK(&byte)) {
            Ok(_) => Ok(self.own.insert(port)),
            Err(Errno::EACCES | Errno::EAGAIN) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }
}

/// Returns ports of the loopback interface on which no process listens, for clusters that must not disturb each other. They are reserved until
/// this process ends: no call returns them again, in this process or in another one of the same user.
///
/// The function connects to a port to check that no process listens there. It does not bind the port: a child process that another thread
/// forks at that moment would inherit the socket and hold the port until it executes its program.
pub fn free_ports(count: usize) -> anyhow::Result<Vec<u16>> {
    let mut reserved = RESERVED.lock().unwrap_or_else(PoisonError::into_inner);
    let reserved = match &mut *reserved {
        Some(reserved) => reserved,
        none => none.insert(Reservations::open()?),
    };
    let mut free = Vec::new();
    for _ in 0..FREE_PORTS.len() {
        if free.len() == count {
            return Ok(free);
        }
        let mut bits = [0; 4];
        getrandom::fill(&mut bits).map_err(|error| anyhow!("no random numbers: {error}"))?;
        let port = FREE_PORTS.start + (u32::from_le_bytes(bits) % FREE_PORTS.len() as u32) as u16;
        let refused = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
        if refused && reserved.reserve(port).context("reserving a port")? {
            free.push(port);
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

    /// Runs in two processes, because the kernel does not refuse a process its own locks.
    #[test]
    fn port_is_reserved_for_one_process() {
        const PORT: &str = "LOCKGATE_TEST_RESERVED_PORT";
        const NAME: &str = "ports::tests::port_is_reserved_for_one_process";
        if let Ok(port) = std::env::var(PORT) {
            let mut here = Reservations::open().unwrap();
            assert!(!here.reserve(port.parse().unwrap()).unwrap());
            assert!(
                here.reserve(FREE_PORTS.end).unwrap(),
                "`free_ports` never returns it"
            );
            return;
        }
        let port = free_ports(1).unwrap()[0].to_string();
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = again.args(["--exact", NAME]).env(PORT, port).output().unwrap();
        let shown = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && shown.contains("1 passed"), "{shown}");
    }
}
