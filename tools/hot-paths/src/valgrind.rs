//! Runs this program once more, under callgrind, and reads what was counted.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::region;

/// Counts what the path of this name executes, all its operations together.
pub fn count(name: &str) -> anyhow::Result<u64> {
    let program = std::env::current_exe().context("where this program lies")?;
    let directory = tempfile::tempdir().context("a directory for what is counted")?;
    let out = directory.path().join("callgrind.out");
    let ran = Command::new("valgrind")
        .arg("--tool=callgrind")
        .arg(format!("--toggle-collect={}", region::PATTERN))
        .arg(format!("--callgrind-out-file={}", out.display()))
        // Nothing about itself, unless something is wrong.
        .arg("-q")
        .arg(program)
        .args(["run", name])
        // A variable of whoever calls must not change what is executed.
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
    total(&out).with_context(|| format!("what was counted of {name}"))
}

fn total(out: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(out)?;
    let Some(line) = text.lines().find_map(|line| line.strip_prefix("summary:")) else {
        bail!("there is no summary in it");
    };
    let count = line
        .trim()
        .parse()
        .with_context(|| format!("its summary is {line:?}"))?;
    ensure!(count > 0, "callgrind has not seen the function that is counted");
    Ok(count)
}
