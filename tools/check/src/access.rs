//! The right to something as a register that is read by using it: once it is taken away, nothing that is asked later is
//! carried out, at no node. For the search of `linearizable`.

use crate::linearizable::Model;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Input {
    /// That the caller may from now on, or may not.
    Allow(bool),
    /// Whatever needs the right.
    Use,
}

/// What is answered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Output {
    /// It is done.
    Done,
    /// The caller may not.
    Forbidden,
}

/// A right that is there before the first call. To give or take it is somebody's who always may.
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
