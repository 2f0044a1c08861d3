//! Cleanup after runs that were killed: directories, and file systems that are still frozen.
//! Processes, networks and mounts end with their namespaces. Files do not. A file system that was frozen when
//! its last mount disappeared keeps its loop device until it is mounted again and thawed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::supervise::{KEPT, PREFIX};

/// Time limit within which an interrupted run disappears: first its processes once they are thawed, then
/// their disks.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Interval between two checks.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Removes the leftovers of runs whose owner processes have ended. Directories that are kept on purpose stay.
pub fn sweep(dir: &Path) -> anyhow::Result<()> {
    for (path, owner) in of_runs(dir)? {
        if !Path::new(&format!("/proc/{owner}")).exists() {
            remove(&path);
        }
    }
    Ok(())
}

/// Removes the leftovers of this process, which is ending with cells in progress. Their processes are being
/// killed.
pub fn sweep_own(dir: &Path) -> anyhow::Result<()> {
    for (path, owner) in of_runs(dir)? {
        if owner == std::process::id() {
            let begun = Instant::now();
            // A thread that writes to a frozen disk cannot be killed, and blocks all others of its namespace.
            while !disks(&path).is_empty() && begun.elapsed() < ENDS_WITHIN {
                thaw_all(&path);
                std::thread::sleep(POLL_INTERVAL);
            }
            remove(&path);
        }
    }
    Ok(())
}

/// Returns the directories of runs that are not to be kept, with their owner processes.
fn of_runs(dir: &Path) -> anyhow::Result<Vec<(PathBuf, u32)>> {
    let entries = std::fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let owned = |path: PathBuf| {
        let owner = path
            .file_name()?
            .to_str()?
            .strip_prefix(PREFIX)?
            .split_once('-')?
            .0;
        let owner = owner.parse().ok()?;
        (!path.join(KEPT).exists()).then_some((path, owner))
    };
    Ok(entries
        .flatten()
        .filter_map(|entry| owned(entry.path()))
        .collect())
}

fn remove(path: &Path) {
    thaw_all(path);
    match std::fs::remove_dir_all(path) {
        Ok(()) => eprintln!("removed {}, left by an interrupted run", path.display()),
        Err(error) => eprintln!("{} cannot be removed yet: {error}", path.display()),
    }
}

fn thaw_all(path: &Path) {
    for device in disks(path) {
        // A disk that its processes have released in the meantime cannot be mounted, and need not be.
        if let Err(error) = thaw(&device, path)
            && disks(path).contains(&device)
        {
            eprintln!("{device} stays frozen: {error:#}");
        }
    }
}

/// Returns the loop devices that still have an image in this directory; others were detached with their last
/// mount.
fn disks(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/block") else {
        return Vec::new();
    };
    let uses = |device: &PathBuf| {
        let image = std::fs::read_to_string(device.join("loop/backing_file"));
        image.is_ok_and(|image| Path::new(image.trim_end()).starts_with(dir))
    };
    let devices = entries.flatten().map(|entry| entry.path()).filter(uses);
    devices
        .filter_map(|path| Some(format!("/dev/{}", path.file_name()?.to_str()?)))
        .collect()
}

/// Mounts the device once more, thaws its file system, and unmounts it, which detaches it. This happens in a
/// mount namespace of its own: a visible mount would be copied into the namespaces of cells that start at
/// that moment, and stay there.
fn thaw(device: &str, dir: &Path) -> anyhow::Result<()> {
    let at = dir.join("thaw");
    std::fs::create_dir_all(&at).with_context(|| at.display().to_string())?;
    let output = Command::new("unshare")
        .args([
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            THAW,
            "sh",
            device,
        ])
        .arg(&at)
        .output()
        .context("unshare")?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", complaint.trim());
    Ok(())
}

/// Script with the device and the directory as arguments. A file system that turns out not to be frozen is no
/// failure.
const THAW: &str = r#"mount "$1" "$2" && { fsfreeze --unfreeze "$2"; umount "$2"; }"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_removes_leftovers_of_dead_runs_and_keeps_marked_directories() {
        let dir = tempfile::tempdir().expect("a directory");
        // 4194305 is above the largest possible process id.
        let [left, kept, own] = [
            dir.path().join(format!("{PREFIX}4194305-a")),
            dir.path().join(format!("{PREFIX}4194305-b")),
            dir.path().join(format!("{PREFIX}{}-c", std::process::id())),
        ];
        for one in [&left, &kept, &own] {
            std::fs::create_dir(one).expect("the temporary directory is writable");
        }
        std::fs::write(kept.join(KEPT), "").expect("the temporary directory is writable");
        sweep(dir.path()).expect("the directory is readable");
        assert!(!left.exists());
        assert!(kept.exists() && own.exists());
    }
}
