//! The accepted count of each path, and the verdict on a new count beside it. This module runs nothing.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};

/// Difference in per cent up to which a count is unchanged. Compilers of one version with several C libraries
/// differ by less; docs/internals/testing.md has the measurements.
pub const TOLERANCE_PERCENT: u64 = 10;

/// Counts by name of the path.
pub type Counts = BTreeMap<String, u64>;

/// Returns the file with the counts of this architecture.
pub fn file() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("counts");
    directory.join(format!("{}.txt", std::env::consts::ARCH))
}

/// Parses a file of counts. Each line has the name of a path, a tab, and the instructions of one operation.
/// Lines that begin with `#` are comments.
pub fn parse(text: &str) -> anyhow::Result<Counts> {
    let mut counts = Counts::new();
    let lines = text.lines().enumerate();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let number = at + 1;
        let (name, count) = line
            .split_once('\t')
            .with_context(|| format!("line {number}: no tab between a name and a count"))?;
        let count: u64 = count
            .trim()
            .parse()
            .with_context(|| format!("line {number}: {count:?} is not a count"))?;
        ensure!(count > 0, "line {number}: a count must not be zero");
        let duplicate = counts.insert(name.to_owned(), count);
        ensure!(duplicate.is_none(), "line {number}: {name} is a duplicate");
    }
    Ok(counts)
}

/// Returns the text of the file, with `head` as a comment.
pub fn render(head: &str, counts: &[(&str, u64)]) -> String {
    let mut text: String = head.lines().map(|line| format!("# {line}\n")).collect();
    for (name, count) in counts {
        writeln!(text, "{name}\t{count}").expect("writing to a string succeeds");
    }
    text
}

/// Result of comparing a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Same,
    /// Above the tolerance.
    Slower,
    /// Below the tolerance; the new count must be recorded.
    Faster,
    /// The file has no count of this path.
    New,
}

impl Verdict {
    /// Compares a count with the recorded one.
    pub fn of(counted: u64, recorded: Option<u64>) -> Self {
        let Some(recorded) = recorded else {
            return Self::New;
        };
        // In integers, so that a count at the border has the same verdict on every machine.
        let (counted, recorded) = (u128::from(counted) * 100, u128::from(recorded));
        if counted > recorded * u128::from(100 + TOLERANCE_PERCENT) {
            Self::Slower
        } else if counted < recorded * u128::from(100 - TOLERANCE_PERCENT) {
            Self::Faster
        } else {
            Self::Same
        }
    }

    /// Returns the words for the table.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Slower => "SLOWER",
            Self::Faster => "faster: record it",
            Self::New => "not recorded yet",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_inverts_render() {
        let text = render("for people\nin two lines", &[("a path", 12), ("another", 3)]);
        assert_eq!(text, "# for people\n# in two lines\na path\t12\nanother\t3\n");
        let counts = parse(&text).unwrap();
        assert_eq!(
            counts,
            Counts::from([("a path".to_owned(), 12), ("another".to_owned(), 3)])
        );
    }

    #[test]
    fn parse_reports_the_line_of_an_error() {
        for (text, message) in [
            ("# fine\na path 12", "line 2: no tab between a name and a count"),
            ("a path\ttwelve", "line 1: \"twelve\" is not a count"),
            ("a path\t0", "line 1: a count must not be zero"),
            ("a path\t1\na path\t2", "line 2: a path is a duplicate"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), message);
        }
    }

    #[test]
    fn verdict_tolerates_a_tenth() {
        for (counted, recorded, verdict) in [
            (1_100, Some(1_000), Verdict::Same),
            (1_101, Some(1_000), Verdict::Slower),
            (900, Some(1_000), Verdict::Same),
            (899, Some(1_000), Verdict::Faster),
            (1_150, Some(1_000), Verdict::Slower),
            (1, None, Verdict::New),
            (u64::MAX, Some(u64::MAX), Verdict::Same),
        ] {
            assert_eq!(
                Verdict::of(counted, recorded),
                verdict,
                "{counted} beside {recorded:?}"
            );
        }
    }
}
