//! Bars sorted into rows, and reduced to the visible: with thousands of calls a second, bars are closer
//! together than pixels. A contradiction or an unknown outcome is never merged with anything else.

use std::collections::BTreeMap;

use super::figure::Scale;
use super::text::shortened;
use crate::workloads::{Span, Tone};

/// Distance below which bars of one tone are merged.
const MERGE_DISTANCE: f64 = 1.0;

/// Minimum width of a bar.
const MIN_WIDTH: f64 = 0.8;

/// Minimum width of a bar with a tooltip.
const MIN_TITLED_WIDTH: f64 = 6.0;

/// Maximum of tooltips in a cell: a browser has to open a page of two hundred cells.
const TITLES: usize = 250;

/// Maximum of tooltips in a failed cell, which a reader will examine.
const TITLES_THOROUGH: usize = 4000;

/// Maximum length of a tooltip, in characters.
const TITLE_CHARS: usize = 300;

/// Maximum of rows; more would be unreadable.
const MAX_ROWS: usize = 64;

/// Row of the figure.
#[derive(Default)]
pub struct Row {
    /// Name of the row.
    pub name: String,
    /// Bars without a tooltip, by their tone.
    pub plain: Vec<(Tone, Vec<(f64, f64)>)>,
    /// Bars with a tooltip.
    pub titled: Vec<Bar>,
}

/// Bar with a tooltip.
pub struct Bar {
    /// Left end.
    pub from: f64,
    /// Right end.
    pub to: f64,
    /// Colour.
    pub tone: Tone,
    /// Text of the tooltip.
    pub title: String,
}

/// Returns all rows by name, and the number of bars that were merged with others.
pub fn of(timeline: &[Span], scale: Scale, thorough: bool) -> (Vec<Row>, usize) {
    let mut by_row: BTreeMap<Name<'_>, Vec<&Span>> = BTreeMap::new();
    for span in timeline {
        by_row.entry(Name::of(&span.row)).or_default().push(span);
    }
    let titles = if thorough { TITLES_THOROUGH } else { TITLES };
    let mut titles_each = titles / by_row.len().clamp(1, MAX_ROWS);
    titles_each = titles_each.max(1);
    let mut merged = 0;
    let rows = by_row.into_iter().take(MAX_ROWS).map(|(name, spans)| {
        let (row, together) = row(name.0, spans, scale, titles_each);
        merged += together;
        row
    });
    let rows = rows.collect();
    (rows, merged)
}

fn row(name: &str, mut spans: Vec<&Span>, scale: Scale, titles: usize) -> (Row, usize) {
    spans.sort_by_key(|span| span.begin);
    let (mut titled, mut rest): (Vec<&Span>, Vec<&Span>) =
        spans.into_iter().partition(|span| has_title(span, scale));
    // Contradictions get tooltips first, then the longest bars.
    titled.sort_by_key(|span| {
        (
            !is_violation(span),
            std::cmp::Reverse(span.end.saturating_sub(span.begin)),
        )
    });
    rest.extend(titled.drain(titles.min(titled.len())..));
    rest.sort_by_key(|span| span.begin);
    titled.sort_by_key(|span| (is_violation(span), span.begin));
    let count = rest.len();
    let plain = merge_bars(&rest, scale);
    let drawn: usize = plain.iter().map(|(_, bars)| bars.len()).sum();
    let row = Row {
        name: name.to_owned(),
        plain,
        titled: titled.into_iter().map(|span| bar(span, scale)).collect(),
    };
    (row, count - drawn)
}

fn is_violation(span: &Span) -> bool {
    matches!(span.tone, Tone::Violation)
}

fn has_title(span: &Span, scale: Scale) -> bool {
    is_violation(span) || scale.x(span.end) - scale.x(span.begin) >= MIN_TITLED_WIDTH
}

fn bar(span: &Span, scale: Scale) -> Bar {
    let (from, to) = ends(span, scale);
    let times = format!(
        "{:.4} s to {:.4} s",
        span.begin as f64 / 1e9,
        span.end as f64 / 1e9
    );
    Bar {
        from,
        to,
        tone: span.tone,
        title: format!("{} ({times})", shortened(&span.label, TITLE_CHARS)),
    }
}

fn ends(span: &Span, scale: Scale) -> (f64, f64) {
    let from = scale.x(span.begin);
    (from, scale.x(span.end).max(from + MIN_WIDTH))
}

/// Groups bars by tone in order of time, and merges those that nearly touch. Later tones are drawn above
/// earlier ones.
fn merge_bars(spans: &[&Span], scale: Scale) -> Vec<(Tone, Vec<(f64, f64)>)> {
    let mut by_tone = [Tone::Ok, Tone::Failed, Tone::Unknown, Tone::Violation].map(|tone| (tone, Vec::new()));
    for span in spans {
        let (from, to) = ends(span, scale);
        let (_, bars): &mut (Tone, Vec<(f64, f64)>) = &mut by_tone[span.tone as usize];
        match bars.last_mut() {
            Some((_, end)) if from - *end < MERGE_DISTANCE => *end = end.max(to),
            _ => bars.push((from, to)),
        }
    }
    by_tone.into_iter().filter(|(_, bars)| !bars.is_empty()).collect()
}

/// Row name that orders `client 2` before `client 10`.
#[derive(PartialEq, Eq)]
struct Name<'a>(&'a str);

impl<'a> Name<'a> {
    fn of(name: &'a str) -> Self {
        Self(name)
    }

    fn parts(&self) -> (&str, u64, &str) {
        let text = self.0.trim_end_matches(|letter: char| letter.is_ascii_digit());
        (text, self.0[text.len()..].parse().unwrap_or(0), self.0)
    }
}

impl Ord for Name<'_> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.parts().cmp(&other.parts())
    }
}

impl PartialOrd for Name<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(row: &str, begin: u64, end: u64, tone: Tone) -> Span {
        Span {
            row: row.to_owned(),
            label: "a".to_owned(),
            begin,
            end,
            tone,
        }
    }

    #[test]
    fn rows_are_ordered_numerically() {
        let spans = [
            span("client 10", 0, 1, Tone::Ok),
            span("client 2", 0, 1, Tone::Ok),
        ];
        let (rows, _) = of(&spans, Scale::new(0, 10), false);
        let names: Vec<_> = rows.iter().map(|row| row.name.as_str()).collect();
        assert_eq!(names, ["client 2", "client 10"]);
    }

    #[test]
    fn indistinguishable_bars_are_merged_and_counted() {
        let scale = Scale::new(0, 1_000_000_000);
        let spans: Vec<_> = (0..1000).map(|at| span("a", at, at + 1, Tone::Ok)).collect();
        let (rows, merged) = of(&spans, scale, true);
        assert_eq!(rows[0].plain.len(), 1);
        assert_eq!(rows[0].plain[0].1.len() + merged, 1000);
        assert_eq!(rows[0].plain[0].1.len(), 1);
    }

    #[test]
    fn contradiction_is_never_merged() {
        let scale = Scale::new(0, 1_000_000_000);
        let mut spans: Vec<_> = (0..1000).map(|at| span("a", at, at + 1, Tone::Ok)).collect();
        spans.push(span("a", 500, 501, Tone::Violation));
        let (rows, _) = of(&spans, scale, false);
        assert!(matches!(rows[0].titled[0].tone, Tone::Violation));
    }
}
