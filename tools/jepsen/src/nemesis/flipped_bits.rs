//! Bit flips in the memory of one running node, whose state then differs from that of the others. The node
//! has to stop serving before clients are misled for long, and has to report it.
//! The bits belong to a znode's data that the harness has written: a text that is found in the memory of the
//! process, through /proc. They show in the digest of the state with the znode's next change, so the znode is
//! deleted then.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};

use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::node_process::Claim;
use crate::cluster::{Misbehaved, START_TIMEOUT, alarms};
use crate::http;
use crate::network::Slot;

/// Alarm about a node whose state differs.
const ALARM: &str = "state_differs";

/// Time limit within which the node must stop serving. The leader compares the members every five seconds, at
/// positions that they have in common: under load, one in a thousand entries.
const FOUND_WITHIN: Duration = Duration::from_secs(60);

/// Time limit within which a node whose state is correct after its restart passes the comparison and serves.
const HEALED_WITHIN: Duration = Duration::from_secs(20);

/// Log text of a node whose snapshot does not match its digest.
const WRONG_SNAPSHOT: &str = "the snapshot comes to the digest";

/// Time limit of one response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval between two queries of a node.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Length of the text in bytes.
const TEXT_BYTES: usize = 64;

/// Size of a piece of memory that is read at a time. Two pieces overlap by the text's length.
const PIECE_BYTES: usize = 1 << 20;

/// Size of a page of memory.
const BLOCK_BYTES: usize = 4096;

/// Page that was never used.
const EMPTY: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Returns the nemesis.
pub fn kinds() -> Vec<Kind> {
    vec![Kind {
        name: "flipped-bits",
        about: "bits flip in the memory of one node; it stops serving, and is restarted or replaced",
        nodes: 3,
        needs: &[Need::Lockgate],
        make: || Box::new(FlippedBits::default()),
    }]
}

/// Nemesis that hits one node at a time.
#[derive(Default)]
struct FlippedBits {
    hit: Option<(Slot, Claim)>,
    flipped: usize,
}

/// Finds the copies of a text in the memory of a running process. The search takes a second, or more on a
/// busy machine. The process is not stopped for it: a follower that paused for that long would
/// receive a snapshot, and its state would be correct again.
fn find(pid: Pid, text: &[u8]) -> anyhow::Result<Vec<u64>> {
    let maps = format!("/proc/{pid}/maps");
    let maps = std::fs::read_to_string(&maps).context(maps)?;
    let path = format!("/proc/{pid}/mem");
    let memory = File::open(&path).context(path)?;
    let mut all = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    for (from, to) in maps.lines().filter_map(anonymous) {
        let mut at = from;
        while at < to {
            let length = usize::try_from(to - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            let piece = &mut piece[..length];
            // Parts of a mapping may not be readable.
            if memory.read_exact_at(piece, at).is_ok() {
                all.extend(positions(piece, text).into_iter().map(|found| at + found as u64));
            }
            if at + length as u64 == to {
                break;
            }
            at += (length - TEXT_BYTES) as u64;
        }
    }
    Ok(all)
}

/// Flips a bit of each copy that is still at one of these places in the memory of a stopped process. Returns
/// the number of flips.
fn flip(pid: Pid, text: &[u8], positions: &[u64]) -> anyhow::Result<usize> {
    let path = format!("/proc/{pid}/mem");
    let memory = File::options().read(true).write(true).open(&path).context(path)?;
    let mut flipped = 0;
    let mut found = vec![0; text.len()];
    for position in positions {
        if memory.read_exact_at(&mut found, *position).is_ok() && found == text {
            let middle = position + (TEXT_BYTES / 2) as u64;
            let byte = text[TEXT_BYTES / 2] ^ 1;
            memory.write_all_at(&[byte], middle).context("flipping a bit")?;
            flipped += 1;
        }
    }
    Ok(flipped)
}

/// Parses a line of `maps`; returns the bounds of a writable mapping that belongs to no file.
fn anonymous(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let inode = words.nth(2)?;
    if !rights.starts_with("rw") || inode != "0" {
        return None;
    }
    let (from, to) = range.split_once('-')?;
    Some((
        u64::from_str_radix(from, 16).ok()?,
        u64::from_str_radix(to, 16).ok()?,
    ))
}

/// Returns the positions of `text` in `bytes`. Most blocks of a process's memory are empty, and are skipped
/// as a whole.
fn positions(bytes: &[u8], text: &[u8]) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, block) in bytes.chunks(BLOCK_BYTES).enumerate() {
        if block == &EMPTY[..block.len()] {
            continue;
        }
        let begin = number * BLOCK_BYTES;
        let end = (begin + block.len() + text.len() - 1).min(bytes.len());
        let windows = bytes[begin..end].windows(text.len()).enumerate();
        let positions = windows.filter(|(_, window)| window[0] == text[0] && *window == text);
        found.extend(positions.map(|(at, _)| begin + at));
    }
    found
}

impl Nemesis for FlippedBits {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let cluster = &testbed.cluster;
            let leader = cluster.wait_leader(START_TIMEOUT).await?;
            let mut expendable = testbed.expendable();
            expendable.retain(|slot| *slot != leader);
            let slot = *rng.choice(&expendable).context("no expendable follower")?;
            let claim = cluster.process(slot).claim().await;
            let (leader, node) = (cluster.node(leader).addresses.http, cluster.node(slot));
            let text: String = (0..TEXT_BYTES).map(|_| rng.alphanumeric()).collect();
            let path = format!("/v1/znodes/flipped-{}", rng.u64(..));
            let body = json!({ "data": text });
            let made = http::call(leader, Method::POST, &path, &body, ANSWER_TIMEOUT).await?;
            made.success()?;
            let begun = Instant::now();
            while http::get(node.addresses.http, &path, ANSWER_TIMEOUT)
                .await
                .is_err()
            {
                ensure!(
                    begun.elapsed() < ANSWER_TIMEOUT,
                    "node {} does not apply the new znode",
                    node.id
                );
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            let pid = cluster
                .pid(slot)
                .context("only the claim's owner ends a claimed node")?;
            let text = text.into_bytes();
            let searched = text.clone();
            let found = tokio::task::spawn_blocking(move || find(pid, &searched)).await;
            let found = found.context("searching for the text")??;
            cluster.signal(slot, Signal::SIGSTOP)?;
            let flipped = flip(pid, &text, &found);
            cluster.signal(slot, Signal::SIGCONT)?;
            self.flipped = flipped?;
            self.hit = Some((slot, claim));
            let gone = http::call(leader, Method::DELETE, &path, &Value::Null, ANSWER_TIMEOUT).await?;
            gone.success()?;
            Ok(format!("{} bits of node {} flip", self.flipped, node.id))
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
            if self.flipped == 0 {
                return Ok(None);
            }
            let cluster = &testbed.cluster;
            let node = cluster.node(slot);
            let begun = Instant::now();
            let address = node.addresses.http;
            let why = loop {
                let ready = http::call(address, Method::GET, "/readyz", &Value::Null, ANSWER_TIMEOUT).await?;
                let text = String::from_utf8_lossy(&ready.body).into_owned();
                if ready.status == 503 && text.contains("state differs") {
                    break text;
                }
                if begun.elapsed() >= FOUND_WITHIN {
                    let what = format!("node {} serves although its state differs", node.id);
                    return Err(Misbehaved(what).into());
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            };
            eprintln!("{why}");
            let found_after = begun.elapsed().as_millis();
            let read = http::call(address, Method::GET, "/v1/znodes/", &Value::Null, ANSWER_TIMEOUT).await?;
            if read.status != 503 {
                let what = format!(
                    "the state of node {} differs, and it answered a read with status {}",
                    node.id, read.status
                );
                return Err(Misbehaved(what).into());
            }
            alarms::wait_for(cluster, ALARM, node.id).await?;
            cluster.stop(slot).await?;
            // A snapshot may have been made of the wrong state before the difference was detected. Its digest
            // may not even match its content; then the node refuses the snapshot and does not start.
            cluster.start_damaged(slot)?;
            let what = match cluster.wait_ready(slot, HEALED_WITHIN).await {
                Ok(()) => {
                    cluster.process(slot).set_may_end(false);
                    "serves after its restart".to_owned()
                }
                Err(error) => {
                    let ended = cluster.pid(slot).is_none();
                    if ended && !cluster.process(slot).log_tail().contains(WRONG_SNAPSHOT) {
                        return Err(error);
                    }
                    cluster.remove(slot).await?;
                    let new = cluster.add(slot).await?;
                    let did = if ended {
                        "refused its snapshot"
                    } else {
                        "still differed"
                    };
                    format!("{did} after its restart, and node {new} took its place")
                }
            };
            Ok(Some(format!(
                "node {} stopped serving {found_after} ms after the fault; it {what}",
                node.id
            )))
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_covers_writable_anonymous_memory_and_finds_every_copy() {
        let heap = "55d0c0000000-55d0c0100000 rw-p 00000000 00:00 0    [heap]";
        assert_eq!(anonymous(heap), Some((0x55d0_c000_0000, 0x55d0_c010_0000)));
        for line in [
            "7f0000000000-7f0000001000 r--p 00000000 00:00 0",
            "7f0000000000-7f0000001000 rw-p 00001000 08:01 1234    /usr/lib/libc.so.6",
        ] {
            assert_eq!(anonymous(line), None, "{line}");
        }
        let mut bytes = vec![0; 3 * BLOCK_BYTES];
        // At the start of a block, across the end of a block, and at the end of the last one.
        let expected = [0, 2 * BLOCK_BYTES - 1, 3 * BLOCK_BYTES - 3];
        for at in expected {
            bytes[at..at + 3].copy_from_slice(b"abc");
        }
        bytes[100] = b'a';
        assert_eq!(positions(&bytes, b"abc"), expected);
    }
}
