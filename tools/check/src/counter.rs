//! Checker of a counter that only grows. Each read lies between the sum of the additions certainly
//! made before it and the sum of those possibly made by then, and no later read returns less.

use crate::history::{Call, Nanos, Outcome};
use crate::verdict::Verdict;

/// Checks additions, each of an amount, and reads.
pub fn check(additions: &[Call<u64, ()>], reads: &[Call<(), u64>]) -> Verdict {
    let certain = Sums::of(additions.iter().filter_map(|addition| {
        matches!(addition.outcome, Outcome::Ok(())).then_some((addition.returned, addition.input))
    }));
    let possible = Sums::of(additions.iter().filter_map(|addition| {
        (!matches!(addition.outcome, Outcome::Failed)).then_some((addition.invoked, addition.input))
    }));
    let mut contradictions = Vec::new();
    for read in reads {
        let Outcome::Ok(value) = read.outcome else {
            continue;
        };
        let least = certain.before(read.invoked);
        let most = possible.before(read.returned.saturating_add(1));
        if value < least {
            contradictions.push(format!("at least {} were added before {read}", least));
        }
        if value > most {
            contradictions.push(format!("at most {} were added before the end of {read}", most));
        }
    }
    contradictions.extend(decreasing_reads(reads));
    Verdict::of(contradictions)
}

/// Running sums of amounts, by time.
struct Sums(Vec<(Nanos, u64)>);

impl Sums {
    fn of(amounts: impl Iterator<Item = (Nanos, u64)>) -> Self {
        let mut sums: Vec<_> = amounts.collect();
        sums.sort_unstable();
        let mut sum = 0;
        for (_, amount) in &mut sums {
            sum += *amount;
            *amount = sum;
        }
        Self(sums)
    }

    /// Returns the sum of the amounts before this time.
    fn before(&self, moment: Nanos) -> u64 {
        let count = self.0.partition_point(|(at, _)| *at < moment);
        count.checked_sub(1).map_or(0, |last| self.0[last].1)
    }
}

fn decreasing_reads(reads: &[Call<(), u64>]) -> Vec<String> {
    let mut by_request: Vec<_> = reads
        .iter()
        .filter_map(|read| match read.outcome {
            Outcome::Ok(value) => Some((read, value)),
            Outcome::Failed | Outcome::Unknown => None,
        })
        .collect();
    let mut by_answer = by_request.clone();
    by_request.sort_by_key(|(read, _)| read.invoked);
    by_answer.sort_by_key(|(read, _)| read.returned);
    let mut by_answer = by_answer.into_iter().peekable();
    let mut greatest: Option<(&Call<(), u64>, u64)> = None;
    let mut contradictions = Vec::new();
    for (read, value) in by_request {
        while let Some(earlier) = by_answer.next_if(|(earlier, _)| earlier.returned < read.invoked) {
            if greatest.is_none_or(|(_, value)| value < earlier.1) {
                greatest = Some(earlier);
            }
        }
        if let Some((earlier, before)) = greatest
            && value < before
        {
            contradictions.push(format!("the counter decreased: {earlier}, then {read}"));
        }
    }
    contradictions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call<I, O>(invoked: Nanos, input: I, outcome: Outcome<O>) -> Call<I, O> {
        Call {
            client: 1,
            invoked,
            returned: invoked + 5,
            input,
            outcome,
        }
    }

    fn additions() -> [Call<u64, ()>; 4] {
        [
            call(0, 2, Outcome::Ok(())),
            call(10, 3, Outcome::Unknown),
            call(20, 100, Outcome::Failed),
            call(30, 4, Outcome::Ok(())),
        ]
    }

    fn check_reads(reads: &[(Nanos, u64)]) -> Verdict {
        let reads: Vec<_> = reads
            .iter()
            .map(|(invoked, value)| call(*invoked, (), Outcome::Ok(*value)))
            .collect();
        check(&additions(), &reads)
    }

    fn violated(reads: &[(Nanos, u64)], named: &str) {
        match check_reads(reads) {
            Verdict::Violated(lines) => assert!(lines.iter().any(|line| line.contains(named)), "{lines:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn reads_between_the_certain_and_the_possible_sum_are_valid() {
        assert_eq!(
            check_reads(&[(1, 0), (2, 2), (12, 2), (14, 5), (31, 9), (50, 9)]),
            Verdict::Valid
        );
        assert_eq!(check_reads(&[(12, 2), (32, 2), (50, 6)]), Verdict::Valid);
    }

    #[test]
    fn read_below_the_certain_sum_is_caught() {
        violated(&[(50, 5)], "at least 6 were added before client 1");
    }

    #[test]
    fn read_above_the_possible_sum_is_caught() {
        violated(&[(50, 10)], "at most 9 were added before the end of client 1");
        violated(&[(14, 6)], "at most 5 were added before the end of client 1");
    }

    #[test]
    fn decreasing_counter_is_caught() {
        violated(&[(14, 5), (22, 2)], "the counter decreased");
    }
}
