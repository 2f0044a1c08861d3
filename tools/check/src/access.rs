//! Model of a permission, as a register that a client reads by using it: after a revocation is
//! acknowledged, no node serves a later request that needs the permission. For the search of
//! [`linearizable`](crate::linearizable).

use crate::linearizable::Model;

/// Request of a client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Input {
    /// Grants (`true`) or revokes (`false`) the permission.
    Allow(bool),
    /// Uses the permission.
    Use,
}

/// Answer of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Output {
    /// The request succeeded.
    Done,
    /// The caller has no permission.
    Forbidden,
}

/// Permission that exists before the first call. An administrator whose own permission never ends
/// grants and revokes it.
#[derive(Clone, Debug, Default)]
pub struct Access;

impl Model for Access {
    type State = bool;
    type Input = Input;
    type Output = Output;

    fn initial(&self) -> bool {
        true
    }

    fn step(&self, allowed: &bool, input: &Input, output: Option<&Output>) -> Option<bool> {
        match (input, output) {
            (Input::Allow(_), Some(Output::Forbidden)) => None,
            (Input::Allow(allow), Some(Output::Done) | None) => Some(*allow),
            (Input::Use, Some(Output::Done)) => allowed.then_some(true),
            (Input::Use, Some(Output::Forbidden)) => (!allowed).then_some(false),
            (Input::Use, None) => Some(*allowed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Outcome};
    use crate::linearizable::check;
    use crate::verdict::Verdict;

    fn call(invoked: u64, input: Input, outcome: Outcome<Output>) -> Call<Input, Output> {
        Call {
            client: invoked,
            invoked,
            returned: invoked + 10,
            input,
            outcome,
        }
    }

    fn revoked(invoked: u64, outcome: Outcome<Output>) -> Call<Input, Output> {
        call(invoked, Input::Allow(false), outcome)
    }

    fn used(invoked: u64, output: Output) -> Call<Input, Output> {
        call(invoked, Input::Use, Outcome::Ok(output))
    }

    #[test]
    fn use_concurrent_with_revocation_may_succeed_or_fail() {
        for output in [Output::Done, Output::Forbidden] {
            let calls = [
                used(0, Output::Done),
                revoked(20, Outcome::Ok(Output::Done)),
                used(25, output),
            ];
            assert_eq!(check(&Access, &calls), Verdict::Valid);
        }
    }

    #[test]
    fn use_after_revocation_is_caught() {
        let calls = [revoked(0, Outcome::Ok(Output::Done)), used(20, Output::Done)];
        assert!(matches!(check(&Access, &calls), Verdict::Violated(_)));
    }

    #[test]
    fn first_rejection_is_final() {
        let lost = revoked(0, Outcome::Unknown);
        assert_eq!(
            check(&Access, &[lost.clone(), used(20, Output::Done)]),
            Verdict::Valid
        );
        let calls = [lost, used(20, Output::Forbidden), used(40, Output::Done)];
        assert!(matches!(check(&Access, &calls), Verdict::Violated(_)));
    }

    #[test]
    fn rejection_without_cause_is_caught() {
        let calls = [used(0, Output::Forbidden), revoked(20, Outcome::Ok(Output::Done))];
        assert!(matches!(check(&Access, &calls), Verdict::Violated(_)));
    }
}
