//! Quotas with the semantics of ZooKeeper (<https://zookeeper.apache.org/doc/current/zookeeperQuotas.html>). The quota of the subtree `/a/b` is the
//! znode `/zookeeper/quota/a/b/zookeeper_limits`, and its sibling `zookeeper_stats` has the usage. Both are ordinary znodes, which clients
//! create, write and delete, with these rules:
//!
//! - Of several quotas above a znode only the nearest one counts.
//! - A new znode `zookeeper_stats` is filled in, and kept correct from there on, without a version and without an event.
//! - A change beyond a hard limit is refused. A change beyond a soft limit causes an event and is not refused.
//!
//! There is no other state of quotas than those znodes, so no copies can differ.

use alloc::format;
use alloc::vec::Vec;

use crate::model::data::Data;
use crate::model::event::Event;
use crate::model::path::ZPath;
use crate::model::refusal::{QuotaKind, Refusal};
use crate::tree::Tree;
use crate::tree::index::NodeIndex;
use crate::tree::node_data::NodeData;

/// Parent of all quotas.
const ROOT: &str = "/zookeeper/quota";
/// Name of the znode with the limits.
const LIMITS: &str = "zookeeper_limits";
/// Name of the znode with the usage.
const STATS: &str = "zookeeper_stats";

/// Value of a missing number.
const NONE: i64 = -1;

/// Change of the quantities that a quota limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Growth {
    pub(crate) count: i64,
    pub(crate) bytes: i64,
}

/// Numbers in one of the two znodes; a missing or malformed number is `None`.
#[derive(Debug, Default, PartialEq, Eq)]
struct Numbers {
    count: Option<i64>,
    bytes: Option<i64>,
    count_hard: Option<i64>,
    bytes_hard: Option<i64>,
}

impl Numbers {
    /// Reads `count=5,bytes=100=;byteHardLimit=200;countHardLimit=10`.
    fn parse(data: &NodeData) -> Self {
        let mut numbers = Self::default();
        let text = core::str::from_utf8(data.bytes()).unwrap_or_default();
        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next(), parts.next());
            let value = value.and_then(|value| value.parse().ok());
            match key {
                Some("count") => numbers.count = value,
                Some("bytes") => numbers.bytes = value,
                Some("countHardLimit") => numbers.count_hard = value,
                Some("byteHardLimit") => numbers.bytes_hard = value,
                _ => {}
            }
        }
        numbers
    }
}

/// Returns the data of `zookeeper_stats`.
fn stats(count: i64, bytes: i64) -> NodeData {
    Data::from(&*format!("count={count},bytes={bytes}")).into()
}

impl Tree {
    /// Refuses a change at `path` that would exceed a hard limit.
    pub(crate) fn check_quota(&self, path: &ZPath, growth: Growth) -> Result<(), Refusal> {
        let Some((of, quota)) = self.quota_over(path) else {
            return Ok(());
        };
        let (Some(limits), Some(used)) = (self.numbers(quota, LIMITS), self.numbers(quota, STATS)) else {
            return Ok(());
        };
        for (what, growth, used, limit) in [
            (QuotaKind::Count, growth.count, used.count, limits.count_hard),
            (QuotaKind::Bytes, growth.bytes, used.bytes, limits.bytes_hard),
        ] {
            // As in ZooKeeper a change that leaves the number as it is is not refused. A change that reduces the number is refused if the result
            // still exceeds the limit.
            let would_be = used.unwrap_or(NONE).saturating_add(growth);
            if let Some(limit) = limit.filter(|limit| growth != 0 && *limit > NONE && would_be > *limit) {
                return Err(Refusal::QuotaExceeded {
                    path: of,
                    what,
                    limit: limit as u64,
                    would_be: would_be as u64,
                });
            }
        }
        Ok(())
    }

    /// Adds a change at `path` to the usage of its quota. Appends an event if that exceeds a soft limit.
    pub(crate) fn use_quota(&mut self, path: &ZPath, growth: Growth, events: &mut Vec<Event>) {
        let Some((of, quota)) = self.quota_over(path) else {
            return;
        };
        let Some(node) = self.child(quota, STATS) else {
            return;
        };
        let used = Numbers::parse(&self.node(node).data);
        let (count, bytes) = (used.count.unwrap_or(NONE), used.bytes.unwrap_or(NONE));
        let (new_count, new_bytes) = (
            count.saturating_add(growth.count),
            bytes.saturating_add(growth.bytes),
        );
        let limits = self.numbers(quota, LIMITS).unwrap_or_default();
        for (what, before, after, soft, hard) in [
            (
                QuotaKind::Count,
                count,
                new_count,
                limits.count,
                limits.count_hard,
            ),
            (
                QuotaKind::Bytes,
                bytes,
                new_bytes,
                limits.bytes,
                limits.bytes_hard,
            ),
        ] {
            // A hard limit takes precedence over the soft one.
            let soft = soft.filter(|soft| *soft > NONE && hard.is_none_or(|hard| hard <= NONE));
            if let Some(limit) = soft.filter(|limit| before <= *limit && after > *limit) {
                events.push(Event::SoftQuotaPassed {
                    path: of.clone(),
                    what,
                    limit: limit as u64,
                    used: after as u64,
                });
            }
        }
        self.correct_data(node, &stats_path(&of), stats(new_count, new_bytes));
    }

    fn numbers(&self, quota: NodeIndex, name: &str) -> Option<Numbers> {
        let node = self.child(quota, name)?;
        Some(Numbers::parse(&self.node(node).data))
    }

    /// Fills in the usage, if the new node at `path` is the one for the usage of a quota.
    pub(crate) fn begin_quota(&mut self, node: NodeIndex, path: &ZPath) {
        if path.name() != STATS {
            return;
        }
        let Some(of) = path
            .parent()
            .and_then(|quota| ZPath::parse(quota.as_str().strip_prefix(ROOT)?).ok())
        else {
            return;
        };
        let (mut count, mut bytes) = (0, 0);
        let mut todo: Vec<_> = self.find(&of).into_iter().collect();
        while let Some(index) = todo.pop() {
            count += 1;
            bytes += self.node(index).data.len() as i64;
            todo.extend(self.children(index));
        }
        self.correct_data(node, path, stats(count, bytes));
    }

    /// Returns the nearest subtree around `path` with a quota, and the node that contains that quota.
    fn quota_over(&self, path: &ZPath) -> Option<(ZPath, NodeIndex)> {
        // Quotas are rare, and changes of znodes are not.
        if self.node(NodeIndex::QUOTA).num_children() == 0 {
            return None;
        }
        let (mut at, mut end) = (NodeIndex::QUOTA, 0);
        let mut nearest = None;
        for name in path.components() {
            let Some(next) = self.child(at, name) else {
                break;
            };
            (at, end) = (next, end + 1 + name.len());
            if self.child(at, LIMITS).is_some() {
                nearest = Some((end, at));
            }
        }
        nearest.map(|(end, quota)| (ZPath::from_checked(path.as_str()[..end].into()), quota))
    }
}

/// Returns whether a path is that of the usage of a quota.
pub(crate) fn is_stats_of_quota(path: &ZPath) -> bool {
    path.name() == STATS && path.as_str().starts_with(ROOT)
}

fn stats_path(of: &ZPath) -> ZPath {
    ZPath::from_checked(format!("{ROOT}{of}/{STATS}"))
}
