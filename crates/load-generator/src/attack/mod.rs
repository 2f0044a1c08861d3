//! What others can do to a cluster by asking: each attack in its turn, and beside it well-behaved clients that take locks. How
//! long they wait with it and without it, whether any of their requests fails, whether the leader stays, and how much memory the
//! nodes take.

mod floods;
mod large;
mod slow;
mod watches;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use cli_support::ensure_usage;
use cli_support::open_files;
use cli_support::output::say;
use local_cluster::LocalNode;
use serde::Serialize;
use tokio::task::LocalSet;
use tokio_util::sync::CancellationToken;

use super::Target;
use super::bystanders::{Bystanders, Seen, memory, term};
use super::nodes::Nodes;
use super::report::{self, ms};

/// The well-behaved clients' sessions.
const TTL: Duration = Duration::from_secs(6);

/// How long a well-behaved client rests between two locks.
const REST: Duration = Duration::from_millis(20);

/// What this program opens beside the connections of an attack.
const OTHER_FILES: u64 = 256;

/// What `lockgate bench attack` is told.
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    target: Target,
    /// Which attacks; all of them unless some are named
    #[arg(long, value_delimiter = ',')]
    attacks: Vec<Attack>,
    /// How long each lasts, and how long it is measured without any
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// How many connections an attack opens where it needs many
    #[arg(long, default_value_t = 10_000)]
    connections: usize,
    /// How many watches one client arms
    #[arg(long, default_value_t = 100_000)]
    watches: usize,
    /// How many well-behaved clients take locks meanwhile
    #[arg(long, default_value_t = 8)]
    clients: usize,
    /// By how many MiB a node's memory may grow in one attack
    #[arg(long, default_value_t = 512)]
    most_mib: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What can be done to a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Attack {
    /// Heads that come byte by byte, at the port for HTTP.
    SlowHttp,
    /// Bodies that do.
    SlowBodies,
    /// Requests for a session that do, at the port for clients of ZooKeeper.
    SlowZookeeper,
    /// Greetings that do, at the port for peers.
    SlowPeers,
    /// Connections that say nothing, at the port for HTTP.
    Idle,
    /// Handshakes of TLS that are begun and not finished, at every port. A server without TLS takes them for nonsense.
    HalfHandshakes,
    /// Bodies of one byte more than there may be.
    LargeBodies,
    /// Paths of depth 10,000.
    DeepPaths,
    /// As many sessions as can be opened.
    Sessions,
    /// Connections that are opened and closed as fast as can be.
    Reconnects,
    /// The same with a whole handshake of TLS each, where that is spoken: the dearest thing that a stranger can ask for.
    Handshakes,
    /// Very many watches of one client.
    Watches,
    /// A session with very many locks that is shown and closed, again and again.
    LargeSession,
    /// Lists of locks and sessions, and the graph of waits, over what a session with very many locks has.
    Lists,
    /// Requests without a session that are to be remembered, each under another id.
    RequestIds,
}

impl Attack {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 15] = [
        Self::SlowHttp,
        Self::SlowBodies,
        Self::SlowZookeeper,
        Self::SlowPeers,
        Self::Idle,
        Self::HalfHandshakes,
        Self::LargeBodies,
        Self::DeepPaths,
        Self::Reconnects,
        Self::Handshakes,
        Self::Watches,
        Self::LargeSession,
        Self::Lists,
        Self::RequestIds,
        // The last one, because its sessions stay for a while.
        Self::Sessions,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::SlowHttp => "slow-http",
            Self::SlowBodies => "slow-bodies",
            Self::SlowZookeeper => "slow-zookeeper",
            Self::SlowPeers => "slow-peers",
            Self::Idle => "idle",
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
        found.ok_or_else(|| format!("there are {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// What an attack got.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Got {
    /// What it tried: connections, requests or watches.
    pub tried: u64,
    /// What of that was let in: connections that were still there in the end, requests and watches that were carried out.
    pub let_in: u64,
    /// How others were answered: by status, or in a word.
    pub answers: BTreeMap<String, u64>,
}

impl Got {
    fn add(&mut self, other: Self) {
        self.tried += other.tried;
        self.let_in += other.let_in;
        for (answer, count) in other.answers {
            *self.answers.entry(answer).or_default() += count;
        }
    }

    fn answer(&mut self, what: impl Into<String>) {
        *self.answers.entry(what.into()).or_default() += 1;
    }
}

/// What one attack came to.
#[derive(Debug, Clone, Serialize)]
pub struct AttackReport {
    /// Which; none is the time before.
    pub attack: Option<Attack>,
    /// What it got.
    pub got: Got,
    /// What the well-behaved clients saw.
    pub bystanders: Seen,
    /// How many elections there were.
    pub elections: u64,
    /// Of each node: its memory before and at its end, in bytes.
    pub memory_bytes: Vec<(u64, u64)>,
}

/// What an attack is made on, and with how much.
struct Means {
    nodes: Vec<LocalNode>,
    /// How these are called by who has what it takes to be let in.
    callers: Nodes,
    connections: usize,
    watches: usize,
    /// Cancelled when the attack is to end.
    over: CancellationToken,
}

/// Makes them, and prints what came out.
pub async fn run(args: Arguments) -> anyhow::Result<()> {
    ensure_usage!(
        args.seconds > 0 && args.clients > 0,
        "at least one second and one client are needed"
    );
    open_files::raise(args.connections as u64 + 4 * args.clients as u64 + OTHER_FILES)?;
    let reports = LocalSet::new().run_until(all(&args)).await?;
    if args.json {
        report::print_json(&reports)?;
    }
    for report in &reports {
        let what = report.attack.map_or("no attack", Attack::name);
        let seen = &report.bystanders;
        ensure!(
            seen.errors == 0 && seen.lost_sessions == 0,
            "{what}: well-behaved clients were not served: {}",
            seen.first_error.as_deref().unwrap_or("a session was lost")
        );
        ensure!(seen.cycle.count > 0, "{what}: no lock was taken");
        ensure!(report.elections == 0, "{what}: there was an election");
        for (before, after) in &report.memory_bytes {
            let grown = after.saturating_sub(*before) >> 20;
            ensure!(
                grown <= args.most_mib,
                "{what}: a node's memory has grown by {grown} MiB"
            );
        }
    }
    Ok(())
}

fn print(report: &AttackReport) -> anyhow::Result<()> {
    let seen = &report.bystanders;
    let answers: Vec<_> = report
        .got
        .answers
        .iter()
        .map(|(what, count)| format!("{what}: {count}"))
        .collect();
    say(format!(
        "{:<16} locks p50 {} ms, p99 {} ms, max {} ms, {} told to come again, {} errors; {} elections; {} of {} let in; {}",
        report.attack.map_or("without any", Attack::name),
        ms(seen.cycle.p50_us),
        ms(seen.cycle.p99_us),
        ms(seen.cycle.max_us),
        seen.refused,
        seen.errors,
        report.elections,
        report.got.let_in,
        report.got.tried,
        answers.join(", ")
    ))?;
    let memory: Vec<_> = report
        .memory_bytes
        .iter()
        .map(|(before, after)| format!("{} to {} MiB", before >> 20, after >> 20))
        .collect();
    say(format!("{:<16} memory {}", "", memory.join(", ")))
}

async fn all(args: &Arguments) -> anyhow::Result<Vec<AttackReport>> {
    let cluster = args
        .target
        .local()?
        .context("it needs a cluster on this machine, for its memory and its term")?;
    let nodes: Vec<LocalNode> = cluster.nodes().cloned().collect();
    let callers = args.target.nodes()?;
    let bystanders = Bystanders::start(&callers, args.clients, TTL, Some(REST)).await?;
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
        bystanders.look();
        let means = Means {
            nodes: nodes.clone(),
            callers: callers.clone(),
            connections: args.connections,
            watches: args.watches,
            over: CancellationToken::new(),
        };
        let over = means.over.clone();
        let attacking = make(attack, &means);
        let timing = async {
            tokio::time::sleep(Duration::from_secs(args.seconds)).await;
            // Before the attack lets go of what it has.
            let memory = memory(&pids);
            let seen = bystanders.look();
            over.cancel();
            (memory, seen)
        };
        let (got, (memory, seen)) = tokio::join!(attacking, timing);
        let report = AttackReport {
            attack,
            got: got.with_context(|| format!("the attack {}", attack.map_or("none", Attack::name)))?,
            bystanders: seen,
            elections: term(&cluster).await?.saturating_sub(term_before),
            memory_bytes: memory_before.into_iter().zip(memory?).collect(),
        };
        if !args.json {
            print(&report)?;
        }
        reports.push(report);
    }
    bystanders.stop().await?;
    Ok(reports)
}

async fn make(attack: Option<Attack>, means: &Means) -> anyhow::Result<Got> {
    let Some(attack) = attack else {
        means.over.cancelled().await;
        return Ok(Got::default());
    };
    match attack {
        Attack::SlowHttp => {
            slow::drip(means, slow::Port::Http, b"GET /v1/cluster HTTP/1.1\r\nx-slow: ").await
        }
        Attack::SlowBodies => {
            let head = b"POST /v1/sessions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60000\r\n\r\n";
            slow::drip(means, slow::Port::Http, head).await
        }
        // The length of a request for a session, and then nothing of it.
        Attack::SlowZookeeper => slow::drip(means, slow::Port::ZooKeeper, &[0, 0, 0, 45]).await,
        Attack::SlowPeers => slow::drip(means, slow::Port::Peers, &[]).await,
        Attack::Idle => slow::hold(means, slow::Port::Http, b"").await,
        Attack::HalfHandshakes => {
            let ports = [slow::Port::Http, slow::Port::ZooKeeper, slow::Port::Peers];
            // The beginning of a ClientHello that never ends.
            slow::hold_bare(means, &ports, &[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]).await
        }
        Attack::LargeBodies => floods::large_bodies(means).await,
        Attack::DeepPaths => floods::deep_paths(means).await,
        Attack::Sessions => floods::sessions(means).await,
        Attack::Reconnects => floods::reconnects(means).await,
        Attack::Handshakes => floods::handshakes(means).await,
        Attack::Watches => watches::arm(means).await,
        Attack::LargeSession => large::session(means).await,
        Attack::Lists => large::lists(means).await,
        Attack::RequestIds => large::request_ids(means).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_is_made_and_has_a_name() {
        for attack in Attack::ALL {
            assert_eq!(attack.name().parse(), Ok(attack));
            let shown = serde_json::to_value(attack).unwrap();
            assert_eq!(shown, attack.name(), "JSON names it as the command line does");
        }
        assert!("none".parse::<Attack>().unwrap_err().contains("slow-http, "));
    }
}
