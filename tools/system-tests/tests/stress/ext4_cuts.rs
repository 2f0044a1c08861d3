//! Power cuts of all three nodes at once, on a real file system: their data directories are on ext4 in image
//! files. The images are copied under load at one moment. A copy is the content of a disk whose machine lost
//! power: everything that was synced, and whatever else the kernel happened to have written. Then the nodes
//! are killed, and start again on the copies.
//!
//! Needs root and loop devices; otherwise prints a message and does nothing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cli_support::http_client::Connection;
use local_cluster::START_TIMEOUT;
use serde_json::json;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::harness::{TestCluster, eventually, rounds};

/// Number of power cuts.
const CUTS: usize = 2;

/// Size of an image: room for the log and snapshots, and still copied quickly.
const IMAGE_BYTES: u64 = 64 * 1024 * 1024;

const WRITERS: usize = 6;

/// Minimum of acknowledged writes before each cut.
const WRITES: usize = 150;

/// Settings under which cuts coincide with snapshots, purges and new segments, and under which small images
/// are not nearly full.
const SETTINGS: &str = "[snapshots]\nevery_entries = 60\nkeep_entries = 5\n\n\
                        [disk]\nsegment_bytes = 4194304\nlow_water_bytes = 1048576";

/// An ext4 file system in a file, mounted until this is dropped.
struct Image {
    file: PathBuf,
    mounted_at: PathBuf,
}

fn run(program: &str, arguments: &[&Path]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

impl Image {
    fn make(file: PathBuf, at: &Path) -> Result<Self, String> {
        let made = std::fs::File::create(&file).and_then(|it| it.set_len(IMAGE_BYTES));
        made.map_err(|error| error.to_string())?;
        run("mkfs.ext4", &[Path::new("-q"), Path::new("-F"), &file])?;
        Self::mount(file, at)
    }

    fn mount(file: PathBuf, at: &Path) -> Result<Self, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        run("mount", &[Path::new("-o"), Path::new("loop"), &file, at])?;
        Ok(Self {
            file,
            mounted_at: at.to_owned(),
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // Lazily, since a failed test may not have ended its processes yet.
        if let Err(error) = run("umount", &[Path::new("-l"), &self.mounted_at]) {
            eprintln!("{} stays mounted: {error}", self.mounted_at.display());
        }
    }
}

/// Creates the images of all nodes, mounted at their data directories.
fn make_images(cluster: &TestCluster, dir: &Path) -> Result<Vec<Image>, String> {
    let nodes = cluster.nodes().map(|node| (node.id, node.data_dir()));
    nodes
        .map(|(id, data)| Image::make(dir.join(format!("node-{id}.img")), &data))
        .collect()
}

/// Copies all images at one moment, kills the nodes, and mounts the copies in place of the images.
async fn cut(cluster: &mut TestCluster, images: Vec<Image>, dir: &Path, number: usize) -> Vec<Image> {
    // The processes are paused so that all copies show the same moment; nothing is synced for that.
    for id in cluster.ids() {
        cluster.signal(id, nix::sys::signal::Signal::SIGSTOP).unwrap();
    }
    let copies: Vec<PathBuf> = images
        .iter()
        .enumerate()
        .map(|(at, image)| {
            let copy = dir.join(format!("cut-{number}-{at}.img"));
            std::fs::copy(&image.file, &copy).unwrap();
            copy
        })
        .collect();
    cluster.kill_all().await.unwrap();
    let places: Vec<PathBuf> = images.iter().map(|image| image.mounted_at.clone()).collect();
    let old: Vec<PathBuf> = images.iter().map(|image| image.file.clone()).collect();
    drop(images);
    old.iter().for_each(|file| std::fs::remove_file(file).unwrap());
    let mounted = copies.into_iter().zip(places);
    mounted
        .map(|(copy, at)| Image::mount(copy, &at).unwrap())
        .collect()
}

/// Writes until the power is cut; records each acknowledged path at once.
fn write(
    cluster: &TestCluster,
    round: usize,
    cut: &Arc<AtomicBool>,
    done: &Arc<std::sync::Mutex<BTreeSet<String>>>,
) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (cut, done) = (cut.clone(), done.clone());
        let node = cluster.http(1 + writer as u64 % 3);
        writers.spawn(async move {
            let mut connection = Connection::connect(&node).await.expect("the node runs");
            for number in 0.. {
                let path = format!("/cut/{round}/{writer}-{number}");
                let body = json!({ "data": path, "parents": true }).to_string();
                match connection.send("POST", &format!("/v1/znodes{path}"), &body).await {
                    Ok(response) if response.status == 201 => {
                        done.lock().unwrap().insert(path);
                    }
                    ended => {
                        assert!(cut.load(Ordering::Relaxed), "{ended:?}");
                        return;
                    }
                }
            }
        });
    }
    writers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn power_cut_on_ext4_loses_no_acknowledged_write() {
    let cuts = rounds(CUTS);
    let dir = TempDir::new().unwrap();
    let mut cluster = TestCluster::configure(SETTINGS);
    let mut images = match make_images(&cluster, dir.path()) {
        Ok(images) => images,
        Err(why) => {
            eprintln!("SKIPPED: no file systems in images on this machine: {why}");
            return;
        }
    };
    cluster.up(START_TIMEOUT).await.unwrap();
    let mut promised = BTreeSet::new();
    for round in 0..cuts {
        let is_cut = Arc::new(AtomicBool::new(false));
        let done = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
        let mut writers = write(&cluster, round, &is_cut, &done);
        let wanted = WRITES + (round * 37) % 100;
        eventually("enough is written", async || done.lock().unwrap().len() >= wanted).await;
        is_cut.store(true, Ordering::Relaxed);
        // Later acknowledgements may or may not be on the images.
        let of_round = std::mem::take(&mut *done.lock().unwrap());
        images = cut(&mut cluster, images, dir.path(), round).await;
        while let Some(ended) = writers.join_next().await {
            ended.unwrap();
        }
        cluster.up(START_TIMEOUT).await.unwrap();
        check(&cluster, &of_round, round).await;
        promised.extend(of_round);
    }
    check(&cluster, &promised, cuts).await;
    println!("{cuts} cuts, {} acknowledged writes, none lost", promised.len());
    cluster.kill_all().await.unwrap();
    drop(images);
}

async fn check(cluster: &TestCluster, promised: &BTreeSet<String>, round: usize) {
    for id in cluster.ids() {
        let mut connection = Connection::connect(&cluster.http(id)).await.unwrap();
        for path in promised {
            let request = format!("/v1/znodes{path}?linearizable=true");
            let found = connection.send("GET", &request, "").await.unwrap();
            assert_eq!(found.status, 200, "node {id} lost {path} after cut {round}");
        }
    }
}
