//! Checker of a set that only grows: no element is lost, duplicated or invented. An addition of
//! unknown outcome may be present or absent, but an element that one read returned is in all later
//! ones.

use std::collections::BTreeMap;

use crate::history::{Call, Nanos, Outcome, seconds};
use crate::verdict::Verdict;

/// Element of the set. No two additions of a history add the same one.
pub type Element = u64;

/// Checks all reads of the set. Undecided if no read began after the last addition.
pub fn check(additions: &[Call<Element, ()>], reads: &[Call<(), Vec<Element>>]) -> Verdict {
    let mut reads: Vec<_> = reads
        .iter()
        .filter_map(|read| match &read.outcome {
            Outcome::Ok(elements) => Some((read, elements)),
            Outcome::Failed | Outcome::Unknown => None,
        })
        .collect();
    reads.sort_by_key(|(read, _)| read.invoked);
    let last_answer = additions
        .iter()
        .map(|addition| addition.returned)
        .max()
        .unwrap_or(0);
    if !reads.iter().any(|(read, _)| read.invoked >= last_answer) {
        return Verdict::Undecided("no client read the set after the last addition".into());
    }
    let mut known: BTreeMap<Element, &Call<Element, ()>> = BTreeMap::new();
    let mut contradictions = Vec::new();
    for addition in additions {
        if let Some(other) = known.insert(addition.input, addition) {
            return Verdict::Undecided(format!("an element was added twice: {other}, and {addition}"));
        }
    }
    // Time from which each element must be present: the answer to its addition, or to the first
    // read that returned it.
    let mut due: BTreeMap<Element, (Nanos, String)> = BTreeMap::new();
    for (element, addition) in &known {
        if matches!(addition.outcome, Outcome::Ok(())) {
            due.insert(*element, (addition.returned, format!("added by {addition}")));
        }
    }
    for (read, elements) in &reads {
        let reader = format!("client {} at {}", read.client, seconds(read.invoked));
        let mut counts: BTreeMap<Element, usize> = BTreeMap::new();
        for element in *elements {
            *counts.entry(*element).or_default() += 1;
        }
        for (element, count) in &counts {
            if *count > 1 {
                contradictions.push(format!("{element} is present {count} times: read by {reader}"));
            }
            match known.get(element) {
                None => contradictions.push(format!("{element} was never added: read by {reader}")),
                Some(addition) if matches!(addition.outcome, Outcome::Failed) => {
                    contradictions.push(format!(
                        "{element} is present, read by {reader}, but its addition was rejected: {addition}"
                    ));
                }
                Some(addition) if addition.invoked > read.returned => {
                    contradictions.push(format!(
                        "{element} was read by {reader}, before it was added: {addition}"
                    ));
                }
                Some(_) => {}
            }
        }
        for (element, (since, why)) in &due {
            if *since < read.invoked && !counts.contains_key(element) {
                contradictions.push(format!("{element} is lost: {why}, but not read by {reader}"));
            }
        }
        for element in counts.into_keys() {
            let since = due
                .entry(element)
                .or_insert_with(|| (read.returned, format!("read by {reader}")));
            if read.returned < since.0 {
                *since = (read.returned, format!("read by {reader}"));
            }
        }
    }
    Verdict::of(contradictions)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(element: Element, invoked: Nanos, outcome: Outcome<()>) -> Call<Element, ()> {
        Call {
            client: element,
            invoked,
            returned: invoked + 5,
            input: element,
            outcome,
        }
    }

    fn read(invoked: Nanos, elements: &[Element]) -> Call<(), Vec<Element>> {
        Call {
            client: 99,
            invoked,
            returned: invoked + 5,
            input: (),
            outcome: Outcome::Ok(elements.to_vec()),
        }
    }

    fn additions() -> [Call<Element, ()>; 4] {
        [
            add(1, 0, Outcome::Ok(())),
            add(2, 10, Outcome::Unknown),
            add(3, 20, Outcome::Failed),
            add(4, 30, Outcome::Ok(())),
        ]
    }

    fn violated(reads: &[Call<(), Vec<Element>>], named: &str) {
        match check(&additions(), reads) {
            Verdict::Violated(lines) => assert!(lines.iter().any(|line| line.contains(named)), "{lines:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn element_of_unknown_addition_is_optional() {
        assert_eq!(
            check(&additions(), &[read(6, &[1]), read(50, &[1, 4])]),
            Verdict::Valid
        );
        assert_eq!(check(&additions(), &[read(50, &[1, 2, 4])]), Verdict::Valid);
        assert_eq!(
            check(&additions(), &[read(50, &[1, 4]), read(60, &[4, 2, 1])]),
            Verdict::Valid
        );
    }

    #[test]
    fn lost_element_is_caught() {
        violated(&[read(50, &[1])], "4 is lost: added by client 4");
        violated(&[read(6, &[]), read(50, &[1, 4])], "1 is lost");
    }

    #[test]
    fn disappearance_of_a_read_element_is_caught() {
        violated(
            &[read(50, &[1, 2, 4]), read(60, &[1, 4])],
            "2 is lost: read by client 99",
        );
    }

    #[test]
    fn duplicate_element_is_caught() {
        violated(&[read(50, &[1, 4, 4])], "4 is present 2 times");
    }

    #[test]
    fn element_that_was_not_added_is_caught() {
        violated(&[read(50, &[1, 4, 7])], "7 was never added");
        violated(
            &[read(50, &[1, 3, 4])],
            "3 is present, read by client 99 at 0.000000 s, but its addition was rejected",
        );
        violated(
            &[read(20, &[1, 4]), read(50, &[1, 4])],
            "4 was read by client 99 at 0.000000 s, before it was added",
        );
    }

    #[test]
    fn missing_final_read_is_undecided() {
        assert!(matches!(
            check(&additions(), &[read(6, &[1])]),
            Verdict::Undecided(_)
        ));
    }
}
