//! The proxy for nodes that share the loopback interface: each is found through it, and who connects is who has the socket.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, OnceLock, Weak};

use nix::unistd::Pid;

use super::{Network, Slot};
use crate::cluster::Cluster;
use crate::proxy::Proxy;

/// The cluster whose processes have the sockets; it is configured with the proxy's entrances, so after the proxy is there.
pub type Owners = Arc<OnceLock<Weak<Cluster>>>;

/// A proxy for all places, and where each is found through it.
pub async fn proxy(
    network: &Network,
    owners: Owners,
    seed: u64,
) -> anyhow::Result<(Arc<Proxy>, BTreeMap<Slot, SocketAddr>)> {
    let places: Vec<_> = network
        .slots()
        .map(|slot| (slot, network.addresses(slot).peer))
        .collect();
    let who = Arc::new(move |address: SocketAddr| {
        let cluster = owners.get()?.upgrade()?;
        let inode = inode_of(&std::fs::read_to_string("/proc/net/tcp").ok()?, address)?;
        let mut slots = cluster.network.slots();
        slots.find(|slot| cluster.pid(*slot).is_some_and(|pid| has_socket(pid, inode)))
    });
    Proxy::for_targets(&places, IpAddr::V4(Ipv4Addr::LOCALHOST), seed, who).await
}

/// The number of the socket whose own address is this, from a table of the kernel.
fn inode_of(table: &str, address: SocketAddr) -> Option<u64> {
    let IpAddr::V4(ip) = address.ip() else { return None };
    // As the kernel prints them: the address in the machine's order of bytes.
    let wanted = format!("{:08X}:{:04X}", u32::from_ne_bytes(ip.octets()), address.port());
    let mut lines = table.lines().skip(1).map(|line| line.split_whitespace());
    lines.find_map(|mut fields| {
        let local = fields.nth(1)?;
        (local == wanted).then(|| fields.nth(7)?.parse().ok())?
    })
}

/// Whether one of a process's open files is this socket.
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
    fn a_connection_is_traced_to_the_process_that_has_it() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("it listens")).expect("a connection");
        let table = std::fs::read_to_string("/proc/net/tcp").expect("Linux has it");
        let address = stream.local_addr().expect("it is connected");
        let inode = inode_of(&table, address).expect("the kernel knows the connection");
        assert!(has_socket(Pid::this(), inode));
        assert!(!has_socket(Pid::this(), u64::MAX));
    }
}
