//! Setup of one cell: a network, a proxy, and a cluster that serves.

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;

use super::Spec;
use crate::cluster::{Cluster, START_TIMEOUT};
use crate::command;
use crate::isolation::Isolation;
use crate::nemesis::{self, Need, Testbed, clock};
use crate::network::{Cuts, Network, loopback};
use crate::proxy::Proxy;
use crate::world::World;

/// Slots beyond those of the initial nodes, for nodes that are added later.
const SPARE_SLOTS: usize = 1;

/// Guard that aborts a task when it is dropped.
pub struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Creates a network and starts a cluster in it; returns when all nodes serve.
pub async fn set_up(spec: &Spec, kind: &nemesis::Kind) -> anyhow::Result<(Testbed, AbortOnDrop)> {
    let slots = kind.nodes + SPARE_SLOTS;
    let software = spec.software();
    let seed = spec.seed;
    let owners = loopback::Owners::default();
    let (network, proxy, entrances) = match spec.isolation {
        Isolation::Root | Isolation::User => {
            // A `/dev/shm` of this run's own as well: libfaketime names its files there after process ids,
            // which repeat between namespaces.
            command::run("mount", &["-t", "tmpfs", "none", "/dev/shm"]).await?;
            let network = Network::in_namespaces(slots)
                .await
                .context("making the network")?;
            let peers: Vec<_> = network
                .slots()
                .map(|slot| (slot, network.addresses(slot).peer))
                .collect();
            let proxy = Proxy::for_links(&peers, IpAddr::V4(Network::harness()), seed).await?;
            (network, proxy, None)
        }
        Isolation::None => {
            let network = Network::on_loopback(slots)?;
            let (proxy, entrances) = loopback::proxy(&network, owners.clone(), seed).await?;
            (network, proxy, Some(entrances))
        }
    };
    let as_seen = |slot| match &entrances {
        Some(entrances) => entrances[&slot],
        None => network.addresses(slot).peer,
    };
    let cuts = Arc::new(Cuts::new(network.has_namespaces(), proxy.clone()));
    let cluster = Arc::new(Cluster::configure(
        software,
        network.clone(),
        kind.nodes,
        spec.dir.clone(),
        &as_seen,
    )?);
    owners.get_or_init(|| Arc::downgrade(&cluster));
    for slot in 1..=kind.nodes {
        if kind.needs.contains(&Need::Disks) {
            cluster
                .disks
                .make(&spec.dir, &cluster.node(slot))
                .await
                .context("making disks")?;
        }
        if kind.needs.contains(&Need::FakeTime) {
            cluster
                .process(slot)
                .set_environment(clock::environment(&cluster.node(slot), false)?);
        }
        cluster.start(slot)?;
    }
    cluster
        .wait_all_ready(START_TIMEOUT)
        .await
        .context("starting the cluster")?;
    let watched = cluster.clone();
    let watch = tokio::spawn(async move { watched.watch().await });
    let world = World::new(cluster.endpoints(), seed);
    let testbed = Testbed {
        cluster,
        cuts,
        proxy,
        world,
    };
    Ok((testbed, AbortOnDrop(watch.abort_handle())))
}
