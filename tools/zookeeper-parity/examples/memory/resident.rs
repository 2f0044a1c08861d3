//! Memory of a process, as counted by the kernel and by Java.

use std::fs;
use std::process::Command as Process;

use anyhow::{Context, Result, ensure};

/// Returns the bytes of reachable objects after a full collection.
pub fn live_heap_bytes(process: u32) -> Result<u64> {
    let jcmd = |command: &str| -> Result<String> {
        let output = Process::new("jcmd")
            .args([&process.to_string(), command])
            .output()
            .context("run jcmd")?;
        ensure!(output.status.success(), "jcmd {command}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    jcmd("GC.run")?;
    // Parses lines such as "def new generation   total 39296K, used 1234K [...".
    let heap = jcmd("GC.heap_info")?;
    let used = heap
        .lines()
        .filter(|line| line.contains("generation"))
        .filter_map(|line| line.split("used ").nth(1)?.split('K').next()?.parse::<u64>().ok());
    Ok(used.sum::<u64>() * 1024)
}

/// Returns the resident memory of a process as counted by the kernel.
pub fn resident_bytes(process: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .context("no VmRSS")?;
    let kilobytes: u64 = line.split_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kilobytes * 1024)
}
