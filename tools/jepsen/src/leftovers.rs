//! What runs left that were killed: directories, and file systems that nobody could thaw.
//!
//! Processes, networks and mounts end with their namespaces. Files do not, and a file system that was frozen when its last
//! mount went away stays with its loop device until somebody mounts it again and thaws it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use crate::supervise::{KEPT, PREFIX};

/// What a run leaves that is ended in its middle is gone within this: its processes when they are thawed, then their disks.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Removes what runs left whose owners are gone. What is kept on purpose stays.
pub fn sweep(dir: &Path) -> anyhow::Result<()> {
    for (path, owner) in of_runs(dir)? {
        if !Path::new(&format!("/proc/{owner}")).exists() {
            remove(&path);
        }
    }
    Ok(())
}

/// Removes what this process leaves, which ends with cells in their middle. Their processes are being killed.
pub fn sweep_own(dir: &Path) -> anyhow::Result<()> {
    for (path, owner) in of_runs(dir)? {
        if owner == std::process::id() {
            let begun = Instant::now();
            // A thread that writes to a frozen disk cannot be killed, and has all others of its namespace wait.
            while !disks(&path).is_empty() && begun.elapsed() < ENDS_WITHIN {
                thaw_all(&path);
                std::thread::sleep(LOOK_EVERY);
            }
            remove(&path);
        }
    }
    Ok(())
}

/// The directories of runs that are not to be kept, and the processes that own them.
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
        Ok(()) => eprintln!("removed {}, which a run that was ended has left", path.display()),
        Err(error) => eprintln!("{} cannot be removed yet: {error}", path.display()),
    }
}

fn thaw_all(path: &Path) {
    for device in disks(path) {
        // A disk that its processes have let go of meanwhile cannot be mounted, and need not be.
        if let Err(error) = thaw(&device, path)
            && disks(path).contains(&device)
        {
            eprintln!("{device} stays frozen: {error:#}");
        }
    }
}

/// The loop devices that still have an image in this directory: others were detached with their last mount.
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

/// Mounts the device once more, thaws its file system, and unmounts it; then it is detached. In mounts of its own: what is
/// mounted where others see it would be copied into the namespaces of cells that begin just then, and stay with them.
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

/// Device and directory are its arguments. That a file system is not frozen after all is no failure.
const THAW: &str = r#"mount "$1" "$2" && { fsfreeze --unfreeze "$2"; umount "$2"; }"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_dead_runs_left_is_swept_and_what_is_kept_stays() {
        let dir = tempfile::tempdir().expect("a directory");
        // No process has such an id.
        let [left, kept, own] = [
            dir.path().join(format!("{PREFIX}4194305-a")),
            dir.path().join(format!("{PREFIX}4194305-b")),
            dir.path().join(format!("{PREFIX}{}-c", std::process::id())),
        ];
        for one in [&left, &kept, &own] {
            std::fs::create_dir(one).expect("the directory is ours");
        }
        std::fs::write(kept.join(KEPT), "").expect("the directory is ours");
        sweep(dir.path()).expect("all of it can be read");
        assert!(!left.exists());
        assert!(kept.exists() && own.exists());
    }
}
