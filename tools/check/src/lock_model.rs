//! Model of an exclusive lock for the search of [`linearizable`](crate::linearizable). It applies
//! to histories without session ends and without breaks, in which a holder keeps the lock until it
//! releases it.

use crate::linearizable::Model;

/// Session, or an owner within a session. It keeps its number across calls without an answer.
pub type Contender = u64;

/// Request to a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Input {
    /// Acquires the lock, at once or after a wait.
    Acquire(Contender),
    /// Releases the lock.
    Release(Contender),
}

/// Answer of a lock.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum Output {
    /// The contender holds the lock.
    Acquired {
        /// Fencing token of the hold.
        token: u64,
    },
    /// Another contender held the lock at some moment during the call.
    Busy,
    /// The contender has released the lock.
    Released,
    /// The contender did not hold the lock.
    NotHeld,
}

/// Lock that is free before the first call.
#[derive(Clone, Debug, Default)]
pub struct ExclusiveLock;

/// Holder of the lock, and its last token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct State {
    holder: Option<Contender>,
    /// Greatest token that an answer has shown.
    token: u64,
}

impl Model for ExclusiveLock {
    type State = State;
    type Input = Input;
    type Output = Output;

    fn initial(&self) -> State {
        State::default()
    }

    fn step(&self, state: &State, input: &Input, output: Option<&Output>) -> Option<State> {
        let held_by = |holder, token| Some(State { holder, token });
        match (input, output) {
            // A holder that acquires again gets the same token.
            (Input::Acquire(by), Some(Output::Acquired { token })) if state.holder == Some(*by) => {
                (*token >= state.token).then(|| held_by(Some(*by), *token))?
            }
            (Input::Acquire(by), Some(Output::Acquired { token })) => {
                (state.holder.is_none() && *token > state.token).then(|| held_by(Some(*by), *token))?
            }
            (Input::Acquire(by), Some(Output::Busy)) => state
                .holder
                .is_some_and(|holder| holder != *by)
                .then(|| state.clone()),
            // The token of this acquire is unknown; the next one's is greater than all known ones.
            (Input::Acquire(by), None) => match state.holder {
                None => held_by(Some(*by), state.token),
                Some(_) => Some(state.clone()),
            },
            (Input::Release(by), Some(Output::Released)) => {
                (state.holder == Some(*by)).then(|| held_by(None, state.token))?
            }
            (Input::Release(by), Some(Output::NotHeld)) => (state.holder != Some(*by)).then(|| state.clone()),
            (Input::Release(by), None) if state.holder == Some(*by) => held_by(None, state.token),
            (Input::Release(_), None) => Some(state.clone()),
            (Input::Acquire(_), Some(Output::Released | Output::NotHeld))
            | (Input::Release(_), Some(Output::Acquired { .. } | Output::Busy)) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Call, Outcome};
    use crate::linearizable::check;
    use crate::verdict::Verdict;

    fn call(
        by: Contender,
        invoked: u64,
        returned: u64,
        input: Input,
        outcome: Outcome<Output>,
    ) -> Call<Input, Output> {
        Call {
            client: by,
            invoked,
            returned,
            input,
            outcome,
        }
    }

    fn acquired(by: Contender, invoked: u64, returned: u64, token: u64) -> Call<Input, Output> {
        call(
            by,
            invoked,
            returned,
            Input::Acquire(by),
            Outcome::Ok(Output::Acquired { token }),
        )
    }

    fn released(by: Contender, invoked: u64, returned: u64) -> Call<Input, Output> {
        call(
            by,
            invoked,
            returned,
            Input::Release(by),
            Outcome::Ok(Output::Released),
        )
    }

    fn violated(calls: &[Call<Input, Output>]) {
        match check(&ExclusiveLock, calls) {
            Verdict::Violated(_) => {}
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn consecutive_holders_are_valid() {
        let calls = [
            acquired(1, 0, 10, 3),
            call(3, 12, 14, Input::Acquire(3), Outcome::Ok(Output::Busy)),
            acquired(2, 5, 40, 4),
            released(1, 20, 30),
            call(1, 32, 34, Input::Release(1), Outcome::Ok(Output::NotHeld)),
            released(2, 50, 60),
        ];
        assert_eq!(check(&ExclusiveLock, &calls), Verdict::Valid);
    }

    #[test]
    fn overlapping_holders_are_caught() {
        violated(&[acquired(1, 0, 10, 3), acquired(2, 20, 30, 4)]);
        violated(&[acquired(1, 0, 10, 3), acquired(2, 15, 18, 4), released(1, 20, 30)]);
    }

    #[test]
    fn repeated_token_is_caught() {
        violated(&[acquired(1, 0, 10, 3), released(1, 20, 30), acquired(2, 40, 50, 3)]);
    }

    #[test]
    fn busy_answer_for_a_free_lock_is_caught() {
        violated(&[call(1, 0, 10, Input::Acquire(1), Outcome::Ok(Output::Busy))]);
    }

    #[test]
    fn release_of_another_contenders_hold_is_caught() {
        violated(&[acquired(1, 0, 10, 3), released(2, 20, 30)]);
    }

    #[test]
    fn unanswered_release_may_take_effect_late() {
        let lost = call(1, 20, 30, Input::Release(1), Outcome::Unknown);
        let calls = [acquired(1, 0, 10, 3), lost, acquired(2, 40, 50, 4)];
        assert_eq!(check(&ExclusiveLock, &calls), Verdict::Valid);
    }

    #[test]
    fn unanswered_acquire_may_hold_the_lock() {
        let lost = call(1, 0, 10, Input::Acquire(1), Outcome::Unknown);
        let busy = call(2, 20, 30, Input::Acquire(2), Outcome::Ok(Output::Busy));
        assert_eq!(
            check(&ExclusiveLock, &[lost.clone(), busy.clone()]),
            Verdict::Valid
        );
        // It takes effect at most once.
        violated(&[
            lost,
            busy.clone(),
            released(1, 40, 50),
            acquired(2, 60, 65, 2),
            released(2, 70, 75),
            Call {
                invoked: 80,
                returned: 90,
                ..busy
            },
        ]);
    }
}
