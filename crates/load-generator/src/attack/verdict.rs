//! Bounds of what an attack may do to a cluster and its well-behaved clients.

use clap::Args;

use super::AttackReport;

/// Minimum of the 99th percentile without an attack, for the comparison. The well-behaved clients of an idle cluster take 2 to 3 ms for a lock. Beside an
/// attack more programs want to run than there are cores, and a lock passes through four of them: each may wait for a time slice of the
/// scheduler, of 3 ms and more, whatever the server does.
const MIN_P99_US: u64 = 10_000;

/// Minimum duration for which log output is allowed. A node bounds its lines by periods of ten seconds, and all of a period may come at
/// its beginning.
const MIN_LOG_SECONDS: f64 = 10.0;

/// Bounds of what an attack may do.
#[derive(Debug, Args)]
pub struct Bounds {
    /// Maximum 99th percentile of a lock during an attack, as a multiple of the one without (of 10 ms, if that is less)
    #[arg(long, value_name = "FACTOR", default_value_t = 5.0)]
    most_slowdown: f64,
    /// Maximum log output of a node during an attack, in MB per minute
    #[arg(long, value_name = "MB", default_value_t = 1.0)]
    most_log_mb_per_minute: f64,
    /// Maximum growth of a node's memory during one attack, in MiB
    #[arg(long, default_value_t = 512)]
    most_mib: u64,
}

impl Bounds {
    /// Returns the bounds that the measurements exceed, as texts. `without` are those without an attack.
    pub fn excesses(&self, report: &AttackReport, without: &AttackReport) -> Vec<String> {
        let mut excesses = Vec::new();
        let seen = &report.bystanders;
        if seen.errors > 0 || seen.lost_sessions > 0 {
            let first = seen.first_error.as_deref().unwrap_or("a session was lost");
            excesses.push(format!("requests of well-behaved clients failed: {first}"));
        }
        if seen.cycle.count == 0 {
            excesses.push("the well-behaved clients acquired no lock".to_owned());
        }
        if report.elections > 0 {
            excesses.push("the cluster held an election".to_owned());
        }
        let p99 = seen.cycle.p99_us;
        let without = without.bystanders.cycle.p99_us.max(MIN_P99_US);
        if p99 as f64 > self.most_slowdown * without as f64 {
            excesses.push(format!(
                "locks took {} ms (p99), more than --most-slowdown {} times {} ms",
                p99 / 1_000,
                self.most_slowdown,
                without / 1_000
            ));
        }
        let growth = |before: &[u64], after: &[u64]| {
            let pairs = before.iter().zip(after);
            pairs
                .map(|(before, after)| after.saturating_sub(*before))
                .max()
                .unwrap_or_default()
        };
        let (before, after) = (&report.before, &report.after);
        let memory = growth(&before.memory, &after.memory) >> 20;
        if memory > self.most_mib {
            excesses.push(format!(
                "a node's memory grew by {memory} MiB, more than --most-mib {}",
                self.most_mib
            ));
        }
        let log_mb = growth(&before.log, &after.log) as f64 / 1e6;
        let log_mb_per_minute = log_mb / report.seconds.max(MIN_LOG_SECONDS) * 60.0;
        if log_mb_per_minute > self.most_log_mb_per_minute {
            excesses.push(format!(
                "a node's log output grew by {log_mb_per_minute:.1} MB a minute, more than --most-log-mb-per-minute {}",
                self.most_log_mb_per_minute
            ));
        }
        excesses
    }
}
