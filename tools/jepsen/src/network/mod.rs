//! A network that exists for one run: a switch, and a network namespace with an address for every node.
//!
//! It is made inside the namespaces that [`crate::inside`] gave this process, so that the kernel takes all of it away when
//! the process is gone, however that went. Where there are no namespaces, all nodes share the loopback interface, and what
//! is between them goes through the proxy.

pub mod cuts;
pub mod detour;
pub mod loopback;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};

use anyhow::Context;
use tokio::process::Command;

use crate::command::run;
pub use cuts::Cuts;

/// Slots are places for nodes, from 1 on: an address that stays while processes and even nodes come and go.
pub type Slot = usize;

/// The addresses of a run's own network. Nobody else sees them.
const PREFIX: [u8; 3] = [10, 77, 0];

/// Clients and the proxy.
const HARNESS: u8 = 254;

const HTTP_PORT: u16 = 7400;
const PEER_PORT: u16 = 7500;
const ZOOKEEPER_PORT: u16 = 2181;

/// Where things are that a node listens on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// HTTP.
    pub http: SocketAddr,
    /// Peers, as the node itself listens.
    pub peer: SocketAddr,
    /// Clients of ZooKeeper.
    pub zookeeper: SocketAddr,
}

/// How nodes are kept apart.
#[derive(Clone, Debug)]
enum Kind {
    /// A network namespace for each.
    Namespaces,
    /// Ports of the loopback interface, found free.
    Loopback(Vec<Addresses>),
}

/// The network of a run.
#[derive(Clone, Debug)]
pub struct Network {
    slots: usize,
    kind: Kind,
}

impl Network {
    /// Makes the network with places for so many nodes, in the namespaces of this process.
    pub async fn in_namespaces(slots: usize) -> anyhow::Result<Self> {
        let mount = ["-t", "tmpfs", "none", "/run/netns"];
        std::fs::create_dir_all("/run/netns").context("/run/netns")?;
        // Names of namespaces are files there; on a file system of this run they are this run's own.
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

    /// Places for so many nodes on the loopback interface.
    pub fn on_loopback(slots: usize) -> anyhow::Result<Self> {
        // All are held until all are found, so that none is found twice.
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
                })
            })
            .collect::<anyhow::Result<_>>()?;
        Ok(Self {
            slots,
            kind: Kind::Loopback(addresses),
        })
    }

    /// All places.
    pub fn slots(&self) -> std::ops::RangeInclusive<Slot> {
        1..=self.slots
    }

    /// Whether nodes have namespaces of their own.
    pub fn has_namespaces(&self) -> bool {
        matches!(self.kind, Kind::Namespaces)
    }

    /// Where clients and the proxy are.
    pub fn harness() -> Ipv4Addr {
        address(HARNESS)
    }

    /// The address of a place, where there are namespaces.
    pub fn ip(slot: Slot) -> Ipv4Addr {
        address(u8::try_from(slot).expect("there are few nodes"))
    }

    /// Where the node at this place listens.
    pub fn addresses(&self, slot: Slot) -> Addresses {
        match &self.kind {
            Kind::Namespaces => {
                let at = |port| SocketAddr::new(IpAddr::V4(Self::ip(slot)), port);
                Addresses {
                    http: at(HTTP_PORT),
                    peer: at(PEER_PORT),
                    zookeeper: at(ZOOKEEPER_PORT),
                }
            }
            Kind::Loopback(addresses) => addresses[slot - 1],
        }
    }

    /// A command that runs at this place. It becomes the program itself, with its process id.
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
                // Nobody else would end it with this process.
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "KILL", "--"]).arg(program);
                command
            }
        }
    }
}

/// The name of a place's namespace.
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
