//! Disks that stall, fail and fill up, with a file system for each node.

use std::io::Write;
use std::time::Duration;

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::START_TIMEOUT;
use crate::cluster::disks::Disk;
use crate::cluster::node_process::Claim;
use crate::command::run;
use crate::network::Slot;

/// Returns all disk nemeses.
pub fn kinds() -> Vec<Kind> {
    const NEEDS: &[Need] = &[Need::Disks];
    vec![
        Kind {
            name: "slow-disk",
            about: "a node's disk stalls for 0.1 to 3 s, again and again",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(SlowDisk::default()),
        },
        Kind {
            name: "failing-disk",
            about: "all writes to a node's disk fail until it is repaired",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(FailingDisk::default()),
        },
        Kind {
            name: "full-disk",
            about: "the disks of one or all nodes are full to the last byte, until space is freed",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(FullDisk::default()),
        },
    ]
}

/// Range of a stall in milliseconds: shorter and longer than an election.
const STALL_MS: std::ops::Range<u64> = 100..3000;

/// Range of the time between two stalls, in milliseconds.
const WORKS_MS: std::ops::Range<u64> = 20..300;

/// Nemesis that freezes and thaws one node's file system.
#[derive(Default)]
struct SlowDisk {
    disk: Option<Disk>,
    /// Prevents other faults from replacing the disk while it is frozen.
    claim: Option<Claim>,
    stop: CancellationToken,
    task: Option<JoinHandle<anyhow::Result<Duration>>>,
}

/// Stalls a disk repeatedly until `stop` is cancelled; returns the duration of the harness's longest write.
async fn stall(disk: Disk, mut rng: Rng, stop: CancellationToken) -> anyhow::Result<Duration> {
    let at = disk.at.display().to_string();
    let mut longest = Duration::ZERO;
    while !stop.is_cancelled() {
        run("fsfreeze", &["--freeze", &at]).await?;
        let of_probe = disk.clone();
        let probe = tokio::spawn(async move { of_probe.probe().await });
        tokio::time::sleep(Duration::from_millis(rng.u64(STALL_MS))).await;
        run("fsfreeze", &["--unfreeze", &at]).await?;
        let took = probe.await.context("a probe")?.context("a probe of the disk")?;
        longest = longest.max(took);
        tokio::time::sleep(Duration::from_millis(rng.u64(WORKS_MS))).await;
    }
    Ok(longest)
}

impl Nemesis for SlowDisk {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let leader = testbed.leader_or_any(rng).await;
            let slot = if rng.bool() { leader } else { testbed.any(rng) };
            self.claim = Some(testbed.cluster.process(slot).claim().await);
            let disk = testbed.cluster.disks.of(slot)?;
            self.disk = Some(disk.clone());
            self.stop = CancellationToken::new();
            self.task = Some(tokio::spawn(stall(disk, rng.fork(), self.stop.clone())));
            let part = if slot == leader { " (leader)" } else { "" };
            Ok(format!("the disk of {slot}{part} stalls again and again"))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(4000..8000))
    }

    fn heal<'a>(&'a mut self, _: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            self.stop.cancel();
            let _claim = self.claim.take();
            let task = self.task.take().context("the fault was started")?;
            let longest = task.await.context("the task that stalls")?;
            if let (Err(_), Some(disk)) = (&longest, &self.disk) {
                // The file system may still be frozen, and could then never be unmounted.
                let thawed = run("fsfreeze", &["--unfreeze", &disk.at.display().to_string()]).await;
                eprintln!("thawing once more: {thawed:?}");
            }
            let longest = longest?;
            let long = longest >= Duration::from_millis(STALL_MS.start / 2);
            Ok(long.then(|| format!("a write of the harness to it took {} ms", longest.as_millis())))
        }
        .boxed()
    }
}

/// Nemesis that aborts one node's file system, as ext4 does when its disk fails.
#[derive(Default)]
struct FailingDisk {
    hit: Option<(Slot, Claim)>,
    failure: Option<String>,
}

impl Nemesis for FailingDisk {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let slot = if rng.bool() {
                testbed.leader_or_any(rng).await
            } else {
                testbed.any(rng)
            };
            let process = testbed.cluster.process(slot);
            self.hit = Some((slot, process.claim().await));
            // A node that cannot write its log has to exit.
            process.set_may_end(true);
            let disk = testbed.cluster.disks.of(slot)?;
            run("mount", &["-o", "remount,abort", &disk.at.display().to_string()]).await?;
            self.failure = disk.probe().await.err().map(|error| error.to_string());
            Ok(format!("the disk of {slot} fails"))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let Some((slot, _claim)) = self.hit.take() else {
                return Ok(None);
            };
            let ended = testbed.cluster.pid(slot).is_none();
            testbed.cluster.kill(slot).await?;
            testbed.cluster.disks.repair(slot).await?;
            testbed.cluster.start(slot)?;
            testbed
                .cluster
                .wait_ready(slot, START_TIMEOUT)
                .await
                .context("after its disk failed")?;
            let node = if ended { "had ended" } else { "still ran" };
            let failure = self.failure.take();
            Ok(failure.map(|failure| format!("a write of the harness failed: {failure}; the node {node}")))
        }
        .boxed()
    }
}

/// Size of the pieces in which a disk is filled; halving them finds the last byte.
const PIECE_BYTES: usize = 1024 * 1024;

/// Free space below which a disk counts as full: less than the smallest unit that a file occupies.
const FULL_BYTES: u64 = 4096;

/// Nemesis that fills disks with a file that is not the node's.
#[derive(Default)]
struct FullDisk {
    hit: Vec<Slot>,
    full: usize,
}

fn fill_up(disk: &Disk) -> anyhow::Result<bool> {
    let path = disk.aside("filler");
    let mut options = std::fs::File::options();
    let mut file = options
        .create(true)
        .append(true)
        .open(&path)
        .with_context(|| path.display().to_string())?;
    let mut piece = PIECE_BYTES;
    while piece > 0 {
        match file.write_all(&vec![7; piece]) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::StorageFull => piece /= 2,
            Err(error) => return Err(error).context("filling a disk"),
        }
    }
    Ok(disk.free_bytes()? < FULL_BYTES)
}

impl Nemesis for FullDisk {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            self.full = 0;
            self.hit = match rng.u8(0..3) {
                0 => testbed.cluster.members(),
                1 => vec![testbed.leader_or_any(rng).await],
                _ => vec![testbed.any(rng)],
            };
            for slot in &self.hit {
                let disk = testbed.cluster.disks.of(*slot)?;
                let filled = tokio::task::spawn_blocking(move || fill_up(&disk)).await;
                self.full += usize::from(filled.context("filling a disk")??);
            }
            Ok(format!("the disks of {:?} are full", self.hit))
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let hit = std::mem::take(&mut self.hit);
            for slot in &hit {
                let path = testbed.cluster.disks.of(*slot)?.aside("filler");
                std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
            let all = !hit.is_empty() && self.full == hit.len();
            Ok(all.then(|| format!("{} disks had no free space", self.full)))
        }
        .boxed()
    }
}
