//! The lock rule, as short as it can be said: the specification of who holds a lock. It looks at the whole list
//! every time; `queue.rs` comes to the same result step by step, and a property test holds the two together.

use super::contender::Claim;
use crate::command::LockMode;

/// How many contenders, from the front of the list, hold the lock: the longest prefix that is compatible.
///
/// The list is in order of arrival, so nobody is overtaken: a writer that waits lets no later reader pass.
pub fn holders(claims: &[Claim]) -> usize {
    (1..=claims.len())
        .take_while(|&count| compatible(&claims[..count]))
        .count()
}

/// Whether these contenders may hold the lock together.
fn compatible(claims: &[Claim]) -> bool {
    match claims {
        // Somebody always gets on: nobody can claim more than there is.
        [] | [_] => true,
        [first, ..] => match first.mode {
            LockMode::Exclusive => false,
            LockMode::Shared => claims.iter().all(|claim| claim.mode == LockMode::Shared),
            LockMode::Semaphore { limit } => {
                let permits: u64 = claims.iter().map(|claim| u64::from(claim.permits)).sum();
                claims.iter().all(|claim| claim.mode == first.mode) && permits <= u64::from(limit)
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const X: Claim = Claim {
        mode: LockMode::Exclusive,
        permits: 1,
    };
    const S: Claim = Claim {
        mode: LockMode::Shared,
        permits: 1,
    };

    fn lease(permits: u32, limit: u32) -> Claim {
        Claim {
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
    fn what_does_not_mix_waits() {
        assert_eq!(holders(&[lease(1, 3), lease(1, 4)]), 1);
        assert_eq!(holders(&[lease(1, 3), S]), 1);
        assert_eq!(holders(&[S, lease(1, 3)]), 1);
    }
}
