//! Data directories older than what their node has acknowledged: images that are restored over a newer
//! directory, and second processes on a copy. The peers have to reject such a node, and it has to exit.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use nix::sys::signal::Signal;

use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::node_process::Claim;
use crate::cluster::software::Node;
use crate::cluster::{Misbehaved, START_TIMEOUT, alarms, last_line};
use crate::command;
use crate::network::Slot;

/// Log text of a node that exits because of its directory.
const REFUSAL: &str = "data directory is older than what node";

/// Alarm of the peers that reject it.
const ALARM: &str = "rolled_back";

/// Time after which members have recorded the acknowledgements of the others: the leader sends them every
/// five seconds.
const NOTED_AFTER: Duration = Duration::from_secs(7);

/// Interval between two queries of a node that is going to be rejected.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Use of a copied directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyUse {
    /// Copied while the node was down. Restored over the directory, which is put back afterwards.
    RestoredImage,
    /// Copied while the node was paused. Restored over the directory, which is lost.
    RestoredImageInUse,
    /// A process runs on the copy at the node's address, while the node is dead.
    InPlaceOfTheNode,
    /// A process runs on the copy at another address, while the node is alive.
    BesideTheNode,
}

/// Returns both nemeses.
pub fn kinds() -> Vec<Kind> {
    const NEEDS: &[Need] = &[Need::Lockgate];
    vec![
        Kind {
            name: "old-image",
            about: "a copy of a node's directory, made while it was down or in use, is restored over the newer one",
            nodes: 3,
            needs: NEEDS,
            make: || {
                Box::new(OldDirectory::new([
                    CopyUse::RestoredImage,
                    CopyUse::RestoredImageInUse,
                ]))
            },
        },
        Kind {
            name: "copied-directory",
            about: "a second process runs on a copy of a node's directory, while the node is dead or alive",
            nodes: 3,
            needs: NEEDS,
            make: || {
                Box::new(OldDirectory::new([
                    CopyUse::InPlaceOfTheNode,
                    CopyUse::BesideTheNode,
                ]))
            },
        },
    ]
}

/// Nemesis that hits one directory at a time.
struct OldDirectory {
    usages: [CopyUse; 2],
    /// Number of faults so far, so that the first two are of each kind.
    round: Option<usize>,
    hit: Option<Hit>,
}

/// Node with a copy of its directory.
struct Hit {
    usage: CopyUse,
    slot: Slot,
    copy: PathBuf,
    _claim: Claim,
}

impl OldDirectory {
    fn new(usages: [CopyUse; 2]) -> Self {
        Self {
            usages,
            round: None,
            hit: None,
        }
    }
}

/// Copies a data directory to `to`, which must not exist.
async fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    let (from, to) = (from.display().to_string(), to.display().to_string());
    command::run("cp", &["-a", "--sparse=always", &from, &to]).await?;
    Ok(())
}

/// Waits until the process in a slot was rejected because of its directory and has exited. Returns evidence.
async fn refused(testbed: &Testbed, slot: Slot) -> anyhow::Result<String> {
    let cluster = &testbed.cluster;
    let (node, begun) = (cluster.node(slot), Instant::now());
    while cluster.pid(slot).is_some() {
        let serves = cluster.software.is_ready(&node).await;
        if serves || begun.elapsed() >= START_TIMEOUT {
            let does = if serves { "serves" } else { "is not rejected" };
            let what = format!("node {} returned with an older directory, and {does}", node.id);
            return Err(Misbehaved(what).into());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    let tail = cluster.process(slot).log_tail();
    ensure!(
        tail.contains(REFUSAL),
        "node {} exited for another reason than its directory: {}",
        node.id,
        last_line(&tail)
    );
    Ok(format!("node {} was rejected", node.id))
}

/// Writes the files that a process on a copy needs beside its data: those of the node, with the addresses of
/// its slot.
fn configure(testbed: &Testbed, node: &Node) -> anyhow::Result<()> {
    let cluster = &testbed.cluster;
    let members = cluster.members().into_iter().map(|slot| cluster.node(slot));
    let others = members.filter(|other| other.id != node.id);
    let all: Vec<Node> = others.chain([node.clone()]).collect();
    cluster.software.configure(node, &all, false)
}

impl Nemesis for OldDirectory {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let round = self.round.map_or_else(|| rng.usize(0..2), |round| round + 1);
            self.round = Some(round);
            let usage = self.usages[round % 2];
            let cluster = &testbed.cluster;
            let slot = *rng.choice(&testbed.expendable()).context("there are members")?;
            let claim = cluster.process(slot).claim().await;
            let node = cluster.node(slot);
            let dir = cluster.dir.join(format!("copy-{round}-of-node-{}", node.id));
            std::fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
            let copied = dir.join("data");
            let how = match usage {
                CopyUse::RestoredImageInUse => {
                    cluster.signal(slot, Signal::SIGSTOP)?;
                    let copied = copy(&node.data_dir(), &copied).await;
                    cluster.signal(slot, Signal::SIGCONT)?;
                    copied?;
                    "while it was paused"
                }
                CopyUse::RestoredImage | CopyUse::InPlaceOfTheNode | CopyUse::BesideTheNode => {
                    cluster.kill(slot).await?;
                    copy(&node.data_dir(), &copied).await?;
                    cluster.start(slot)?;
                    cluster.wait_ready(slot, START_TIMEOUT).await?;
                    "while it was down"
                }
            };
            self.hit = Some(Hit {
                usage,
                slot,
                copy: dir,
                _claim: claim,
            });
            Ok(format!(
                "the directory of node {} was copied {how}, for {usage:?}",
                node.id
            ))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        match self.hit.as_ref().map(|hit| hit.usage) {
            Some(CopyUse::RestoredImageInUse) => NOTED_AFTER,
            _ => Duration::from_millis(rng.u64(500..2000)),
        }
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let Some(hit) = self.hit.take() else {
                return Ok(None);
            };
            let (cluster, slot) = (&testbed.cluster, hit.slot);
            let node = cluster.node(slot);
            let (data, newest) = (node.data_dir(), hit.copy.join("newest"));
            let what = match hit.usage {
                CopyUse::RestoredImage | CopyUse::RestoredImageInUse => {
                    cluster.kill(slot).await?;
                    std::fs::rename(&data, &newest).context("setting the newest directory aside")?;
                    std::fs::rename(hit.copy.join("data"), &data).context("restoring an image")?;
                    cluster.start_damaged(slot)?;
                    let refused_by_peers = refused(testbed, slot).await?;
                    alarms::wait_for(cluster, ALARM, node.id).await?;
                    // The node's own directory records the rejection now.
                    cluster.start_damaged(slot)?;
                    refused(testbed, slot).await?;
                    match hit.usage {
                        CopyUse::RestoredImage => {
                            std::fs::remove_dir_all(&data).context("removing the image")?;
                            std::fs::rename(&newest, &data).context("putting the directory back")?;
                            cluster.start(slot)?;
                            cluster.wait_ready(slot, START_TIMEOUT).await?;
                            format!("{refused_by_peers}, and serves with its newest directory")
                        }
                        _ => {
                            cluster.remove(slot).await?;
                            let new = cluster.add(slot).await?;
                            format!("{refused_by_peers}, and node {new} took its place")
                        }
                    }
                }
                CopyUse::InPlaceOfTheNode => {
                    cluster.kill(slot).await?;
                    let second = Node {
                        dir: hit.copy.clone(),
                        ..node.clone()
                    };
                    configure(testbed, &second)?;
                    cluster.process(slot).set_node(second);
                    cluster.start_damaged(slot)?;
                    let refused = refused(testbed, slot).await;
                    cluster.process(slot).set_node(node.clone());
                    let refused = refused?;
                    alarms::wait_for(cluster, ALARM, node.id).await?;
                    cluster.start(slot)?;
                    cluster.wait_ready(slot, START_TIMEOUT).await?;
                    format!("{refused} on the copy, and serves with its own directory")
                }
                CopyUse::BesideTheNode => {
                    let mut slots = cluster.network.slots();
                    let free = slots
                        .find(|slot| !cluster.process(*slot).is_member())
                        .context("no free slot")?;
                    let _claim = cluster.process(free).claim().await;
                    let before = cluster.pid(slot);
                    let second = Node {
                        id: node.id,
                        dir: hit.copy.clone(),
                        ..cluster.node(free)
                    };
                    configure(testbed, &second)?;
                    let empty = cluster.node(free);
                    cluster.process(free).set_node(second);
                    cluster.start_damaged(free)?;
                    let refused = refused(testbed, free).await;
                    cluster.process(free).set_node(empty);
                    let refused = refused?;
                    cluster.wait_ready(slot, START_TIMEOUT).await?;
                    ensure!(cluster.pid(slot) == before, "node {} was started again", node.id);
                    format!("{refused} on the copy, and the first process of it serves")
                }
            };
            std::fs::remove_dir_all(&hit.copy).context("removing the copy")?;
            Ok(Some(what))
        }
        .boxed()
    }
}
