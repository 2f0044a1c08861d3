//! `lockgate lock`: runs a command while a lock is held, or several.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lock_client::{AcquireOptions, Error, LockSession, LockSet};
use tokio::time::Instant;

use super::exit::Failure;
use super::guarded_command::{GuardedCommand, Hold, Locks, OnReleaseRequest};

/// Maximum wait that the API allows.
const MAX_WAIT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Maximum lock delay that the API allows.
const MAX_LOCK_DELAY: Duration = Duration::from_secs(60);

/// Limit of a semaphore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Limit {
    /// This number of permits.
    Of(u32),
    /// The limit that the semaphore has.
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

/// `lockgate lock run`, in short `lockgate lock`
#[derive(Debug, Args)]
#[command(after_help = "\
The command gets LOCKGATE_FENCING_TOKEN, LOCKGATE_LOCK and LOCKGATE_SESSION in its environment. Several locks are acquired in one step: \
they have the same token, and LOCKGATE_LOCK has a name on each line. The exit code is that of the command; \
for a signal it is 128 + its number.\n\n\
  69  no server was available, or the session expired; the command was not run\n\
  75  the lock was not free, or not in time, or is draining; the command was not run\n\
  79  the lock was lost while the command ran, and the command was ended\n\
 126  the command cannot be executed\n\
 127  the command was not found")]
pub struct Arguments {
    /// Names of the locks: one, or several that are acquired in one step, all or none
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Hold the lock in shared mode, together with other shared holders
    #[arg(long)]
    shared: bool,
    /// Acquire permits of a semaphore with this limit; "any": the limit that was set (`lockgate limit`), or
    /// that its users give
    #[arg(long, value_name = "LIMIT", conflicts_with = "shared", value_parser = Limit::parse)]
    semaphore: Option<Limit>,
    /// Number of permits to acquire
    #[arg(long, value_name = "N", requires = "semaphore")]
    permits: Option<u32>,
    /// Give up if the lock is not granted within this time from the start (30s, 5min; at most 7days); without
    /// it the wait has no limit. Servers that do not answer get at least 2s
    #[arg(long, value_name = "TIME", value_parser = wait_time)]
    wait: Option<Duration>,
    /// Give up at once if the lock is not free, and after 2s if no server answers
    #[arg(long = "try", conflicts_with = "wait")]
    try_only: bool,
    /// Note that the lock and its history show (by default the name of the command's program)
    #[arg(long)]
    note: Option<String>,
    /// Owner that the lock shows: the scope of re-entry within the session
    #[arg(long, value_name = "OWNER")]
    owner: Option<String>,
    /// Reaction to a release request (`lockgate request-release`)
    #[arg(
        long,
        value_name = "WHAT",
        value_enum,
        default_value = "continue",
        alias = "on-revoke"
    )]
    on_release_request: OnReleaseRequest,
    /// Lock delay: time for which the lock stays closed if this program vanishes and its session expires; at
    /// most 1min
    #[arg(long, value_name = "TIME", value_parser = lock_delay_time)]
    lock_delay: Option<Duration>,
    /// Time after the grant within which the lock is not granted again, even if the command ends earlier; at most 7days
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    min_hold: Option<Duration>,
    /// Time after the grant at which the lock is lost, and the command ended; at most 7days
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_hold: Option<Duration>,
    #[command(flatten)]
    guarded: GuardedCommand,
}

impl Arguments {
    /// Returns what each of the locks is acquired with.
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
        if let Some(time) = self.min_hold {
            options = options.min_hold(time);
        }
        if let Some(time) = self.max_hold {
            options = options.max_hold(time);
        }
        options
    }

    /// Returns the note of the locks.
    fn note(&self) -> String {
        self.note.clone().unwrap_or_else(|| self.guarded.program())
    }

    /// Acquires the locks.
    async fn acquire(&self, session: &LockSession, start: Instant) -> Result<Hold, Error> {
        let rest = |wait: Duration| wait.saturating_sub(start.elapsed());
        let (note, owner) = (self.note(), self.owner.as_deref());
        if let [name] = &self.names[..] {
            let mut options = self.options().note(&note);
            options = match (self.try_only, self.wait) {
                (true, _) => options.try_only(),
                (false, Some(wait)) => options.wait_at_most(rest(wait)),
                (false, None) => options,
            };
            if let Some(owner) = owner {
                options = options.owner(owner);
            }
            return session.acquire(name, options).await.map(Hold::One);
        }
        let mut set = LockSet::new().note(&note);
        for name in &self.names {
            set = set.with(name, self.options());
        }
        set = match (self.try_only, self.wait) {
            (true, _) => set.try_only(),
            (false, Some(wait)) => set.wait_at_most(rest(wait)),
            (false, None) => set,
        };
        if let Some(owner) = owner {
            set = set.owner(owner);
        }
        session.acquire_all(set).await.map(Hold::Several)
    }
}

/// Parses a value of `--wait`.
pub fn wait_time(text: &str) -> Result<Duration, String> {
    time_up_to(MAX_WAIT, text).map_err(|error| format!("{error}; without --wait the wait has no limit"))
}

/// Parses a value of `--lock-delay`.
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

/// Runs `lockgate lock`.
pub async fn run(arguments: Arguments) -> Result<ExitCode, Failure> {
    let start = Instant::now();
    let locks = Locks {
        names: &arguments.names,
        wait: match arguments.try_only {
            true => Some(Duration::ZERO),
            false => arguments.wait,
        },
        on_release_request: arguments.on_release_request,
    };
    let acquire = async |session: &LockSession| arguments.acquire(session, start).await;
    arguments.guarded.run("lockgate lock", locks, acquire).await
}
