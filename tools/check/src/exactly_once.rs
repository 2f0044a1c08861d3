//! Checker of idempotent retries: a client sends a request again under its id until it gets an
//! answer. The request takes effect once, and all answers to it are equal byte for byte.

use std::collections::BTreeMap;

use crate::history::{Call, Outcome};
use crate::verdict::Verdict;

/// Final effects of the requests, as the state of the cluster shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Number of times that each id took effect; ids without an effect are absent.
    pub times: BTreeMap<String, u64>,
    /// Value of the counter that each request increments; `None` if the run has no such counter.
    pub counter: Option<u64>,
}

/// Checks all attempts. The input of each is the id of its request, the output the text of the
/// answer.
pub fn check(attempts: &[Call<String, String>], applied: &Applied) -> Verdict {
    let mut requests: BTreeMap<&str, Vec<&Call<String, String>>> = BTreeMap::new();
    for attempt in attempts {
        requests.entry(&attempt.input).or_default().push(attempt);
    }
    let mut contradictions = Vec::new();
    for (id, attempts) in &requests {
        contradictions.extend(differing_answers(attempts));
        let times = applied.times.get(*id).copied().unwrap_or(0);
        let answered = attempts
            .iter()
            .find(|attempt| matches!(attempt.outcome, Outcome::Ok(_)));
        let possible = attempts
            .iter()
            .any(|attempt| !matches!(attempt.outcome, Outcome::Failed));
        match (times, answered) {
            (0, Some(answered)) => {
                contradictions.push(format!("request {id} was answered and has no effect: {answered}"))
            }
            (1.., None) if !possible => {
                contradictions.push(format!(
                    "request {id} was rejected and took effect {times} times: {}",
                    attempts[0]
                ));
            }
            (2.., _) => contradictions.push(format!(
                "request {id} took effect {times} times after {} attempts, the first of which is {}",
                attempts.len(),
                attempts[0]
            )),
            _ => {}
        }
    }
    for (id, times) in &applied.times {
        if !requests.contains_key(id.as_str()) {
            contradictions.push(format!(
                "request {id} took effect {times} times, but no client sent it"
            ));
        }
    }
    let distinct = applied.times.values().filter(|times| **times > 0).count() as u64;
    if let Some(counter) = applied.counter.filter(|counter| *counter != distinct) {
        contradictions.push(format!(
            "{distinct} requests took effect, but the counter is {counter}"
        ));
    }
    Verdict::of(contradictions)
}

fn differing_answers(attempts: &[&Call<String, String>]) -> Option<String> {
    let mut answered = attempts.iter().filter_map(|attempt| match &attempt.outcome {
        Outcome::Ok(answer) => Some((attempt, answer)),
        Outcome::Failed | Outcome::Unknown => None,
    });
    let (first, answer) = answered.next()?;
    let (other, _) = answered.find(|(_, other)| *other != answer)?;
    Some(format!(
        "one request got two different answers: {first}, and {other}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(invoked: u64, id: &str, outcome: Outcome<&str>) -> Call<String, String> {
        Call {
            client: 1,
            invoked,
            returned: invoked + 5,
            input: id.into(),
            outcome: match outcome {
                Outcome::Ok(answer) => Outcome::Ok(answer.into()),
                Outcome::Failed => Outcome::Failed,
                Outcome::Unknown => Outcome::Unknown,
            },
        }
    }

    fn applied(times: &[(&str, u64)], counter: u64) -> Applied {
        Applied {
            times: times.iter().map(|(id, times)| ((*id).into(), *times)).collect(),
            counter: Some(counter),
        }
    }

    fn attempts() -> [Call<String, String>; 5] {
        [
            attempt(0, "a", Outcome::Unknown),
            attempt(10, "a", Outcome::Ok("1")),
            attempt(20, "a", Outcome::Ok("1")),
            attempt(30, "b", Outcome::Unknown),
            attempt(40, "c", Outcome::Failed),
        ]
    }

    fn violated(verdict: Verdict, named: &str) {
        match verdict {
            Verdict::Violated(lines) => assert!(lines.iter().any(|line| line.contains(named)), "{lines:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn request_applied_at_most_once_is_valid() {
        assert_eq!(check(&attempts(), &applied(&[("a", 1)], 1)), Verdict::Valid);
        assert_eq!(
            check(&attempts(), &applied(&[("a", 1), ("b", 1)], 2)),
            Verdict::Valid
        );
    }

    #[test]
    fn request_applied_twice_is_caught() {
        violated(
            check(&attempts(), &applied(&[("a", 2)], 1)),
            "request a took effect 2 times after 3 attempts",
        );
    }

    #[test]
    fn answer_without_effect_is_caught() {
        violated(
            check(&attempts(), &applied(&[], 0)),
            "request a was answered and has no effect",
        );
    }

    #[test]
    fn effect_of_a_rejected_or_unsent_request_is_caught() {
        violated(
            check(&attempts(), &applied(&[("a", 1), ("c", 1)], 2)),
            "request c was rejected and took effect",
        );
        violated(
            check(&attempts(), &applied(&[("a", 1), ("d", 1)], 2)),
            "request d took effect 1 times, but no client",
        );
    }

    #[test]
    fn different_answers_to_one_request_are_caught() {
        let mut attempts = attempts();
        attempts[2] = attempt(20, "a", Outcome::Ok("2"));
        violated(
            check(&attempts, &applied(&[("a", 1)], 1)),
            "one request got two different answers",
        );
    }

    #[test]
    fn counter_that_differs_from_applied_requests_is_caught() {
        violated(
            check(&attempts(), &applied(&[("a", 1)], 2)),
            "1 requests took effect, but the counter is 2",
        );
    }
}
