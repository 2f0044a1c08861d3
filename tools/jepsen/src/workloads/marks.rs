//! Which bars of a timeline a contradiction is about: those that its text names.

use std::fmt::Debug;

use lockgate_check::history::seconds;
use lockgate_check::{Call, Verdict};
use parking_lot::Mutex;

use super::{Span, Tone};

/// So many contradictions are looked through: who has more has seen enough.
const MAX_LINES: usize = 200;

/// The contradictions of a run.
#[derive(Default)]
pub struct Marks(Mutex<Vec<String>>);

impl Marks {
    /// Takes down what checkers have said.
    pub fn note(&self, verdicts: &[(String, Verdict)]) {
        let lines = verdicts.iter().flat_map(|(_, verdict)| match verdict {
            Verdict::Violated(lines) => lines.as_slice(),
            Verdict::Valid | Verdict::Undecided(_) => &[],
        });
        *self.0.lock() = lines.take(MAX_LINES).cloned().collect();
    }

    /// Whether a contradiction has all of these words, none of which goes on with another digit.
    pub fn name(&self, words: &[&str]) -> bool {
        let lines = self.0.lock();
        lines.iter().any(|line| words.iter().all(|word| has(line, word)))
    }

    /// A bar with its colour: that of a contradiction if one has these words.
    pub fn bar(&self, mut span: Span, words: &[&str]) -> Span {
        if self.name(words) {
            span.tone = Tone::Violation;
        }
        span
    }

    /// The bar of a call, which is named by its client and its beginning.
    pub fn call<I: Debug, O>(&self, span: Span, call: &Call<I, O>) -> Span {
        if self.0.lock().is_empty() {
            return span;
        }
        let words = format!("client {}, {}", call.client, seconds(call.invoked));
        self.bar(span, &[&words])
    }
}

fn has(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let next = line[at + word.len()..].chars().next();
        !next.is_some_and(|next| next.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_not_the_beginning_of_another() {
        let marks = Marks::default();
        let lines = vec!["lock a: client 1 with token 4575 wrote".to_owned()];
        marks.note(&[("x".to_owned(), Verdict::Violated(lines))]);
        assert!(marks.name(&["token 4575", "lock a"]));
        assert!(!marks.name(&["token 457"]));
        assert!(!marks.name(&["token 4575", "lock b"]));
    }
}
