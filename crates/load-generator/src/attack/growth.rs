//! Resources of the nodes of a cluster on this machine: memory, memory of the kernel, log output and disk.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Context;
use local_cluster::LocalNode;
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use crate::nodes::Nodes;
use crate::{Target, processes};

/// Unit of a file's allocated size, whatever the file system's (stat(2)).
const BLOCK_BYTES: u64 = 512;

/// Resources in use at one time.
#[derive(Debug, Clone, Serialize)]
pub struct Resources {
    /// Resident memory of each node in bytes.
    pub memory: Vec<u64>,
    /// Memory of the kernel for all TCP sockets of this machine, of nodes and clients, in bytes.
    pub kernel_memory: u64,
    /// Log output of each node in bytes.
    pub log: Vec<u64>,
    /// Allocated size of each node's data directory in bytes.
    pub disk: Vec<u64>,
}

impl Resources {
    /// Measures the resources in use.
    pub fn measure(target: &Target, nodes: &[LocalNode]) -> anyhow::Result<Self> {
        let pids = target.processes()?;
        Ok(Self {
            memory: pids
                .iter()
                .map(|pid| processes::memory(*pid))
                .collect::<anyhow::Result<_>>()?,
            kernel_memory: socket_memory()?,
            log: nodes
                .iter()
                .map(|node| {
                    Ok(fs::metadata(node.log_file())
                        .context("the log output of a node")?
                        .len())
                })
                .collect::<anyhow::Result<_>>()?,
            disk: nodes
                .iter()
                .map(|node| allocated(&node.data_dir()))
                .collect::<anyhow::Result<_>>()?,
        })
    }
}

/// Returns the memory of the kernel for the buffers of all TCP sockets (proc(5): `mem` counts pages).
fn socket_memory() -> anyhow::Result<u64> {
    let path = "/proc/net/sockstat";
    let pages = pages_of_tcp(&fs::read_to_string(path).context(path)?);
    let pages = pages.with_context(|| format!("{path} has no memory of TCP sockets"))?;
    let page = sysconf(SysconfVar::PAGE_SIZE).context("reading the page size")?;
    let page = page.context("the system has no page size")?;
    Ok(pages * u64::try_from(page)?)
}

fn pages_of_tcp(sockstat: &str) -> Option<u64> {
    let line = sockstat.lines().find_map(|line| line.strip_prefix("TCP:"))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|word| *word == "mem")?;
    words.next()?.parse().ok()
}

/// Returns the allocated size of all files in a directory. Files that a node deletes meanwhile do not count.
fn allocated(dir: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry.with_context(|| dir.display().to_string())?.path();
        bytes += match fs::symlink_metadata(&path) {
            Ok(found) if found.is_dir() => allocated(&path)?,
            Ok(found) => found.blocks() * BLOCK_BYTES,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error).with_context(|| path.display().to_string()),
        };
    }
    Ok(bytes)
}

/// Returns the longest time for which a node did nothing else than read its state or apply an entry, in milliseconds: of the last one to
/// two minutes, over all nodes.
pub async fn longest_hold_ms(admin: &Nodes) -> anyhow::Result<f64> {
    let mut longest = 0.0_f64;
    for number in 0..admin.count() {
        let mut connection = admin.connect_patiently(number).await?;
        let answer = connection.send("GET", "/metrics", "").await?;
        let text = String::from_utf8(answer.body).context("metrics of a node")?;
        longest = longest.max(longest_of(&text).context("a node does not report its longest hold")?);
    }
    Ok(longest * 1_000.0)
}

fn longest_of(metrics: &str) -> Option<f64> {
    let lines = metrics
        .lines()
        .filter(|line| line.starts_with("lockgate_longest_hold_seconds{"));
    lines
        .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
        .max_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_tcp_sockets_is_found() {
        let sockstat = "sockets: used 10\nTCP: inuse 5 orphan 0 tw 0 alloc 7 mem 12\nUDP: inuse 1 mem 3\n";
        assert_eq!(pages_of_tcp(sockstat), Some(12));
        assert_eq!(pages_of_tcp("UDP: mem 3\n"), None);
        socket_memory().unwrap();
    }

    #[test]
    fn longest_hold_is_the_largest_of_all_kinds() {
        let metrics = "# TYPE lockgate_longest_hold_seconds gauge\n\
                       lockgate_longest_hold_seconds{by=\"read\"} 0.004\n\
                       lockgate_longest_hold_seconds{by=\"apply\"} 0.0125\n";
        assert_eq!(longest_of(metrics), Some(0.0125));
        assert_eq!(longest_of(""), None);
    }
}
