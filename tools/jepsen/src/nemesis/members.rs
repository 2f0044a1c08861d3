//! Membership changes under load, rolling restarts, and followers that need a snapshot.

use std::time::Duration;

use anyhow::{Context, ensure};
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

/// Returns all nemeses of this file.
pub fn kinds() -> Vec<Kind> {
    const NEEDS: &[Need] = &[Need::Lockgate];
    vec![
        Kind {
            name: "members",
            about: "a node is added, then another one is removed: dead or alive, sometimes the leader",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(Members::default()),
        },
        Kind {
            name: "rolling-restart",
            about: "all nodes are shut down gracefully and started again, one after the other",
            nodes: 3,
            needs: &[],
            make: || Box::new(RollingRestart::default()),
        },
        Kind {
            name: "snapshot-install",
            about: "a follower is down until the others have purged the entries that it lacks",
            nodes: 3,
            needs: NEEDS,
            make: || Box::new(SnapshotInstall::default()),
        },
    ]
}

/// Nemesis that adds one member, then removes one.
#[derive(Default)]
struct Members {
    before: Vec<u64>,
    /// Slot and id of the added node.
    added: Option<(Slot, u64)>,
    /// True if the node is killed before it is removed.
    dead: bool,
    leader: bool,
    claims: Vec<Claim>,
}

impl Nemesis for Members {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let cluster = &testbed.cluster;
            self.before = cluster.member_ids().await?;
            (self.dead, self.leader) = (rng.bool(), rng.bool());
            let mut slots = cluster.network.slots();
            let free = slots
                .find(|slot| !cluster.process(*slot).is_member())
                .context("no free slot")?;
            self.claims.push(cluster.process(free).claim().await);
            let id = cluster.add(free).await?;
            self.added = Some((free, id));
            Ok(format!("node {id} is added in slot {free}"))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(1000..2000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let cluster = &testbed.cluster;
            self.claims.clear();
            let leader = cluster.wait_leader(START_TIMEOUT).await?;
            let members = cluster.members();
            ensure!(members.len() > 3, "the added node is not a member: {members:?}");
            let (newest, added) = self.added.take().context("a node was added")?;
            let with = cluster.member_ids().await?;
            let mut expendable = testbed.expendable();
            // The node that was just added stays.
            expendable.retain(|slot| *slot != newest);
            // The leader or a follower as drawn, if such a node may be removed.
            let wanted = expendable.iter().find(|slot| (**slot == leader) == self.leader);
            let slot = *wanted.or(expendable.first()).context("there are members")?;
            self.leader = slot == leader;
            let _claim = cluster.process(slot).claim().await;
            if self.dead {
                cluster.kill(slot).await?;
            }
            let id = cluster.remove(slot).await?;
            let after = cluster.member_ids().await?;
            let changed = with.contains(&added) && with.contains(&id) && !after.contains(&id);
            let how = if self.dead {
                "killed and removed"
            } else {
                "removed"
            };
            let part = if self.leader { ", the leader," } else { "" };
            Ok(changed.then(|| {
                format!(
                    "members {:?} became {after:?}; node {id}{part} was {how}",
                    self.before
                )
            }))
        }
        .boxed()
    }
}

/// Nemesis that sends SIGTERM to one node after the other and starts it again.
#[derive(Default)]
struct RollingRestart {
    changed: usize,
    of: usize,
}

impl Nemesis for RollingRestart {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let cluster = &testbed.cluster;
            let mut slots = cluster.members();
            rng.shuffle(&mut slots);
            (self.changed, self.of) = (0, slots.len());
            for slot in &slots {
                let _claim = cluster.process(*slot).claim().await;
                let before = cluster.pid(*slot);
                cluster.stop(*slot).await?;
                cluster.start(*slot)?;
                cluster.wait_ready(*slot, START_TIMEOUT).await?;
                self.changed += usize::from(cluster.pid(*slot) != before);
            }
            Ok(format!("{slots:?} were restarted one after the other"))
        }
        .boxed()
    }

    fn duration(&self, _: &mut Rng) -> Duration {
        Duration::ZERO
    }

    fn heal<'a>(&'a mut self, _: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        let all = self.of > 0 && self.changed == self.of;
        let evidence = all.then(|| format!("{} processes were replaced", self.changed));
        async move { Ok(evidence) }.boxed()
    }
}

/// Nemesis that kills a follower and restarts it when its next entry is in no other log.
#[derive(Default)]
struct SnapshotInstall {
    away: Option<(Slot, Claim)>,
    /// Applied index of the follower when it was killed.
    applied: u64,
}

/// Time limit within which a node's status must show a snapshot that it has installed.
const SNAPSHOT_SHOWS_WITHIN: Duration = Duration::from_secs(5);

/// Reads a number from a node's status.
async fn number(testbed: &Testbed, slot: Slot, name: &str) -> anyhow::Result<u64> {
    let status = testbed.cluster.status_of(slot).await?;
    status[name]
        .as_u64()
        .with_context(|| format!("{name} is a number"))
}

impl Nemesis for SnapshotInstall {
    fn begin<'a>(
        &'a mut self,
        testbed: &'a Testbed,
        rng: &'a mut Rng,
    ) -> BoxFuture<'a, anyhow::Result<String>> {
        async move {
            let slot = *testbed
                .followers(rng)
                .await
                .first()
                .context("there are followers")?;
            let claim = testbed.cluster.process(slot).claim().await;
            self.applied = number(testbed, slot, "applied_index").await?;
            self.away = Some((slot, claim));
            testbed.cluster.kill(slot).await?;
            Ok(format!("{slot} is down since entry {}", self.applied))
        }
        .boxed()
    }

    fn duration(&self, rng: &mut Rng) -> Duration {
        Duration::from_millis(rng.u64(1500..3000))
    }

    fn heal<'a>(&'a mut self, testbed: &'a Testbed) -> BoxFuture<'a, anyhow::Result<Option<String>>> {
        async move {
            let Some((slot, _claim)) = self.away.take() else {
                return Ok(None);
            };
            // The other nodes make snapshots until none has the next entry that the follower lacks; clients
            // write all the time.
            let begun = std::time::Instant::now();
            for other in testbed.cluster.members() {
                if other == slot {
                    continue;
                }
                while number(testbed, other, "log_first_index").await? <= self.applied + 1 {
                    ensure!(begun.elapsed() < START_TIMEOUT, "the node in slot {other} does not purge its log");
                    let node = testbed.cluster.node(other).addresses.http;
                    let path = "/v1/cluster/snapshot";
                    let made = http::call(node, Method::POST, path, &Value::Null, START_TIMEOUT).await?;
                    made.success()?;
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
            testbed.cluster.start(slot)?;
            testbed
                .cluster
                .wait_ready(slot, START_TIMEOUT)
                .await
                .context("with a snapshot")?;
            // The node serves once it has the committed entries; openraft may report the snapshot a moment
            // later.
            let mut covered = number(testbed, slot, "snapshot_index").await?;
            let begun = std::time::Instant::now();
            while covered <= self.applied && begun.elapsed() < SNAPSHOT_SHOWS_WITHIN {
                tokio::time::sleep(Duration::from_millis(50)).await;
                covered = number(testbed, slot, "snapshot_index").await?;
            }
            let applied = self.applied;
            Ok((covered > applied).then(|| {
                format!("the node had entries up to {applied}, no other node had the next one; now it has a snapshot up to {covered}")
            }))
        }
        .boxed()
    }
}
