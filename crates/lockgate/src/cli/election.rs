//! `lockgate election`: runs a command while its candidate leads, and shows or replaces the leader.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, Subcommand};
use cli_support::exit_code::NOT_FREE;
use cli_support::format::Output;
use cli_support::output::{say, shown};
use cli_support::signals;
use lock_client::recipes::{Candidate, Election};
use lock_client::{Code, Error, LockSession};
use nix::unistd::gethostname;
use serde_json::{Value, json};

use super::exit::Failure;
use super::guarded_command::{GuardedCommand, Hold, Locks, OnReleaseRequest};
use super::lock_command::wait_time;
use super::servers::Servers;
use super::table::table;

/// Commands on elections.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a command while this candidate leads
    Run(Box<Run>),
    /// Show the leader, and the candidates that wait, in order
    #[command(name = "show")]
    ShowElection(ShowElection),
    /// Print the leader, and each later one, until the command is interrupted
    Observe(Observe),
    /// Ask the leader to resign, in favour of a candidate that waits or of the next one
    Resign(Resign),
}

/// `lockgate election run`
#[derive(Debug, Args)]
#[command(after_help = "\
The command gets LOCKGATE_FENCING_TOKEN (the term), LOCKGATE_LOCK and LOCKGATE_SESSION in its environment. A request to resign ends it. \
The exit code is that of the command; for a signal it is 128 + its number.\n\n\
  69  no server was available, or the session expired; the command was not run\n\
  75  the candidate was not elected in time; the command was not run\n\
  79  the leadership was lost while the command ran, and the command was ended\n\
 126  the command cannot be executed\n\
 127  the command was not found")]
pub struct Run {
    /// Name of the election, which is the name of a lock
    name: String,
    /// Name of this candidate, which should be unique in the election (by default the name of the machine)
    #[arg(long, value_name = "CANDIDATE")]
    candidate: Option<String>,
    /// Ask each other leader to resign in favour of this candidate. It needs the right to break the lock
    #[arg(long)]
    preferred: bool,
    /// Give up if the candidate is not elected within this time from the start (30s, 5min; at most 7days); without
    /// it the wait has no limit. Servers that do not answer get at least 2s
    #[arg(long, value_name = "TIME", value_parser = wait_time)]
    wait: Option<Duration>,
    #[command(flatten)]
    guarded: GuardedCommand,
}

/// `lockgate election show`
#[derive(Debug, Args)]
pub struct ShowElection {
    /// Name of the election
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate election observe`
#[derive(Debug, Args)]
pub struct Observe {
    /// Name of the election
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate election resign`
#[derive(Debug, Args)]
#[command(after_help = "  75  no such candidate waits, or nobody leads")]
pub struct Resign {
    /// Name of the election
    name: String,
    /// Candidate that should lead next; it must be waiting
    #[arg(long, value_name = "CANDIDATE", required_unless_present = "reason")]
    to: Option<String>,
    /// Reason, shown to the leader
    #[arg(long, conflicts_with = "to")]
    reason: Option<String>,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
pub async fn run(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(arguments) => return lead(*arguments).await,
        Command::ShowElection(arguments) => show(arguments).await?,
        Command::Observe(arguments) => tokio::select! {
            done = observe(&arguments) => done?,
            interrupted = signals::interrupted() => interrupted?,
        },
        Command::Resign(arguments) => resign(arguments).await?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `lockgate election run`.
async fn lead(arguments: Run) -> Result<ExitCode, Failure> {
    let machine = || {
        let name = gethostname().context("reading the name of the machine")?;
        anyhow::Ok(name.to_string_lossy().into_owned())
    };
    let candidate = arguments.candidate.map_or_else(machine, Ok)?;
    let locks = Locks {
        names: std::slice::from_ref(&arguments.name),
        wait: arguments.wait,
        on_release_request: OnReleaseRequest::End,
    };
    let campaign = async |session: &LockSession| {
        let election = Election::new(session.clone(), &arguments.name);
        let elected = match arguments.preferred {
            true => election.campaign_as_preferred(&candidate).await,
            false => election.campaign(&candidate).await,
        };
        elected.map(Hold::Leadership)
    };
    let of = "lockgate election";
    arguments.guarded.run(of, locks, campaign).await
}

async fn show(arguments: ShowElection) -> Result<(), Failure> {
    let view = arguments.servers.client()?.lock(&arguments.name).await?;
    let (holders, queue) = view.map(|view| (view.holders, view.queue)).unwrap_or_default();
    let leader = holders.into_iter().next().map(Candidate::from);
    let waiting: Vec<Candidate> = queue.into_iter().map(Candidate::from).collect();
    let document = json!({
        "leader": leader.as_ref().map(leader_document),
        "waiting": waiting.iter().map(candidate_document).collect::<Vec<_>>(),
    });
    let text = || {
        let row = |role: &str, candidate: &Candidate, term: String| {
            [
                role.to_owned(),
                candidate.name.clone(),
                term,
                candidate.session.clone(),
            ]
        };
        let leader = leader
            .iter()
            .map(|leader| row("leads", leader, leader.term.to_string()));
        let waiting = waiting
            .iter()
            .map(|candidate| row("waits", candidate, String::new()));
        let rows: Vec<_> = leader.chain(waiting).collect();
        match rows.is_empty() {
            true => "There are no candidates.".to_owned(),
            false => table(["ROLE", "CANDIDATE", "TERM", "SESSION"], &rows),
        }
    };
    Ok(arguments.output.say(&document, text)?)
}

fn candidate_document(candidate: &Candidate) -> Value {
    json!({ "candidate": candidate.name, "session": candidate.session })
}

fn leader_document(leader: &Candidate) -> Value {
    json!({ "candidate": leader.name, "session": leader.session, "term": leader.term })
}

async fn observe(arguments: &Observe) -> Result<(), Failure> {
    let client = arguments.servers.client()?;
    let mut observer = Election::observe(&client, &arguments.name);
    loop {
        let leader = observer.next().await?;
        let document = json!({ "leader": leader.as_ref().map(leader_document) });
        let line = || match &leader {
            Some(leader) => format!("{} leads in term {}", shown(&leader.name), leader.term),
            None => "no candidate leads".to_owned(),
        };
        if !arguments.output.say_next(&document, line)? {
            return Ok(());
        }
    }
}

async fn resign(arguments: Resign) -> Result<(), Failure> {
    let (client, name) = (arguments.servers.client()?, &arguments.name);
    let none = |what: String| Failure::new(NOT_FREE, anyhow!("{what}"));
    if let Some(to) = &arguments.to {
        let view = client.lock(name).await?;
        let waits = view.is_some_and(|view| view.queue.iter().any(|waiter| &waiter.note == to));
        if !waits {
            return Err(none(format!(
                "no candidate {} waits in the election {}",
                shown(to),
                shown(name)
            )));
        }
    }
    // A leader hands over to the candidate that is named as the reason.
    let reason = arguments.to.or(arguments.reason).unwrap_or_default();
    match client.request_release(name, None, &reason).await {
        Ok(_) => Ok(say("the leader got the request")?),
        Err(Error::Refused(refusal)) if [Code::NoLock, Code::NotHolder].contains(&refusal.code) => {
            Err(none(format!("nobody leads the election {}", shown(name))))
        }
        Err(error) => Err(error.into()),
    }
}
