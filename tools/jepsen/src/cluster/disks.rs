//! Disks of individual nodes: ext4 in image files, mounted at the nodes' data directories. The mounts end
//! with this process.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::statvfs::statvfs;
use parking_lot::Mutex;

use super::software::Node;
use crate::command::run;
use crate::network::Slot;

/// Size of an image: room for the log, snapshots and history, and still copied quickly.
const IMAGE_BYTES: u64 = 64 * 1024 * 1024;

/// Disks of all nodes.
#[derive(Debug, Default)]
pub struct Disks {
    disks: Mutex<BTreeMap<Slot, Disk>>,
}

/// Disk of one node.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Path of the image.
    pub image: PathBuf,
    /// Mount point.
    pub at: PathBuf,
    /// Number of images that this node has had.
    number: u32,
}

impl Disks {
    /// Creates an empty disk for a node's data and mounts it.
    pub async fn make(&self, dir: &Path, node: &Node) -> anyhow::Result<()> {
        let disk = Disk {
            image: dir.join(format!("node-{}-0.img", node.id)),
            at: node.data_dir(),
            number: 0,
        };
        let path = || disk.image.display().to_string();
        let file = File::create(&disk.image).with_context(path)?;
        file.set_len(IMAGE_BYTES).with_context(path)?;
        // Reserves no blocks for root: this process runs as root, and so would not see a full disk.
        run("mkfs.ext4", &["-q", "-F", "-m", "0", &path()]).await?;
        std::fs::create_dir_all(&disk.at).with_context(|| disk.at.display().to_string())?;
        disk.mount().await?;
        self.disks.lock().insert(node.slot, disk);
        Ok(())
    }

    /// Returns a node's disk.
    pub fn of(&self, slot: Slot) -> anyhow::Result<Disk> {
        let disk = self.disks.lock().get(&slot).cloned();
        disk.with_context(|| format!("the node in slot {slot} has no disk of its own"))
    }

    /// Copies a node's disk as it is now: everything that has been written to it, synced or not, and nothing
    /// of the dirty pages in the kernel's memory. Returns the copy.
    pub async fn copy(&self, slot: Slot) -> anyhow::Result<Disk> {
        let mut disk = self.of(slot)?;
        let old = disk.image.clone();
        disk.number += 1;
        disk.image = old.with_file_name(format!("place-{slot}-{}.img", disk.number));
        let (from, to) = (old, disk.image.clone());
        let copied = tokio::task::spawn_blocking(move || std::fs::copy(from, to)).await;
        copied.context("copying a disk")?.context("copying a disk")?;
        Ok(disk)
    }

    /// Replaces the node's disk by the copy. The disk must be unused.
    pub async fn replace(&self, slot: Slot, by: Disk) -> anyhow::Result<()> {
        let old = self.of(slot)?;
        old.unmount().await?;
        std::fs::remove_file(&old.image).with_context(|| old.image.display().to_string())?;
        by.mount().await?;
        self.disks.lock().insert(slot, by);
        Ok(())
    }

    /// Runs the file system's repair, as a machine does when it boots. The disk must be unused.
    pub async fn repair(&self, slot: Slot) -> anyhow::Result<()> {
        let disk = self.of(slot)?;
        disk.unmount().await?;
        // Exit status 1 means that errors were corrected, as intended.
        let image = disk.image.display().to_string();
        run("sh", &["-c", "e2fsck -fy \"$0\" || [ $? = 1 ]", &image]).await?;
        disk.mount().await
    }
}

impl Disk {
    async fn mount(&self) -> anyhow::Result<()> {
        let (image, at) = (self.image.display().to_string(), self.at.display().to_string());
        run("mount", &["-o", "loop", &image, &at]).await?;
        Ok(())
    }

    async fn unmount(&self) -> anyhow::Result<()> {
        run("umount", &[&self.at.display().to_string()]).await?;
        Ok(())
    }

    /// Returns a path on the disk outside the node's data.
    pub fn aside(&self, name: &str) -> PathBuf {
        self.at.join("lost+found").join(name)
    }

    /// Returns the number of free bytes.
    pub fn free_bytes(&self) -> anyhow::Result<u64> {
        let seen = statvfs(&self.at).with_context(|| self.at.display().to_string())?;
        Ok(seen.blocks_available() * seen.fragment_size())
    }

    /// Measures the time to write a few bytes to the disk and sync them, as any program would.
    pub async fn probe(&self) -> std::io::Result<Duration> {
        let path = self.aside("probe");
        let write = move || {
            let begun = Instant::now();
            std::fs::write(&path, begun.elapsed().as_nanos().to_string())?;
            File::open(&path)?.sync_all()?;
            Ok(begun.elapsed())
        };
        tokio::task::spawn_blocking(write).await?
    }
}
