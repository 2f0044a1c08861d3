//! Log of the latest events of the cluster that this node has observed: new leaders, changes of the membership, alarms. It is separate from the
//! event feed, so that a flood of lock events does not evict them. `node/cluster_events.rs` adds the events.

use std::collections::VecDeque;
use std::sync::Arc;

use raft_log::sync::Mutex;
use raft_node::NodeId;
use raft_node::disk_health::Alarm;

/// Maximum number of stored events. They cover years of a healthy cluster, and hours of an unstable one.
pub const MAX_CLUSTER_EVENTS: usize = 256;

/// Event of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEvent {
    /// Time at which this node observed the event, in milliseconds since 1970 by its own clock.
    pub time_ms: u64,
    /// Kind of the event.
    pub what: ClusterEventKind,
}

/// Kind of an event of the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterEventKind {
    /// A node was elected as the leader.
    LeaderChanged {
        /// New leader.
        leader: NodeId,
        /// First term of that leader.
        term: u64,
    },
    /// Members were added or removed, or their votes or addresses changed.
    MembersChanged {
        /// Log index of the membership entry.
        index: u64,
        /// Description of the change.
        change: String,
    },
    /// An alarm was raised: an operator should act.
    AlarmBegan(Alarm),
    /// An alarm has ended.
    AlarmOver(Alarm),
}

impl ClusterEvent {
    /// Returns an id that is the same at every node that has observed the event, so that a client recognizes duplicates.
    pub fn id(&self) -> String {
        let alarm = |alarm: &Alarm| {
            let node = alarm.node_id.unwrap_or(0);
            format!("{}-{node}-{}", alarm.kind.word(), alarm.since_ms)
        };
        match &self.what {
            ClusterEventKind::LeaderChanged { term, .. } => format!("leader-{term}"),
            ClusterEventKind::MembersChanged { index, .. } => format!("members-{index}"),
            ClusterEventKind::AlarmBegan(which) => format!("alarm-{}", alarm(which)),
            ClusterEventKind::AlarmOver(which) => format!("over-{}", alarm(which)),
        }
    }
}

/// Stored events, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ClusterEventLog(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    /// Number of all events so far.
    count: u64,
    events: VecDeque<Arc<ClusterEvent>>,
}

impl ClusterEventLog {
    pub(crate) fn add(&self, event: ClusterEvent) {
        let mut ring = self.0.lock();
        ring.count += 1;
        ring.events.push_back(event.into());
        if ring.events.len() > MAX_CLUSTER_EVENTS {
            ring.events.pop_front();
        }
    }

    /// Returns the latest `count` of the events after the first `after`, and the number of all events, for the next call.
    pub(crate) fn after(&self, after: u64, count: usize) -> (Vec<Arc<ClusterEvent>>, u64) {
        let ring = self.0.lock();
        let new = usize::try_from(ring.count.saturating_sub(after)).unwrap_or(usize::MAX);
        let count = new.min(count).min(ring.events.len());
        let first = ring.events.len() - count;
        (ring.events.range(first..).cloned().collect(), ring.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_events_are_returned_once() {
        let log = ClusterEventLog::default();
        let add = |terms: std::ops::RangeInclusive<u64>| {
            for term in terms {
                let what = ClusterEventKind::LeaderChanged { leader: 1, term };
                log.add(ClusterEvent { time_ms: term, what });
            }
        };
        let terms = |after, count| {
            let (count, through) = log.after(after, count);
            (count.iter().map(|it| it.time_ms).collect::<Vec<_>>(), through)
        };
        assert_eq!(terms(0, 10), (vec![], 0));
        add(1..=3);
        assert_eq!(terms(0, 2), (vec![2, 3], 3));
        assert_eq!(terms(0, 0), (vec![], 3));
        add(4..=4);
        assert_eq!(terms(3, 10), (vec![4], 4));
        assert_eq!(terms(4, 10), (vec![], 4));
        add(5..=MAX_CLUSTER_EVENTS as u64 + 9);
        let (count, through) = terms(0, usize::MAX);
        assert_eq!(
            (count.len(), count[0], through),
            (MAX_CLUSTER_EVENTS, 10, MAX_CLUSTER_EVENTS as u64 + 9)
        );
        assert_eq!(log.after(0, 1).0[0].id(), format!("leader-{through}"));
    }
}
