//! What each path took when its count was last accepted, and what a new count comes to beside it. Nothing here runs anything.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};

/// Beyond so many per cent more or less a count is another one. Compilers of one version and C libraries of several
/// differ by less; see docs/internals/testing.md for what was measured.
pub const TOLERANCE_PERCENT: u64 = 10;

/// Counts by the paths' names.
pub type Counts = BTreeMap<String, u64>;

/// The file of this architecture's counts.
pub fn file() -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("counts");
    directory.join(format!("{}.txt", std::env::consts::ARCH))
}

/// Reads a file of counts: a line for each path, its name, a tab and the instructions of one operation. Lines that begin
/// with `#` are for people.
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
        ensure!(count > 0, "line {number}: nothing takes no instructions");
        let twice = counts.insert(name.to_owned(), count);
        ensure!(twice.is_none(), "line {number}: {name} stands there twice");
    }
    Ok(counts)
}

/// The file's text, whose `head` is for people.
pub fn render(head: &str, counts: &[(&str, u64)]) -> String {
    let mut text: String = head.lines().map(|line| format!("# {line}\n")).collect();
    for (name, count) in counts {
        writeln!(text, "{name}\t{count}").expect("a text takes what is written");
    }
    text
}

/// What a count comes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Within the tolerance.
    Same,
    /// More than that.
    Slower,
    /// Less than that, which is to be noted.
    Faster,
    /// Nothing is noted of this path.
    New,
}

impl Verdict {
    /// Of a count beside what is noted.
    pub fn of(counted: u64, noted: Option<u64>) -> Self {
        let Some(noted) = noted else { return Self::New };
        // In whole numbers, so that a count at the border is the same on every machine.
        let (counted, noted) = (u128::from(counted) * 100, u128::from(noted));
        if counted > noted * u128::from(100 + TOLERANCE_PERCENT) {
            Self::Slower
        } else if counted < noted * u128::from(100 - TOLERANCE_PERCENT) {
            Self::Faster
        } else {
            Self::Same
        }
    }

    /// What is said about it.
    pub fn words(self) -> &'static str {
        match self {
            Self::Same => "",
            Self::Slower => "SLOWER",
            Self::Faster => "faster: note it",
            Self::New => "not noted yet",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let text = render("for people\nin two lines", &[("a path", 12), ("another", 3)]);
        assert_eq!(text, "# for people\n# in two lines\na path\t12\nanother\t3\n");
        let counts = parse(&text).unwrap();
        assert_eq!(
            counts,
            Counts::from([("a path".to_owned(), 12), ("another".to_owned(), 3)])
        );
    }

    #[test]
    fn what_cannot_be_read_is_told_with_its_line() {
        for (text, said) in [
            ("# fine\na path 12", "line 2: no tab between a name and a count"),
            ("a path\ttwelve", "line 1: \"twelve\" is not a count"),
            ("a path\t0", "line 1: nothing takes no instructions"),
            ("a path\t1\na path\t2", "line 2: a path stands there twice"),
        ] {
            assert_eq!(parse(text).unwrap_err().to_string(), said);
        }
    }

    #[test]
    fn a_tenth_is_the_same_and_more_is_not() {
        for (counted, noted, verdict) in [
            (1_100, Some(1_000), Verdict::Same),
            (1_101, Some(1_000), Verdict::Slower),
            (900, Some(1_000), Verdict::Same),
            (899, Some(1_000), Verdict::Faster),
            (1_150, Some(1_000), Verdict::Slower),
            (1, None, Verdict::New),
            (u64::MAX, Some(u64::MAX), Verdict::Same),
        ] {
            assert_eq!(Verdict::of(counted, noted), verdict, "{counted} beside {noted:?}");
        }
    }
}
