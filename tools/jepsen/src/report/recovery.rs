//! Recovery times: the time until calls succeed again, over all faults of one kind.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::CellReport;

/// Recoveries from one kind of fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recovery {
    /// Nemesis.
    pub nemesis: String,
    /// Number of faults that had an effect.
    pub faults: usize,
    /// Time from the fault's beginning to the end of the longest silence that followed, before the fault was
    /// healed.
    pub from_fault: Option<Times>,
    /// The same time from the start of the healing.
    pub from_heal: Option<Times>,
    /// Number of faults during which no call succeeded.
    pub dark: usize,
}

/// Distribution of times, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Median.
    pub p50_ms: f64,
    /// 99th percentile; of fewer than a hundred times the maximum.
    pub p99_ms: f64,
    /// Maximum.
    pub max_ms: f64,
}

impl Times {
    /// Computes the distribution of times in any order; `None` for no times.
    fn of(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let rank = |share: f64| {
            let rank = (share * times.len() as f64).ceil() as usize;
            times.get(rank.max(1) - 1).copied()
        };
        Some(Self {
            p50_ms: rank(0.5)?,
            p99_ms: rank(0.99)?,
            max_ms: *times.last()?,
        })
    }
}

/// Returns the recoveries from all faults of these cells that had an effect, by nemesis.
pub fn of(cells: &[CellReport]) -> Vec<Recovery> {
    let mut by_nemesis: BTreeMap<&str, Vec<_>> = BTreeMap::new();
    for fault in cells.iter().flat_map(|cell| &cell.faults) {
        if fault.evidence.is_some() {
            by_nemesis.entry(&fault.nemesis).or_default().push(fault);
        }
    }
    let recoveries = by_nemesis.into_iter().map(|(nemesis, faults)| Recovery {
        nemesis: nemesis.to_owned(),
        faults: faults.len(),
        from_fault: Times::of(faults.iter().filter_map(|fault| fault.recovery_ms).collect()),
        from_heal: Times::of(faults.iter().filter_map(|fault| fault.heal_recovery_ms).collect()),
        dark: faults.iter().filter(|fault| fault.recovery_ms.is_none()).count(),
    });
    recoveries.collect()
}

/// Formats the recoveries as a table.
pub fn table(recoveries: &[Recovery]) -> String {
    let mut text = format!(
        "{:<20} {:>6}   {:>8} {:>8} {:>8}   {:>8} {:>8} {:>8}   no call succeeded during\n",
        "nemesis (ms)", "faults", "p50", "p99", "longest", "healed:", "p99", "longest"
    );
    for recovery in recoveries {
        let times = |times: Option<Times>| match times {
            Some(it) => format!("{:>8.0} {:>8.0} {:>8.0}", it.p50_ms, it.p99_ms, it.max_ms),
            None => format!("{:>8} {:>8} {:>8}", "-", "-", "-"),
        };
        writeln!(
            text,
            "{:<20} {:>6}   {}   {}   {}",
            recovery.nemesis,
            recovery.faults,
            times(recovery.from_fault),
            times(recovery.from_heal),
            recovery.dark
        )
        .expect("a String takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_times() {
        let times = Times::of((1..=20).rev().map(f64::from).collect()).expect("the list is not empty");
        assert_eq!((times.p50_ms, times.p99_ms, times.max_ms), (10.0, 20.0, 20.0));
        assert_eq!(Times::of(vec![3.0]).map(|times| times.p50_ms), Some(3.0));
        assert_eq!(Times::of(Vec::new()), None);
    }
}
