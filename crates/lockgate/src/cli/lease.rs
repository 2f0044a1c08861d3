//! `lockgate lease`: locks with a time to live, for scripts. One command acquires the lock, and another one, perhaps on another
//! machine, renews or releases it by what the first one printed.

use std::time::Duration;

use anyhow::anyhow;
use clap::{Args, Subcommand};
use cli_support::api_client::request_id;
use cli_support::exit_code::{BY_SIGNAL, NOT_FREE};
use cli_support::format::Output;
use cli_support::http_client::encode_path;
use cli_support::output::{say, shown};
use cli_support::signals::{Signal, SignalListener};
use cli_support::usage::UsageError;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::api::Api;
use super::exit::Failure;
use super::servers::Servers;

/// Longest wait of one request for the grant, after which the lease is renewed. A server that vanishes costs no more than that.
const MAX_POLL: Duration = Duration::from_secs(5);

/// Polls in the time to live of a waiting lease, so that it is renewed well before its end.
const POLLS_PER_TTL: u32 = 4;

/// Commands on leases.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Acquire a lock for a time, without a process that keeps it
    Acquire(Acquire),
    /// Renew a lease
    Renew(Renew),
    /// Release a lease, or leave its queue
    Release(Release),
    /// Show a lease
    #[command(name = "show")]
    ShowLease(ShowLease),
}

/// `lockgate lease acquire`
#[derive(Debug, Args)]
#[command(after_help = "\
  69  no server was available\n\
  75  the lock was not free, or not in time, or is draining")]
pub struct Acquire {
    /// Name of the lock
    name: String,
    /// Time to live: the lock is free this long after the last renewal. The cluster has bounds for it (by default 2s to 1day)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Duration,
    /// Wait for the lock for at most this time, in its queue (by default the command gives up at once)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    wait: Option<Duration>,
    /// Hold the lock in shared mode, together with other shared holders
    #[arg(long)]
    shared: bool,
    /// Acquire permits of a semaphore with this limit
    #[arg(long, value_name = "LIMIT", conflicts_with = "shared")]
    semaphore: Option<u32>,
    /// Number of permits to acquire
    #[arg(long, value_name = "N", requires = "semaphore")]
    permits: Option<u32>,
    /// Time after the grant within which the lock is not granted again, even if it is released earlier
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    min_hold: Option<Duration>,
    /// Time after the grant at which the lock is lost, even if the lease is renewed
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    max_hold: Option<Duration>,
    /// Note that the lock and its history show
    #[arg(long, default_value = "")]
    note: String,
    /// Print variables for a shell, to be evaluated if the command succeeded: LOCKGATE_LEASE and LOCKGATE_FENCING_TOKEN
    #[arg(long, conflicts_with_all = ["output", "json"])]
    shell: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// The lease of a command. Other users of the machine see arguments, and not the environment.
#[derive(Debug, Args)]
pub struct WhichLease {
    /// The lease, which is a secret
    #[arg(env = "LOCKGATE_LEASE", hide_env_values = true)]
    lease: Option<String>,
}

impl WhichLease {
    fn path(&self) -> anyhow::Result<String> {
        let missing = || UsageError("name the lease, or set LOCKGATE_LEASE".to_owned());
        let lease = self.lease.as_deref().ok_or_else(missing)?;
        Ok(format!("/v1/leases/{}", encode_path(lease)))
    }
}

/// `lockgate lease renew`
#[derive(Debug, Args)]
#[command(after_help = "  79  the lease has ended")]
pub struct Renew {
    #[command(flatten)]
    lease: WhichLease,
    /// New time to live (by default as before)
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    ttl: Option<Duration>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate lease release`
#[derive(Debug, Args)]
#[command(after_help = "  79  the lease had ended before")]
pub struct Release {
    #[command(flatten)]
    lease: WhichLease,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate lease show`
#[derive(Debug, Args)]
#[command(after_help = "  79  the lease has ended")]
pub struct ShowLease {
    #[command(flatten)]
    lease: WhichLease,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// Runs a command.
pub async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Acquire(arguments) => acquire(arguments).await,
        Command::Renew(arguments) => renew(arguments).await,
        Command::Release(arguments) => release(arguments).await,
        Command::ShowLease(arguments) => {
            let path = format!("{}?linearizable=true", arguments.lease.path()?);
            let lease = Api::of(&arguments.servers)?.get(&path).await?;
            Ok(arguments.output.say(&lease, || lines_of(&lease))?)
        }
    }
}

/// Runs `lockgate lease acquire`. A script that evaluates the output of a failed call at once must not go on without the lock, so with
/// `--shell` the output is a failure, too.
pub async fn acquire(arguments: Acquire) -> Result<(), Failure> {
    let is_for_shell = arguments.shell;
    let done = acquire_lease(arguments).await;
    if is_for_shell && done.is_err() {
        say("false")?;
    }
    done
}

async fn acquire_lease(arguments: Acquire) -> Result<(), Failure> {
    let deadline = arguments.wait.map(|wait| Instant::now() + wait);
    let mut api = Api::of(&arguments.servers)?;
    let path = format!("/v1/locks/{}/acquire", encode_path(&arguments.name));
    let answer = api.call("POST", &path, &arguments.body()).await?;
    let granted = match deadline.filter(|_| answer["fencing_token"].is_null()) {
        None => answer,
        Some(deadline) => tokio::select! {
            granted = arguments.wait(&mut api, &answer, deadline) => granted?,
            signal = interrupted() => {
                let signal = signal?;
                api.call("DELETE", &lease_path(&answer), &Value::Null).await?;
                let error = anyhow!("{signal}; the place in the queue is given up");
                return Err(Failure::new(BY_SIGNAL + signal as u8, error));
            }
        },
    };
    if arguments.shell {
        let text = |field: &str| granted[field].as_str().unwrap_or_default().to_owned();
        let token = &granted["fencing_token"];
        return Ok(say(format!(
            "export LOCKGATE_LEASE={} LOCKGATE_FENCING_TOKEN={token}",
            text("lease")
        ))?);
    }
    Ok(arguments.output.say(&granted, || lines_of(&granted))?)
}

impl Acquire {
    /// Returns the body of the request.
    fn body(&self) -> Value {
        let mut body = json!({
            "ttl_ms": ms(self.ttl),
            "mode": match (self.shared, self.semaphore) {
                (true, _) => "shared",
                (false, Some(_)) => "semaphore",
                (false, None) => "exclusive",
            },
            "note": self.note,
            "request_id": request_id(),
        });
        let optional = [
            ("limit", self.semaphore.map(Value::from)),
            ("permits", self.permits.map(Value::from)),
            ("min_hold_ms", self.min_hold.map(|time| ms(time).into())),
            ("max_hold_ms", self.max_hold.map(|time| ms(time).into())),
            ("wait", self.wait.map(|_| "queue".into())),
        ];
        for (field, value) in optional {
            if let Some(value) = value {
                body[field] = value;
            }
        }
        body
    }

    /// Waits in the queue until the lock is granted. Returns the lease with its lock. When the time is over, the lease is released.
    async fn wait(&self, api: &mut Api, place: &Value, deadline: Instant) -> Result<Value, Failure> {
        if let Some(granted) = wait_for_grant(api, &self.name, place, deadline).await? {
            return Ok(granted);
        }
        api.call("DELETE", &lease_path(place), &Value::Null).await?;
        let (lock, wait) = (shown(&self.name), self.wait.unwrap_or_default());
        let wait = humantime::format_duration(wait);
        let error = anyhow!("the lock {lock} was not granted within {wait}");
        Err(Failure::new(NOT_FREE, error))
    }
}

/// Waits in the queue until a lock is granted to the lease of a place, and renews the lease meanwhile. Returns the lease with its lock, or
/// `None` when the time is over: the lease then still waits.
pub async fn wait_for_grant(
    api: &mut Api,
    lock: &str,
    place: &Value,
    deadline: Instant,
) -> Result<Option<Value>, Failure> {
    let lease = lease_path(place);
    let holder = encode_path(place["holder"].as_str().unwrap_or_default());
    let holder = format!("/v1/locks/{}/holders/{holder}", encode_path(lock));
    let lives = Duration::from_millis(place["expires_in_ms"].as_u64().unwrap_or_default());
    loop {
        let rest = deadline.saturating_duration_since(Instant::now());
        let poll = rest.min(MAX_POLL).min(lives / POLLS_PER_TTL);
        let path = format!("{holder}?wait_ms={}", ms(poll));
        let mut grant = api.call("GET", &path, &Value::Null).await?;
        let renewed = api.call("POST", &format!("{lease}/renew"), &json!({})).await?;
        if !grant.is_null() {
            grant["lease"] = place["lease"].clone();
            grant["expires_in_ms"] = renewed["expires_in_ms"].clone();
            return Ok(Some(grant));
        }
        // If it was granted just now, the next poll has the grant.
        if rest.is_zero() && renewed["state"] == "waits" {
            return Ok(None);
        }
    }
}

/// Waits for SIGINT or SIGTERM, and returns the one that arrived.
async fn interrupted() -> anyhow::Result<Signal> {
    let (mut interrupt, mut terminate) = (
        SignalListener::new(Signal::SIGINT)?,
        SignalListener::new(Signal::SIGTERM)?,
    );
    Ok(tokio::select! {
        () = interrupt.next() => Signal::SIGINT,
        () = terminate.next() => Signal::SIGTERM,
    })
}

/// Runs `lockgate lease renew`.
pub async fn renew(arguments: Renew) -> Result<(), Failure> {
    let mut body = json!({ "request_id": request_id() });
    if let Some(ttl) = arguments.ttl {
        body["ttl_ms"] = ms(ttl).into();
    }
    let path = format!("{}/renew", arguments.lease.path()?);
    let lease = Api::of(&arguments.servers)?.call("POST", &path, &body).await?;
    Ok(arguments.output.say(&lease, || lines_of(&lease))?)
}

/// Runs `lockgate lease release`.
pub async fn release(arguments: Release) -> Result<(), Failure> {
    let path = format!("{}?request_id={}", arguments.lease.path()?, request_id());
    Api::of(&arguments.servers)?
        .call("DELETE", &path, &Value::Null)
        .await?;
    Ok(say("released")?)
}

/// Returns the address of the lease in an answer.
pub fn lease_path(answer: &Value) -> String {
    format!(
        "/v1/leases/{}",
        encode_path(answer["lease"].as_str().unwrap_or_default())
    )
}

/// Returns a lease as text: a line for each field that it has.
fn lines_of(lease: &Value) -> String {
    let time = |field: &str| {
        let time = Duration::from_millis(lease[field].as_u64()?);
        Some(humantime::format_duration(time).to_string())
    };
    let text = |field: &str| lease[field].as_str().filter(|text| !text.is_empty()).map(shown);
    let fields = [
        ("lease", text("lease")),
        ("lock", text("lock")),
        ("state", text("state")),
        ("mode", text("mode")),
        (
            "token",
            lease["fencing_token"].as_u64().map(|token| token.to_string()),
        ),
        ("note", text("note")),
        ("ttl", time("ttl_ms")),
        ("expires in", time("expires_in_ms")),
    ];
    let known = fields
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    let lines: Vec<String> = known
        .map(|(name, value)| format!("{name:<10}  {value}"))
        .collect();
    lines.join("\n")
}

/// Returns a time in milliseconds.
pub fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
