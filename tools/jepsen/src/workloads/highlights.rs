//! Highlighting of the bars of a timeline that a contradiction names in its text.

use std::fmt::Debug;

use lockgate_check::history::seconds;
use lockgate_check::{Call, Verdict};
use parking_lot::Mutex;

use super::{Span, Tone};

/// Limit of contradictions that are searched; a reader does not need more.
const MAX_LINES: usize = 200;

/// Contradictions of a run.
#[derive(Default)]
pub struct Highlights(Mutex<Vec<String>>);

impl Highlights {
    /// Records the contradictions that the checkers have found.
    pub fn record(&self, verdicts: &[(String, Verdict)]) {
        let lines = verdicts.iter().flat_map(|(_, verdict)| match verdict {
            Verdict::Violated(lines) => lines.as_slice(),
            Verdict::Valid | Verdict::Undecided(_) => &[],
        });
        *self.0.lock() = lines.take(MAX_LINES).cloned().collect();
    }

    /// Returns whether a contradiction contains all of these words, none of which continues with another
    /// digit.
    pub fn mentions(&self, words: &[&str]) -> bool {
        let lines = self.0.lock();
        lines.iter().any(|line| words.iter().all(|word| has(line, word)))
    }

    /// Colours a bar as a contradiction if one contains these words.
    pub fn bar(&self, mut span: Span, words: &[&str]) -> Span {
        if self.mentions(words) {
            span.tone = Tone::Violation;
        }
        span
    }

    /// Colours the bar of a call, which contradictions identify by its client and its beginning.
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
    fn number_does_not_match_the_prefix_of_a_longer_one() {
        let highlights = Highlights::default();
        let lines = vec!["lock a: client 1 with token 4575 wrote".to_owned()];
        highlights.record(&[("x".to_owned(), Verdict::Violated(lines))]);
        assert!(highlights.mentions(&["token 4575", "lock a"]));
        assert!(!highlights.mentions(&["token 457"]));
        assert!(!highlights.mentions(&["token 4575", "lock b"]));
    }
}
