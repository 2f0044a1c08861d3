//! Separate file systems for the nodes, small enough to become full: ext4 images, mounted through loop
//! devices. This needs root and a kernel that allows it.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use lockgate::lock_node::NodeId;
use tempfile::TempDir;

use crate::harness::TestCluster;

/// Size of the pieces in which a disk is filled; halving them finds the last byte.
const PIECE_BYTES: usize = 1024 * 1024;

/// Unit of a file's disk usage in stat(2).
const STAT_BLOCK_BYTES: u64 = 512;

/// Cluster whose nodes have all their files on small disks of their own.
pub struct SmallDisks {
    // Dropped in this order: the processes end, the disks are unmounted, the images are removed.
    pub cluster: TestCluster,
    mounts: Vec<Mount>,
    _images: TempDir,
}

struct Mount {
    at: PathBuf,
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = run("umount", &[self.at.as_os_str()]) {
            eprintln!("{error}");
        }
    }
}

fn run<S: AsRef<std::ffi::OsStr>>(program: &str, arguments: &[S]) -> Result<(), String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn mount(images: &Path, id: NodeId, bytes: u64) -> Result<Mount, String> {
    let image = images.join(format!("{id}.ext4"));
    let at = images.join(id.to_string());
    let io = |error: std::io::Error| error.to_string();
    File::create(&image)
        .and_then(|file| file.set_len(bytes))
        .map_err(io)?;
    std::fs::create_dir(&at).map_err(io)?;
    // Reserves no blocks for root: the tests run as root, and so would not see a full disk.
    run(
        "mkfs.ext4",
        &["-q".as_ref(), "-m".as_ref(), "0".as_ref(), image.as_os_str()],
    )?;
    run(
        "mount",
        &["-o".as_ref(), "loop".as_ref(), image.as_os_str(), at.as_os_str()],
    )?;
    Ok(Mount { at })
}

impl SmallDisks {
    /// Configures a cluster on disks of this size without starting it. Fails if this machine cannot mount
    /// them.
    pub fn configure(bytes: u64, settings: &str) -> Result<Self, String> {
        let images = TempDir::new().expect("a directory for the images");
        let mounted = (1..=3).map(|id| mount(images.path(), id, bytes));
        let mounts = mounted.collect::<Result<Vec<_>, _>>()?;
        let cluster = TestCluster::configure(settings);
        for (node, mount) in cluster.nodes().zip(&mounts) {
            std::fs::copy(node.config_file(), mount.at.join("config.toml")).unwrap();
            std::fs::remove_dir_all(&node.dir).unwrap();
            std::os::unix::fs::symlink(&mount.at, &node.dir).unwrap();
        }
        Ok(Self {
            cluster,
            mounts,
            _images: images,
        })
    }

    /// Writes a file of this size on every disk.
    pub fn put_ballast(&self, bytes: usize) {
        for mount in &self.mounts {
            let mut file = File::create(mount.at.join("ballast")).unwrap();
            (0..bytes / PIECE_BYTES).for_each(|_| file.write_all(&[7; PIECE_BYTES]).unwrap());
            file.sync_all().unwrap();
        }
    }

    /// Returns whether every node has reserved the segments that its log may need on a full disk.
    pub fn have_spares(&self, bytes: u64) -> bool {
        let is_whole = |path: PathBuf| {
            let found = std::fs::metadata(path);
            found.is_ok_and(|found| found.len() == bytes && found.blocks() * STAT_BLOCK_BYTES >= bytes)
        };
        self.cluster.nodes().all(|node| {
            let log = node.data_dir().join("log");
            ["spare-0.tmp", "spare-1.tmp"]
                .iter()
                .all(|name| is_whole(log.join(name)))
        })
    }

    /// Fills all free space with a foreign file, to the last byte; can be repeated when space has become
    /// free.
    pub fn fill_up(&self) {
        for mount in &self.mounts {
            let mut options = File::options();
            let mut file = options
                .create(true)
                .append(true)
                .open(mount.at.join("filler"))
                .unwrap();
            let mut piece = PIECE_BYTES;
            while piece > 0 {
                match file.write_all(&vec![7; piece]) {
                    Ok(()) => {}
                    Err(_) => piece /= 2,
                }
            }
            // Data without space is not on the disk; all other data is there without this sync as well.
            file.sync_all().ok();
        }
    }

    /// Removes all files that are not the nodes'.
    pub fn free_space(&self) {
        for name in ["ballast", "filler"] {
            for mount in &self.mounts {
                std::fs::remove_file(mount.at.join(name)).unwrap();
            }
        }
    }
}
