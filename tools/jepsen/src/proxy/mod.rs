//! TCP proxy between nodes that delays, loses, resets and cuts traffic, for each link and each direction
//! separately.
//! A link leads from one slot to another. TCP hides loss by retransmission, so the proxy produces the effects
//! of a lossy network as a node sees them: stalls, connections that overtake each other, and resets.

mod pump;
pub mod conditions;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::network::Slot;
pub use conditions::LinkConditions;

/// Link from the first slot, which connects, to the second.
pub type Link = (Slot, Slot);

/// Identifies the slot that opened a connection, by its source address and the proxy's own address.
pub type WhoIs = Arc<dyn Fn(SocketAddr, SocketAddr) -> Option<Slot> + Send + Sync>;

/// Counters of a link.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Portions that were delayed.
    pub delayed: AtomicU64,
    /// Losses of portions; one portion may be lost several times.
    pub lost: AtomicU64,
    /// Connections that were reset or rejected.
    pub reset: AtomicU64,
    /// Portions that were held back by a cut.
    pub held: AtomicU64,
}

/// Conditions of one link, for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DuplexConditions {
    /// From the side that connects to the other.
    pub there: LinkConditions,
    /// In the opposite direction.
    pub back: LinkConditions,
}

/// State of one link, shared by all its connections.
struct LinkState {
    duplex: watch::Sender<DuplexConditions>,
    counts: Counts,
    /// Cancelled and replaced in order to end all connections.
    connections: Mutex<CancellationToken>,
}

/// Listeners and states of all links.
pub struct Proxy {
    links: BTreeMap<Link, Arc<LinkState>>,
    /// Listen address of each link.
    entrances: BTreeMap<Link, SocketAddr>,
    seed: u64,
}

impl Proxy {
    /// Creates a proxy for the links between all these slots; it listens at `at` with one port for each link.
    pub async fn for_links(peers: &[(Slot, SocketAddr)], at: IpAddr, seed: u64) -> anyhow::Result<Arc<Self>> {
        let mut proxy = Self::new(peers, seed);
        let mut listeners = Vec::new();
        for (to, target) in peers {
            for (from, _) in peers.iter().filter(|(from, _)| from != to) {
                let listener = TcpListener::bind((at, 0)).await.context("a port of the proxy")?;
                proxy.entrances.insert((*from, *to), listener.local_addr()?);
                listeners.push((listener, *from, *to, *target));
            }
        }
        let proxy = Arc::new(proxy);
        for (listener, from, to, target) in listeners {
            let who: WhoIs = Arc::new(move |_, _| Some(from));
            tokio::spawn(proxy.clone().accept(listener, to, target, who));
        }
        Ok(proxy)
    }

    /// Creates a proxy with one port for each slot, which identifies the connecting slot by `who`; returns it
    /// with the ports.
    pub async fn for_targets(
        peers: &[(Slot, SocketAddr)],
        at: IpAddr,
        seed: u64,
        who: WhoIs,
    ) -> anyhow::Result<(Arc<Self>, BTreeMap<Slot, SocketAddr>)> {
        let proxy = Arc::new(Self::new(peers, seed));
        let mut entrances = BTreeMap::new();
        for (to, target) in peers {
            let listener = TcpListener::bind((at, 0)).await.context("a port of the proxy")?;
            entrances.insert(*to, listener.local_addr()?);
            tokio::spawn(proxy.clone().accept(listener, *to, *target, who.clone()));
        }
        Ok((proxy, entrances))
    }

    fn new(peers: &[(Slot, SocketAddr)], seed: u64) -> Self {
        let slots = || peers.iter().map(|(slot, _)| *slot);
        let links = slots().flat_map(|from| slots().map(move |to| (from, to)));
        let state = || LinkState {
            duplex: watch::Sender::default(),
            counts: Counts::default(),
            connections: Mutex::default(),
        };
        Self {
            links: links
                .filter(|(from, to)| from != to)
                .map(|link| (link, Arc::new(state())))
                .collect(),
            entrances: BTreeMap::new(),
            seed,
        }
    }

    /// Returns the listen address of a link that has a port of its own.
    pub fn entrance(&self, link: Link) -> Option<SocketAddr> {
        self.entrances.get(&link).copied()
    }

    /// Returns all links.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        self.links.keys().copied()
    }

    /// Sets the conditions of a link; its cuts are unchanged.
    pub fn set(&self, link: Link, conditions: LinkConditions) {
        if let Some(state) = self.links.get(&link) {
            state.duplex.send_modify(|now| {
                for one in [&mut now.there, &mut now.back] {
                    *one = LinkConditions {
                        cut: one.cut,
                        ..conditions
                    };
                }
            });
        }
    }

    /// Replaces all cuts: traffic from the first to the second slot of each pair is held back, whichever of
    /// them has connected.
    pub fn cut(&self, cuts: &BTreeSet<(Slot, Slot)>) {
        for ((from, to), state) in &self.links {
            state.duplex.send_modify(|now| {
                now.there.cut = cuts.contains(&(*from, *to));
                now.back.cut = cuts.contains(&(*to, *from));
            });
        }
    }

    /// Resets all connections of a link.
    pub fn reset(&self, link: Link) {
        if let Some(state) = self.links.get(&link) {
            std::mem::take(&mut *state.connections.lock()).cancel();
        }
    }

    /// Returns the sum of a counter over all links.
    pub fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        let counts = self
            .links
            .values()
            .map(|state| of(&state.counts).load(Ordering::Relaxed));
        counts.sum()
    }

    /// Returns a counter of one link.
    pub fn count(&self, link: Link, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.links
            .get(&link)
            .map_or(0, |state| of(&state.counts).load(Ordering::Relaxed))
    }

    async fn accept(self: Arc<Self>, listener: TcpListener, to: Slot, target: SocketAddr, who: WhoIs) {
        loop {
            let (stream, address) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Either the process has too many open files, or the connection has already gone; both
                    // are temporary.
                    eprintln!("the proxy cannot accept: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let from = stream
                .local_addr()
                .ok()
                .and_then(|entrance| who(address, entrance));
            let Some(from) = from else {
                eprintln!(
                    "the proxy cannot identify the process that connects from {address} to the node in slot {to}"
                );
                continue;
            };
            let Some(link) = self.links.get(&(from, to)).cloned() else {
                continue;
            };
            let number = link.counts.connections.fetch_add(1, Ordering::Relaxed);
            let seed = self.seed ^ ((from as u64) << 48) ^ ((to as u64) << 40) ^ number;
            tokio::spawn(async move {
                if let Err(error) = serve(stream, target, &link, seed).await
                    && !pump::is_ordinary(&error)
                {
                    eprintln!("the proxy's link {from}>{to}: {error}");
                }
            });
        }
    }
}

/// Serves one connection from its acceptance to its end.
async fn serve(stream: TcpStream, target: SocketAddr, link: &LinkState, seed: u64) -> std::io::Result<()> {
    let ended = link.connections.lock().clone();
    let duplex = link.duplex.subscribe();
    // A connection through a cut gets no answer until its caller gives up.
    let open = async {
        let mut duplex = duplex.clone();
        let is_cut = |now: &DuplexConditions| now.there.cut || now.back.cut;
        if is_cut(&duplex.borrow()) {
            link.counts.held.fetch_add(1, Ordering::Relaxed);
        }
        let fine = duplex.wait_for(|now| !is_cut(now)).await;
        fine.map_err(|_| std::io::ErrorKind::ConnectionAborted)?;
        TcpStream::connect(target).await
    };
    let other = tokio::select! {
        opened = open => opened?,
        () = ended.cancelled() => return pump::reset(&stream),
    };
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    pump::transfer_both(stream, other, duplex, &link.counts, ended, seed).await
}

#[cfg(test)]
mod tests;
