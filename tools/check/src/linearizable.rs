//! Linearizability checker: decides whether one order of all calls, each taking effect at some
//! moment between its request and its answer, explains every answer. The search is Wing and Gong's
//! with Lowe's cache of visited configurations. The [`Model`] describes the object that is called;
//! nothing else here depends on it.

use std::collections::{BTreeMap, HashSet};
use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::history::{Call, Outcome};
use crate::verdict::Verdict;

/// Limit on the configurations that a search visits before it gives up. A configuration is a set of
/// calls that have taken effect, with the state that they led to. Histories of a few hundred calls
/// need some thousands. Each configuration takes about a hundred bytes and a microsecond.
pub const MAX_CONFIGURATIONS: usize = 2_000_000;

/// Sequential specification of an object: its answers when one client at a time calls it.
pub trait Model {
    /// State on which the answers depend.
    type State: Clone + Eq + Hash + Debug;
    /// Request. Calls of unknown outcome with equal requests are interchangeable.
    type Input: Eq + Debug;
    /// Answer.
    type Output: Debug;

    /// Returns the state before the first call.
    fn initial(&self) -> Self::State;

    /// Returns the state after the call, or `None` if `output` is not a possible answer in `state`.
    /// Without an output the answer is unknown, and the result is the state after the call took
    /// effect. The search, not the model, considers that it may never take effect.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;
}

/// Call to the object that a model describes.
pub type CallTo<M> = Call<<M as Model>::Input, <M as Model>::Output>;

/// Checks one history within [`MAX_CONFIGURATIONS`].
pub fn check<M: Model>(model: &M, calls: &[CallTo<M>]) -> Verdict {
    let calls: Vec<_> = calls.iter().collect();
    check_within(model, &calls, MAX_CONFIGURATIONS)
}

/// Checks the calls to each key as a history of its own, under the model that `model` returns for
/// the key. Calls to different keys do not affect each other, and short histories make short
/// searches.
pub fn check_by_key<K, M>(
    calls: &[(K, CallTo<M>)],
    model: impl Fn(&K) -> M,
    max_configurations: usize,
) -> Verdict
where
    K: Ord + Display,
    M: Model,
{
    let mut by_key: BTreeMap<&K, Vec<&CallTo<M>>> = BTreeMap::new();
    for (key, call) in calls {
        by_key.entry(key).or_default().push(call);
    }
    by_key
        .into_iter()
        .map(|(key, calls)| check_within(&model(key), &calls, max_configurations).about(key))
        .fold(Verdict::Valid, Verdict::and)
}

/// Checks one history. Undecided after `max_configurations`.
pub fn check_within<M: Model>(model: &M, calls: &[&CallTo<M>], max_configurations: usize) -> Verdict {
    Search::new(model, calls).run(max_configurations)
}

/// Search over one history: calls that must take effect, and calls that may.
struct Search<'a, M: Model> {
    model: &'a M,
    /// Answered calls, in order of their requests.
    answered: Vec<(&'a CallTo<M>, &'a M::Output)>,
    /// Calls of unknown outcome, in order of their requests. Their bits follow those of `answered`.
    open: Vec<&'a CallTo<M>>,
}

/// Set of calls that have taken effect, and the state that they led to.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration<S> {
    applied: Box<[u64]>,
    state: S,
}

impl<S> Configuration<S> {
    fn has(&self, call: usize) -> bool {
        self.applied[call / 64] & (1 << (call % 64)) != 0
    }

    fn take(&self, call: usize, state: S) -> Self {
        let mut applied = self.applied.clone();
        applied[call / 64] |= 1 << (call % 64);
        Self { applied, state }
    }

    fn count(&self) -> u32 {
        self.applied.iter().map(|word| word.count_ones()).sum()
    }
}

impl<'a, M: Model> Search<'a, M> {
    fn new(model: &'a M, calls: &[&'a CallTo<M>]) -> Self {
        let mut answered = Vec::new();
        let mut open = Vec::new();
        for call in calls {
            match &call.outcome {
                Outcome::Ok(output) => answered.push((*call, output)),
                Outcome::Unknown => open.push(*call),
                // It has no effect, now or later.
                Outcome::Failed => {}
            }
        }
        answered.sort_by_key(|(call, _)| call.invoked);
        open.sort_by_key(|call| call.invoked);
        Self {
            model,
            answered,
            open,
        }
    }

    /// Searches depth first, the likeliest candidate next: most of a possible history is explained
    /// without backtracking.
    fn run(&self, max_configurations: usize) -> Verdict {
        let words = (self.answered.len() + self.open.len()).div_ceil(64);
        let first = Configuration {
            applied: vec![0; words].into(),
            state: self.model.initial(),
        };
        let mut seen = HashSet::from([first.clone()]);
        let mut to_visit = vec![first.clone()];
        let mut farthest = first;
        while let Some(configuration) = to_visit.pop() {
            let answers = self.answers(&configuration);
            if answers == self.answered.len() {
                return Verdict::Valid;
            }
            if (answers, configuration.count()) > (self.answers(&farthest), farthest.count()) {
                farthest = configuration.clone();
            }
            // `pop` returns the last element, so the likeliest is pushed last.
            for next in self.next(&configuration).into_iter().rev() {
                if seen.len() >= max_configurations {
                    return Verdict::Undecided(format!(
                        "{} calls, {} of them of unknown outcome, are too many: gave up after {} configurations",
                        self.answered.len() + self.open.len(),
                        self.open.len(),
                        max_configurations
                    ));
                }
                if seen.insert(next.clone()) {
                    to_visit.push(next);
                }
            }
        }
        Verdict::Violated(vec![self.explain(&farthest)])
    }

    /// Returns the number of answered calls that have taken effect.
    fn answers(&self, configuration: &Configuration<M::State>) -> usize {
        (0..self.answered.len())
            .filter(|&call| configuration.has(call))
            .count()
    }

    /// Returns the answered calls that may take effect next, the first to be answered first: those
    /// sent before the first remaining answer. If another call were next, one of these would take
    /// effect after its answer.
    fn candidates(&self, configuration: &Configuration<M::State>) -> Vec<usize> {
        let mut deadline = u64::MAX;
        let mut candidates = Vec::new();
        for (index, (call, _)) in self.answered.iter().enumerate() {
            if call.invoked > deadline {
                break;
            }
            if !configuration.has(index) {
                deadline = deadline.min(call.returned);
                candidates.push(index);
            }
        }
        candidates.retain(|&index| self.answered[index].0.invoked <= deadline);
        candidates.sort_by_key(|&index| self.answered[index].0.returned);
        candidates
    }

    fn next(&self, configuration: &Configuration<M::State>) -> Vec<Configuration<M::State>> {
        let candidates = self.candidates(configuration);
        let deadline = candidates
            .first()
            .map_or(u64::MAX, |&index| self.answered[index].0.returned);
        let mut next = Vec::new();
        for index in candidates {
            let (call, output) = self.answered[index];
            let Some(state) = self.model.step(&configuration.state, &call.input, Some(output)) else {
                continue;
            };
            // A call that does not change the state can take effect now instead of later, with the
            // same explanation of the rest: no other candidate need be tried.
            if state == configuration.state {
                return vec![configuration.take(index, state)];
            }
            next.push(configuration.take(index, state));
        }
        let mut tried: Vec<&M::Input> = Vec::new();
        for (index, call) in self.open.iter().enumerate() {
            let bit = self.answered.len() + index;
            if call.invoked > deadline {
                break;
            }
            // Of several calls with equal requests, the first to be sent can replace the others.
            if configuration.has(bit) || tried.contains(&&call.input) {
                continue;
            }
            tried.push(&call.input);
            match self.model.step(&configuration.state, &call.input, None) {
                // A call that changes nothing is equivalent to one that never took effect.
                Some(state) if state == configuration.state => {}
                Some(state) => next.push(configuration.take(bit, state)),
                None => {}
            }
        }
        next
    }

    fn explain(&self, farthest: &Configuration<M::State>) -> String {
        let next: Vec<String> = self
            .candidates(farthest)
            .into_iter()
            .map(|index| self.answered[index].0.to_string())
            .collect();
        format!(
            "no order explains the answers: the best one explains {} of {} answered calls; then the state is {:?} and none of these calls can be next: [{}]",
            self.answers(farthest),
            self.answered.len(),
            farthest.state,
            next.join("; ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::Nanos;

    /// Register without versions: the smallest model whose answers depend on the order of calls.
    struct Plain;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Request {
        Read,
        Write(u64),
    }

    impl Model for Plain {
        type State = u64;
        type Input = Request;
        type Output = u64;

        fn initial(&self) -> u64 {
            0
        }

        fn step(&self, state: &u64, input: &Request, output: Option<&u64>) -> Option<u64> {
            match (input, output) {
                (Request::Read, Some(value)) => (value == state).then_some(*state),
                (Request::Read, None) => Some(*state),
                (Request::Write(value), _) => Some(*value),
            }
        }
    }

    fn call(
        client: u64,
        invoked: Nanos,
        returned: Nanos,
        input: Request,
        outcome: Outcome<u64>,
    ) -> Call<Request, u64> {
        Call {
            client,
            invoked,
            returned,
            input,
            outcome,
        }
    }

    fn read(client: u64, invoked: Nanos, returned: Nanos, value: u64) -> Call<Request, u64> {
        call(client, invoked, returned, Request::Read, Outcome::Ok(value))
    }

    fn write(client: u64, invoked: Nanos, returned: Nanos, value: u64) -> Call<Request, u64> {
        call(client, invoked, returned, Request::Write(value), Outcome::Ok(0))
    }

    #[test]
    fn empty_history_is_valid() {
        assert_eq!(check(&Plain, &[]), Verdict::Valid);
    }

    #[test]
    fn concurrent_calls_may_take_effect_in_any_order() {
        let history = [
            write(1, 0, 100, 5),
            read(2, 10, 20, 0),
            read(3, 30, 90, 5),
            write(4, 0, 100, 6),
        ];
        assert_eq!(check(&Plain, &history), Verdict::Valid);
    }

    #[test]
    fn stale_read_is_reported() {
        let history = [write(1, 0, 10, 5), write(1, 20, 30, 6), read(2, 40, 50, 5)];
        let Verdict::Violated(lines) = check(&Plain, &history) else {
            panic!("a stale read passed");
        };
        assert!(lines[0].contains("2 of 3 answered calls"), "{}", lines[0]);
        assert!(
            lines[0].contains("client 2, 0.000000 s to 0.000000 s: Read -> 5"),
            "{}",
            lines[0]
        );
    }

    #[test]
    fn opposite_orders_of_two_writes_are_caught() {
        let history = [
            write(1, 0, 100, 5),
            write(2, 0, 100, 6),
            read(3, 10, 20, 5),
            read(3, 30, 40, 6),
            read(4, 10, 20, 6),
            read(4, 30, 40, 5),
        ];
        assert!(matches!(check(&Plain, &history), Verdict::Violated(_)));
    }

    #[test]
    fn unanswered_call_may_take_effect_late_or_never() {
        let lost = call(1, 0, 10, Request::Write(5), Outcome::Unknown);
        assert_eq!(check(&Plain, &[lost.clone(), read(2, 20, 30, 0)]), Verdict::Valid);
        assert_eq!(
            check(&Plain, &[lost.clone(), read(2, 20, 30, 0), read(2, 40, 50, 5)]),
            Verdict::Valid
        );
        // It takes effect neither twice nor before its request.
        let twice = [lost, read(2, 20, 30, 5), write(2, 40, 50, 6), read(2, 60, 70, 5)];
        assert!(matches!(check(&Plain, &twice), Verdict::Violated(_)));
        let early = [
            read(2, 0, 10, 5),
            call(1, 20, 30, Request::Write(5), Outcome::Unknown),
        ];
        assert!(matches!(check(&Plain, &early), Verdict::Violated(_)));
    }

    #[test]
    fn failed_call_has_no_effect() {
        let failed = call(1, 0, 10, Request::Write(5), Outcome::Failed);
        assert_eq!(
            check(&Plain, &[failed.clone(), read(2, 20, 30, 0)]),
            Verdict::Valid
        );
        assert!(matches!(
            check(&Plain, &[failed, read(2, 20, 30, 5)]),
            Verdict::Violated(_)
        ));
    }

    #[test]
    fn search_beyond_its_limit_is_undecided() {
        // Each of the writes may have taken effect or not, and no read shows which: the search
        // would have to try all subsets.
        let mut history: Vec<_> = (1..40)
            .map(|value| call(value, 0, 1, Request::Write(value), Outcome::Unknown))
            .collect();
        history.push(read(99, 10, 20, 1000));
        let calls: Vec<_> = history.iter().collect();
        assert!(matches!(
            check_within(&Plain, &calls, 1000),
            Verdict::Undecided(_)
        ));
    }

    #[test]
    fn keys_are_checked_independently() {
        let calls = [
            ("a", write(1, 0, 10, 5)),
            ("b", read(1, 20, 30, 0)),
            ("b", read(1, 40, 50, 7)),
        ];
        let Verdict::Violated(lines) = check_by_key(&calls, |_| Plain, MAX_CONFIGURATIONS) else {
            panic!("a value from nowhere passed");
        };
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("b: "), "{}", lines[0]);
    }
}
