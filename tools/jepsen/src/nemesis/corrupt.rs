//! Damage to files of one node while it does not run. The node has to serve as if nothing had happened, or to
//! refuse to start; then a new node replaces it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::Value;

use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::START_TIMEOUT;
use crate::cluster::node_process::Claim;
use crate::http;
use crate::network::Slot;

/// Returns all nemeses that damage files.
pub fn kinds() -> Vec<Kind> {
    const NEEDS: &[Need] = &[Need::Lockgate];
    vec![
        Kind {
            name: "corrupt-log",
            about: "bits of a node's log are flipped, or its end is cut off; a node that refuses to start is replaced",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(Corrupt::new("log", "wal")),
        },
        Kind {
            name: "corrupt-snapshot",
            about: "bits of a node's newest snapshot are flipped, or its end is cut off; a node that refuses to start is replaced",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(Corrupt::new("snapshots", "snap")),
        },
    ]
}

/// Nemesis that damages files of one node at a time.
struct Corrupt {
    dir: &'static str,
    extension: &'static str,
    hit: Option<(Slot, Claim)>,
    damage: Option<String>,
}

impl Corrupt {
    fn new(dir: &'static str, extension: &'static str) -> Self {
        Self {
            dir,
            extension,
            hit: None,
            damage: None,
        }
    }

    /// Returns the files that may be damaged, oldest first.
    fn files(&self, data: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let dir = data.join(self.dir);
        let entries = std::fs::read_dir(&dir).with_context(|| dir.display().to_string())?;
        let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        files.retain(|file| {
            file.extension()
                .is_some_and(|extension| extension == self.extension)
        });
        files.sort();
        Ok(files)
    }
}

/// Damages a file; returns a description after reading the file back.
fn damage(file: &Path, rng: &mut Rng) -> anyhow::Result<String> {
    let path = || file.display().to_string();
    let before = std::fs::read(file).with_context(path)?;
    // The file ends in preallocated zeros, in which damage has no effect.
    let used = before
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |last| last + 1);
    if used == 0 {
        bail!("{} is empty", path());
    }
    let mut handle = File::options()
        .read(true)
        .write(true)
        .open(file)
        .with_context(path)?;
    let name = file
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let what = match rng.u8(0..3) {
        0 => {
            let length = rng.usize(0..used);
            handle.set_len(length as u64).with_context(path)?;
            format!("{name} is cut off at {length} of {used} bytes")
        }
        flips => {
            let flips = if flips == 1 { 1 } else { rng.usize(2..20) };
            for _ in 0..flips {
                let at = rng.usize(0..used);
                let byte = before[at] ^ (1 << rng.u8(0..8));
                handle.seek(SeekFrom::Start(at as u64)).with_context(path)?;
                handle.write_all(&[byte]).with_context(path)?;
            }
            format!("{flips} bits of {used} bytes of {name} are flipped")
        }
    };
    handle.sync_all().with_context(path)?;
    handle.rewind().with_context(path)?;
    let mut after = Vec::new();
    handle.read_to_end(&mut after).with_context(path)?;
    anyhow::ensure!(after != before, "{} is unchanged", path());
    Ok(what)
}

impl Nemesis for Corrupt {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let cluster = &testbed.cluster;
            let slot = *rng.choice(&testbed.expendable()).context("there are members")?;
            self.hit = Some((slot, cluster.process(slot).claim().await));
            let node = cluster.node(slot);
            if self.files(&node.data_dir())?.is_empty() {
                let path = "/v1/cluster/snapshot";
                let made = http::call(
                    node.addresses.http,
                    Method::POST,
                    path,
                    &Value::Null,
                    START_TIMEOUT,
                );
                made.await?.success()?;
            }
            cluster.kill(slot).await?;
            let file = self.files(&node.data_dir())?.pop().context("no file to damage")?;
            let damage = damage(&file, rng)?;
            self.damage = Some(damage.clone());
            Ok(format!("node {}: {damage}", node.id))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(500..2000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let Some((slot, _claim)) = self.hit.take() else {
                return Ok(None);
            };
            let cluster = &testbed.cluster;
            let (id, process) = (cluster.node(slot).id, cluster.process(slot));
            cluster.start_damaged(slot)?;
            let what = match cluster.wait_ready(slot, START_TIMEOUT).await {
                Ok(()) => {
                    process.set_may_end(false);
                    "it serves nevertheless".to_owned()
                }
                Err(error) if cluster.pid(slot).is_some() => {
                    return Err(error)
                        .context("a node with damaged files neither serves nor refuses to start");
                }
                Err(_) => {
                    let tail = process.log_tail();
                    let last = tail.lines().last().unwrap_or_default().to_owned();
                    cluster.remove(slot).await?;
                    let new = cluster.add(slot).await?;
                    format!("node {id} refused ({last}), and node {new} took its place")
                }
            };
            Ok(self.damage.take().map(|damage| format!("{damage}; {what}")))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_changes_the_used_part_of_a_file_and_nothing_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("x.wal");
        for seed in 0..40 {
            let mut bytes = vec![7; 1000];
            bytes.extend([0; 3000]);
            std::fs::write(&file, &bytes).expect("the temporary directory is writable");
            let what = damage(&file, &mut Rng::with_seed(seed)).expect("the file has a used part");
            let after = std::fs::read(&file).expect("the file exists");
            match what.contains("cut off") {
                true => assert!(after.len() < 1000, "{what}"),
                false => assert!(
                    after[..1000] != bytes[..1000] && after[1000..] == bytes[1000..],
                    "{what}"
                ),
            }
        }
    }
}
