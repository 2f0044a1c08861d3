//! Network that exists for one run: a switch, and for every node a network namespace with an address.
//! It is created inside the namespaces that [`crate::isolation`] has set up for this process, so that the kernel
//! removes all of it when the process ends, however that happens. Without namespaces all nodes share the
//! loopback interface, and the proxy is between them.

pub mod cuts;
pub mod detour;
pub mod loopback;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context;
use tokio::process::Command;

use crate::command::run;
pub use cuts::Cuts;

/// Number of a node's slot, from 1: an address that stays the same while processes and even nodes are
/// replaced.
pub type Slot = usize;

/// Address prefix of a run's own network, which is invisible outside.
const PREFIX: [u8; 3] = [10, 77, 0];

/// Last byte of the address of clients and the proxy.
const HARNESS: u8 = 254;

const HTTP_PORT: u16 = 7400;
const PEER_PORT: u16 = 7500;
const ZOOKEEPER_PORT: u16 = 2181;
const REDIS_PORT: u16 = 6379;

/// Addresses on which a node listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP API.
    pub http: SocketAddr,
    /// Peer port, on which the node itself listens.
    pub peer: SocketAddr,
    /// ZooKeeper protocol.
    pub zookeeper: SocketAddr,
    /// Redis protocol.
    pub redis: SocketAddr,
}

/// Separation of the nodes.
#[derive(Clone, Debug)]
enum Kind {
    /// A network namespace for each node.
    Namespaces,
    /// Free ports of the loopback interface.
    Loopback(Vec<Addresses>),
}

/// Network of a run.
#[derive(Clone, Debug)]
pub struct Network {
    slots: usize,
    kind: Kind,
}

impl Network {
    /// Creates the network with this number of slots, in the namespaces of this process.
    pub async fn in_namespaces(slots: usize) -> anyhow::Result<Self> {
        let mount = ["-t", "tmpfs", "none", "/run/netns"];
        std::fs::create_dir_all("/run/netns").context("/run/netns")?;
        // Names of namespaces are files in this directory. The mounted file system makes them private to this
        // run.
        run("mount", &mount).await?;
        for arguments in [
            "link set lo up",
            "link add sw type bridge forward_delay 0",
            &format!("address add {}/24 dev sw", Self::harness()),
            "link set sw up",
        ] {
            ip(arguments).await?;
        }
        for slot in 1..=slots {
            let (name, address) = (namespace(slot), Self::ip(slot));
            for arguments in [
                format!("netns add {name}"),
                format!("link add v{slot} type veth peer name eth0 netns {name}"),
                format!("link set v{slot} master sw up"),
                format!("-n {name} address add {address}/24 dev eth0"),
                format!("-n {name} link set eth0 up"),
                format!("-n {name} link set lo up"),
            ] {
                ip(&arguments).await?;
            }
        }
        Ok(Self {
            slots,
            kind: Kind::Namespaces,
        })
    }

    /// Finds addresses for this number of slots on the loopback interface.
    pub fn on_loopback(slots: usize) -> anyhow::Result<Self> {
        // All ports stay bound until all are found, so that none is found twice.
        let mut held = Vec::new();
        let mut free = || -> anyhow::Result<SocketAddr> {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a free port")?;
            let address = listener.local_addr().context("a free port")?;
            held.push(listener);
            Ok(address)
        };
        let addresses = (0..slots)
            .map(|_| {
                Ok(Addresses {
                    http: free()?,
                    peer: free()?,
                    zookeeper: free()?,
                    redis: free()?,
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            slots,
            kind: Kind::Loopback(addresses),
        })
    }

    /// Returns all slots.
    pub fn slots(&self) -> std::ops::RangeInclusive<Slot> {
        1..=self.slots
    }

    /// Returns whether the nodes have namespaces of their own.
    pub fn has_namespaces(&self) -> bool {
        matches!(self.kind, Kind::Namespaces)
    }

    /// Returns the address of clients and the proxy.
    pub fn harness() -> Ipv4Addr {
        address(HARNESS)
    }

    /// Returns the address of a slot in a network with namespaces.
    pub fn ip(slot: Slot) -> Ipv4Addr {
        address(u8::try_from(slot).expect("there are few nodes"))
    }

    /// Returns the addresses on which the node in this slot listens.
    pub fn addresses(&self, slot: Slot) -> Addresses {
        match &self.kind {
            Kind::Namespaces => {
                let at = |port| SocketAddr::new(IpAddr::V4(Self::ip(slot)), port);
                Addresses {
                    http: at(HTTP_PORT),
                    peer: at(PEER_PORT),
                    zookeeper: at(ZOOKEEPER_PORT),
                    redis: at(REDIS_PORT),
                }
            }
            Kind::Loopback(addresses) => addresses[slot - 1],
        }
    }

    /// Returns a command that runs in this slot. It execs the program, which thus keeps its process id.
    pub fn command(&self, slot: Slot, program: &std::path::Path) -> Command {
        match self.kind {
            Kind::Namespaces => {
                let mut command = Command::new("nsenter");
                command
                    .arg(format!("--net=/run/netns/{}", namespace(slot)))
                    .arg("--")
                    .arg(program);
                command
            }
            Kind::Loopback(_) => {
                // Without namespaces nothing else ends the program together with this process.
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--"]).arg(program);
                command
            }
        }
    }
}

/// Returns the name of a slot's namespace.
fn namespace(slot: Slot) -> String {
    format!("n{slot}")
}

fn address(last: u8) -> Ipv4Addr {
    let [a, b, c] = PREFIX;
    Ipv4Addr::new(a, b, c, last)
}

async fn ip(arguments: &str) -> anyhow::Result<String> {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    run("ip", &arguments).await
}
