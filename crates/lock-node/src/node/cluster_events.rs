//! Observer of the cluster, which logs its events for dashboards ([`crate::cluster_events`]). No decision of the node depends on it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::Node;
use crate::cluster_events::{ClusterEvent, ClusterEventKind};
use raft_node::disk_health::{Alarm, AlarmKind};
use raft_node::leader_view::LeaderView;
use raft_node::{MemberAddress, NodeId};

/// Interval at which members and alarms are checked. Changes of the leader are seen at once.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Last observation of the cluster.
#[derive(Debug, Default)]
struct ClusterObserver {
    leader: LeaderView,
    members: Option<Members>,
    alarms: BTreeMap<(AlarmKind, Option<NodeId>), Alarm>,
}

/// Committed members of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Members {
    /// Index of the membership entry.
    index: u64,
    /// Vote and addresses of each.
    each: BTreeMap<NodeId, (bool, MemberAddress)>,
}

impl Node {
    /// Observes the cluster until the node stops.
    pub(super) async fn log_cluster_events(self) {
        let mut observer = ClusterObserver::default();
        let raft = &self.inner.raft;
        let mut view = raft.leader_changes();
        loop {
            let leader = *view.borrow_and_update();
            for what in observer.observe(leader, self.committed_members(), raft.cluster_alarms()) {
                let time_ms = self.now_ms();
                self.inner.cluster_events.add(ClusterEvent { time_ms, what });
                self.inner.replica.observers.feed.changed();
            }
            tokio::select! {
                changed = view.changed() => if changed.is_err() { return },
                () = tokio::time::sleep(POLL_INTERVAL) => {}
                () = raft.stop_token().cancelled() => return,
            }
        }
    }

    fn committed_members(&self) -> Members {
        let (index, each) = self.inner.raft.committed_members();
        Members { index, each }
    }

    /// Returns the latest `count` of the cluster's events after the first `after` that this node has seen. Returns also the number of all events, for
    /// the next call.
    pub fn cluster_events(&self, after: u64, count: usize) -> (Vec<Arc<ClusterEvent>>, u64) {
        self.inner.cluster_events.after(after, count)
    }
}

impl ClusterObserver {
    /// Compares an observation with the last one, and returns the events between them.
    fn observe(
        &mut self,
        leader: LeaderView,
        members: Members,
        alarms: Option<Vec<Alarm>>,
    ) -> Vec<ClusterEventKind> {
        let mut news = Vec::new();
        if let Some(id) = leader.leader
            && leader != self.leader
        {
            self.leader = leader;
            let (leader, term) = (id, leader.term);
            news.push(ClusterEventKind::LeaderChanged { leader, term });
        }
        if !members.each.is_empty() && self.members.as_ref() != Some(&members) {
            // The first observation has nothing to compare with.
            if let Some(before) = self.members.replace(members.clone()) {
                let change = difference(&before, &members);
                let index = members.index;
                if !change.is_empty() {
                    news.push(ClusterEventKind::MembersChanged { index, change });
                }
            }
        }
        if let Some(alarms) = alarms {
            let key = |alarm: &Alarm| (alarm.kind, alarm.node_id);
            let now: BTreeMap<_, _> = alarms.into_iter().map(|alarm| (key(&alarm), alarm)).collect();
            let before = std::mem::take(&mut self.alarms);
            let begun = now.iter().filter(|(key, _)| !before.contains_key(key));
            news.extend(begun.map(|(_, alarm)| ClusterEventKind::AlarmBegan(alarm.clone())));
            let over = before.iter().filter(|(key, _)| !now.contains_key(key));
            news.extend(over.map(|(_, alarm)| ClusterEventKind::AlarmOver(alarm.clone())));
            // An alarm is stored as it began, because the event of its end has the same id.
            self.alarms = now
                .into_iter()
                .map(|(key, alarm)| (key, before.get(&key).cloned().unwrap_or(alarm)))
                .collect();
        }
        news
    }
}

/// Describes the difference of two memberships in words. Returns an empty text if votes and addresses are equal.
fn difference(before: &Members, now: &Members) -> String {
    let mut all = Vec::new();
    for (id, (votes, address)) in &now.each {
        match before.each.get(id) {
            None if *votes => all.push(format!("node {id} was added as a voter")),
            None => all.push(format!("node {id} was added as a learner")),
            Some((voted, _)) if voted != votes => {
                let what = if *votes {
                    "votes now"
                } else {
                    "does not vote any more"
                };
                all.push(format!("node {id} {what}"));
            }
            Some((_, was_at)) if was_at != address => {
                all.push(format!(
                    "node {id} is at {} and {} now",
                    address.peer, address.http
                ));
            }
            Some(_) => {}
        }
    }
    let gone = before.each.keys().filter(|id| !now.each.contains_key(id));
    all.extend(gone.map(|id| format!("node {id} was removed")));
    all.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(index: u64, each: &[(NodeId, bool)]) -> Members {
        let address = |id: &NodeId| MemberAddress {
            peer: format!("host-{id}:7500"),
            http: format!("host-{id}:7400"),
        };
        Members {
            index,
            each: each
                .iter()
                .map(|(id, votes)| (*id, (*votes, address(id))))
                .collect(),
        }
    }

    fn led(term: u64, leader: Option<NodeId>) -> LeaderView {
        LeaderView { term, leader }
    }

    #[test]
    fn changes_of_leader_and_members_are_events() {
        let mut observer = ClusterObserver::default();
        let three = || members(1, &[(1, true), (2, true), (3, true)]);
        let first = observer.observe(led(1, Some(1)), three(), None);
        assert_eq!(first, [ClusterEventKind::LeaderChanged { leader: 1, term: 1 }]);
        for nothing_new in [led(1, Some(1)), led(2, None), led(1, Some(1))] {
            assert_eq!(observer.observe(nothing_new, three(), None), []);
        }
        let again = observer.observe(led(3, Some(1)), three(), None);
        assert_eq!(again, [ClusterEventKind::LeaderChanged { leader: 1, term: 3 }]);
        let mut change = |index, each: &[(NodeId, bool)]| match &observer.observe(
            led(3, Some(1)),
            members(index, each),
            None,
        )[..]
        {
            [ClusterEventKind::MembersChanged { index: at, change }] if *at == index => change.clone(),
            other => panic!("{other:?}"),
        };
        let learner = change(5, &[(1, true), (2, true), (3, true), (4, false)]);
        assert_eq!(learner, "node 4 was added as a learner");
        let swapped = change(6, &[(1, true), (2, true), (4, true)]);
        assert_eq!(swapped, "node 4 votes now, node 3 was removed");
        let mut moved = members(7, &[(1, true), (2, true), (4, true)]);
        moved.each.get_mut(&4).unwrap().1.http = "elsewhere:7400".to_owned();
        assert_eq!(
            difference(&members(6, &[(1, true), (2, true), (4, true)]), &moved),
            "node 4 is at host-4:7500 and elsewhere:7400 now"
        );
    }

    #[test]
    fn alarm_has_one_beginning_and_one_end() {
        let mut observer = ClusterObserver::default();
        let alarm = |since_ms| Alarm {
            node_id: Some(2),
            kind: AlarmKind::DiskLow,
            since_ms,
            detail: "80 MB are free".to_owned(),
            action: "free some".to_owned(),
            free_bytes: None,
            low_water_bytes: None,
            sync_us: None,
        };
        let mut see = |alarms| observer.observe(LeaderView::default(), Members::default(), alarms);
        assert_eq!(
            see(Some(vec![alarm(5)])),
            [ClusterEventKind::AlarmBegan(alarm(5))]
        );
        // There is no leader for a while, and the next leader saw the alarm later.
        assert_eq!(see(None), []);
        assert_eq!(see(Some(vec![alarm(7)])), []);
        assert_eq!(see(Some(Vec::new())), [ClusterEventKind::AlarmOver(alarm(5))]);
        assert_eq!(see(Some(Vec::new())), []);
    }
}
