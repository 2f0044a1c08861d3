//! Search for planted bugs (feature `planted`): for each, seeds until an invariant detects it. Bugs that only
//! a lying disk or another front end reveals are not searched for here.

use std::process::ExitCode;

use znode_store::planted::Bug;

use crate::faults::Kind;
use crate::fleet;
use crate::plan::Plan;
use crate::policies::Operator;
use crate::quotas::Administrator;
use crate::stopwatch::Stopwatch;

/// Bugs that the simulation has to find.
pub const DETECTABLE: [Bug; 28] = [
    Bug::UnsyncedLog,
    Bug::UnsyncedVote,
    Bug::StaleRead,
    Bug::GrantToTheDead,
    Bug::UnprovenLeader,
    Bug::ForgottenCounter,
    Bug::LostWatches,
    Bug::Repeated,
    Bug::OwnClock,
    Bug::LeakedPermits,
    Bug::OvertakingReader,
    Bug::CountedAbsent,
    Bug::CrowdedLock,
    Bug::KeptEphemeral,
    Bug::HeartbeatAge,
    Bug::SilenceForgotten,
    Bug::SilenceTooLong,
    Bug::SilenceKept,
    Bug::FixedPatience,
    Bug::MutedByPause,
    Bug::TrustedReturn,
    Bug::CountedStarts,
    Bug::WaitOutlivesRight,
    Bug::LeaseWithoutLock,
    Bug::HoldOutlivesBound,
    Bug::MinHoldOfWaiters,
    Bug::PlaceOfRequest,
    Bug::UsageOutlivesZnode,
];

/// Bugs that cost an election in a cluster whose nodes only stall; searched for in such runs.
const STALL_BUGS: [Bug; 2] = [Bug::FixedPatience, Bug::MutedByPause];

/// Returns whether a run with this plan can reveal the bug at all. Sessions have to end in time only while a
/// majority stays intact, and a long way of a heartbeat shows only if messages are held up. An older disk has
/// to be used before it can be trusted.
fn can_show(bug: Bug, plan: &Plan) -> bool {
    match bug {
        Bug::HeartbeatAge => plan.is_gentle && plan.kinds.contains(&Kind::HeldUp),
        Bug::SilenceForgotten | Bug::HoldOutlivesBound => plan.is_gentle,
        Bug::TrustedReturn | Bug::CountedStarts => plan.kinds.contains(&Kind::OldImage),
        Bug::WaitOutlivesRight => Operator::draw(plan.seed).is_some(),
        Bug::UsageOutlivesZnode => Administrator::draw(plan.seed).is_some(),
        _ => true,
    }
}

/// Simulated seconds of a run with stalling nodes.
const STALL_SECONDS: u64 = 60;

/// Plants a bug in this process.
#[cfg(feature = "planted")]
pub fn plant(number: u8) -> anyhow::Result<()> {
    let bug =
        Bug::numbered(number).ok_or_else(|| anyhow::anyhow!("no planted bug has the number {number}"))?;
    znode_store::planted::plant(Some(bug));
    Ok(())
}

/// Plants a bug in this process.
#[cfg(not(feature = "planted"))]
pub fn plant(_number: u8) -> anyhow::Result<()> {
    anyhow::bail!("this build cannot plant bugs: build it with --features planted")
}

/// Searches for each bug, with at most `seeds` seeds of `steps` steps, and prints the seed that found it.
pub fn search(from: u64, seeds: u64, steps: u64, only: Option<u8>) -> anyhow::Result<ExitCode> {
    let mut survivors = Vec::new();
    for bug in DETECTABLE
        .into_iter()
        .filter(|bug| only.is_none_or(|only| only == *bug as u8))
    {
        let began = Stopwatch::start();
        let seeds_to_try = (from..).filter(|seed| can_show(bug, &Plan::draw(*seed)));
        let found = seeds_to_try.take(seeds as usize).find_map(|seed| {
            let number = Some(bug as u8);
            let problem = match STALL_BUGS.contains(&bug) {
                true => fleet::stalls(seed, STALL_SECONDS, number).map(|elections| elections.violation),
                false => fleet::child(seed, steps, number).map(|report| report.violation),
            };
            let problem = problem.unwrap_or_else(Some)?;
            Some((seed, problem))
        });
        let number = bug as u8;
        let took = began.elapsed_s();
        match found {
            Some((seed, problem)) => {
                let first = problem.lines().next().unwrap_or_default();
                println!("{number:>2} {bug:?}: seed {seed}, {took:.1} s: {first}");
            }
            None => {
                println!("{number:>2} {bug:?}: not found in {seeds} seeds, {took:.1} s");
                survivors.push(bug);
            }
        }
    }
    Ok(match survivors.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}
