//! Lock rule: the specification of which contenders hold a lock. Production code never calls it. It reads the whole list each time;
//! `queue.rs` computes the same result incrementally, and a property test compares the two.

use crate::model::lock::LockMode;
use crate::model::lock::LockRequest;

/// Returns the number of contenders, from the front of the list, that hold a lock without settings of its own: the longest compatible
/// prefix.
///
/// The list is in order of arrival, so no contender is overtaken: a waiting writer blocks later readers.
pub fn holders(claims: &[LockRequest]) -> usize {
    holders_after(claims, 0, None)
}

/// Returns the number of holders when the first `holding` hold the lock already. The rule does not revoke a hold. A semaphore may have another limit
/// than its users requested. (A lock that is drained, closed or about to be upgraded grants nothing; then the number stays `holding`.)
pub fn holders_after(claims: &[LockRequest], holding: usize, limit: Option<u32>) -> usize {
    let more = (holding + 1..=claims.len()).take_while(|&count| compatible(&claims[..count], limit));
    holding + more.count()
}

/// Returns whether these contenders may hold the lock together.
fn compatible(claims: &[LockRequest], limit: Option<u32>) -> bool {
    let semaphore = |request: &LockRequest| match request.mode {
        LockMode::Semaphore { limit: own } => Some(limit.unwrap_or(own)),
        LockMode::Exclusive | LockMode::Shared | LockMode::Upgradeable => None,
    };
    match claims {
        // The lock always makes progress: no request exceeds the limit.
        [] | [_] => true,
        [first, ..] => match first.mode {
            LockMode::Exclusive => false,
            LockMode::Shared | LockMode::Upgradeable => {
                let of = |mode| claims.iter().filter(|request| request.mode == mode).count();
                let upgradeable = of(LockMode::Upgradeable);
                upgradeable <= 1 && upgradeable + of(LockMode::Shared) == claims.len()
            }
            LockMode::Semaphore { .. } => {
                let permits: u64 = claims.iter().map(|request| u64::from(request.permits)).sum();
                let limit = semaphore(first);
                claims.iter().all(|request| semaphore(request) == limit)
                    && limit.is_some_and(|limit| permits <= u64::from(limit))
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: LockRequest = LockRequest {
        mode: LockMode::Exclusive,
        permits: 1,
    };
    const U: LockRequest = LockRequest {
        mode: LockMode::Upgradeable,
        permits: 1,
    };
    const S: LockRequest = LockRequest {
        mode: LockMode::Shared,
        permits: 1,
    };

    fn lease(permits: u32, limit: u32) -> LockRequest {
        LockRequest {
            mode: LockMode::Semaphore { limit },
            permits,
        }
    }

    #[test]
    fn one_exclusive() {
        assert_eq!(holders(&[]), 0);
        assert_eq!(holders(&[X]), 1);
        assert_eq!(holders(&[X, X]), 1);
        assert_eq!(holders(&[X, S]), 1);
    }

    #[test]
    fn any_number_of_shared_up_to_the_first_exclusive() {
        assert_eq!(holders(&[S, S, S]), 3);
        assert_eq!(holders(&[S, S, X, S]), 2);
    }

    #[test]
    fn permits_up_to_the_limit_and_nobody_squeezes_past() {
        assert_eq!(holders(&[lease(1, 3), lease(2, 3)]), 2);
        assert_eq!(holders(&[lease(2, 3), lease(2, 3), lease(1, 3)]), 1);
        assert_eq!(
            holders(&[lease(u32::MAX, u32::MAX), lease(u32::MAX, u32::MAX)]),
            1
        );
    }

    #[test]
    fn one_upgradeable_holder_beside_shared_ones() {
        assert_eq!(holders(&[S, U, S, S]), 4);
        assert_eq!(holders(&[U, S, U, S]), 2);
        assert_eq!(holders(&[U, X]), 1);
        assert_eq!(holders(&[X, U]), 1);
        assert_eq!(holders(&[U, lease(1, 3)]), 1);
    }

    #[test]
    fn changed_limit_applies_to_later_grants() {
        let all = [lease(2, 5), lease(2, 5), lease(1, 3)];
        assert_eq!(holders_after(&all, 2, Some(3)), 2, "4 of 3 are in use");
        assert_eq!(holders_after(&all[1..], 1, Some(3)), 2, "2 of 3 were in use");
        assert_eq!(holders_after(&all, 0, Some(9)), 3);
    }

    #[test]
    fn incompatible_modes_wait() {
        assert_eq!(holders(&[lease(1, 3), lease(1, 4)]), 1);
        assert_eq!(holders(&[lease(1, 3), S]), 1);
        assert_eq!(holders(&[S, lease(1, 3)]), 1);
    }
}
