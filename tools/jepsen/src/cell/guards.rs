//! Verdict on a run from the times of its successful calls: rates, silences, recovery times, and whether the
//! run is valid at all. Pure functions; nothing here runs anything.

use lockgate_check::{Nanos, Verdict};

use crate::report::{Check, Fault, Outcome};

/// Latest time after a fault or its healing at which a silence can still be its effect: two elections. A
/// later silence has another reason.
const SETS_IN_WITHIN: Nanos = 2_000_000_000;

/// Shortest silence that counts as an interruption. Shorter ones are normal on a busy machine.
const INTERRUPTION: Nanos = 100_000_000;

const NANOS_PER_SECOND: f64 = 1e9;
const NANOS_PER_MS: f64 = 1e6;

/// Returns the successful calls per second between two moments.
pub fn rate(succeeded: &[Nanos], from: Nanos, to: Nanos) -> f64 {
    if to <= from {
        return 0.0;
    }
    let between = |at: &&Nanos| (from..to).contains(*at);
    succeeded.iter().filter(between).count() as f64 * NANOS_PER_SECOND / (to - from) as f64
}

/// Returns the longest time without a success between two moments.
pub fn longest_silence_ms(succeeded: &[Nanos], from: Nanos, to: Nanos) -> f64 {
    let (begin, end) = silence(succeeded, from, to);
    end.saturating_sub(begin) as f64 / NANOS_PER_MS
}

/// Returns the longest time without a success between two moments, as its begin (at the earliest `from`) and
/// its end (at the latest `to`).
fn silence(succeeded: &[Nanos], from: Nanos, to: Nanos) -> (Nanos, Nanos) {
    let inside = succeeded.iter().copied().filter(|at| (from..to).contains(at));
    let mut longest = (from, from);
    let mut before = from;
    for at in inside.chain([to]) {
        if at - before > longest.1 - longest.0 {
            longest = (before, at);
        }
        before = at;
    }
    longest
}

/// Returns the time from `moment` until calls succeed again: the end of the longest silence that began within
/// [`SETS_IN_WITHIN`], or the first success if no silence was an interruption. Returns `None` if no call
/// succeeded before `until`: a later success belongs to another fault.
pub fn recovery_ms(succeeded: &[Nanos], moment: Nanos, until: Nanos) -> Option<f64> {
    let first = succeeded.partition_point(|at| *at < moment);
    let after = &succeeded[first..];
    let begins = std::iter::once(moment).chain(after.iter().copied());
    let silences = begins.zip(after.iter().copied());
    let set_in = silences.take_while(|(begin, end)| *begin <= moment + SETS_IN_WITHIN && *end <= until);
    let longest = set_in.clone().max_by_key(|(begin, end)| end - begin)?;
    // A silence that has begun but not ended by `until` decides, whatever happened before it.
    let last = set_in.last().map_or(moment, |(_, end)| end);
    let next = after.get(after.partition_point(|at| *at <= last)).copied();
    if last <= moment + SETS_IN_WITHIN && next.is_none_or(|next| next > until) && until > last + INTERRUPTION
    {
        return None;
    }
    let end = match longest.1 - longest.0 >= INTERRUPTION {
        true => longest.1,
        false => after[0],
    };
    Some((end - moment) as f64 / NANOS_PER_MS)
}

/// Records for each fault the time until calls succeeded again, after it began and after it was healed.
pub fn note_recoveries(faults: &mut [Fault], succeeded: &[Nanos], end: Nanos) {
    let begins: Vec<Nanos> = faults.iter().map(|fault| fault.begin).collect();
    for fault in faults {
        let next = begins
            .iter()
            .copied()
            .find(|begin| *begin > fault.begin)
            .unwrap_or(end);
        fault.recovery_ms = recovery_ms(succeeded, fault.begin, fault.healing.max(fault.begin + 1));
        fault.heal_recovery_ms = recovery_ms(succeeded, fault.healing, next.max(fault.end));
    }
}

/// Evidence by which a run is judged.
pub struct Facts<'a> {
    /// Successful calls per second before the first fault.
    pub rate_before: f64,
    /// Minimum of `rate_before` for a valid run.
    pub least_rate: f64,
    /// All faults of the run.
    pub faults: &'a [Fault],
    /// Results of all checkers.
    pub checks: &'a [Check],
    /// Misbehaviour of nodes: a node exited, panicked, did not serve, or has a state that differs from the
    /// others.
    pub incidents: &'a [String],
    /// Control run: the workload omits something on purpose, and its checkers must detect that.
    pub control: bool,
    /// Several kinds of faults were active at the same time.
    pub overlapping: bool,
}

/// Returns the outcome of a run and its reasons.
/// A violation by the system counts even in a run that is otherwise invalid. A pass, on the other hand,
/// requires that clients made progress and that every fault had an effect.
pub fn judge(facts: &Facts) -> (Outcome, Vec<String>) {
    let mut violations = facts.incidents.to_vec();
    let mut open = Vec::new();
    for check in facts.checks {
        match &check.verdict {
            Verdict::Valid => {}
            Verdict::Violated(lines) => {
                violations.extend(lines.iter().map(|line| format!("{}: {line}", check.name)));
            }
            Verdict::Undecided(why) => open.push(format!("{}: {why}", check.name)),
        }
    }
    let mut invalid = Vec::new();
    if facts.rate_before < facts.least_rate {
        invalid.push(format!(
            "{:.0} calls per second succeeded before the faults, fewer than {:.0}",
            facts.rate_before, facts.least_rate
        ));
    }
    let is_shown = |fault: &&Fault| fault.evidence.is_some();
    let without = facts.faults.iter().filter(|fault| {
        // One fault can hide another: a paused node sends nothing that could be dropped. But that cannot be
        // true for every fault of a kind.
        let mut same = facts.faults.iter().filter(|other| other.nemesis == fault.nemesis);
        !(is_shown(fault) || facts.overlapping && same.any(|other| is_shown(&other)))
    });
    invalid.extend(without.map(|fault| format!("no evidence that this fault had an effect: {}", fault.what)));
    if facts.faults.is_empty() {
        invalid.push("no fault was injected".to_owned());
    }
    if facts.checks.is_empty() {
        invalid.push("no checker ran".to_owned());
    }
    if facts.control {
        let found = facts
            .checks
            .iter()
            .any(|check| matches!(check.verdict, Verdict::Violated(_)));
        if !found {
            invalid.push("the checkers did not detect what this control run omits on purpose".to_owned());
        }
        violations = facts.incidents.to_vec();
    }
    match (violations.is_empty(), open.is_empty(), invalid.is_empty()) {
        (false, _, _) => (Outcome::Violated, [violations, open, invalid].concat()),
        (_, false, _) => (Outcome::Undecided, [open, invalid].concat()),
        (_, _, false) => (Outcome::Invalid, invalid),
        _ => (Outcome::Passed, Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Nanos = 1_000_000_000;

    fn fault(evidence: Option<&str>) -> Fault {
        Fault {
            nemesis: "kill-leader".to_owned(),
            what: "SIGKILL to [1]".to_owned(),
            begin: 10 * S,
            healing: 13 * S,
            end: 14 * S,
            evidence: evidence.map(str::to_owned),
            recovery_ms: None,
            heal_recovery_ms: None,
        }
    }

    fn judged(rate_before: f64, fault: Fault, verdict: Verdict, incidents: &[String]) -> Outcome {
        let check = Check {
            name: "tokens".to_owned(),
            verdict,
        };
        judge(&Facts {
            rate_before,
            least_rate: 300.0,
            faults: &[fault],
            checks: &[check],
            incidents,
            control: false,
            overlapping: false,
        })
        .0
    }

    #[test]
    fn run_passes_only_with_progress_and_evidence_of_each_fault() {
        let shown = || fault(Some("refused"));
        assert_eq!(judged(300.0, shown(), Verdict::Valid, &[]), Outcome::Passed);
        assert_eq!(judged(299.0, shown(), Verdict::Valid, &[]), Outcome::Invalid);
        assert_eq!(judged(300.0, fault(None), Verdict::Valid, &[]), Outcome::Invalid);
        let open = Verdict::Undecided("too long".to_owned());
        assert_eq!(judged(300.0, shown(), open, &[]), Outcome::Undecided);
        let found = Verdict::Violated(vec!["two holders".to_owned()]);
        assert_eq!(judged(0.0, fault(None), found, &[]), Outcome::Violated);
        let panicked = ["node 1: panicked".to_owned()];
        assert_eq!(
            judged(300.0, shown(), Verdict::Valid, &panicked),
            Outcome::Violated
        );
    }

    #[test]
    fn run_without_checks_or_faults_is_invalid() {
        let (outcome, reasons) = judge(&Facts {
            rate_before: 1000.0,
            least_rate: 300.0,
            faults: &[],
            checks: &[],
            incidents: &[],
            control: false,
            overlapping: false,
        });
        assert_eq!(outcome, Outcome::Invalid);
        assert_eq!(reasons.len(), 2);
    }

    #[test]
    fn control_run_passes_only_if_its_checkers_find_a_violation() {
        let judged = |verdict| {
            let check = Check {
                name: "linearizable".to_owned(),
                verdict,
            };
            judge(&Facts {
                rate_before: 300.0,
                least_rate: 300.0,
                faults: &[fault(Some("refused"))],
                checks: &[check],
                incidents: &[],
                control: true,
                overlapping: false,
            })
            .0
        };
        assert_eq!(
            judged(Verdict::Violated(vec!["stale".to_owned()])),
            Outcome::Passed
        );
        assert_eq!(judged(Verdict::Valid), Outcome::Invalid);
    }

    #[test]
    fn recovery_ends_with_the_longest_silence_after_the_fault() {
        // One call was in flight when the leader was killed, and succeeded; then nothing succeeded for two
        // seconds.
        let succeeded = [9 * S, 10 * S + 1, 12 * S, 12 * S + 5, 13 * S];
        assert_eq!(recovery_ms(&succeeded, 10 * S, 13 * S), Some(2000.0));
        assert_eq!(recovery_ms(&succeeded, 13 * S + 1, 20 * S), None);
        let mut faults = [fault(Some("refused"))];
        note_recoveries(&mut faults, &succeeded, 20 * S);
        assert_eq!(faults[0].recovery_ms, Some(2000.0));
    }

    #[test]
    fn fault_without_interruption_recovers_at_the_first_success() {
        // A success every 10 ms, and after three seconds a silence with another reason.
        let steady = (0..300).map(|number| 10 * S + 3_000_000 + number * 10_000_000);
        let succeeded: Vec<Nanos> = steady.chain([14 * S]).collect();
        assert_eq!(recovery_ms(&succeeded, 10 * S, 20 * S), Some(3.0));
        // A silence that begins and does not end before the next fault is no recovery.
        assert_eq!(recovery_ms(&succeeded, 12 * S, 13 * S + S / 2), None);
        assert_eq!(recovery_ms(&succeeded, 12 * S, 14 * S), Some(2000.0));
    }

    #[test]
    fn rates_and_silences() {
        let succeeded: Vec<Nanos> = (0..1000).map(|number| number * S / 500).collect();
        assert_eq!(rate(&succeeded, 0, 2 * S), 500.0);
        assert_eq!(longest_silence_ms(&succeeded, 0, 5 * S), 3002.0);
        assert_eq!(longest_silence_ms(&[], S, 3 * S), 2000.0);
        assert_eq!(rate(&[], 3, 3), 0.0);
    }
}
