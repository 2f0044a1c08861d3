//! Migration from ZooKeeper, the subcommand `lockgate migrate`: copies the tree of a running ensemble to a
//! Lockgate cluster, follows its changes, verifies that both sides are equal, and reports when clients may
//! move. docs/operate/migrate-from-zookeeper.md is the guide for operators.
//!
//! It is a client of both sides: of ZooKeeper's protocol at the source, of the HTTP API at the target. It
//! must not depend on the server library. It writes nothing to disk: after a restart it compares both sides
//! and continues.
//!
//! ```text
//!  source (ZooKeeper)                 this program                     target (Lockgate)
//!  watch, read, read  ──────────────▶ facts  ── compare ── steps ────▶ POST /v1/mirror
//!                                        ▲                                   │
//!                                        └──────────── GET /v1/mirror ◀──────┘
//! ```

mod connection;
mod facts;
mod open_locks;
mod checkpoint;
mod mirror;
mod incompatible_znodes;
mod progress;
mod scope;
mod source;
mod switch;
mod target;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use cli_support::api_client::ApiClient;
use cli_support::connection_options::ConnectionOptions;
use cli_support::ensure_usage;
use cli_support::exit_code::NOT_THE_SAME;
use cli_support::signals::{Signal, SignalListener};
use cli_support::usage::UsageError;
use serde_json::json;
use tokio::time::Instant;
use transport_security::{ClientTls, OldestVersion};

use self::checkpoint::Checkpoint;
use self::connection::SourceCredentials;
use self::mirror::{Difference, Mirror};
use self::open_locks::open_locks;
use self::progress::Progress;
use self::scope::Scope;
use self::source::Source;
use self::switch::{Hooks, SwitchOutcome};
use self::target::Target;

/// Default port of a ZooKeeper server.
const SOURCE_PORT: u16 = 2181;

/// Time for which notifications are batched before the changed znodes are read. A znode that is written often
/// is then read once, and one command of the cluster's log covers many changes. It is also the delay of the
/// target.
const BATCH_DELAY: Duration = Duration::from_millis(100);

/// Maximum number of differences, locks or other items that are listed; the others are counted.
const MAX_LISTED: usize = 20;

/// Options of `lockgate migrate`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").args(["once", "switch", "verify_only"])))]
#[command(mut_arg("servers", |servers| servers.visible_alias("to")))]
pub struct Arguments {
    /// Servers of the source ensemble: HOST:PORT (default port 2181)
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', required = true)]
    from: Vec<String>,
    /// Migrate this znode and its descendants
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: String,
    /// Compare and copy once, then exit
    #[arg(long)]
    once: bool,
    /// After copying: wait until nobody writes to the source, verify both sides, and report that the cluster
    /// may serve
    #[arg(long)]
    switch: bool,
    /// Change nothing; report whether both sides are equal
    #[arg(long)]
    verify_only: bool,
    /// Copy into a tree that is not empty: znodes that only the target has stay, common ones become equal to
    /// the source
    #[arg(long)]
    into: bool,
    #[command(flatten)]
    hooks: Hooks,
    /// Interval at which all znodes are checked while changes are followed, because a replaced access control
    /// list causes no event
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    recheck_every: Duration,
    /// File with credentials for the source: lines of SCHEME:CREDENTIALS, such as digest:super:PASSWORD
    #[arg(long, value_name = "FILE")]
    from_auth_file: Option<PathBuf>,
    /// PEM file of the authority that signed the source's certificates; enables TLS
    #[arg(long, value_name = "FILE")]
    from_ca: Option<PathBuf>,
    /// PEM file of the client certificate to present to the source
    #[arg(long, value_name = "FILE", requires = "from_key")]
    from_cert: Option<PathBuf>,
    /// Private key of that certificate
    #[arg(long, value_name = "FILE", requires = "from_cert")]
    from_key: Option<PathBuf>,
    /// Maximum time for which either side may be unavailable
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// Target cluster; `--to` is another name of `--server`
    #[command(flatten)]
    to: ConnectionOptions,
}

/// Runs the migration on the calling thread. SIGINT and SIGTERM end it at any time, and it can be run again.
///
/// The session at the source is kept alive while the program waits for responses of the target.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    cli_support::block_on(run_until_signal(arguments))
}

async fn run_until_signal(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut terminate = SignalListener::new(Signal::SIGTERM)?;
    let mut interrupt = SignalListener::new(Signal::SIGINT)?;
    let follows = !(arguments.once || arguments.switch || arguments.verify_only);
    tokio::select! {
        done = migrate(arguments) => done,
        _ = terminate.next() => interrupted(follows),
        _ = interrupt.next() => interrupted(follows),
    }
}

/// Returns success if the program only followed changes; otherwise the requested work is unfinished.
fn interrupted(follows: bool) -> anyhow::Result<ExitCode> {
    ensure!(follows, "interrupted; the next run continues");
    Ok(ExitCode::SUCCESS)
}

async fn migrate(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new(arguments.json);
    let mut mirror = arguments.mirror()?;
    if arguments.verify_only {
        return verify(&mut mirror, &mut progress).await;
    }
    let (mut checkpoint, is_new) = begin(&arguments, &mut mirror).await?;
    mirror.source().connect(&arguments.root).await?;
    let from = format!("reading from {}", mirror.source().server());
    progress.say(&from);
    if !mirror.follows() {
        progress.say("the source is older than ZooKeeper 3.6 and sends no change events: comparing all znodes repeatedly");
    }
    if is_new {
        // Check before anything is written: it is better to know incompatible znodes now than at the switch.
        mirror.survey(&mut progress).await?;
        let incompatible = mirror.incompatible_znodes().len();
        if incompatible > 0 {
            progress.say(&format!(
                "nothing was written: {incompatible} znodes exceed the target's limits. Raise the limits that can be raised, or clean \
                 up, and run this again"
            ));
            return Ok(ExitCode::from(NOT_THE_SAME));
        }
        checkpoint.write(mirror.target()).await?;
    }
    let begun = Instant::now();
    mirror.catch_up(&mut progress).await?;
    progress.say(&format!(
        "all znodes are copied, in {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    report_not_copied(&mirror, &mut progress);
    if arguments.once {
        mirror.read_target().await?;
        return Ok(verdict(&mirror, &mut progress));
    }
    if !arguments.switch {
        follow(&arguments, &mut mirror, &mut progress).await?;
    }
    // Changes that were made during the copy.
    mirror.follow(&mut progress).await?;
    match switch::switch(&mut mirror, &arguments.hooks, &mut progress).await? {
        SwitchOutcome::Refused(refusal) => {
            list_differences(&refusal.differences, &mut progress);
            progress.event(
                "refused",
                json!({ "why": refusal.why, "differences": refusal.differences.len() }),
            );
            progress.say(&format!(
                "not switched: {}. Clients stay at the source.",
                refusal.why
            ));
            Ok(ExitCode::from(NOT_THE_SAME))
        }
        SwitchOutcome::Done(proof) => {
            checkpoint.switched = true;
            checkpoint.write(mirror.target()).await?;
            let frozen_ms = proof.frozen.as_millis() as u64;
            let silent_ms = proof.source_silent.as_millis() as u64;
            report_not_copied(&mirror, &mut progress);
            progress.event(
                "switched",
                json!({
                    "znodes": proof.znodes,
                    "digest": proof.digest,
                    "frozen_ms": frozen_ms,
                    "source_silent_ms": silent_ms,
                    "source_zxid": proof.source_zxid,
                }),
            );
            progress.say(&format!(
                "switched: both sides have {} znodes and the digest {}; frozen for {frozen_ms} ms (the source did not respond for up to {silent_ms} ms of it). The new cluster may serve.",
                proof.znodes,
                &proof.digest[..16]
            ));
            switch::send_clients(&arguments.hooks).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Arguments {
    fn mirror(&self) -> anyhow::Result<Mirror> {
        ensure_usage!(
            self.root.starts_with('/') && (self.root == "/" || !self.root.ends_with('/')),
            "--root: a path begins with a slash, and does not end with one"
        );
        let own = scope::is_within(&self.root, "/zookeeper");
        ensure_usage!(
            !own,
            "--root: znodes below /zookeeper belong to the cluster and are not migrated"
        );
        let from = self
            .from
            .iter()
            .map(|server| with_port(server))
            .collect::<anyhow::Result<_>>()?;
        let credentials = SourceCredentials {
            tls: self.source_tls()?,
            auth: match &self.from_auth_file {
                Some(file) => read_auth(file).context("--from-auth-file")?,
                None => Vec::new(),
            },
        };
        let named = self.to.named()?;
        let to = named.ok_or_else(|| {
            UsageError("name the target cluster with --to, LOCKGATE_SERVERS or a context".to_owned())
        })?;
        let client = ApiClient::new(&to.addresses()?, 0, self.patience).with(to.credentials);
        let source = Source::new(from, credentials, self.patience);
        Ok(Mirror::new(source, Target::new(client), Scope::new(&self.root)))
    }

    fn source_tls(&self) -> anyhow::Result<Option<ClientTls>> {
        let own = self.from_cert.as_deref().zip(self.from_key.as_deref());
        match &self.from_ca {
            Some(ca) => ClientTls::accepting(OldestVersion::Tls12, ca, own)
                .map(Some)
                .context("--from-ca, --from-cert, --from-key"),
            None if own.is_some() => {
                let message = "--from-cert requires TLS: name the source's authority with --from-ca";
                Err(UsageError(message.to_owned()).into())
            }
            None => Ok(None),
        }
    }
}

/// Parses the address of a ZooKeeper server. The path of a connection string is rejected, because it would be
/// another root.
fn with_port(server: &str) -> anyhow::Result<String> {
    ensure_usage!(!server.is_empty(), "--from: empty address");
    ensure_usage!(
        !server.contains('/'),
        "--from: {server:?} contains a path: use --root instead"
    );
    match server.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.contains(']') => {
            ensure_usage!(port.parse::<u16>().is_ok(), "--from: {port:?} is not a port");
            Ok(server.to_owned())
        }
        _ => Ok(format!("{server}:{SOURCE_PORT}")),
    }
}

fn read_auth(file: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("{}", file.display()))?;
    let lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    let pair = |line: &str| match line.split_once(':') {
        Some((scheme, auth)) if !scheme.is_empty() && !auth.is_empty() => {
            Ok((scheme.to_owned(), auth.to_owned()))
        }
        // The line is not repeated, as it may contain a password.
        _ => bail!("a line is not SCHEME:CREDENTIALS"),
    };
    lines.map(pair).collect()
}

/// Checks that the target may be written to. Returns the checkpoint of the migration, and whether it is a new
/// one that has to be written.
async fn begin(arguments: &Arguments, mirror: &mut Mirror) -> anyhow::Result<(Checkpoint, bool)> {
    mirror.read_target().await?;
    if let Some(checkpoint) = Checkpoint::read(mirror.target()).await? {
        checkpoint.require(&arguments.root)?;
        ensure!(
            checkpoint.into == arguments.into,
            "this migration was begun {} --into and has to be continued so",
            if checkpoint.into { "with" } else { "without" }
        );
        if checkpoint.into {
            mirror.keep_target_znodes();
        }
        return Ok((checkpoint, false));
    }
    let others = mirror
        .target_tree()
        .keys()
        .find(|path| **path != arguments.root || arguments.root != "/");
    if let (Some(other), false) = (others, arguments.into) {
        bail!(
            "the target is not empty: it has {other}. Migrate into an empty tree, or use --into to keep existing znodes"
        );
    }
    if arguments.into {
        mirror.keep_target_znodes();
    }
    Ok((
        Checkpoint::new(&arguments.root, &arguments.from, arguments.into),
        true,
    ))
}

/// Follows the changes of the source until the program is ended.
async fn follow(
    arguments: &Arguments,
    mirror: &mut Mirror,
    progress: &mut Progress,
) -> anyhow::Result<std::convert::Infallible> {
    let mut checked = Instant::now();
    loop {
        progress.begin("following", None);
        if mirror.follows() {
            let due = checked + arguments.recheck_every;
            if tokio::time::timeout_at(due, mirror.wait_notification())
                .await
                .is_ok()
            {
                tokio::time::sleep(BATCH_DELAY).await;
                mirror.follow(progress).await?;
            }
        } else {
            tokio::time::sleep(arguments.recheck_every).await;
        }
        if checked.elapsed() >= arguments.recheck_every {
            mirror.recheck(progress).await?;
            checked = Instant::now();
        }
        let behind = mirror.behind();
        if behind == 0 {
            progress.behind(0, Duration::ZERO);
        }
        progress.report();
    }
}

/// Compares both sides without changing anything.
async fn verify(mirror: &mut Mirror, progress: &mut Progress) -> anyhow::Result<ExitCode> {
    mirror.read_target().await?;
    if let Some(Checkpoint { into: true, .. }) = Checkpoint::read(mirror.target()).await? {
        progress
            .say("the migration was begun with --into: znodes that only the target has are no difference");
        mirror.keep_target_znodes();
    }
    mirror.read_source(progress).await?;
    report_not_copied(mirror, progress);
    Ok(verdict(mirror, progress))
}

/// Reports whether both sides were equal when they were last read.
fn verdict(mirror: &Mirror, progress: &mut Progress) -> ExitCode {
    let differences = mirror.differences();
    let (digest, _) = mirror.digests();
    progress.event(
        "compared",
        json!({ "znodes": mirror.source_tree().len(), "differences": differences.len(), "digest": digest }),
    );
    list_differences(&differences, progress);
    match differences.len() {
        0 => {
            progress.say(&format!(
                "both sides have the same {} znodes; digest {}",
                mirror.common(),
                &digest[..16]
            ));
            ExitCode::SUCCESS
        }
        count => {
            progress.say(&format!("both sides differ in {count} znodes"));
            ExitCode::from(NOT_THE_SAME)
        }
    }
}

fn list_differences(differences: &[Difference], progress: &mut Progress) {
    for difference in differences.iter().take(MAX_LISTED) {
        progress.event(
            "difference",
            json!({ "path": difference.path, "what": difference.what }),
        );
        if !progress.is_json() {
            progress.say(&format!("  {:?}: {}", difference.path, difference.what));
        }
    }
    if differences.len() > MAX_LISTED && !progress.is_json() {
        progress.say(&format!("  and {} more", differences.len() - MAX_LISTED));
    }
}

/// Reports znodes that are not copied, and znodes that only the target has.
fn report_not_copied(mirror: &Mirror, progress: &mut Progress) {
    let locks = open_locks(mirror.ephemerals());
    let kept = mirror.target_only();
    progress.event(
        "stays",
        json!({
            "ephemerals": mirror.ephemerals().len(),
            "locks": locks,
            "only_at_target": kept,
            "misfits": mirror.incompatible_znodes().len(),
        }),
    );
    if progress.is_json() {
        return;
    }
    if kept > 0 {
        progress.say(&format!(
            "{kept} znodes exist only at the target and stay unchanged"
        ));
    }
    if mirror.ephemerals().is_empty() {
        return;
    }
    progress.say(&format!(
        "{} ephemeral znodes are not copied: their sessions exist only at the source",
        mirror.ephemerals().len()
    ));
    for lock in locks.iter().take(MAX_LISTED) {
        progress.say(&format!(
            "  a lock is held at {:?} by session 0x{} ({} contenders)",
            lock.path, lock.session, lock.contenders
        ));
    }
    if locks.len() > MAX_LISTED {
        progress.say(&format!("  and {} more locks", locks.len() - MAX_LISTED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_addresses_follow_connection_strings() {
        for (given, meant) in [
            ("zk1", "zk1:2181"),
            ("zk1:2182", "zk1:2182"),
            ("10.0.0.1", "10.0.0.1:2181"),
            ("[::1]:2182", "[::1]:2182"),
            ("[::1]", "[::1]:2181"),
        ] {
            assert_eq!(with_port(given).unwrap(), meant);
        }
        for wrong in ["", "zk1:2181/chroot", "zk1:port", "zk1:99999"] {
            assert!(with_port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn credentials_are_read_and_never_printed() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# of the super user\n\ndigest:super:se:cret\n").unwrap();
        let pair = ("digest".to_owned(), "super:se:cret".to_owned());
        assert_eq!(read_auth(file.path()).unwrap(), [pair]);
        std::fs::write(file.path(), "secret").unwrap();
        let error = format!("{:#}", read_auth(file.path()).unwrap_err());
        assert!(!error.contains("secret"), "{error}");
    }
}
