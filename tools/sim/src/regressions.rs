//! Seeds that once found a violation, to be run again: one a line in `regressions.txt`, with the number of
//! steps and a description.

use anyhow::Context;

const FILE: &str = include_str!("../regressions.txt");

/// Returns the seeds with their numbers of steps.
pub fn all() -> anyhow::Result<Vec<(u64, u64)>> {
    let lines = FILE
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim());
    lines.filter(|line| !line.is_empty()).map(parse).collect()
}

fn parse(line: &str) -> anyhow::Result<(u64, u64)> {
    let (seed, steps) = line
        .split_once(' ')
        .with_context(|| format!("no seed and steps: {line:?}"))?;
    Ok((seed.trim().parse()?, steps.trim().parse()?))
}

#[cfg(test)]
mod tests {
    #[test]
    fn regression_file_is_valid() {
        assert!(super::all().is_ok());
        assert!(super::parse("1").is_err());
    }
}
