//! A command that runs while locks are held, and is ended when one is lost. `lock_client` manages the locks; this module
//! manages the command.

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
use lock_client::{Error, LockSession, Loss, ReleaseRequest, SessionState};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::Child;
use tokio::time::Instant;

use self::process_group::ProcessGroup;
use self::signals::Signals;
use super::exit::Failure;
use super::servers::Servers;

mod hold;
mod process_group;
mod signals;
mod suspend;

pub use hold::Hold;

/// Minimum time for the servers to answer with a shorter limit: twice as long as an election takes after the leader has
/// stalled.
const MIN_REQUEST_TIME: Duration = Duration::from_secs(2);

/// Additional time for the server's answer that a wait is over; after it the wait ends without one.
const REPLY_DELAY: Duration = Duration::from_millis(250);

/// Time limit for closing a session without a lock. The session expires by itself after its TTL; closing it
/// earlier lets the next waiters proceed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Reaction to a session that may soon expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum OnUncertain {
    /// None: the command continues until the lock is lost
    Continue,
    /// The command is stopped (SIGSTOP) until a heartbeat is confirmed (SIGCONT) or the lock is lost
    Pause,
    /// The command is ended at once
    Kill,
}

/// Reaction to a release request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum OnReleaseRequest {
    /// The request is printed, and the command continues
    Continue,
    /// The command is ended, and the lock released
    End,
}

/// Command, and its session.
#[derive(Debug, Args)]
pub struct GuardedCommand {
    /// Timeout of the session: how long the lock outlives this program if it vanishes, and how long it
    /// survives an outage of the network. The cluster has bounds for it (by default 2s to 5min)
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Name of the session (by default this program's name and process id)
    #[arg(long = "name", value_name = "NAME")]
    session_name: Option<String>,
    /// Reaction while no heartbeat is confirmed for half of the ttl
    #[arg(long, value_name = "WHAT", value_enum, default_value = "continue")]
    on_uncertain: OnUncertain,
    /// Time between SIGTERM and SIGKILL for a command that has lost its lock
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Keep LOCKGATE_TOKEN in the environment of the command, which then has the rights of this program
    #[arg(long)]
    pass_token: bool,
    #[command(flatten)]
    servers: Servers,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Locks of a command.
#[derive(Debug)]
pub struct Locks<'a> {
    /// Names: one or several.
    pub names: &'a [String],
    /// Maximum wait for the locks; zero: a single attempt.
    pub wait: Option<Duration>,
    /// Reaction to a release request.
    pub on_release_request: OnReleaseRequest,
}

/// End of a command that has not lost its lock.
struct Ended {
    status: ExitStatus,
    /// Request that ended it.
    request: Option<ReleaseRequest>,
}

impl Locks<'_> {
    /// Returns the time limit until the command runs; `None` if it has no limit.
    fn limit(&self) -> Option<Duration> {
        self.wait.map(|wait| match wait.is_zero() {
            true => MIN_REQUEST_TIME,
            false => MIN_REQUEST_TIME.max(wait + REPLY_DELAY),
        })
    }

    /// Returns the names of the locks for messages.
    fn shown_names(&self) -> String {
        let names: Vec<String> = self.names.iter().map(|name| shown(name)).collect();
        match names.len() {
            1 => format!("the lock {}", names[0]),
            _ => format!("the locks {}", names.join(", ")),
        }
    }

    /// Returns the failure of a wait that is over without an answer of a server.
    fn out_of_time(&self) -> Failure {
        let locks = self.shown_names();
        match self.wait.filter(|wait| !wait.is_zero()) {
            Some(wait) => {
                let verb = if self.names.len() == 1 { "was" } else { "were" };
                let wait = humantime::format_duration(wait);
                Failure::new(
                    exit_code::NOT_FREE,
                    anyhow!("{locks} {verb} not granted within {wait}"),
                )
            }
            None => Failure::new(
                exit_code::UNAVAILABLE,
                anyhow!("no server answered in time for {locks}"),
            ),
        }
    }
}

impl GuardedCommand {
    /// Returns the name of the command's program, cut to the maximum length of a note. The arguments may
    /// contain secrets, and every caller with the right to read the lock sees the note.
    pub fn program(&self) -> String {
        const LONGEST: usize = 200;
        let program = Path::new(&self.command[0]);
        let name = program.file_name().unwrap_or(program.as_os_str());
        name.to_string_lossy().chars().take(LONGEST).collect()
    }

    /// Opens a session, acquires the locks by `acquire`, and runs the command while they are held. `of` is the command of this program, for
    /// the name of the session.
    pub async fn run(
        &self,
        of: &str,
        locks: Locks<'_>,
        acquire: impl AsyncFnOnce(&LockSession) -> Result<Hold, Error>,
    ) -> Result<ExitCode, Failure> {
        let limit = locks.limit();
        let give_up_at = limit.map(|limit| Instant::now() + limit);
        let client = match limit {
            Some(limit) => self.servers.client_within(limit)?,
            None => self.servers.client()?,
        };
        // From now on signals are forwarded; they must not end this program and leave a command without a lock.
        let mut signals = Signals::listen()?;
        let orphans = Orphans::collect()?;
        let process_name = || format!("{of}, process {}", std::process::id());
        let name = self.session_name.clone().unwrap_or_else(process_name);
        let session = tokio::select! {
            opened = within(give_up_at, client.session().ttl(self.ttl).name(name).open()) => {
                opened.unwrap_or_else(|| Err(Failure::new(exit_code::UNAVAILABLE, anyhow!("no server answered in time"))))?
            }
            // A session that was opened without an answer is unknown here, and expires by itself.
            signal = signals.next_terminating() => return Ok(signal_code(signal?)),
        };
        if session.ttl().as_millis() != self.ttl.as_millis() {
            tell(format!(
                "lockgate: the ttl is {}; the cluster does not allow {}",
                humantime::format_duration(session.ttl()),
                humantime::format_duration(self.ttl)
            ));
        }
        let acquired = tokio::select! {
            acquired = within(give_up_at, acquire(&session)) => {
                acquired.unwrap_or_else(|| Err(locks.out_of_time()))
            }
            signal = signals.next_terminating() => {
                close(session).await;
                return Ok(signal_code(signal?));
            }
        };
        let acquired = acquired.and_then(|hold| match hold.check() {
            Ok(()) => Ok(hold),
            Err(loss) => Err(not_run(loss)),
        });
        let hold = match acquired {
            Ok(hold) => hold,
            Err(failure) => {
                close(session).await;
                return Err(failure);
            }
        };
        let ended = supervise(self, &locks, &session, &hold, &mut signals, &orphans).await;
        let Some(ended) = ended.transpose() else {
            // The session has lost its lock, or will lose it, and the loss was reported.
            close(session).await;
            return Ok(ExitCode::from(exit_code::LOST));
        };
        let request = ended.as_ref().ok().and_then(|ended| ended.request.as_ref());
        let released = hold.release(request).await;
        let closed = session.close().await;
        match (ended?.status, released) {
            // The command ended by itself after the lock was lost: its last steps were not guarded.
            (_, Err(Error::Lost(loss))) => {
                let lost = match locks.names.len() {
                    1 => locks.shown_names(),
                    _ => format!("one of {}", locks.shown_names()),
                };
                Err(Failure::new(exit_code::LOST, lock_lost(&lost, &loss)))
            }
            (_, Err(Error::Refused(refusal))) => Err(Failure::new(
                exit_code::LOST,
                anyhow!(
                    "the lock was broken before the command ended: {}",
                    shown(&refusal.to_string())
                ),
            )),
            (status, released) => {
                // The command has done its work. A lock that is not released now is released when the session
                // expires.
                if let (Err(error), Err(_)) = (released, closed) {
                    tell(format!(
                        "lockgate: {} {} not released yet: {}",
                        locks.shown_names(),
                        if locks.names.len() == 1 { "is" } else { "are" },
                        shown(&error.to_string())
                    ));
                }
                Ok(status_code(status))
            }
        }
    }
}

/// Returns the result of a call; `None` if it takes longer than until this moment.
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

/// Converts an error from before the command ran. Nothing was done by then: a lock that the session may hold
/// ends with it.
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

/// Closes a session, and with it its place in the queue. The program waits for it, because its background
/// tasks end with it.
async fn close(session: LockSession) {
    let ttl = humantime::format_duration(session.ttl());
    let why = match tokio::time::timeout(CLOSE_TIMEOUT, session.close()).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no server answered".to_owned(),
    };
    tell(format!(
        "lockgate: the session was not closed; it expires within {ttl}: {}",
        shown(&why)
    ));
}

/// Runs the command until it ends or has to end. Returns its end; `None` if a lock was lost, which is
/// reported, and the command was ended.
async fn supervise(
    guarded: &GuardedCommand,
    locks: &Locks<'_>,
    session: &LockSession,
    hold: &Hold,
    signals: &mut Signals,
    orphans: &Orphans,
) -> Result<Option<Ended>, Failure> {
    let mut child = spawn(guarded, locks, session, hold, orphans)?;
    let mut group = ProcessGroup::of(&child)?;
    let mut state = session.state_changes();
    let mut loss = std::pin::pin!(hold.lost());
    let mut request = std::pin::pin!(hold.release_requested());
    let mut is_requested = false;
    let ended = loop {
        tokio::select! {
            biased;
            status = child.wait() => break Ok(Ended { status: status.context("waiting for the command")?, request: None }),
            lost = &mut loss => break Err(lost),
            changed = state.changed() => {
                changed.context("the session ended while it was watched")?;
                let now = state.borrow_and_update().clone();
                match (now, guarded.on_uncertain) {
                    (SessionState::Uncertain, OnUncertain::Pause) => {
                        tell("lockgate: no heartbeat is confirmed; the command is paused");
                        group.send(Signal::SIGSTOP)?;
                    }
                    (SessionState::Uncertain, OnUncertain::Kill) => {
                        break Err((locks.names[0].clone(), Loss::NoHeartbeat));
                    }
                    (SessionState::Uncertain, OnUncertain::Continue) => {
                        tell("lockgate: no heartbeat is confirmed; the lock may soon be lost");
                    }
                    (SessionState::Confirmed, OnUncertain::Pause) => {
                        tell("lockgate: heartbeats are confirmed again; the command continues");
                        group.wake()?;
                    }
                    (SessionState::Confirmed, OnUncertain::Continue | OnUncertain::Kill) => {
                        tell("lockgate: heartbeats are confirmed again");
                    }
                    // The guard reports the loss itself.
                    _ => {}
                }
            }
            signal = signals.next() => group.send(signal)?,
            request = &mut request, if !is_requested => {
                is_requested = true;
                let (by, reason) = (shown(&request.by), shown(&request.reason));
                tell(format!("lockgate: {by} requests the release of the lock: {reason}"));
                if locks.on_release_request == OnReleaseRequest::End {
                    let status = terminate(&mut child, &group, guarded.grace).await?;
                    break Ok(Ended { status, request: Some(request) });
                }
            }
            () = group.suspended() => {
                // The shell that waits for this program needs its terminal back. No heartbeats are sent
                // meanwhile, so a command that is never resumed does not keep the lock forever.
                group.reclaim_terminal();
                suspend::suspend()?;
                // If the lock is lost by now, the command is resumed only to be ended.
                let stays_paused = guarded.on_uncertain == OnUncertain::Pause && session.state() != SessionState::Confirmed;
                if hold.check().is_ok() && !stays_paused {
                    group.wake()?;
                }
            }
        }
    };
    let ended = match ended {
        Ok(ended) => Some(ended),
        Err((name, loss)) => {
            let lost = lock_lost(&format!("the lock {name}"), &loss);
            tell(format!("lockgate: {lost:#}; the command is ended"));
            terminate(&mut child, &group, guarded.grace).await?;
            None
        }
    };
    // Processes that the command has left in its group continue without the lock, as after any other command.
    group.reclaim_terminal();
    Ok(ended)
}

fn spawn(
    guarded: &GuardedCommand,
    locks: &Locks<'_>,
    session: &LockSession,
    hold: &Hold,
    orphans: &Orphans,
) -> Result<Child, Failure> {
    let (program, rest) = guarded.command.split_first().context("clap requires a command")?;
    let mut command = tokio::process::Command::new(program);
    command
        .args(rest)
        // Locks that were acquired in one step have the same token.
        .env(
            "LOCKGATE_FENCING_TOKEN",
            hold.guards()[0].fencing_token().to_string(),
        )
        .env("LOCKGATE_LOCK", locks.names.join("\n"))
        .env("LOCKGATE_SESSION", session.id())
        // A process group of its own, so that all its processes can be stopped and ended with it, without
        // this program.
        .process_group(0)
        .kill_on_drop(true);
    if !guarded.pass_token {
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

/// Ends a command that has lost its lock, or is to release it.
async fn terminate(child: &mut Child, group: &ProcessGroup, grace: Duration) -> Result<ExitStatus, Failure> {
    let deadline = Instant::now() + grace;
    group.send(Signal::SIGTERM)?;
    // A stopped process must continue to be able to end.
    group.send(Signal::SIGCONT)?;
    if tokio::time::timeout_at(deadline, child.wait()).await.is_err() {
        tell("lockgate: the command has not ended in time and is killed");
    }
    // Processes that the command has left in its group must not continue without the lock either.
    group.send(Signal::SIGKILL)?;
    Ok(child.wait().await.context("waiting for the command")?)
}

fn pid_of(child: &Child) -> anyhow::Result<Pid> {
    let id = child.id().context("the command was just started")?;
    Ok(Pid::from_raw(i32::try_from(id).context("a process id")?))
}

fn lock_lost(locks: &str, loss: &Loss) -> anyhow::Error {
    anyhow!("{}", shown(&format!("{locks} is lost: {loss}")))
}

fn signal_code(signal: Signal) -> ExitCode {
    ExitCode::from(exit_code::BY_SIGNAL + signal as u8)
}

/// Converts the exit status of the command into the exit code that shells use.
fn status_code(status: ExitStatus) -> ExitCode {
    match (status.code(), status.signal()) {
        (Some(code), _) => ExitCode::from(u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) => {
            ExitCode::from(exit_code::BY_SIGNAL.wrapping_add(u8::try_from(signal).unwrap_or(0)))
        }
        (None, None) => ExitCode::FAILURE,
    }
}
