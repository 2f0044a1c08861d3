//! Whole clusters on disks that lose power or fail.
//!
//! `POWER_CUTS` sets the number of power cuts, and `POWER_SEED` the first one; a failure names the seed to repeat it
//! with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use lock_node::znode_store::{CreateMode, Reply, ZPath};
use lock_node::{NodeConfig, ProposeError, SnapshotConfig};
use parking_lot::Mutex;
use raft_log::sim_disk::{Fault, IgnoredCall, Random, SimDisk};

use crate::cluster::{Cluster, TIMEOUT, create, eventually, put, request};

/// Number of power cuts unless `POWER_CUTS` sets it. Each happens under load, and the next cluster runs on the remaining disks.
const CUTS: u64 = 6;

/// Minimum number of acknowledged writes before the power is cut.
const WRITES: usize = 40;

/// Number of cuts after which new disks are used: a simulated disk stores every write, and a state grows.
const CUTS_PER_DISK: u64 = 10;

fn from_environment(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |value| value.parse().expect("a number"))
}

fn disks() -> BTreeMap<u64, SimDisk> {
    (1..=3).map(|id| (id, SimDisk::new())).collect()
}

/// Configures snapshots, purges and new segments so often that power cuts interrupt them.
fn small(config: &mut NodeConfig) {
    config.raft.log.segment_bytes = 16 * 1024;
    config.raft.snapshots = SnapshotConfig {
        every_entries: 20,
        keep_entries: 2,
        ..SnapshotConfig::default()
    };
}

/// A cluster under load.
struct Loaded {
    cluster: Cluster,
    acknowledged: Arc<Mutex<BTreeSet<ZPath>>>,
    cut: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<()>,
}

impl Loaded {
    /// Starts a cluster in which every node writes and makes snapshots continuously.
    async fn start(disks: BTreeMap<u64, SimDisk>, seed: u64) -> Self {
        let mut loaded = Self {
            cluster: Cluster::start_on_with(disks, small).await,
            acknowledged: Arc::default(),
            cut: Arc::default(),
            tasks: tokio::task::JoinSet::new(),
        };
        for id in loaded.cluster.nodes.keys().copied().collect::<Vec<_>>() {
            loaded.load(id, seed);
        }
        loaded
    }

    fn load(&mut self, id: u64, seed: u64) {
        let name = format!("/life-{seed}-node-{id}-");
        let (node, acknowledged) = (self.cluster.node(id).clone(), self.acknowledged.clone());
        let (writing, making) = (self.cut.clone(), self.cut.clone());
        let maker = node.clone();
        self.tasks.spawn(async move {
            while !writing.load(Ordering::Relaxed) && !node.is_stopping() {
                let command = create(&name, "x", CreateMode::PersistentSequential);
                match node.propose(request(command)).await {
                    Ok(applied) => match applied.outcome {
                        Ok(Reply::Created { path, .. }) => {
                            acknowledged.lock().insert(path);
                        }
                        other => panic!("{other:?}"),
                    },
                    // A lagging node that installs a snapshot does not learn the outcome of its call. The call was not acknowledged.
                    Err(ProposeError::OutcomeUnknown(_)) => {}
                    Err(error) => {
                        assert!(node.is_stopping(), "cut {seed}: {error}");
                        return;
                    }
                };
            }
        });
        self.tasks.spawn(async move {
            while !making.load(Ordering::Relaxed) && !maker.is_stopping() {
                // A snapshot fails if a newer one arrived from the leader, which is no error here.
                let _ = maker.make_snapshot().await;
            }
        });
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().len()
    }

    /// Stops a follower until the leader has purged the entries that it lacks, starts it, and waits until its disk has seen so
    /// many changes: most of them belong to the snapshot that it receives.
    async fn leave_behind_and_bring_back(&mut self, changes: usize, seed: u64) {
        let away = self.cluster.follower().await;
        self.cluster.stop(away).await;
        let behind = self.cluster.leader().await;
        let node = self.cluster.node(behind).clone();
        let had = node.status().applied_index;
        eventually("the log is shortened", || node.status().log_first_index > had + 1).await;
        let disk = self.cluster.disks[&away].clone();
        let before = disk.events();
        self.cluster.restart(away).await.unwrap();
        self.load(away, seed);
        eventually("the snapshot comes", || disk.events() >= before + changes).await;
    }

    /// Cuts the power of all nodes at once. Returns possible contents of the disks after that, and the writes that were acknowledged
    /// before. If the disks `lie`, they lose everything that was not synced.
    async fn cut(mut self, seed: u64, lie: bool) -> (BTreeMap<u64, SimDisk>, BTreeSet<ZPath>) {
        for (id, node) in &self.cluster.nodes {
            let failed = futures_util::FutureExt::now_or_never(node.failed());
            assert_eq!(failed, None, "seed {seed}: node {id} has failed by itself");
        }
        // All power cuts happen at the same moment, because this code never awaits, and all nodes run on this thread.
        let promised = self.acknowledged.lock().clone();
        let disks = &self.cluster.disks;
        let moments: BTreeMap<u64, usize> = disks.iter().map(|(id, disk)| (*id, disk.events())).collect();
        let left = disks.iter().map(|(id, disk)| {
            let mut model = disk.crash_model();
            disk.advance(&mut model, moments[id]);
            // Each disk keeps a different part of the unsynced writes; with 0 it keeps none.
            let mixture = if lie { 0 } else { seed * 3 + id - 1 };
            (*id, model.crash(mixture))
        });
        let left = left.collect();
        self.cut.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.unwrap();
        }
        self.cluster.stop_all().await;
        (left, promised)
    }
}

/// Returns the znodes of `promised` that the cluster does not have.
async fn missing(cluster: &Cluster, promised: &BTreeSet<ZPath>) -> Vec<ZPath> {
    let node = cluster.node(1);
    node.read_barrier().await.unwrap();
    node.read(|store| {
        let gone = promised.iter().filter(|path| store.get(path).is_none());
        gone.cloned().collect()
    })
}

/// Returns whether the disk has a snapshot that was being written or received.
fn unfinished_snapshot(disk: &SimDisk) -> bool {
    let unfinished = |path: &std::path::PathBuf| {
        path.to_string_lossy().contains("/snapshots/") && path.extension().is_some_and(|it| it == "tmp")
    };
    disk.files().iter().any(unfinished)
}

#[tokio::test]
async fn acknowledged_writes_survive_a_power_cut_of_all_nodes() {
    let (first, cuts) = (
        from_environment("POWER_SEED", 0),
        from_environment("POWER_CUTS", CUTS),
    );
    let mut disks = disks();
    let mut promised = BTreeSet::new();
    let (mut all, mut within_snapshots, mut brought_back) = (0, 0, 0);
    for seed in first..first + cuts {
        if (seed - first) % CUTS_PER_DISK == CUTS_PER_DISK - 1 {
            (disks, promised) = (self::disks(), BTreeSet::new());
        }
        let mut random = Random::new(seed);
        let mut loaded = Loaded::start(disks, seed).await;
        let writes = WRITES + random.below(100) as usize;
        eventually("the cluster writes", || loaded.count() >= writes).await;
        if seed % 3 == 2 {
            loaded
                .leave_behind_and_bring_back(random.below(40) as usize, seed)
                .await;
            brought_back += 1;
        }
        let (left, more) = loaded.cut(seed, false).await;
        all += more.len();
        promised.extend(more);
        within_snapshots += u32::from(left.values().any(unfinished_snapshot));
        let mut cluster = Cluster::start_on_with(left.clone(), small).await;
        assert_eq!(
            missing(&cluster, &promised).await,
            Vec::<ZPath>::new(),
            "POWER_SEED={first}: after cut {seed}"
        );
        cluster.stop_all().await;
        disks = left;
    }
    println!(
        "{cuts} cuts, {all} acknowledged writes, none lost; {within_snapshots} cuts left unfinished snapshots, {brought_back} \
         were while a follower got one"
    );
}

/// Runs on disks that ignore calls; returns the number of lost acknowledged writes, or the reason why the nodes do not start.
async fn lost_with(lie: IgnoredCall) -> Result<usize, String> {
    let loaded = Loaded::start(disks(), 0).await;
    loaded
        .cluster
        .disks
        .values()
        .for_each(|disk| disk.ignore_calls(lie));
    let before = loaded.count();
    eventually("the cluster writes", || loaded.count() >= before + WRITES).await;
    // The run is long enough for new segments, whose names have to be synced, too.
    let changes = |loaded: &Loaded| loaded.cluster.node(1).status().snapshot_index;
    let snapshot = changes(&loaded);
    eventually("snapshots are made", || changes(&loaded) > snapshot + 20).await;
    let (left, promised) = loaded.cut(0, true).await;
    // The nodes may refuse to start on the remaining data.
    for (id, disk) in &left {
        let options = raft_log::WalOptions::default();
        let dir = format!("/node-{id}");
        let disk = Arc::new(disk.clone());
        lock_node::storage::Storage::open(disk, dir.as_ref(), "test", *id, options)
            .map_err(|error| error.to_string())?;
    }
    let mut cluster = Cluster::start_on_with(left, small).await;
    let gone = missing(&cluster, &promised).await.len();
    cluster.stop_all().await;
    Ok(gone)
}

#[tokio::test]
async fn power_cut_test_detects_disks_that_do_not_sync() {
    match lost_with(IgnoredCall::SyncData).await {
        Ok(gone) => assert!(gone > 0, "no acknowledged write was lost"),
        Err(refused) => println!("a node refuses to start: {refused}"),
    }
}

#[tokio::test]
async fn power_cut_test_detects_disks_that_do_not_sync_names() {
    match lost_with(IgnoredCall::SyncDir).await {
        Ok(gone) => assert!(gone > 0, "no acknowledged write was lost"),
        Err(refused) => println!("a node refuses to start: {refused}"),
    }
}

#[tokio::test]
async fn node_with_a_failed_disk_stops_and_the_others_continue() {
    let mut cluster = Cluster::start_on(disks()).await;
    put(cluster.node(1), "/before", "x").await;
    let broken = cluster.leader().await;
    let disk = &cluster.disks[&broken];
    disk.fail_calls_from(disk.calls(), Fault::InputOutput);
    let survivor = *cluster.nodes.keys().find(|id| **id != broken).unwrap();
    assert!(put(cluster.node(survivor), "/after", "x").await.outcome.is_ok());
    let failure = tokio::time::timeout(TIMEOUT, cluster.node(broken).failed())
        .await
        .unwrap();
    assert!(failure.contains("simulated input/output error"), "{failure}");
    assert!(cluster.node(broken).not_ready().is_some());
    cluster.stop_all().await;
}
