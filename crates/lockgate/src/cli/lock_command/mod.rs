//! `lockgate lock`: a command that runs while a lock is held, and ends when the lock is lost. What becomes of the lock is
//! the client's business (`lock_client`); here is what becomes of the command.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{Args, ValueEnum};
use cli_support::connection_options::TOKEN_VARIABLE;
use cli_support::exit_code;
use cli_support::orphans::Orphans;
use cli_support::output::{shown, tell};
use lock_client::{AcquireOptions, Error, LockGuard, LockSession, Loss, SessionState};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::Instant;

use super::exit::Failure;
use super::servers::Servers;
use crate::cli::lock_command::process_group::ProcessGroup;

mod process_group;
mod signals;
mod suspend;

use signals::Signals;

/// How long `--try`, and a shorter `--wait`, leave the servers to answer at all: twice as long as an election takes after a leader stood still.
const MIN_REQUEST_TIME: Duration = Duration::from_secs(2);

/// A server says that a wait is over so much later at most; else the wait ends without it.
const REPLY_DELAY: Duration = Duration::from_millis(250);

/// How long a session without a lock is tried to be closed. It ends by itself after its ttl; to close it lets others pass in the queue earlier.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest wait that the API takes.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The longest lock delay that the API takes.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);

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
  69  no server could serve, or none kept the session alive; the command was not run\n\
  75  the lock was not free, or not in time, or is drained; the command was not run\n\
  79  the lock was lost while the command ran, and the command was ended\n\
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
    /// Give up if the lock is not granted within this time from the start (30s, 5min; at most 7days); without it the command waits as long as
    /// it takes. Servers that do not answer are given 2s at least
    #[arg(long, value_name = "TIME", value_parser = wait_time)]
    wait: Option<Duration>,
    /// Give up at once if the lock is not free, and after 2s if no server answers
    #[arg(long = "try", conflicts_with = "wait")]
    try_only: bool,
    /// How long the lock outlives this program if it vanishes, and how long it survives an outage of the network. The cluster has bounds for
    /// it (by default 2s to 5min)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// A text for whoever looks at the lock or at its history (the name of the command's program, if not given)
    #[arg(long)]
    note: Option<String>,
    /// What happens while no heartbeat is confirmed for half of the ttl
    #[arg(long, value_name = "WHAT", value_enum, default_value = "continue")]
    on_uncertain: OnUncertain,
    /// What happens when somebody asks that the lock be given up (`lockgate revoke`)
    #[arg(long, value_name = "WHAT", value_enum, default_value = "continue")]
    on_revoke: OnRevoke,
    /// How long the lock stays closed if this program vanishes and its session expires: at most 1min
    #[arg(long, value_name = "TIME", value_parser = lock_delay_time)]
    lock_delay: Option<Duration>,
    /// How long a command that has lost its lock may take to end after SIGTERM, before SIGKILL
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Leave LOCKGATE_TOKEN in the environment of the command, which can then do all that this program may
    #[arg(long)]
    pass_token: bool,
    #[command(flatten)]
    servers: Servers,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl Arguments {
    /// When the wait for the lock is over; none: never.
    fn wait_until(&self, start: Instant) -> Option<Instant> {
        match (self.try_only, self.wait) {
            (true, _) => Some(start),
            (false, wait) => wait.map(|wait| start + wait),
        }
    }

    /// How long all may take until the command runs; none: as long as it takes.
    fn limit(&self) -> Option<Duration> {
        match (self.try_only, self.wait) {
            (true, _) => Some(MIN_REQUEST_TIME),
            (false, wait) => wait.map(|wait| MIN_REQUEST_TIME.max(wait + REPLY_DELAY)),
        }
    }

    /// What is wanted of the lock from now on.
    fn options(&self, start: Instant) -> AcquireOptions {
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
        options = match (self.try_only, self.wait_until(start)) {
            (true, _) => options.try_only(),
            (false, Some(until)) => options.wait_at_most(until.saturating_duration_since(Instant::now())),
            (false, None) => options,
        };
        options.note(self.note.as_deref().unwrap_or(&self.program()))
    }

    /// The name of the command's program, cut to what a note can hold. Its arguments may have secrets in them, and everybody who may read
    /// the lock sees the note.
    fn program(&self) -> String {
        const LONGEST: usize = 200;
        let program = Path::new(&self.command[0]);
        let name = program.file_name().unwrap_or(program.as_os_str());
        name.to_string_lossy().chars().take(LONGEST).collect()
    }

    /// The failure of one that waits when its time is over and no server has said so.
    fn out_of_time(&self) -> Failure {
        let name = shown(&self.name);
        match self.wait {
            Some(wait) => Failure::new(
                exit_code::NOT_FREE,
                anyhow!(
                    "the lock {name} was not granted within {}",
                    humantime::format_duration(wait)
                ),
            ),
            None => Failure::new(
                exit_code::UNAVAILABLE,
                anyhow!("no server has said in time whether the lock {name} is free"),
            ),
        }
    }
}

/// How the command's time under the lock ended.
enum CommandEnd {
    /// By itself.
    Itself(ExitStatus),
    /// It was ended.
    Lost(Loss),
}

/// A value of `--wait`.
fn wait_time(text: &str) -> Result<Duration, String> {
    time_up_to(MAX_WAIT, text)
        .map_err(|error| format!("{error}; without --wait the command waits as long as it takes"))
}

/// A value of `--lock-delay`.
fn lock_delay_time(text: &str) -> Result<Duration, String> {
    time_up_to(MAX_LOCK_DELAY, text)
}

fn time_up_to(longest: Duration, text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    match time <= longest {
        true => Ok(time),
        false => Err(format!("at most {}", humantime::format_duration(longest))),
    }
}

/// Does `lockgate lock`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let limit = arguments.limit();
    let give_up_at = limit.map(|limit| start + limit);
    let client = match limit {
        Some(limit) => arguments.servers.client_within(limit)?,
        None => arguments.servers.client()?,
    };
    // From now on signals are passed on, instead of ending this program and leaving a command without a lock.
    let mut signals = Signals::listen()?;
    let orphans = Orphans::collect()?;
    let name = format!("lockgate lock, process {}", std::process::id());
    let session = tokio::select! {
        opened = within(give_up_at, client.session().ttl(arguments.ttl).name(name).open()) => {
            opened.unwrap_or_else(|| Err(Failure::new(exit_code::UNAVAILABLE, anyhow!("no server has answered in time"))))?
        }
        // If one was opened nobody knows it, and it ends by itself.
        signal = signals.next_terminating() => return Ok(signal_code(signal?)),
    };
    if session.ttl().as_millis() != arguments.ttl.as_millis() {
        tell(format!(
            "lockgate: the ttl is {}: the cluster does not allow {}",
            humantime::format_duration(session.ttl()),
            humantime::format_duration(arguments.ttl)
        ));
    }
    let acquired = tokio::select! {
        acquired = within(give_up_at, session.acquire(&arguments.name, arguments.options(start))) => {
            acquired.unwrap_or_else(|| Err(arguments.out_of_time()))
        }
        signal = signals.next_terminating() => {
            close(session).await;
            return Ok(signal_code(signal?));
        }
    };
    let acquired = acquired.and_then(|guard| match guard.check() {
        Ok(_) => Ok(guard),
        Err(loss) => Err(not_run(loss)),
    });
    let guard = match acquired {
        Ok(guard) => guard,
        Err(failure) => {
            close(session).await;
            return Err(failure);
        }
    };
    let outcome = supervise(&arguments, &session, &guard, &mut signals, &orphans).await;
    if let Ok(CommandEnd::Lost(loss)) = outcome {
        // The session has lost its lock, or will: all that is left to do is to say so to whoever waits for it.
        close(session).await;
        return Err(Failure::new(exit_code::LOST, lock_lost(&arguments.name, &loss)));
    }
    let released = guard.release().await;
    let closed = session.close().await;
    match (outcome?, released) {
        (CommandEnd::Lost(_), _) => unreachable!("it was told above"),
        // It ended by itself, and had not held the lock to the end: what it did last was not guarded.
        (CommandEnd::Itself(_), Err(Error::Lost(loss))) => {
            Err(Failure::new(exit_code::LOST, lock_lost(&arguments.name, &loss)))
        }
        (CommandEnd::Itself(_), Err(Error::Refused(refusal))) => Err(Failure::new(
            exit_code::LOST,
            anyhow!(
                "the lock was taken away before the command ended: {}",
                shown(&refusal.to_string())
            ),
        )),
        (CommandEnd::Itself(status), released) => {
            // The command has done its work. If the lock is not given back now, it is when the session's time is over.
            if let (Err(error), Err(_)) = (released, closed) {
                tell(format!(
                    "lockgate: the lock {} is not given back yet: {}",
                    shown(&arguments.name),
                    shown(&error.to_string())
                ));
            }
            Ok(status_code(status))
        }
    }
}

/// What comes of a call, if it ends before this moment.
async fn within<T>(
    give_up_at: Option<Instant>,
    call: impl Future<Output = Result<T, Error>>,
) -> Option<Result<T, Failure>> {
    let done = match give_up_at {
        Some(at) => tokio::time::timeout_at(at, call).await.ok()?,
        None => call.await,
    };
    Some(done.map_err(not_run))
}

/// A call that has failed before the command ran. Nothing is done by then: whatever the session may hold ends with it.
fn not_run(error: Error) -> Failure {
    let why = match error {
        Error::Refused(_) => return error.into(),
        Error::Unavailable(why) | Error::Unknown(why) => why,
        other => other.to_string(),
    };
    Failure::new(
        exit_code::UNAVAILABLE,
        anyhow!("the lock was not acquired: {}", shown(&why)),
    )
}

/// Ends a session, and with it its place in the queue. That is awaited: the program is about to end, and with it
/// everything in the background.
async fn close(session: LockSession) {
    let ttl = humantime::format_duration(session.ttl());
    let why = match tokio::time::timeout(CLOSE_TIMEOUT, session.close()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no server has answered".to_owned(),
    };
    tell(format!(
        "lockgate: the session was not closed, it ends by itself within {ttl}: {}",
        shown(&why)
    ));
}

/// Runs the command until it ends or has to.
async fn supervise(
    arguments: &Arguments,
    session: &LockSession,
    guard: &LockGuard,
    signals: &mut Signals,
    orphans: &Orphans,
) -> Result<CommandEnd, Failure> {
    let mut child = spawn(arguments, session, guard, orphans)?;
    let mut group = ProcessGroup::of(&child)?;
    let mut state = session.state_changes();
    let mut loss = std::pin::pin!(guard.lost());
    let mut request = std::pin::pin!(guard.release_requested());
    let mut is_asked = false;
    let ended = loop {
        tokio::select! {
            biased;
            status = child.wait() => break CommandEnd::Itself(status.context("waiting for the command")?),
            loss = &mut loss => break CommandEnd::Lost(loss),
            changed = state.changed() => {
                changed.context("the session is watched for as long as it lives")?;
                let now = state.borrow_and_update().clone();
                match (now, arguments.on_uncertain) {
                    (SessionState::Uncertain, OnUncertain::Pause) => {
                        tell("lockgate: no heartbeat is confirmed, the command is paused");
                        group.send(Signal::SIGSTOP)?;
                    }
                    (SessionState::Uncertain, OnUncertain::Kill) => break CommandEnd::Lost(Loss::NoHeartbeat),
                    (SessionState::Uncertain, OnUncertain::Continue) => {
                        tell("lockgate: no heartbeat is confirmed, the lock may soon be lost");
                    }
                    (SessionState::Confirmed, OnUncertain::Pause) => {
                        tell("lockgate: heartbeats are confirmed again, the command goes on");
                        group.wake()?;
                    }
                    (SessionState::Confirmed, OnUncertain::Continue | OnUncertain::Kill) => {
                        tell("lockgate: heartbeats are confirmed again");
                    }
                    // The loss itself is told by the guard.
                    _ => {}
                }
            }
            signal = signals.next() => group.send(signal)?,
            asked = &mut request, if !is_asked => {
                is_asked = true;
                let (by, reason) = (shown(&asked.by), shown(&asked.reason));
                tell(format!("lockgate: {by} asks that the lock be given up: {reason}"));
                if arguments.on_revoke == OnRevoke::End {
                    break CommandEnd::Itself(terminate(&mut child, &group, arguments.grace).await?);
                }
            }
            () = group.suspended() => {
                // The shell that waits for this program has to get its terminal back. And no heartbeats are sent meanwhile:
                // a command that nobody wakes does not keep the lock for ever.
                group.reclaim_terminal();
                suspend::suspend()?;
                // The lock may be lost by now. Then the command is not woken but to be ended.
                let stays_paused = arguments.on_uncertain == OnUncertain::Pause && session.state() != SessionState::Confirmed;
                if guard.check().is_ok() && !stays_paused {
                    group.wake()?;
                }
            }
        }
    };
    if let CommandEnd::Lost(loss) = &ended {
        tell(format!(
            "lockgate: {:#}; the command is ended",
            lock_lost(&arguments.name, loss)
        ));
        terminate(&mut child, &group, arguments.grace).await?;
    }
    // Whatever the command has left running in its group goes on without the lock, as after any other command.
    group.reclaim_terminal();
    Ok(ended)
}

fn spawn(
    arguments: &Arguments,
    session: &LockSession,
    guard: &LockGuard,
    orphans: &Orphans,
) -> Result<Child, Failure> {
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
    if !arguments.pass_token {
        command.env_remove(TOKEN_VARIABLE);
    }
    let spawned = command.spawn();
    if let Ok(child) = &spawned {
        orphans.spare(pid_of(child)?);
    }
    spawned.map_err(|error| {
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
async fn terminate(child: &mut Child, group: &ProcessGroup, grace: Duration) -> Result<ExitStatus, Failure> {
    let deadline = Instant::now() + grace;
    group.send(Signal::SIGTERM)?;
    // One that stands still has to go on to be able to end.
    group.send(Signal::SIGCONT)?;
    if tokio::time::timeout_at(deadline, child.wait()).await.is_err() {
        tell("lockgate: the command has not ended in time and is killed");
    }
    // And what the command has left behind in its group: it must not go on without the lock.
    group.send(Signal::SIGKILL)?;
    Ok(child.wait().await.context("waiting for the command")?)
}

fn pid_of(child: &Child) -> anyhow::Result<Pid> {
    let id = child.id().context("the command was just started")?;
    Ok(Pid::from_raw(i32::try_from(id).context("a process id")?))
}

fn lock_lost(name: &str, loss: &Loss) -> anyhow::Error {
    anyhow!("{}", shown(&format!("the lock {name} is lost: {loss}")))
}

fn signal_code(signal: Signal) -> ExitCode {
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
