//! What sessions cost when they are over groups: by arithmetic, because nothing of it waits for anything.

use crate::costs::Costs;

/// A heartbeat is sent so often within a session's ttl.
const BEATS: f64 = 3.0;

/// What so many sessions cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SessionCost {
    /// Heartbeats in a second.
    pub heartbeats_per_second: f64,
    /// Cores of the session group's leader that are busy with them.
    pub leader_cores: f64,
    /// Entries in a second over all groups that tell of sessions that come and go.
    pub writes_per_second: f64,
}

/// Of a *session group*, which alone decides who lives: it has all heartbeats. A session that comes or goes is a write there, and one in
/// each of the groups that it uses, which take its part in what was decided.
pub fn session_group(
    costs: &Costs,
    sessions: f64,
    ttl_seconds: f64,
    lives_seconds: f64,
    groups_each: f64,
) -> SessionCost {
    let heartbeats_per_second = sessions * BEATS / ttl_seconds;
    SessionCost {
        heartbeats_per_second,
        leader_cores: heartbeats_per_second * costs.heartbeat as f64 / crate::SECOND as f64,
        writes_per_second: 2.0 * sessions / lives_seconds * (1.0 + groups_each),
    }
}

/// The same where each group keeps sessions of its own, and a session that uses several is renewed in each.
pub fn session_in_each(
    costs: &Costs,
    sessions: f64,
    ttl_seconds: f64,
    lives_seconds: f64,
    groups_each: f64,
    groups: f64,
) -> SessionCost {
    let heartbeats_per_second = sessions * groups_each * BEATS / ttl_seconds;
    SessionCost {
        heartbeats_per_second,
        // Of one group's leader: the heartbeats are spread as the groups are.
        leader_cores: heartbeats_per_second / groups * costs.heartbeat as f64 / crate::SECOND as f64,
        writes_per_second: 2.0 * sessions / lives_seconds * groups_each,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_sessions_cost_the_leader_what_was_measured() {
        // docs/performance.md: 10,000 sessions with a ttl of 10 s take 15 to 18 % of one core of the leader.
        let cost = session_group(&Costs::measured(), 10_000.0, 10.0, 3_600.0, 1.0);
        assert!((cost.heartbeats_per_second - 3_000.0).abs() < 1e-9);
        assert!((0.14..0.19).contains(&cost.leader_cores), "{cost:?}");
    }

    #[test]
    fn sessions_of_one_group_each_are_spread_and_cost_half_the_writes() {
        let costs = Costs::measured();
        let one = session_group(&costs, 1e5, 10.0, 3_600.0, 1.0);
        let each = session_in_each(&costs, 1e5, 10.0, 3_600.0, 1.0, 10.0);
        assert!((one.leader_cores / each.leader_cores - 10.0).abs() < 1e-9);
        assert!((one.writes_per_second / each.writes_per_second - 2.0).abs() < 1e-9);
    }
}
