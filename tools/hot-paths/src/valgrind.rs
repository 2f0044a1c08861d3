//! Runs this program once more, under callgrind, and reads the count.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::region;

/// Counts the instructions of the path of this name, all its operations together.
pub fn count(name: &str) -> anyhow::Result<u64> {
    let program = std::env::current_exe().context("the path of this program")?;
    let directory = tempfile::tempdir().context("creating a directory for the counts")?;
    let out = directory.path().join("callgrind.out");
    let ran = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={}", region::PATTERN))
        .arg(format!("--callgrind-out-file={}", out.display()))
        // Suppresses valgrind's own messages, except errors.
        .arg("-q")
        .arg(program)
        .args(["run", name])
        // Environment variables of the caller must not change the execution.
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .stdin(Stdio::null())
        .output()
        .context("valgrind cannot be started: it is Debian's package valgrind")?;
    ensure!(
        ran.status.success(),
        "{name} failed under valgrind ({}): {}",
        ran.status,
        String::from_utf8_lossy(&ran.stderr).trim()
    );
    total(&out).with_context(|| format!("reading the count of {name}"))
}

fn total(out: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(out)?;
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("summary:")) else {
        bail!("the output has no summary");
    };
    let count = line
        .trim()
        .parse()
        .with_context(|| format!("the summary is {line:?}"))?;
    ensure!(count > 0, "callgrind did not find the counted function");
    Ok(count)
}
