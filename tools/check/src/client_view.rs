//! Mutual exclusion as clients experience it: a belief lasts from the answer that granted the lock
//! until the client releases it or its own deadline passes, whichever is first. Beliefs whose modes
//! exclude each other must not overlap, and a later one needs the greater token. This is the
//! purpose of a lock. [`holds`] checks the servers' side, which may be correct and still notify the
//! client too late.

use serde::{Deserialize, Serialize};

use crate::history::{ClientId, Nanos};
use crate::holds::{self, End, History, Hold, Mode};
use crate::verdict::Verdict;

/// A client's belief that it holds a lock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Belief {
    /// Name of the lock.
    pub lock: String,
    /// Client that believes it.
    pub client: ClientId,
    /// Mode of the hold.
    pub mode: Mode,
    /// Fencing token of the hold.
    pub token: u64,
    /// Time at which the client received the grant.
    pub granted: Nanos,
    /// Time just before the client sent the release; `None` if it sent none.
    pub released: Option<Nanos>,
    /// End of the client's entitlement by its own clock: its session's timeout after it sent the
    /// last confirmed heartbeat.
    pub deadline: Nanos,
}

impl Belief {
    fn ended(&self) -> Nanos {
        self.released.unwrap_or(Nanos::MAX).min(self.deadline)
    }
}

/// Checks the beliefs about each lock. Positions in the lines are nanoseconds since the run began.
pub fn check(beliefs: &[Belief]) -> Verdict {
    let holds = beliefs
        .iter()
        // The client ignores a grant that arrives after its deadline.
        .filter(|belief| belief.granted < belief.ended())
        .map(|belief| Hold {
            lock: belief.lock.clone(),
            contender: format!("client {}", belief.client),
            mode: belief.mode,
            token: belief.token,
            arrived: None,
            began: Some(belief.granted),
            end: End::At(belief.ended()),
        })
        .collect();
    let history = History {
        holds,
        ..History::default()
    };
    holds::check(&history).about("believed")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn belief(
        client: ClientId,
        token: u64,
        granted: Nanos,
        released: Option<Nanos>,
        deadline: Nanos,
    ) -> Belief {
        Belief {
            lock: "orders".into(),
            client,
            mode: Mode::Exclusive,
            token,
            granted,
            released,
            deadline,
        }
    }

    #[test]
    fn deadline_ends_a_belief() {
        let beliefs = [
            belief(1, 1, 10, None, 50),
            belief(2, 2, 50, Some(60), 90),
            belief(3, 3, 60, None, 99),
        ];
        assert_eq!(check(&beliefs), Verdict::Valid);
    }

    #[test]
    fn grant_after_the_deadline_starts_no_belief() {
        assert_eq!(
            check(&[belief(1, 1, 55, None, 50), belief(2, 2, 50, None, 99)]),
            Verdict::Valid
        );
    }

    #[test]
    fn overlapping_beliefs_are_reported() {
        let Verdict::Violated(lines) = check(&[belief(1, 1, 10, Some(52), 80), belief(2, 2, 50, None, 99)])
        else {
            panic!("two holders passed");
        };
        assert_eq!(
            lines,
            [
                "believed: lock orders: client 2 (Exclusive, token 2, held [50, 99)) held together with client 1 (Exclusive, token 1, held [10, 52))"
            ]
        );
    }

    #[test]
    fn later_belief_needs_a_greater_token() {
        assert!(matches!(
            check(&[belief(1, 2, 10, Some(20), 80), belief(2, 1, 50, None, 99)]),
            Verdict::Violated(_)
        ));
    }
}
