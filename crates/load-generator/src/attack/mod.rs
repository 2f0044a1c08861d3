//! `bench attack`: requests and connections of a malicious client. The attacks run one after another, and
//! meanwhile well-behaved clients acquire locks. The report has, with and without an attack: the clients'
//! waiting times and failed requests, the number of elections, and the growth of the nodes' memory, log output and data.
//!
//! The attacker has a thread of its own. On the thread of the well-behaved clients its work would count as their waiting time. The thread only
//! runs on a processor that no other thread wants, because an attacker has a machine of its own: only what the nodes do for it counts.

mod callers;
mod catalog;
mod context;
mod floods;
mod growth;
mod held;
mod large;
mod lock_znodes;
mod queues;
mod verdict;
mod watches;

use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::open_files;
use cli_support::output::say;
use local_cluster::{LocalCluster, LocalNode};
use serde::Serialize;
use thread_priority::{
    NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio::sync::oneshot;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::Target;
use super::bystanders::{BystanderReport, Bystanders, term};
use super::report::ms;

use self::callers::{Caller, Callers};
pub use self::catalog::Attack;
use self::context::{AttackContext, AttackOutcome, RETRY_PAUSE, SESSION_TTL_MS};
use self::growth::{Resources, longest_hold_ms};
use self::verdict::Bounds;

/// Session timeout of the well-behaved clients.
const TTL: Duration = Duration::from_secs(6);

/// Pause of a well-behaved client between two locks.
const PAUSE: Duration = Duration::from_millis(20);

/// File descriptors that this program uses beside the connections of an attack.
const RESERVED_FILES: u64 = 1_024;

/// Scheduling policy of the attacker's thread. With a `nice` value of 19 the kernel left a woken node waiting for a processor on which the attacker
/// ran: in one trace for 25 of 33 ms.
const ATTACKER_POLICY: ThreadSchedulePolicy = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);

/// Pause before each measurement, for what the previous attack left behind: connections that the nodes close, and sessions that end.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Arguments of `lockgate bench attack`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Attacks to run; default: all
    #[arg(long, value_enum, value_delimiter = ',')]
    attacks: Vec<Attack>,
    /// Duration of each attack, and of the measurement without an attack
    #[arg(long, value_name = "TIME", alias = "seconds", default_value = "20s", value_parser = durations::seconds)]
    duration: Duration,
    /// Connections that an attack opens if it needs many
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// Watches that one client arms
    #[arg(long, default_value_t = 100_000)]
    watches: usize,
    /// Well-behaved clients that acquire locks meanwhile
    #[arg(long, default_value_t = 8)]
    clients: usize,
    #[command(flatten)]
    bounds: Bounds,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Measurements during one attack.
#[derive(Debug, Clone, Serialize)]
pub struct AttackReport {
    /// Attack; `None`: the period without an attack.
    pub attack: Option<Attack>,
    /// Attacker; `None` in an open cluster, where all callers are the same.
    pub caller: Option<Caller>,
    /// Outcome of the attack.
    #[serde(rename = "got")]
    pub outcome: AttackOutcome,
    /// Measurements of the well-behaved clients.
    pub bystanders: BystanderReport,
    /// 99th percentile of their lock cycles as a multiple of the one without an attack.
    pub slowdown: f64,
    /// Number of elections.
    pub elections: u64,
    /// Duration of the measurement in seconds.
    pub seconds: f64,
    /// Resources before the attack.
    pub before: Resources,
    /// Resources at the end of the attack, which still holds what it took.
    pub after: Resources,
    /// Longest time for which a node read its state or applied an entry in the last one to two minutes, in milliseconds.
    pub longest_hold_ms: f64,
}

impl AttackReport {
    /// Returns the attack and its caller.
    fn title(&self) -> String {
        match (self.attack, self.caller) {
            (None, _) => "no attack".to_owned(),
            (Some(attack), None) => attack.name(),
            (Some(attack), Some(caller)) => format!("{} ({})", attack.name(), caller.name()),
        }
    }
}

/// Runs the attacks and prints their reports. Fails if an attack affected the well-behaved clients.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.clients > 0, "--clients must be at least 1");
    open_files::raise(args.connections as u64 + 4 * args.clients as u64 + RESERVED_FILES)?;
    let cluster = args
        .target
        .local()?
        .context("`bench attack` needs a cluster on this machine, to read its memory and its term")?;
    let callers = Callers::create(&cluster, args.target.nodes()?).await?;
    let measured = LocalSet::new()
        .run_until(measure(&args, &cluster, &callers))
        .await;
    callers.delete().await?;
    let reports = measured?;
    if args.output.is_document() {
        args.output.say(&reports, String::new)?;
    }
    let excesses: Vec<String> = reports
        .iter()
        .flat_map(|report| {
            let excesses = args.bounds.excesses(report, &reports[0]).into_iter();
            excesses.map(|excess| format!("{}: {excess}", report.title()))
        })
        .collect();
    ensure!(excesses.is_empty(), "{}", excesses.join("; "));
    Ok(())
}

fn print(report: &AttackReport) -> anyhow::Result<()> {
    let seen = &report.bystanders;
    let answers: Vec<_> = report
        .outcome
        .answers
        .iter()
        .map(|(what, count)| format!("{what}: {count}"))
        .collect();
    let title = report.title();
    say(format!(
        "{title:<24} locks p50 {} ms, p99 {} ms ({:.1} times), max {} ms, {} rejected under load, {} errors; {} elections; \
         longest hold {:.1} ms; {} of {} accepted; {}",
        ms(seen.cycle.p50_us),
        ms(seen.cycle.p99_us),
        report.slowdown,
        ms(seen.cycle.max_us),
        seen.refused,
        seen.errors,
        report.elections,
        report.longest_hold_ms,
        report.outcome.accepted,
        report.outcome.attempts,
        answers.join(", ")
    ))?;
    let (before, after) = (&report.before, &report.after);
    let pairs = before.memory.iter().zip(&after.memory);
    let memory: Vec<_> = pairs
        .map(|(before, after)| format!("{} to {} MiB", before >> 20, after >> 20))
        .collect();
    let growth = |before: &[u64], after: &[u64], unit: u64| {
        let pairs = before.iter().zip(after);
        let growths = pairs.map(|(before, after)| (after.saturating_sub(*before) / unit).to_string());
        growths.collect::<Vec<_>>().join(", ")
    };
    say(format!(
        "{:<24} memory {}; kernel {} to {} MiB; log +{} kB; disk +{} MiB",
        "",
        memory.join(", "),
        before.kernel_memory >> 20,
        after.kernel_memory >> 20,
        growth(&before.log, &after.log, 1_000),
        growth(&before.disk, &after.disk, 1 << 20),
    ))
}

async fn measure(
    args: &Arguments,
    cluster: &LocalCluster,
    callers: &Callers,
) -> anyhow::Result<Vec<AttackReport>> {
    let nodes: Vec<LocalNode> = cluster.nodes().cloned().collect();
    let attacks = match args.attacks.is_empty() {
        true => Attack::all(),
        false => &args.attacks,
    };
    let speaks_tls = cluster.is_secured();
    let serves_redis = nodes.iter().any(|node| node.redis.is_some());
    let is_possible = |attack: &&Attack| match attack {
        Attack::Handshakes => speaks_tls,
        Attack::SlowRedis => serves_redis,
        _ => true,
    };
    let mut runs = vec![(None, None, callers.admin.clone())];
    for attack in attacks.iter().filter(is_possible) {
        for (caller, attacker) in callers.attackers(attack.callers()) {
            runs.push((Some(*attack), caller, attacker));
        }
    }
    let bystanders = Bystanders::start(&callers.honest, args.clients, TTL, Some(PAUSE)).await?;
    let mut reports: Vec<AttackReport> = Vec::new();
    for (attack, caller, attacker) in runs {
        tokio::time::sleep(SETTLE_TIME).await;
        let term_before = term(cluster).await?;
        let before = Resources::measure(&args.target, &nodes)?;
        bystanders.take_report();
        let stop = CancellationToken::new();
        let (ended, attacking) = oneshot::channel();
        let thread = std::thread::Builder::new().name("attacker".to_owned());
        thread.spawn({
            let (nodes, admin, stop) = (nodes.clone(), callers.admin.clone(), stop.clone());
            let (connections, watches) = (args.connections, args.watches);
            move || {
                let context = AttackContext {
                    nodes,
                    callers: attacker,
                    admin,
                    connections,
                    watches,
                    stop,
                    outcome: RefCell::default(),
                    sessions: RefCell::default(),
                };
                // The receiver is gone only if the measurement has failed.
                let _ = ended.send(attack_in_background(attack, context));
            }
        })?;
        let begin = tokio::time::Instant::now();
        tokio::time::sleep(args.duration).await;
        // Measure before the attack frees its resources.
        let after = Resources::measure(&args.target, &nodes);
        let seen = bystanders.take_report();
        let seconds = begin.elapsed().as_secs_f64();
        stop.cancel();
        let outcome = attacking.await.context("the attacker panicked")?;
        let p99_without = reports
            .first()
            .map_or(seen.cycle.p99_us, |first| first.bystanders.cycle.p99_us);
        let mut report = AttackReport {
            attack,
            caller,
            outcome: AttackOutcome::default(),
            slowdown: seen.cycle.p99_us as f64 / p99_without.max(1) as f64,
            bystanders: seen,
            elections: term(cluster).await?.saturating_sub(term_before),
            seconds,
            before,
            after: after?,
            longest_hold_ms: longest_hold_ms(&callers.admin).await?,
        };
        report.outcome = outcome.with_context(|| format!("the attack {}", report.title()))?;
        if !args.output.is_document() {
            print(&report)?;
        }
        reports.push(report);
    }
    bystanders.stop().await?;
    Ok(reports)
}

/// Runs an attack on this thread, to which [`ATTACKER_POLICY`] applies from now on.
fn attack_in_background(attack: Option<Attack>, context: AttackContext) -> anyhow::Result<AttackOutcome> {
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, ATTACKER_POLICY)
        .context("the scheduling policy of the attacker's thread")?;
    cli_support::block_on(attack_until_stopped(attack, context))
}

/// Runs an attack until it is stopped, and closes its sessions.
async fn attack_until_stopped(
    attack: Option<Attack>,
    context: AttackContext,
) -> anyhow::Result<AttackOutcome> {
    match attack {
        Some(attack) => attack.run(&context).await?,
        None => context.stop.cancelled().await,
    }
    context.close_sessions().await?;
    Ok(context.outcome.into_inner())
}
