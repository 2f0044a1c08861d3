//! What has happened to the cluster, as this node has seen it: who came to lead, which members came and went, what a person had to
//! look at. It is kept apart from what happens to locks, so that no flood of those pushes it out. How it is seen is in
//! `node/cluster_events.rs`.

use std::collections::VecDeque;
use std::sync::Arc;

use raft_log::sync::Mutex;
use raft_node::NodeId;
use raft_node::disk_health::Alarm;

/// How much is kept: years of a cluster that is well, and hours of one that is not.
pub const MAX_CHRONICLE: usize = 256;

/// Something that has happened to the cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterHappening {
    /// When this node saw it, in milliseconds since 1970 by its own clock.
    pub time_ms: u64,
    /// What.
    pub what: ClusterHappened,
}

/// What has happened to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClusterHappened {
    /// Another one leads from this term on.
    LeaderChanged {
        /// Who.
        leader: NodeId,
        /// Since when.
        term: u64,
    },
    /// The members are others, or are others than they were.
    MembersChanged {
        /// Where in the log that stands.
        index: u64,
        /// In words.
        change: String,
    },
    /// A person should look at something.
    AlarmBegan(Alarm),
    /// That is over.
    AlarmOver(Alarm),
}

impl ClusterHappening {
    /// A name for it that is the same at every node that has seen it, so that who has heard of it twice notices that.
    pub fn id(&self) -> String {
        let alarm = |alarm: &Alarm| {
            let node = alarm.node_id.unwrap_or(0);
            format!("{}-{node}-{}", alarm.kind.word(), alarm.since_ms)
        };
        match &self.what {
            ClusterHappened::LeaderChanged { term, .. } => format!("leader-{term}"),
            ClusterHappened::MembersChanged { index, .. } => format!("members-{index}"),
            ClusterHappened::AlarmBegan(which) => format!("alarm-{}", alarm(which)),
            ClusterHappened::AlarmOver(which) => format!("over-{}", alarm(which)),
        }
    }
}

/// What is kept of it, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct ClusterEvents(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// How many there ever were.
    count: u64,
    happenings: VecDeque<Arc<ClusterHappening>>,
}

impl ClusterEvents {
    pub(crate) fn add(&self, happening: ClusterHappening) {
        let mut kept = self.0.lock();
        kept.count += 1;
        kept.happenings.push_back(happening.into());
        if kept.happenings.len() > MAX_CHRONICLE {
            kept.happenings.pop_front();
        }
    }

    /// What came after the first `after`, at most the latest `count` of it; and how many there ever were, to ask with the next time.
    pub(crate) fn after(&self, after: u64, count: usize) -> (Vec<Arc<ClusterHappening>>, u64) {
        let kept = self.0.lock();
        let new = usize::try_from(kept.count.saturating_sub(after)).unwrap_or(usize::MAX);
        let told = new.min(count).min(kept.happenings.len());
        let first = kept.happenings.len() - told;
        (kept.happenings.range(first..).cloned().collect(), kept.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_told_once() {
        let chronicle = ClusterEvents::default();
        let add = |terms: std::ops::RangeInclusive<u64>| {
            for term in terms {
                let what = ClusterHappened::LeaderChanged { leader: 1, term };
                chronicle.add(ClusterHappening { time_ms: term, what });
            }
        };
        let terms = |after, count| {
            let (told, through) = chronicle.after(after, count);
            (told.iter().map(|it| it.time_ms).collect::<Vec<_>>(), through)
        };
        assert_eq!(terms(0, 10), (vec![], 0));
        add(1..=3);
        assert_eq!(terms(0, 2), (vec![2, 3], 3));
        assert_eq!(terms(0, 0), (vec![], 3));
        add(4..=4);
        assert_eq!(terms(3, 10), (vec![4], 4));
        assert_eq!(terms(4, 10), (vec![], 4));
        add(5..=MAX_CHRONICLE as u64 + 9);
        let (told, through) = terms(0, usize::MAX);
        assert_eq!(
            (told.len(), told[0], through),
            (MAX_CHRONICLE, 10, MAX_CHRONICLE as u64 + 9)
        );
        assert_eq!(chronicle.after(0, 1).0[0].id(), format!("leader-{through}"));
    }
}
