//! Valid and invalid histories of registers, and random ones of a correct register, with and
//! without one wrong answer.

use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::testing::Chooser;

const NEW: Register = Register { value: 0, version: 0 };

fn call(
    client: u64,
    invoked: u64,
    returned: u64,
    input: Input,
    outcome: Outcome<Output>,
) -> (&'static str, Call<Input, Output>) {
    let call = Call {
        client,
        invoked,
        returned,
        input,
        outcome,
    };
    ("r", call)
}

fn read(client: u64, invoked: u64, value: u64, version: u64) -> (&'static str, Call<Input, Output>) {
    call(
        client,
        invoked,
        invoked + 5,
        Input::Read,
        Outcome::Ok(Output::Is { value, version }),
    )
}

fn write(client: u64, invoked: u64, value: u64, version: u64) -> (&'static str, Call<Input, Output>) {
    call(
        client,
        invoked,
        invoked + 5,
        Input::Write(value),
        Outcome::Ok(Output::Written { version }),
    )
}

fn cas(
    client: u64,
    invoked: u64,
    expected: u64,
    value: u64,
    output: Output,
) -> (&'static str, Call<Input, Output>) {
    call(
        client,
        invoked,
        invoked + 5,
        Input::Cas { expected, value },
        Outcome::Ok(output),
    )
}

fn violated(calls: &[(&'static str, Call<Input, Output>)], named: &str) {
    match check(&NEW, calls) {
        Verdict::Violated(lines) => assert!(lines.iter().any(|line| line.contains(named)), "{lines:?}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sequential_reads_writes_and_conflicts_are_valid() {
    let history = [
        read(1, 0, 0, 0),
        write(1, 10, 7, 1),
        cas(2, 20, 1, 8, Output::Written { version: 2 }),
        cas(3, 30, 1, 9, Output::Refused),
        read(1, 40, 8, 2),
    ];
    assert_eq!(check(&NEW, &history), Verdict::Valid);
}

#[test]
fn stale_read_is_caught() {
    violated(
        &[write(1, 0, 7, 1), write(1, 10, 8, 2), read(2, 20, 7, 1)],
        "Read -> Is { value: 7, version: 1 }",
    );
}

#[test]
fn repeated_version_is_caught() {
    violated(&[write(1, 0, 7, 1), write(2, 10, 8, 1)], "Write(8)");
}

#[test]
fn skipped_version_is_caught() {
    violated(&[write(1, 0, 7, 1), write(2, 10, 8, 3)], "Write(8)");
}

#[test]
fn cas_against_the_wrong_version_is_caught() {
    violated(
        &[
            write(1, 0, 7, 1),
            cas(2, 10, 0, 8, Output::Written { version: 2 }),
        ],
        "Cas",
    );
}

#[test]
fn rejection_without_cause_is_caught() {
    violated(&[write(1, 0, 7, 1), cas(2, 10, 1, 8, Output::Refused)], "Refused");
}

#[test]
fn lost_write_is_caught() {
    violated(
        &[write(1, 0, 7, 1), read(2, 10, 0, 0)],
        "Is { value: 0, version: 0 }",
    );
}

#[test]
fn many_unknown_writes_are_checked_quickly() {
    // Two hundred of the four hundred writes took effect. No reader can distinguish the subsets of
    // two hundred, and there are far too many to try.
    let mut history: Vec<_> = (0..400)
        .map(|n| call(100 + n, n, n, Input::Write(1000 + n), Outcome::Unknown))
        .collect();
    history.push(write(1, 500, 7, 201));
    history.push(read(1, 510, 7, 201));
    assert_eq!(check(&NEW, &history), Verdict::Valid);
    history.push(read(1, 520, 7, 200));
    assert!(matches!(check(&NEW, &history), Verdict::Violated(_)));
}

/// Returns a random history of `clients` that call a correct register, drawn from `seed`. One call
/// in thirty has an unknown outcome.
fn random_history(seed: u64, clients: u64, calls: usize) -> Vec<(&'static str, Call<Input, Output>)> {
    let mut chooser = Chooser::new(seed);
    let mut register = NEW;
    // Time at which each client is free again, and its current id.
    let mut free: Vec<(u64, u64)> = (0..clients).map(|client| (0, client)).collect();
    let mut history: Vec<(u64, &'static str, Call<Input, Output>)> = Vec::new();
    let mut now = 0;
    for value in 1..=calls as u64 {
        // The call takes effect at `now`; its request and its answer lie around it.
        now += 1 + chooser.below(10);
        let slot = chooser.below(clients) as usize;
        let (free_at, client) = free[slot];
        let invoked = now - chooser.below(100).min(now.saturating_sub(free_at + 1));
        let now_or_later = now.max(invoked);
        let input = match chooser.below(3) {
            0 => Input::Read,
            1 => Input::Write(value),
            _ => Input::Cas {
                expected: register.version - chooser.below(2).min(register.version),
                value,
            },
        };
        let unknown = chooser.below(30) == 0;
        let happens = !unknown || chooser.below(2) == 0;
        let answer = answer(&register, &input);
        if happens {
            register = register
                .step(&register, &input, None)
                .expect("a step without an answer is always possible");
        }
        let returned = now_or_later + chooser.below(100);
        now = now_or_later;
        let outcome = if unknown {
            Outcome::Unknown
        } else {
            Outcome::Ok(answer)
        };
        free[slot] = (returned, if unknown { client + clients } else { client });
        history.push((
            invoked,
            "r",
            Call {
                client,
                invoked,
                returned,
                input,
                outcome,
            },
        ));
    }
    history.into_iter().map(|(_, key, call)| (key, call)).collect()
}

fn answer(register: &Register, input: &Input) -> Output {
    match input {
        Input::Read => Output::Is {
            value: register.value,
            version: register.version,
        },
        Input::Cas { expected, .. } if *expected != register.version => Output::Refused,
        _ => Output::Written {
            version: register.version + 1,
        },
    }
}

#[test]
fn three_hundred_calls_of_twenty_clients_are_checked_quickly() {
    for seed in 0..20 {
        let history = random_history(seed, 20, 300);
        let begun = Instant::now();
        assert_eq!(check(&NEW, &history), Verdict::Valid, "seed {seed}");
        let took = begun.elapsed();
        // The bound is generous: this build is not optimized, and the machine may be busy.
        assert!(took.as_secs() < 5, "seed {seed} took {took:?}");
    }
}

proptest! {
    #[test]
    fn history_of_a_correct_register_is_valid(seed: u64) {
        prop_assert_eq!(check(&NEW, &random_history(seed, 8, 80)), Verdict::Valid);
    }
}

#[test]
fn single_wrong_answer_is_caught() {
    let mut caught = 0;
    for seed in 0..100 {
        let mut history = random_history(seed, 8, 80);
        let mut chooser = Chooser::new(seed);
        let at = 20 + chooser.below(60) as usize;
        let wrong = match &mut history[at].1.outcome {
            Outcome::Ok(Output::Is { version, .. } | Output::Written { version }) => {
                *version = version.saturating_sub(3);
                true
            }
            Outcome::Ok(output @ Output::Refused) => {
                *output = Output::Written { version: 1 };
                true
            }
            Outcome::Failed | Outcome::Unknown => false,
        };
        match check(&NEW, &history) {
            Verdict::Violated(_) => caught += 1,
            Verdict::Valid => assert!(!wrong || at < 40, "seed {seed}: {}", history[at].1),
            Verdict::Undecided(why) => panic!("seed {seed}: {why}"),
        }
    }
    assert!(caught > 80, "of 100 wrong histories {caught} were caught");
}
