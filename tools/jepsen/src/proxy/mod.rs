//! A TCP proxy between nodes that delays, loses, tears and cuts, each link and each direction for itself.
//!
//! A link leads from one place to another. TCP hides loss by sending again, so what a node sees of a lossy network is what
//! it sees here: stalls, connections that overtake each other, and resets.

mod pump;
pub mod weather;

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
pub use weather::Weather;

/// From the first place to the second: the first is the one that connects.
pub type Link = (Slot, Slot);

/// Finds the place that opened a connection, by the address it comes from and the proxy's own address.
pub type WhoIs = Arc<dyn Fn(SocketAddr, SocketAddr) -> Option<Slot> + Send + Sync>;

/// What a link has done so far.
#[derive(Debug, Default)]
pub struct Counts {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Portions that came later than they would have.
    pub delayed: AtomicU64,
    /// How often a portion was lost.
    pub lost: AtomicU64,
    /// Connections reset, or refused.
    pub reset: AtomicU64,
    /// Portions that were held back by a cut.
    pub held: AtomicU64,
}

/// The weather of one link: on the way there, and on the way back.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weathers {
    /// From who connects to who is connected to.
    pub there: Weather,
    /// Back.
    pub back: Weather,
}

/// One link's state, shared by all its connections.
struct LinkState {
    weathers: watch::Sender<Weathers>,
    counts: Counts,
    /// Replaced when all its connections are to end.
    connections: Mutex<CancellationToken>,
}

/// Listeners for all links, and what is true of each.
pub struct Proxy {
    links: BTreeMap<Link, Arc<LinkState>>,
    /// Where to connect for a link.
    entrances: BTreeMap<Link, SocketAddr>,
    seed: u64,
}

impl Proxy {
    /// A proxy for links between all these places, which listens at `at`, one port for each link.
    pub async fn for_links(
        places: &[(Slot, SocketAddr)],
        at: IpAddr,
        seed: u64,
    ) -> anyhow::Result<Arc<Self>> {
        let mut proxy = Self::new(places, seed);
        let mut listeners = Vec::new();
        for (to, target) in places {
            for (from, _) in places.iter().filter(|(from, _)| from != to) {
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

    /// A proxy with one port for each place, which finds out who connects. Gives the ports.
    pub async fn for_targets(
        places: &[(Slot, SocketAddr)],
        at: IpAddr,
        seed: u64,
        who: WhoIs,
    ) -> anyhow::Result<(Arc<Self>, BTreeMap<Slot, SocketAddr>)> {
        let proxy = Arc::new(Self::new(places, seed));
        let mut entrances = BTreeMap::new();
        for (to, target) in places {
            let listener = TcpListener::bind((at, 0)).await.context("a port of the proxy")?;
            entrances.insert(*to, listener.local_addr()?);
            tokio::spawn(proxy.clone().accept(listener, *to, *target, who.clone()));
        }
        Ok((proxy, entrances))
    }

    fn new(places: &[(Slot, SocketAddr)], seed: u64) -> Self {
        let slots = || places.iter().map(|(slot, _)| *slot);
        let links = slots().flat_map(|from| slots().map(move |to| (from, to)));
        let state = || LinkState {
            weathers: watch::Sender::default(),
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

    /// Where to connect for this link, if it has a port of its own.
    pub fn entrance(&self, link: Link) -> Option<SocketAddr> {
        self.entrances.get(&link).copied()
    }

    /// All links.
    pub fn links(&self) -> impl Iterator<Item = Link> + '_ {
        self.links.keys().copied()
    }

    /// The weather of a link from now on, but for cuts.
    pub fn set(&self, link: Link, weather: Weather) {
        if let Some(state) = self.links.get(&link) {
            state.weathers.send_modify(|now| {
                for one in [&mut now.there, &mut now.back] {
                    *one = Weather {
                        cut: one.cut,
                        ..weather
                    };
                }
            });
        }
    }

    /// From now on exactly these do not come: what the first sends to the second, whoever of them has connected.
    pub fn cut(&self, cuts: &BTreeSet<(Slot, Slot)>) {
        for ((from, to), state) in &self.links {
            state.weathers.send_modify(|now| {
                now.there.cut = cuts.contains(&(*from, *to));
                now.back.cut = cuts.contains(&(*to, *from));
            });
        }
    }

    /// Ends all connections of a link by a reset.
    pub fn reset(&self, link: Link) {
        if let Some(state) = self.links.get(&link) {
            std::mem::take(&mut *state.connections.lock()).cancel();
        }
    }

    /// The sum of something over all links.
    pub fn sum(&self, of: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        let counts = self
            .links
            .values()
            .map(|state| of(&state.counts).load(Ordering::Relaxed));
        counts.sum()
    }

    /// The same of one link.
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
                    // Too many open files, or a connection that was gone before: neither is for ever.
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
                eprintln!("the proxy does not know who connects from {address} to node at place {to}");
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

/// One connection, from its acceptance to its end.
async fn serve(stream: TcpStream, target: SocketAddr, link: &LinkState, seed: u64) -> std::io::Result<()> {
    let ended = link.connections.lock().clone();
    let weathers = link.weathers.subscribe();
    // Who connects through a cut gets no answer, and gives up by itself.
    let open = async {
        let mut weathers = weathers.clone();
        let is_cut = |now: &Weathers| now.there.cut || now.back.cut;
        if is_cut(&weathers.borrow()) {
            link.counts.held.fetch_add(1, Ordering::Relaxed);
        }
        let fine = weathers.wait_for(|now| !is_cut(now)).await;
        fine.map_err(|_| std::io::ErrorKind::ConnectionAborted)?;
        TcpStream::connect(target).await
    };
    let other = tokio::select! {
        opened = open => opened?,
        () = ended.cancelled() => return pump::reset(&stream),
    };
    stream.set_nodelay(true)?;
    other.set_nodelay(true)?;
    pump::both_ways(stream, other, weathers, &link.counts, ended, seed).await
}

#[cfg(test)]
mod tests;
