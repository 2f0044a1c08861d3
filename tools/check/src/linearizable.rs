//! Linearizability: is there one order of all calls, in which each takes effect at some moment between its request and its
//! answer, that explains every answer? The search is Wing and Gong's with Lowe's memory of configurations already seen.
//! Nothing here knows what is called: that is a [`Model`].

use std::collections::{BTreeMap, HashSet};
use std::fmt::{Debug, Display};
use std::hash::Hash;

use crate::history::{Call, Outcome};
use crate::verdict::Verdict;

/// How many configurations (which calls have taken effect, and the state they led to) a search visits before it gives up.
/// Histories of a few hundred calls need some thousands; each one takes about a hundred bytes and a microsecond.
pub const MAX_CONFIGURATIONS: usize = 2_000_000;

/// What a thing answers when it is called by one client at a time.
pub trait Model {
    /// All that its answers depend on.
    type State: Clone + Eq + Hash + Debug;
    /// What is asked. Calls without a known outcome that ask the same may stand in for each other.
    type Input: Eq + Debug;
    /// What is answered.
    type Output: Debug;

    /// Before the first call.
    fn initial(&self) -> Self::State;

    /// The state after the call if `output` is what may be answered in `state`, else none. Without an output nobody knows what
    /// was answered: the state after the call took effect. That it may never take effect is not the model's concern.
    fn step(
        &self,
        state: &Self::State,
        input: &Self::Input,
        output: Option<&Self::Output>,
    ) -> Option<Self::State>;
}

/// A call to what a model describes.
pub type CallTo<M> = Call<<M as Model>::Input, <M as Model>::Output>;

/// Checks one history within [`MAX_CONFIGURATIONS`].
pub fn check<M: Model>(model: &M, calls: &[CallTo<M>]) -> Verdict {
    let calls: Vec<_> = calls.iter().collect();
    check_within(model, &calls, MAX_CONFIGURATIONS)
}

/// Checks the calls to each key as a history of its own: calls to different keys do not affect each other, and a search is
/// short where histories are. `model` gives the model of a key.
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

/// Checks one history, and gives up after so many configurations.
pub fn check_within<M: Model>(model: &M, calls: &[&CallTo<M>], max_configurations: usize) -> Verdict {
    Search::new(model, calls).run(max_configurations)
}

/// The calls of a history: those that must take effect, and those that may.
struct Search<'a, M: Model> {
    model: &'a M,
    /// In order of their requests.
    answered: Vec<(&'a CallTo<M>, &'a M::Output)>,
    /// In order of their requests. Their bits follow those of `answered`.
    open: Vec<&'a CallTo<M>>,
}

/// Which calls have taken effect, and what they led to.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration<S> {
    taken: Box<[u64]>,
    state: S,
}

impl<S> Configuration<S> {
    fn has(&self, call: usize) -> bool {
        self.taken[call / 64] & (1 << (call % 64)) != 0
    }

    fn take(&self, call: usize, state: S) -> Self {
        let mut taken = self.taken.clone();
        taken[call / 64] |= 1 << (call % 64);
        Self { taken, state }
    }

    fn count(&self) -> u32 {
        self.taken.iter().map(|word| word.count_ones()).sum()
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
                // It has not taken effect and will not.
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

    /// Depth first, the likeliest next: a history that may have happened is mostly explained without turning back.
    fn run(&self, max_configurations: usize) -> Verdict {
        let words = (self.answered.len() + self.open.len()).div_ceil(64);
        let first = Configuration {
            taken: vec![0; words].into(),
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
            // Taken from the end, so the likeliest goes in last.
            for next in self.next(&configuration).into_iter().rev() {
                if seen.len() >= max_configurations {
                    return Verdict::Undecided(format!(
                        "{} calls, {} of them without a known outcome, were too many: given up after {} configurations",
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

    /// How many of the calls that must take effect have done so.
    fn answers(&self, configuration: &Configuration<M::State>) -> usize {
        (0..self.answered.len())
            .filter(|&call| configuration.has(call))
            .count()
    }

    /// The calls that must take effect, have not, and were asked before any of them was answered; the first to be answered
    /// comes first. No other call may be next, as one of these would then take effect after its answer.
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
            // Whatever explains the rest with this call later explains it with this call now, too, as it changes nothing:
            // no other way need be tried.
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
            // Of several that ask the same the first to be asked can stand in for the others.
            if configuration.has(bit) || tried.contains(&&call.input) {
                continue;
            }
            tried.push(&call.input);
            match self.model.step(&configuration.state, &call.input, None) {
                // Without an effect it is as if it never happened.
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
            "no order explains the answers: at best {} of {} answered calls, and then the state is {:?} and none of these can be next: [{}]",
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

    /// A register without versions: the smallest model that tells orders apart.
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
        // But not twice, and not before it was asked.
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
        // Each of the writes may have taken effect or not, and no read tells: all subsets would have to be tried.
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
