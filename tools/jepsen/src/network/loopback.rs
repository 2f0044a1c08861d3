//! Proxy for nodes that share the loopback interface. Each node is reached through it, and the sender of a
//! connection is identified by the process that owns the socket.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock, Weak};

use nix::unistd::Pid;

use super::{Network, Slot};
use crate::cluster::Cluster;
use crate::proxy::Proxy;

/// Cluster whose processes own the sockets. The cluster is configured with the proxy's addresses, so it is
/// set after the proxy has been created.
pub type Owners = Arc<OnceLock<Weak<Cluster>>>;

/// Creates a proxy for all slots; returns it with the address of each slot.
pub async fn proxy(
    network: &Network,
    owners: Owners,
    seed: u64,
) -> anyhow::Result<(Arc<Proxy>, BTreeMap<Slot, SocketAddr>)> {
    let peers: Vec<_> = network
        .slots()
        .map(|slot| (slot, network.addresses(slot).peer))
        .collect();
    let who = Arc::new(move |from: SocketAddr, entrance: SocketAddr| {
        let cluster = owners.get()?.upgrade()?;
        let inode = inode_of(&std::fs::read_to_string("/proc/net/tcp").ok()?, from, entrance)?;
        let mut slots = cluster.network.slots();
        slots.find(|slot| cluster.pid(*slot).is_some_and(|pid| has_socket(pid, inode)))
    });
    Proxy::for_targets(&peers, IpAddr::V4(Ipv4Addr::LOCALHOST), seed, who).await
}

/// Returns the inode of the socket that is connected from `from` to `to`, from the text of `/proc/net/tcp`.
/// `from` alone would be ambiguous: the kernel reuses a port for a connection to another address, while a
/// closed connection from the same port is still in TIME_WAIT.
fn inode_of(table: &str, from: SocketAddr, to: SocketAddr) -> Option<u64> {
    let (from, to) = (printed(from)?, printed(to)?);
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace());
    lines.find_map(|mut fields| {
        let (local, remote) = (fields.nth(1)?, fields.next()?);
        (local == from && remote == to).then(|| fields.nth(6)?.parse().ok())?
    })
}

/// Returns an address as the kernel prints it, with the IP address in the machine's byte order.
fn printed(address: SocketAddr) -> Option<String> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    Some(format!(
        "{:08X}:{:04X}",
        u32::from_ne_bytes(ip.octets()),
        address.port()
    ))
}

/// Returns whether one of a process's open files is this socket.
fn has_socket(pid: Pid, inode: u64) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    let mut inodes = files
        .flatten()
        .filter_map(|file| std::fs::metadata(file.path()).ok());
    inodes.any(|file| file.ino() == inode)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn connection_is_traced_to_the_process_that_owns_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let to = listener.local_addr().expect("the listener has an address");
        let stream = TcpStream::connect(to).expect("a connection");
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has /proc/net/tcp");
        let from = stream.local_addr().expect("the stream has an address");
        let inode = inode_of(&table, from, to).expect("the kernel knows the connection");
        assert!(has_socket(Pid::this(), inode));
        assert!(!has_socket(Pid::this(), u64::MAX));
    }

    #[test]
    fn connection_is_distinguished_from_a_closed_one_on_the_same_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n\
             0: 0100007F:D431 0100007F:1F90 06 00000000:00000000 03:00000CB5 00000000     0        0 0 3 0000000000000000\n\
             1: 0100007F:D431 0100007F:1F91 01 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000\n";
        let at = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        assert_eq!(inode_of(table, at(0xD431), at(0x1F91)), Some(4711));
        assert_eq!(inode_of(table, at(0xD431), at(0x1F92)), None);
    }
}
