use super::*;
use crate::client_view;

const SECOND: Nanos = 1_000_000_000;

/// Evidence whose request was sent at this second and answered half a second later.
fn at(second: Nanos, fact: Fact) -> Evidence {
    Evidence {
        invoked: second * SECOND,
        returned: second * SECOND + SECOND / 2,
        fact,
    }
}

/// Renewal that promises ten seconds from its sending.
fn renewed(second: Nanos) -> Evidence {
    at(second, Fact::Promised((second + 10) * SECOND))
}

/// Contender by a lease of ten seconds that client 1 requested at this second.
fn contender(second: Nanos, evidence: Vec<Evidence>) -> Contender {
    Contender {
        lock: "orders".into(),
        holder: format!("n{second}"),
        client: 1,
        request: format!("r{second}"),
        requested: second * SECOND,
        answered: second * SECOND + SECOND / 2,
        ttl: Some(10 * SECOND),
        min_hold: 0,
        max_hold: None,
        evidence,
    }
}

fn verdict(contenders: &[Contender]) -> Verdict {
    let rules = Rules {
        grace: 5 * SECOND,
        disturbed: Vec::new(),
    };
    check(contenders, &rules)
}

fn violated(contenders: &[Contender], named: &str) {
    match verdict(contenders) {
        Verdict::Violated(lines) => assert!(lines.len() == 1 && lines[0].contains(named), "{lines:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn regular_lives_are_valid() {
    let released = vec![
        renewed(0),
        at(0, Fact::Granted(1)),
        renewed(5),
        at(7, Fact::Leaving),
        at(7, Fact::Left),
        at(8, Fact::Gone(Some(End::ByClient))),
    ];
    let expired = vec![
        renewed(1),
        at(3, Fact::Waiting),
        at(8, Fact::Granted(2)),
        at(15, Fact::Alive),
        at(18, Fact::Gone(Some(End::Expired))),
    ];
    let unanswered = vec![renewed(2), at(12, Fact::Attempted), at(20, Fact::Alive)];
    let contenders = [
        contender(0, released),
        contender(1, expired),
        contender(2, unanswered),
    ];
    assert_eq!(verdict(&contenders), Verdict::Valid);
    assert_eq!(client_view::check(&beliefs(&contenders)), Verdict::Valid);
}

#[test]
fn end_before_the_promised_time_is_caught() {
    let life = vec![renewed(0), renewed(5), at(14, Fact::Gone(None))];
    violated(
        &[contender(0, life)],
        "gone at 14.500000 s (Gone(None)), although it was promised to live until 15.000000 s",
    );
    let left = vec![renewed(0), at(3, Fact::Leaving), at(4, Fact::Gone(None))];
    assert_eq!(verdict(&[contender(0, left)]), Verdict::Valid);
}

#[test]
fn end_for_an_impossible_reason_is_caught() {
    let ends = |evidence: &[Evidence], end: End| {
        let mut evidence = evidence.to_vec();
        evidence.push(at(30, Fact::Gone(Some(end))));
        contender(0, evidence)
    };
    let silent = [renewed(0), at(1, Fact::Granted(1))];
    violated(&[ends(&silent, End::ByClient)], "its client did not leave");
    violated(&[ends(&silent, End::MaxHold)], "MaxHold");
    violated(&[ends(&silent, End::Other("broken".into()))], "broken");
    assert_eq!(verdict(&[ends(&silent, End::Expired)]), Verdict::Valid);
    let left = [renewed(0), renewed(25), at(26, Fact::Leaving)];
    violated(&[ends(&left, End::Expired)], "promised to live until 35.000000 s");
    assert_eq!(verdict(&[ends(&left, End::ByClient)]), Verdict::Valid);
}

#[test]
fn life_after_the_end_is_caught() {
    let life = vec![
        renewed(0),
        at(1, Fact::Leaving),
        at(1, Fact::Left),
        at(2, Fact::Alive),
    ];
    violated(
        &[contender(0, life)],
        "gone at 1.500000 s (Left), but at 2.000000 s there is Alive",
    );
    // The answer with the grant may come from a node that is behind.
    let old = vec![
        renewed(0),
        at(1, Fact::Leaving),
        at(1, Fact::Left),
        at(2, Fact::Granted(1)),
    ];
    assert_eq!(verdict(&[contender(0, old)]), Verdict::Valid);
}

#[test]
fn silent_contender_that_lives_too_long_is_caught() {
    let mut late = contender(0, vec![renewed(0), at(16, Fact::Alive)]);
    violated(std::slice::from_ref(&late), "should have ended by 15.500000 s");
    // The renewals of a session are not in the evidence.
    late.ttl = None;
    assert_eq!(verdict(&[late]), Verdict::Valid);
}

#[test]
fn maximum_time_ends_a_renewed_hold_and_not_earlier() {
    let hold = |last: Evidence| Contender {
        max_hold: Some(4 * SECOND),
        ..contender(0, vec![renewed(0), at(1, Fact::Granted(1)), renewed(6), last])
    };
    violated(
        &[hold(renewed(11))],
        "its hold of at most 4.000000 s began by 1.500000 s",
    );
    assert_eq!(verdict(&[hold(renewed(10))]), Verdict::Valid);
    assert_eq!(
        verdict(&[hold(at(7, Fact::Gone(Some(End::MaxHold))))]),
        Verdict::Valid
    );
    let early = Contender {
        max_hold: Some(4 * SECOND),
        ..contender(
            0,
            vec![renewed(0), at(1, Fact::Granted(1)), at(2, Fact::Gone(None))],
        )
    };
    violated(&[early], "promised to live until 4.000000 s");
}

#[test]
fn grant_within_the_minimum_time_of_a_hold_is_caught() {
    let first = contender(
        0,
        vec![
            renewed(0),
            at(0, Fact::Granted(1)),
            at(2, Fact::Leaving),
            at(2, Fact::Left),
        ],
    );
    // It waited while the first one held, so it was granted the lock after second 2.
    let second = Contender {
        min_hold: 4 * SECOND,
        ..contender(
            1,
            vec![
                renewed(1),
                at(3, Fact::Granted(2)),
                at(4, Fact::Leaving),
                at(4, Fact::Left),
            ],
        )
    };
    let third = |second| contender(2, vec![renewed(2), at(second, Fact::Granted(3))]);
    violated(
        &[third(5), second.clone(), first.clone()],
        "was granted the lock by 5.500000 s, although n1 of client 1, token 2, granted after 2.000000 s, closes it until 6.000000 s",
    );
    assert_eq!(verdict(&[third(6), second, first]), Verdict::Valid);
}

#[test]
fn overtaken_contender_is_caught() {
    let waits = |second| contender(0, vec![renewed(0), at(second, Fact::Waiting)]);
    let later = contender(1, vec![renewed(1), at(2, Fact::Granted(7))]);
    violated(
        &[waits(3), later.clone()],
        "n1 of client 1, token 7, requested at 1.000000 s, was granted the lock before n0 of client 1",
    );
    assert_eq!(verdict(&[waits(2), later.clone()]), Verdict::Valid);
    let by_token = contender(0, vec![renewed(0), at(5, Fact::Granted(8))]);
    violated(&[by_token, later], "was granted the lock before n0");
}

#[test]
fn second_grant_is_caught() {
    let twice = vec![renewed(0), at(1, Fact::Granted(1)), at(2, Fact::Granted(2))];
    violated(&[contender(0, twice)], "granted the lock again, with the token 2");
    let first = contender(0, vec![renewed(0), at(1, Fact::Granted(1)), at(2, Fact::Leaving)]);
    let mut same_token = contender(3, vec![renewed(3), at(4, Fact::Granted(1))]);
    violated(&[first.clone(), same_token.clone()], "with the token 1 of n0");
    same_token.evidence[1] = at(4, Fact::Granted(2));
    assert_eq!(verdict(&[first.clone(), same_token.clone()]), Verdict::Valid);
    same_token.request.clone_from(&first.request);
    violated(
        &[first, same_token],
        "request r0 has two contenders: n0 of client 1",
    );
}

#[test]
fn belief_ends_with_the_promise_the_maximum_time_or_the_release() {
    let mut life = contender(0, vec![renewed(0), at(1, Fact::Granted(1)), renewed(5)]);
    let belief = |life: &Contender| beliefs(std::slice::from_ref(life)).remove(0);
    assert_eq!(
        (belief(&life).granted, belief(&life).deadline),
        (3 * SECOND / 2, 15 * SECOND)
    );
    life.max_hold = Some(4 * SECOND);
    assert_eq!(belief(&life).deadline, 4 * SECOND);
    life.evidence.push(at(3, Fact::Leaving));
    assert_eq!(belief(&life).released, Some(3 * SECOND));
}
