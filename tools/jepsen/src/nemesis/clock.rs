//! Wall clocks that jump and strobe, by libfaketime. Nothing in the system may depend on wall clocks.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use fastrand::Rng;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{Kind, Need, Nemesis, Testbed};
use crate::cluster::software::Node;
use crate::http;
use crate::network::Slot;

/// Path of the library on Debian. The `MT` build is the one for programs with threads.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// Range of a clock's jump in seconds, forwards or backwards.
const JUMP_SECONDS: std::ops::Range<i64> = 60..3600;

/// Range of the time for which a strobing clock keeps one offset, in milliseconds.
const STROBE_MS: std::ops::Range<u64> = 50..200;

/// Deviation above which a clock has certainly jumped: a busy machine is never that late.
const JUMPED: Duration = Duration::from_secs(30);

pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Returns the reason if clocks cannot be faked on this machine.
pub fn missing() -> Option<String> {
    (!Path::new(LIBRARY).exists()).then(|| format!("libfaketime is not installed: {LIBRARY}"))
}

/// Returns all clock nemeses.
pub fn kinds() -> Vec<Kind> {
    const NEEDS: &[Need] = &[Need::FakeTime];
    vec![
        Kind {
            name: "clock-jump",
            about: "the wall clock of a node jumps by up to an hour, and back",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(Jump::new(false)),
        },
        Kind {
            name: "clock-strobe",
            about: "the wall clocks of all nodes jump back and forth all the time",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(Jump::new(true)),
        },
    ]
}

/// File from which libfaketime reads the offset of a node's process.
fn file(node: &Node) -> std::path::PathBuf {
    node.dir.join("clock")
}

/// Sets a node's clock, in libfaketime's notation.
pub fn set(node: &Node, time: &str) -> anyhow::Result<()> {
    // Renamed into place, so that the process never reads a partial file.
    let (file, new) = (file(node), node.dir.join("clock.new"));
    std::fs::write(&new, format!("{time}\n")).with_context(|| new.display().to_string())?;
    std::fs::rename(&new, &file).with_context(|| file.display().to_string())
}

/// Returns the environment of a process whose wall clock can be set; with `all`, its other clocks as well.
pub fn environment(node: &Node, all: bool) -> anyhow::Result<Vec<(String, String)>> {
    set(node, "+0")?;
    let mut variables = vec![
        ("LD_PRELOAD", LIBRARY.to_owned()),
        ("FAKETIME_TIMESTAMP_FILE", file(node).display().to_string()),
        ("FAKETIME_NO_CACHE", "1".to_owned()),
    ];
    if !all {
        variables.push(("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()));
    }
    Ok(variables
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect())
}

/// Reads a node's wall clock from the date of its responses.
async fn wall_clock(node: &Node) -> anyhow::Result<SystemTime> {
    let answer = http::call(
        node.addresses.http,
        Method::GET,
        "/healthz",
        &Value::Null,
        TIMEOUT,
    )
    .await?;
    let date = answer
        .headers
        .get("date")
        .context("the response has a date")?
        .to_str()?;
    httpdate::parse_http_date(date).with_context(|| date.to_owned())
}

/// Returns evidence if a node's wall clock differs from ours.
/// A server renders the date once for each second, and not again before that second is over. After a jump
/// backwards it thus shows the same date until its clock has caught up. A date that does not advance
/// therefore belongs to a clock that has jumped back.
async fn has_jumped(node: &Node) -> anyhow::Result<Option<String>> {
    let first = wall_clock(node).await?;
    let now = SystemTime::now();
    let ahead = first.duration_since(now).unwrap_or_default();
    let behind = now.duration_since(first).unwrap_or_default();
    if ahead > JUMPED {
        return Ok(Some(format!("node {} was {} s ahead", node.id, ahead.as_secs())));
    }
    if behind > JUMPED {
        return Ok(Some(format!(
            "node {} was {} s behind",
            node.id,
            behind.as_secs()
        )));
    }
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let stuck = wall_clock(node).await? == first;
    Ok(stuck.then(|| format!("the date of node {} did not advance", node.id)))
}

/// Nemesis whose faults change wall clocks: one jump of one node, or continual jumps of all nodes.
struct Jump {
    strobe: bool,
    hit: Vec<Slot>,
    stop: CancellationToken,
    task: Option<JoinHandle<anyhow::Result<()>>>,
    evidence: Option<String>,
}

impl Jump {
    fn new(strobe: bool) -> Self {
        Self {
            strobe,
            hit: Vec::new(),
            stop: CancellationToken::new(),
            task: None,
            evidence: None,
        }
    }
}

impl Jump {
    /// Checks for a clock that has jumped, unless evidence exists already.
    async fn check_clocks(&mut self, testbed: &Testbed) {
        for slot in &self.hit {
            if self.evidence.is_none() {
                match has_jumped(&testbed.cluster.node(*slot)).await {
                    Ok(seen) => self.evidence = seen,
                    Err(error) => eprintln!("the clock of the node in slot {slot}: {error:#}"),
                }
            }
        }
    }
}

async fn strobe(nodes: Vec<Node>, mut rng: Rng, stop: CancellationToken) -> anyhow::Result<()> {
    while !stop.is_cancelled() {
        for node in &nodes {
            let seconds = rng.i64(-JUMP_SECONDS.end..JUMP_SECONDS.end);
            set(node, &format!("{seconds:+}"))?;
        }
        tokio::time::sleep(Duration::from_millis(rng.u64(STROBE_MS))).await;
    }
    Ok(())
}

impl Nemesis for Jump {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            self.evidence = None;
            let what = if self.strobe {
                self.hit = testbed.cluster.members();
                let nodes: Vec<Node> = self.hit.iter().map(|slot| testbed.cluster.node(*slot)).collect();
                self.stop = CancellationToken::new();
                self.task = Some(tokio::spawn(strobe(nodes, rng.fork(), self.stop.clone())));
                "all wall clocks jump back and forth".to_owned()
            } else {
                let slot = if rng.bool() {
                    testbed.leader_or_any(rng).await
                } else {
                    testbed.any(rng)
                };
                let seconds = rng.i64(JUMP_SECONDS) * if rng.bool() { 1 } else { -1 };
                self.hit = vec![slot];
                set(&testbed.cluster.node(slot), &format!("{seconds:+}"))?;
                format!("the wall clock of {slot} jumps by {seconds} s")
            };
            self.check_clocks(testbed).await;
            Ok(what)
        }
        .boxed()
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            self.stop.cancel();
            if let Some(task) = self.task.take() {
                task.await.context("the task that strobes")??;
            }
            // Another fault may have made the nodes unreachable at the beginning.
            self.check_clocks(testbed).await;
            for slot in self.hit.drain(..) {
                set(&testbed.cluster.node(slot), "+0")?;
            }
            Ok(self.evidence.take())
        }
        .boxed()
    }
}
