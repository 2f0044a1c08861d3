//! `lockgate lock`: a command that runs while a lock is held, and ends when the lock is lost. What becomes of the lock is
//! the client's business (`lock_client`); here is what becomes of the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use cli_support::exit_code;
use lock_client::{AcquireOptions, Error, LockGuard, LockSession, Loss, Standing};
use nix::sys::signal::Signal;
use tokio::process::Child;
use tokio::time::Instant;

use super::exit::Failure;
use super::servers::Servers;
use super::table::shown;
use crate::cli::run::group::Group;

mod group;
mod signals;
mod suspend;

use signals::Signals;

/// What is done while it is not sure whether the lock will be held much longer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnUncertain {
    /// Nothing: the command goes on until the lock is lost
    Continue,
    /// The command stands still (SIGSTOP) until it is sure again (SIGCONT), or lost
    Pause,
    /// The command is ended at once
    Kill,
}

/// What is done when somebody asks that the lock be given up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnRevoke {
    /// It is told, and the command goes on
    Continue,
    /// The command is ended, and the lock given back
    End,
}

/// How many permits a semaphore has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// So many.
    Of(u32),
    /// As many as it has.
    Any,
}

impl Limit {
    fn parse(text: &str) -> Result<Self, std::num::ParseIntError> {
        match text {
            "any" => Ok(Self::Any),
            number => number.parse().map(Self::Of),
        }
    }
}

/// `lockgate lock`
#[derive(Debug, Args)]
#[command(override_usage = "\
lockgate lock [OPTIONS] <NAME> -- <COMMAND>...
       lockgate lock show [OPTIONS] <NAME>    (the same as `lockgate show`)")]
#[command(after_help = "\
The command gets LOCKGATE_FENCING_TOKEN, LOCKGATE_LOCK and LOCKGATE_SESSION in its environment. Its exit code is passed on; \
a signal's is 128 + its number.\n\n\
  69  no server could serve, the command was not run\n\
  70  it is not known whether the lock was acquired, the command was not run\n\
  75  the lock was not free, or not in time, or is drained\n\
  79  the lock was lost, the command was ended\n\
 126  the command cannot be executed\n\
 127  the command was not found")]
pub struct Arguments {
    /// The lock
    name: String,
    /// Hold it together with others that do so, too
    #[arg(long)]
    shared: bool,
    /// Take permits of a semaphore that has so many in all; "any": as many as were set (`lockgate limit`), or as its users say
    #[arg(long, value_name = "LIMIT", conflicts_with = "shared", value_parser = Limit::parse)]
    semaphore: Option<Limit>,
    /// How many permits of the semaphore are taken
    #[arg(long, value_name = "N", requires = "semaphore")]
    permits: Option<u32>,
    /// Give up after this time if the lock is not free (30s, 5min); without it the command waits as long as it takes
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Give up at once if the lock is not free
    #[arg(long = "try", conflicts_with = "wait")]
    try_only: bool,
    /// How long the lock outlives this program if it vanishes, and how long it survives an outage of the network
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// A text for whoever looks at the lock (the command, if not given)
    #[arg(long)]
    note: Option<String>,
    /// What happens while no heartbeat is confirmed for half of the ttl
    #[arg(long, value_name = "WHAT", value_enum, default_value = "continue")]
    on_uncertain: OnUncertain,
    /// What happens when somebody asks that the lock be given up (`lockgate revoke`)
    #[arg(long, value_name = "WHAT", value_enum, default_value = "continue")]
    on_revoke: OnRevoke,
    /// How long the lock stays closed if this program vanishes and its session expires: at most 1min
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    lock_delay: Option<Duration>,
    /// How long a command that has lost its lock may take to end after SIGTERM, before SIGKILL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    grace: Duration,
    #[command(flatten)]
    servers: Servers,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    fn options(&self) -> AcquireOptions {
        let mut options = match (self.shared, self.semaphore) {
            (true, _) => AcquireOptions::shared(),
            (false, Some(Limit::Of(limit))) => AcquireOptions::semaphore(limit),
            (false, Some(Limit::Any)) => AcquireOptions::semaphore_of_any_limit(),
            (false, None) => AcquireOptions::exclusive(),
        };
        if let Some(permits) = self.permits {
            options = options.permits(permits);
        }
        if let Some(delay) = self.lock_delay {
            options = options.lock_delay(delay);
        }
        options = match (self.try_only, self.wait) {
            (true, _) => options.try_only(),
            (false, Some(wait)) => options.wait_at_most(wait),
            (false, None) => options,
        };
        options.note(self.note.as_deref().unwrap_or(&self.shown_command()))
    }

    /// The command as people know it, cut to what a note can hold.
    fn shown_command(&self) -> String {
        const LONGEST: usize = 200;
        let words: Vec<_> = self.command.iter().map(|word| word.to_string_lossy()).collect();
        words.join(" ").chars().take(LONGEST).collect()
    }
}

/// How the command's time under the lock ended.
enum End {
    /// By itself.
    Itself(ExitStatus),
    /// It was ended.
    Lost(Loss),
}

/// Does `lockgate lock`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let client = arguments.servers.client()?;
    // From now on signals are passed on, instead of ending this program and leaving a command without a lock.
    let mut signals = Signals::listen()?;
    let name = format!("lockgate lock, process {}", std::process::id());
    let session = tokio::select! {
        opened = client.session().ttl(arguments.ttl).name(name).open() => opened?,
        // If one was opened nobody knows it, and it ends by itself.
        signal = signals.next_ending() => return Ok(by_signal(signal?)),
    };
    let acquired = tokio::select! {
        acquired = session.acquire(&arguments.name, arguments.options()) => acquired.map_err(Failure::from),
        signal = signals.next_ending() => {
            close(session).await;
            return Ok(by_signal(signal?));
        }
    };
    let guard = match acquired {
        Ok(guard) => guard,
        Err(failure) => {
            close(session).await;
            return Err(failure);
        }
    };
    let outcome = supervised(&arguments, &session, &guard, &mut signals).await;
    if let Ok(End::Lost(loss)) = outcome {
        // The session has lost its lock, or will: all that is left to do is to say so to whoever waits for it.
        close(session).await;
        return Err(Failure::new(exit_code::LOST, told(&arguments.name, &loss)));
    }
    let released = guard.release().await;
    let closed = session.close().await;
    match (outcome?, released) {
        (End::Lost(_), _) => unreachable!("it was told above"),
        // It ended by itself, and had not held the lock to the end: what it did last was not guarded.
        (End::Itself(_), Err(Error::Lost(loss))) => {
            Err(Failure::new(exit_code::LOST, told(&arguments.name, &loss)))
        }
        (End::Itself(_), Err(Error::Refused(refusal))) => Err(Failure::new(
            exit_code::LOST,
            anyhow!("the lock was taken away before the command ended: {refusal}"),
        )),
        (End::Itself(status), released) => {
            // The command has done its work. If the lock is not given back now, it is when the session's time is over.
            if let (Err(error), Err(_)) = (released, closed) {
                eprintln!(
                    "lockgate: the lock {} is not given back yet: {error}",
                    arguments.name
                );
            }
            Ok(status_code(status))
        }
    }
}

/// Ends a session, and with it its place in the queue. That is awaited: the program is about to end, and with it
/// everything in the background.
async fn close(session: LockSession) {
    if let Err(error) = session.close().await {
        eprintln!("lockgate: the session was not closed, it ends by itself: {error}");
    }
}

/// Runs the command until it ends or has to.
async fn supervised(
    arguments: &Arguments,
    session: &LockSession,
    guard: &LockGuard,
    signals: &mut Signals,
) -> Result<End, Failure> {
    let mut child = spawn(arguments, session, guard)?;
    let mut group = Group::of(&child)?;
    let mut standing = session.standing_changes();
    let mut loss = std::pin::pin!(guard.lost());
    let mut revocation = std::pin::pin!(guard.revoke_requested());
    let mut is_asked = false;
    let ended = loop {
        tokio::select! {
            biased;
            status = child.wait() => break End::Itself(status.context("waiting for the command")?),
            loss = &mut loss => break End::Lost(loss),
            changed = standing.changed() => {
                changed.context("the session is watched for as long as it lives")?;
                let now = standing.borrow_and_update().clone();
                match (now, arguments.on_uncertain) {
                    (Standing::Uncertain, OnUncertain::Pause) => {
                        eprintln!("lockgate: no heartbeat is confirmed, the command is paused");
                        group.send(Signal::SIGSTOP)?;
                    }
                    (Standing::Uncertain, OnUncertain::Kill) => break End::Lost(Loss::NoHeartbeat),
                    (Standing::Uncertain, OnUncertain::Continue) => {
                        eprintln!("lockgate: no heartbeat is confirmed, the lock may soon be lost");
                    }
                    (Standing::Sure, OnUncertain::Pause) => {
                        eprintln!("lockgate: heartbeats are confirmed again, the command goes on");
                        group.wake()?;
                    }
                    (Standing::Sure, OnUncertain::Continue | OnUncertain::Kill) => {
                        eprintln!("lockgate: heartbeats are confirmed again");
                    }
                    // The loss itself is told by the guard.
                    (Standing::Lost(_), _) => {}
                }
            }
            signal = signals.next() => group.send(signal)?,
            asked = &mut revocation, if !is_asked => {
                is_asked = true;
                let (by, reason) = (shown(&asked.by), shown(&asked.reason));
                eprintln!("lockgate: {by} asks that the lock be given up: {reason}");
                if arguments.on_revoke == OnRevoke::End {
                    break End::Itself(end(&mut child, &group, arguments.grace).await?);
                }
            }
            () = group.suspended() => {
                // The shell that waits for this program has to get its terminal back. And no heartbeats are sent meanwhile:
                // a command that nobody wakes does not keep the lock for ever.
                group.give_terminal_back();
                suspend::suspend()?;
                // The lock may be lost by now. Then the command is not woken but to be ended.
                let stays_paused = arguments.on_uncertain == OnUncertain::Pause && session.standing() != Standing::Sure;
                if guard.check().is_ok() && !stays_paused {
                    group.wake()?;
                }
            }
        }
    };
    if let End::Lost(loss) = &ended {
        eprintln!(
            "lockgate: {:#}; the command is ended",
            told(&arguments.name, loss)
        );
        end(&mut child, &group, arguments.grace).await?;
    }
    // Whatever the command has left running in its group goes on without the lock, as after any other command.
    group.give_terminal_back();
    Ok(ended)
}

fn spawn(arguments: &Arguments, session: &LockSession, guard: &LockGuard) -> Result<Child, Failure> {
    let (program, rest) = arguments
        .command
        .split_first()
        .context("clap asks for a command")?;
    let mut command = tokio::process::Command::new(program);
    command
        .args(rest)
        .env("LOCKGATE_FENCING_TOKEN", guard.fencing_token().to_string())
        .env("LOCKGATE_LOCK", guard.lock())
        .env("LOCKGATE_SESSION", session.id())
        // A group of its own, so that all it starts can be paused and ended with it, and this program cannot.
        .process_group(0)
        .kill_on_drop(true);
    command.spawn().map_err(|error| {
        let code = match error.kind() {
            ErrorKind::NotFound => exit_code::NOT_FOUND,
            _ => exit_code::NOT_EXECUTABLE,
        };
        Failure::new(
            code,
            anyhow!(error).context(program.to_string_lossy().into_owned()),
        )
    })
}

/// Ends a command that has lost its lock, or is to give it up.
async fn end(child: &mut Child, group: &Group, grace: Duration) -> Result<ExitStatus, Failure> {
    let deadline = Instant::now() + grace;
    group.send(Signal::SIGTERM)?;
    // One that stands still has to go on to be able to end.
    group.send(Signal::SIGCONT)?;
    if tokio::time::timeout_at(deadline, child.wait()).await.is_err() {
        eprintln!("lockgate: the command has not ended in time and is killed");
    }
    // And what the command has left behind in its group: it must not go on without the lock.
    group.send(Signal::SIGKILL)?;
    Ok(child.wait().await.context("waiting for the command")?)
}

fn told(name: &str, loss: &Loss) -> anyhow::Error {
    anyhow!("the lock {name} is lost: {loss}")
}

fn by_signal(signal: Signal) -> ExitCode {
    ExitCode::from(exit_code::BY_SIGNAL + signal as u8)
}

/// What shells make of a command's end.
fn status_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) => {
            ExitCode::from(exit_code::BY_SIGNAL.wrapping_add(u8::try_from(signal).unwrap_or(0)))
        }
        (None, None) => ExitCode::FAILURE,
    }
}
