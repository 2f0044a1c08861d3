//! `bench attack`: requests and connections of a malicious client. The attacks run one after another, and
//! meanwhile well-behaved clients acquire locks. The report has, with and without an attack: the clients'
//! waiting times and failed requests, the number of elections, and the growth of the nodes' memory.

mod floods;
mod holds;
mod large;
mod lock_znodes;
mod slow;
mod watches;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::durations;
use cli_support::ensure_usage;
use cli_support::format::Output;
use cli_support::open_files;
use cli_support::output::say;
use local_cluster::LocalNode;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::Target;
use super::bystanders::{BystanderReport, Bystanders, memory, term};
use super::nodes::Nodes;
use super::report::ms;

/// Session timeout of the well-behaved clients.
const TTL: Duration = Duration::from_secs(6);

/// Pause of a well-behaved client between two locks.
const PAUSE: Duration = Duration::from_millis(20);

/// File descriptors that this program uses beside the connections of an attack.
const RESERVED_FILES: u64 = 256;

/// Arguments of `lockgate bench attack`.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Attacks to run; default: all
    #[arg(long, value_delimiter = ',')]
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
    /// Maximum growth of a node's memory during one attack, in MiB
    #[arg(long, default_value_t = 512)]
    most_mib: u64,
    /// Format of the result
    #[command(flatten)]
    output: Output,
}

/// Attack on a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Request heads that arrive byte by byte, at the HTTP port.
    SlowHttp,
    /// Request bodies that arrive byte by byte, at the HTTP port.
    SlowBodies,
    /// Connect requests that arrive byte by byte, at the ZooKeeper port.
    SlowZookeeper,
    /// Handshakes that arrive byte by byte, at the peer port.
    SlowPeers,
    /// Connections without any request, at the HTTP port.
    Idle,
    /// Connections with half a request head, at the HTTP port.
    HalfHeads,
    /// Unfinished TLS handshakes, at every port. A server without TLS treats them as malformed requests.
    HalfHandshakes,
    /// Bodies that exceed the limit by one byte.
    LargeBodies,
    /// Paths of depth 10,000.
    DeepPaths,
    /// Sessions, as many as possible.
    Sessions,
    /// Connections that are opened and closed at the maximum rate.
    Reconnects,
    /// Like `Reconnects`, with a complete TLS handshake each: the most expensive operation available to an
    /// unauthenticated client. Skipped without TLS.
    Handshakes,
    /// Many watches of one client.
    Watches,
    /// Session with many locks that is read and closed repeatedly.
    LargeSession,
    /// Lists of locks and sessions, and the graph of waits, while a session holds many locks.
    Lists,
    /// Write requests without a session, each with a new request ID that the server has to store.
    RequestIds,
    /// Many locks that are acquired and released at the maximum rate, for the shared history and event buffers.
    Holds,
    /// Znodes below a lock's that belong to no session, from a ZooKeeper client.
    LockZnodes,
}

impl Attack {
    /// All attacks in the order in which they run.
    pub const ALL: [Self; 18] = [
        Self::SlowHttp,
        Self::SlowBodies,
        Self::SlowZookeeper,
        Self::SlowPeers,
        Self::Idle,
        Self::HalfHeads,
        Self::HalfHandshakes,
        Self::LargeBodies,
        Self::DeepPaths,
        Self::Reconnects,
        Self::Handshakes,
        Self::Watches,
        Self::LargeSession,
        Self::Lists,
        Self::RequestIds,
        Self::Holds,
        Self::LockZnodes,
        // Last, because its sessions remain for a while.
        Self::Sessions,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::SlowHttp => "slow-http",
            Self::SlowBodies => "slow-bodies",
            Self::SlowZookeeper => "slow-zookeeper",
            Self::SlowPeers => "slow-peers",
            Self::Idle => "idle",
            Self::HalfHeads => "half-heads",
            Self::HalfHandshakes => "half-handshakes",
            Self::LargeBodies => "large-bodies",
            Self::DeepPaths => "deep-paths",
            Self::Sessions => "sessions",
            Self::Reconnects => "reconnects",
            Self::Handshakes => "handshakes",
            Self::Watches => "watches",
            Self::LargeSession => "large-session",
            Self::Lists => "lists",
            Self::RequestIds => "request-ids",
            Self::Holds => "holds",
            Self::LockZnodes => "lock-znodes",
        }
    }
}

impl fmt::Display for Attack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Attack {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|attack| attack.name() == text);
        found.ok_or_else(|| {
            format!(
                "unknown attack {text:?}; the attacks are {}",
                Self::ALL.map(Self::name).join(", ")
            )
        })
    }
}

/// Outcome of an attack.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AttackOutcome {
    /// Attempts: connections, requests or watches.
    #[serde(rename = "tried")]
    pub attempts: u64,
    /// Accepted attempts: connections still open at the end, requests and watches that succeeded.
    #[serde(rename = "let_in")]
    pub accepted: u64,
    /// Number of each response to other attempts: an HTTP status, or the name of an error.
    pub answers: BTreeMap<String, u64>,
}

impl AttackOutcome {
    fn add(&mut self, other: Self) {
        self.attempts += other.attempts;
        self.accepted += other.accepted;
        for (answer, count) in other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
    }

    fn answer(&mut self, what: impl Into<String>) {
        *self.answers.entry(what.into()).or_default() += 1;
    }
}

/// Measurements during one attack.
#[derive(Debug, Clone, Serialize)]
pub struct AttackReport {
    /// Attack; `None`: the period without an attack.
    pub attack: Option<Attack>,
    /// Outcome of the attack.
    #[serde(rename = "got")]
    pub outcome: AttackOutcome,
    /// Measurements of the well-behaved clients.
    pub bystanders: BystanderReport,
    /// Number of elections.
    pub elections: u64,
    /// Memory of each node before the attack and at its end, in bytes.
    pub memory_bytes: Vec<(u64, u64)>,
}

/// Target and size of an attack.
struct AttackContext {
    nodes: Vec<LocalNode>,
    /// Addresses and credentials of an authorized client.
    callers: Nodes,
    connections: usize,
    watches: usize,
    /// Cancelled when the attack is to end.
    stop: CancellationToken,
}

/// Runs the attacks and prints their reports. Fails if an attack affected the well-behaved clients.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(args.clients > 0, "--clients must be at least 1");
    open_files::raise(args.connections as u64 + 4 * args.clients as u64 + RESERVED_FILES)?;
    let reports = LocalSet::new().run_until(measure(&args)).await?;
    if args.output.is_document() {
        args.output.say(&reports, String::new)?;
    }
    for report in &reports {
        let what = report.attack.map_or("no attack", Attack::name);
        let seen = &report.bystanders;
        ensure!(
            seen.errors == 0 && seen.lost_sessions == 0,
            "{what}: requests of well-behaved clients failed: {}",
            seen.first_error.as_deref().unwrap_or("a session was lost")
        );
        ensure!(
            seen.cycle.count > 0,
            "{what}: the well-behaved clients acquired no lock"
        );
        ensure!(report.elections == 0, "{what}: the cluster held an election");
        for (before, after) in &report.memory_bytes {
            let grown = after.saturating_sub(*before) >> 20;
            ensure!(
                grown <= args.most_mib,
                "{what}: a node's memory grew by {grown} MiB, more than --most-mib {}",
                args.most_mib
            );
        }
    }
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
    say(format!(
        "{:<16} locks p50 {} ms, p99 {} ms, max {} ms, {} rejected under load, {} errors; {} elections; {} of {} accepted; {}",
        report.attack.map_or("no attack", Attack::name),
        ms(seen.cycle.p50_us),
        ms(seen.cycle.p99_us),
        ms(seen.cycle.max_us),
        seen.refused,
        seen.errors,
        report.elections,
        report.outcome.accepted,
        report.outcome.attempts,
        answers.join(", ")
    ))?;
    let memory: Vec<_> = report
        .memory_bytes
        .iter()
        .map(|(before, after)| format!("{} to {} MiB", before >> 20, after >> 20))
        .collect();
    say(format!("{:<16} memory {}", "", memory.join(", ")))
}

async fn measure(args: &Arguments) -> anyhow::Result<Vec<AttackReport>> {
    let cluster = args
        .target
        .local()?
        .context("`bench attack` needs a cluster on this machine, to read its memory and its term")?;
    let nodes: Vec<LocalNode> = cluster.nodes().cloned().collect();
    let callers = args.target.nodes()?;
    let bystanders = Bystanders::start(&callers, args.clients, TTL, Some(PAUSE)).await?;
    let attacks = match args.attacks.is_empty() {
        true => Attack::ALL.to_vec(),
        false => args.attacks.clone(),
    };
    let speaks_tls = callers.credentials().tls.is_some();
    let attacks = attacks
        .into_iter()
        .filter(|attack| speaks_tls || *attack != Attack::Handshakes);
    let mut reports = Vec::new();
    for attack in [None].into_iter().chain(attacks.map(Some)) {
        let pids = args.target.processes()?;
        let (term_before, memory_before) = (term(&cluster).await?, memory(&pids)?);
        bystanders.take_report();
        let context = AttackContext {
            nodes: nodes.clone(),
            callers: callers.clone(),
            connections: args.connections,
            watches: args.watches,
            stop: CancellationToken::new(),
        };
        let stop = context.stop.clone();
        let attacking = run_attack(attack, &context);
        let timing = async {
            tokio::time::sleep(args.duration).await;
            // Measure before the attack frees its resources.
            let memory = memory(&pids);
            let seen = bystanders.take_report();
            stop.cancel();
            (memory, seen)
        };
        let (outcome, (memory, seen)) = tokio::join!(attacking, timing);
        let report = AttackReport {
            attack,
            outcome: outcome
                .with_context(|| format!("the attack {}", attack.map_or("none", Attack::name)))?,
            bystanders: seen,
            elections: term(&cluster).await?.saturating_sub(term_before),
            memory_bytes: memory_before.into_iter().zip(memory?).collect(),
        };
        if !args.output.is_document() {
            print(&report)?;
        }
        reports.push(report);
    }
    bystanders.stop().await?;
    Ok(reports)
}

async fn run_attack(attack: Option<Attack>, context: &AttackContext) -> anyhow::Result<AttackOutcome> {
    let Some(attack) = attack else {
        context.stop.cancelled().await;
        return Ok(AttackOutcome::default());
    };
    match attack {
        Attack::SlowHttp => {
            slow::drip(context, slow::Port::Http, b"GET /v1/cluster HTTP/1.1\r\nx-slow: ").await
        }
        Attack::SlowBodies => {
            let head = b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n";
            slow::drip(context, slow::Port::Http, head).await
        }
        // The length of a connect request, without the request.
        Attack::SlowZookeeper => slow::drip(context, slow::Port::ZooKeeper, &[0, 0, 0, 45]).await,
        Attack::SlowPeers => slow::drip(context, slow::Port::Peers, &[]).await,
        Attack::Idle => slow::hold(context, slow::Port::Http, b"").await,
        Attack::HalfHeads => slow::hold(context, slow::Port::Http, b"GET /v1/cluster HTT").await,
        Attack::HalfHandshakes => {
            let ports = [slow::Port::Http, slow::Port::ZooKeeper, slow::Port::Peers];
            // The start of a ClientHello.
            slow::hold_bare(context, &ports, &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).await
        }
        Attack::LargeBodies => floods::large_bodies(context).await,
        Attack::DeepPaths => floods::deep_paths(context).await,
        Attack::Sessions => floods::sessions(context).await,
        Attack::Reconnects => floods::reconnects(context).await,
        Attack::Handshakes => floods::handshakes(context).await,
        Attack::Watches => watches::arm(context).await,
        Attack::LargeSession => large::session(context).await,
        Attack::Lists => large::lists(context).await,
        Attack::RequestIds => large::request_ids(context).await,
        Attack::Holds => holds::cycle(context).await,
        Attack::LockZnodes => lock_znodes::create(context).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attack_names_are_unique_and_equal_in_json_and_arguments() {
        for attack in Attack::ALL {
            assert_eq!(attack.name().parse(), Ok(attack));
            let shown = serde_json::to_value(attack).unwrap();
            assert_eq!(
                shown,
                attack.name(),
                "JSON and the command line use the same name"
            );
        }
        assert!("none".parse::<Attack>().unwrap_err().contains("slow-http, "));
    }
}
