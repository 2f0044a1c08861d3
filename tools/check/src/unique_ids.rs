//! Checker of ids that a parent assigns, such as the numbers of sequential znodes. No id repeats,
//! and a request sent after an answer gets a greater id, also across deletions, snapshots and
//! restarts.

use std::collections::BTreeMap;

use crate::history::{Call, Outcome};
use crate::verdict::Verdict;

/// Call and the id that it got.
type Assignment<'a> = (&'a Call<String, u64>, u64);

/// Checks calls. The input of each is the parent, the output the id that it assigned.
pub fn check(calls: &[Call<String, u64>]) -> Verdict {
    let mut parents: BTreeMap<&str, Vec<Assignment<'_>>> = BTreeMap::new();
    for call in calls {
        if let Outcome::Ok(id) = call.outcome {
            parents.entry(&call.input).or_default().push((call, id));
        }
    }
    Verdict::of(parents.into_values().flat_map(check_parent).collect())
}

fn check_parent(mut assigned: Vec<Assignment<'_>>) -> Vec<String> {
    let mut contradictions = Vec::new();
    let mut by_id: BTreeMap<u64, &Call<String, u64>> = BTreeMap::new();
    for (call, id) in &assigned {
        if let Some(other) = by_id.insert(*id, call) {
            contradictions.push(format!("an id was assigned twice: {other}, and {call}"));
        }
    }
    assigned.sort_by_key(|(call, _)| call.returned);
    let mut by_request = assigned.clone();
    by_request.sort_by_key(|(call, _)| call.invoked);
    let mut by_answer = assigned.into_iter().peekable();
    // Greatest id whose answer arrived before this call was sent.
    let mut greatest: Option<Assignment<'_>> = None;
    for (call, id) in by_request {
        while let Some(earlier) = by_answer.next_if(|(earlier, _)| earlier.returned < call.invoked) {
            if greatest.is_none_or(|(_, id)| id < earlier.1) {
                greatest = Some(earlier);
            }
        }
        // Equal ids are reported above.
        if let Some((earlier, before)) = greatest
            && id < before
        {
            contradictions.push(format!("an id decreased: {earlier}, then {call}"));
        }
    }
    contradictions
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(client: u64, invoked: u64, parent: &str, outcome: Outcome<u64>) -> Call<String, u64> {
        Call {
            client,
            invoked,
            returned: invoked + 5,
            input: parent.into(),
            outcome,
        }
    }

    fn violated(calls: &[Call<String, u64>], named: &str) {
        match check(calls) {
            Verdict::Violated(lines) => assert!(lines.len() == 1 && lines[0].contains(named), "{lines:?}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn concurrent_ids_may_come_in_any_order() {
        let calls = [
            call(1, 0, "/a", Outcome::Ok(0)),
            call(1, 10, "/a", Outcome::Ok(3)),
            call(2, 12, "/a", Outcome::Ok(2)),
            call(3, 20, "/a", Outcome::Unknown),
            call(1, 30, "/a", Outcome::Ok(5)),
            call(4, 40, "/b", Outcome::Ok(0)),
        ];
        assert_eq!(check(&calls), Verdict::Valid);
    }

    #[test]
    fn repeated_id_is_caught() {
        let calls = [
            call(1, 0, "/a", Outcome::Ok(4)),
            call(2, 10, "/a", Outcome::Ok(4)),
        ];
        violated(&calls, "assigned twice: client 1");
    }

    #[test]
    fn decreasing_id_is_caught() {
        let calls = [
            call(1, 0, "/a", Outcome::Ok(4)),
            call(3, 1, "/a", Outcome::Ok(7)),
            call(2, 10, "/a", Outcome::Ok(5)),
        ];
        violated(&calls, "an id decreased: client 3");
    }
}
