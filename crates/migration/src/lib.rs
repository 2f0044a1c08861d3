//! Migration from ZooKeeper, the subcommand `lockgate migrate`: copies the tree of a running ensemble to a Lockgate cluster, follows its
//! changes, verifies that both sides are the same, and says when clients may move. docs/operate/migrate-from-zookeeper.md is the guide for operators.
//!
//! It is a client of both sides: of ZooKeeper's protocol at the source, of the HTTP API at the target. It must not know the server
//! library, and it writes nothing to a disk: when it is started again after a kill it compares both sides and continues.
//!
//! ```text
//!  source (ZooKeeper)                 this program                     target (Lockgate)
//!  watch, read, read  ──────────────▶ facts  ── compare ── steps ────▶ POST /v1/mirror
//!                                        ▲                                   │
//!                                        └──────────── GET /v1/mirror ◀──────┘
//! ```

mod connection;
mod facts;
mod held;
mod mark;
mod mirror;
mod misfits;
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
use cli_support::connection_options::{ConnectionOptions, addresses};
use cli_support::ensure_usage;
use cli_support::exit_code::NOT_THE_SAME;
use cli_support::signals::{Listener, Signal};
use cli_support::usage::UsageError;
use serde_json::json;
use tokio::time::Instant;
use transport_security::ClientTls;

use self::connection::SourceCredentials;
use self::held::held_locks;
use self::mark::Mark;
use self::mirror::{Difference, Mirror};
use self::progress::Progress;
use self::scope::Scope;
use self::source::Source;
use self::switch::{Hooks, Switched};
use self::target::Target;

/// Where ZooKeeper listens if nothing else is said.
const SOURCE_PORT: u16 = 2181;

/// Changes are gathered for so long before they are read: a znode that is written often is read once, and a line of the
/// cluster's account tells of many. It is what the target is behind.
const GATHER: Duration = Duration::from_millis(100);

/// So many differences, locks or other things are named; the others are counted.
const NAMED: usize = 20;

/// What can be asked for.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("what").args(["once", "switch", "verify_only"])))]
pub struct Arguments {
    /// Servers of the ensemble that is left, HOST:PORT (2181 if no port is given)
    #[arg(long, value_name = "ADDRESS", value_delimiter = ',', required = true)]
    from: Vec<String>,
    /// Nodes of the cluster that is moved to: HOST:PORT of their HTTP API
    #[arg(
        long,
        value_name = "ADDRESS",
        value_delimiter = ',',
        required = true,
        env = "LOCKGATE_SERVERS"
    )]
    to: Vec<String>,
    /// Move this znode and all that is below it
    #[arg(long, value_name = "PATH", default_value = "/")]
    root: String,
    /// Compare and copy once, then end
    #[arg(long)]
    once: bool,
    /// Once all is carried over: wait until nobody writes to the source, verify both sides, and say that the cluster may serve
    #[arg(long)]
    switch: bool,
    /// Change nothing; say whether both sides are the same
    #[arg(long)]
    verify_only: bool,
    /// Copy into a tree that is not empty: what the source does not have stays, what both have becomes what it is there
    #[arg(long)]
    into: bool,
    #[command(flatten)]
    hooks: Hooks,
    /// How often all znodes are looked at while changes are followed: lists are replaced without an event
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    recheck_every: Duration,
    /// A file with what proves who reads the source: lines of SCHEME:CREDENTIALS, such as digest:super:PASSWORD
    #[arg(long, value_name = "FILE")]
    from_auth_file: Option<PathBuf>,
    /// The authority that the source's certificates are signed by; with it TLS is spoken there
    #[arg(long, value_name = "FILE")]
    from_ca: Option<PathBuf>,
    /// A certificate to show to the source
    #[arg(long, value_name = "FILE", requires = "from_key")]
    from_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "FILE", requires = "from_cert")]
    from_key: Option<PathBuf>,
    /// For how long either side may be out of reach
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    patience: Duration,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    secured: ConnectionOptions,
}

/// Migrates, on the calling thread. Ends with SIGINT and SIGTERM at any time, and can be run again.
///
/// The connection to the source is kept alive while the target's answers are awaited.
pub fn run(arguments: Arguments) -> anyhow::Result<ExitCode> {
    cli_support::block_on(run_until_signal(arguments))
}

async fn run_until_signal(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut terminate = Listener::new(Signal::SIGTERM)?;
    let mut interrupt = Listener::new(Signal::SIGINT)?;
    let follows = !(arguments.once || arguments.switch || arguments.verify_only);
    tokio::select! {
        done = carry_out(arguments) => done,
        _ = terminate.next() => interrupted(follows),
        _ = interrupt.next() => interrupted(follows),
    }
}

/// Who only follows has done so; whatever else was asked for has not been done.
fn interrupted(follows: bool) -> anyhow::Result<ExitCode> {
    ensure!(follows, "interrupted; the next run goes on");
    Ok(ExitCode::SUCCESS)
}

async fn carry_out(arguments: Arguments) -> anyhow::Result<ExitCode> {
    let mut progress = Progress::new(arguments.json);
    let mut mirror = arguments.mirror()?;
    if arguments.verify_only {
        return verify(&mut mirror, &mut progress).await;
    }
    let (mut mark, is_new) = begin(&arguments, &mut mirror).await?;
    mirror.source().connect(&arguments.root).await?;
    let from = format!("reading from {}", mirror.source().server());
    progress.say(&from);
    if !mirror.follows() {
        progress.say("the source is older than ZooKeeper 3.6 and tells of no changes: all of it is compared again and again");
    }
    if is_new {
        // Before anything is written: what does not fit is better known today than when clients are to come over.
        mirror.survey(&mut progress).await?;
        let misfits = mirror.misfits().len();
        if misfits > 0 {
            progress.say(&format!(
                "nothing was written: {misfits} znodes do not fit. Raise the target's limits where they can be raised, or clean \
                 up, and run this again"
            ));
            return Ok(ExitCode::from(NOT_THE_SAME));
        }
        mark.write(mirror.target()).await?;
    }
    let begun = Instant::now();
    mirror.catch_up(&mut progress).await?;
    progress.say(&format!(
        "all is copied, in {:.1} s",
        begun.elapsed().as_secs_f64()
    ));
    report_what_stays(&mirror, &mut progress);
    if arguments.once {
        mirror.look_at_target().await?;
        return Ok(verdict(&mirror, &mut progress));
    }
    if !arguments.switch {
        follow(&arguments, &mut mirror, &mut progress).await?;
    }
    // What was written while all was copied.
    mirror.follow(&mut progress).await?;
    match switch::switch(&mut mirror, &arguments.hooks, &mut progress).await? {
        Switched::Refused(refusal) => {
            name_differences(&refusal.differences, &mut progress);
            progress.event(
                "refused",
                json!({ "why": refusal.why, "differences": refusal.differences.len() }),
            );
            progress.say(&format!(
                "not switched: {}. Clients stay where they are.",
                refusal.why
            ));
            Ok(ExitCode::from(NOT_THE_SAME))
        }
        Switched::Done(proof) => {
            mark.switched = true;
            mark.write(mirror.target()).await?;
            let frozen_ms = proof.frozen.as_millis() as u64;
            let silent_ms = proof.source_silent.as_millis() as u64;
            report_what_stays(&mirror, &mut progress);
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
                "switched: both sides have {} znodes and the digest {}; frozen for {frozen_ms} ms (of which the source gave no answer for up to {silent_ms} ms). The new cluster may serve.",
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
        ensure_usage!(!own, "--root: what is below /zookeeper is the clusters' own");
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
        let credentials_there = self.secured.credentials()?;
        let to = addresses("--to, LOCKGATE_SERVERS", &self.to, &credentials_there)?;
        let client = ApiClient::new(&to, 0, self.patience).with(credentials_there);
        let source = Source::new(from, credentials, self.patience);
        Ok(Mirror::new(source, Target::new(client), Scope::new(&self.root)))
    }

    fn source_tls(&self) -> anyhow::Result<Option<ClientTls>> {
        let own = self.from_cert.as_deref().zip(self.from_key.as_deref());
        match &self.from_ca {
            Some(ca) => ClientTls::new(ca, own)
                .map(Some)
                .context("--from-ca, --from-cert, --from-key"),
            None if own.is_some() => {
                let told = "--from-cert is shown over TLS only: give the source's authority with --from-ca";
                Err(UsageError(told.to_owned()).into())
            }
            None => Ok(None),
        }
    }
}

/// A server of ZooKeeper as connection strings name it; a path behind it would be another root.
fn with_port(server: &str) -> anyhow::Result<String> {
    ensure_usage!(!server.is_empty(), "--from: an address is empty");
    ensure_usage!(
        !server.contains('/'),
        "--from: {server:?} has a path in it: name that with --root"
    );
    match server.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && !port.contains(']') => {
            ensure_usage!(port.parse::<u16>().is_ok(), "--from: {port:?} is no port");
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
        // What is in it is not repeated.
        _ => bail!("a line is no SCHEME:CREDENTIALS"),
    };
    lines.map(pair).collect()
}

/// Sees to it that the target may be written to, and says what is being done, and whether that is to be noted there.
async fn begin(arguments: &Arguments, mirror: &mut Mirror) -> anyhow::Result<(Mark, bool)> {
    mirror.look_at_target().await?;
    if let Some(mark) = Mark::read(mirror.target()).await? {
        mark.require(&arguments.root)?;
        ensure!(
            mark.into == arguments.into,
            "this migration was begun {} --into, and goes on so",
            if mark.into { "with" } else { "without" }
        );
        if mark.into {
            mirror.keep_what_is_here();
        }
        return Ok((mark, false));
    }
    let others = mirror
        .here()
        .keys()
        .find(|path| **path != arguments.root || arguments.root != "/");
    if let (Some(other), false) = (others, arguments.into) {
        bail!(
            "the target is not empty: it has {other}. A tree is moved to an empty place, or with --into beside what is there"
        );
    }
    if arguments.into {
        mirror.keep_what_is_here();
    }
    Ok((Mark::new(&arguments.root, &arguments.from, arguments.into), true))
}

/// Follows until the program is ended.
async fn follow(
    arguments: &Arguments,
    mirror: &mut Mirror,
    progress: &mut Progress,
) -> anyhow::Result<std::convert::Infallible> {
    let mut looked = Instant::now();
    loop {
        progress.begin("following", None);
        if mirror.follows() {
            let due = looked + arguments.recheck_every;
            if tokio::time::timeout_at(due, mirror.wait_told()).await.is_ok() {
                tokio::time::sleep(GATHER).await;
                mirror.follow(progress).await?;
            }
        } else {
            tokio::time::sleep(arguments.recheck_every).await;
        }
        if looked.elapsed() >= arguments.recheck_every {
            mirror.sweep(progress).await?;
            looked = Instant::now();
        }
        let behind = mirror.behind();
        if behind == 0 {
            progress.behind(0, Duration::ZERO);
        }
        progress.tell();
    }
}

/// Looks at both sides, and changes nothing.
async fn verify(mirror: &mut Mirror, progress: &mut Progress) -> anyhow::Result<ExitCode> {
    mirror.look_at_target().await?;
    if let Some(Mark { into: true, .. }) = Mark::read(mirror.target()).await? {
        progress.say("it was copied beside what was there: what only the target has is no difference");
        mirror.keep_what_is_here();
    }
    mirror.learn(progress).await?;
    report_what_stays(mirror, progress);
    Ok(verdict(mirror, progress))
}

/// Says whether both sides are the same, as they were last looked at.
fn verdict(mirror: &Mirror, progress: &mut Progress) -> ExitCode {
    let differences = mirror.differences();
    let (digest, _) = mirror.digests();
    progress.event(
        "compared",
        json!({ "znodes": mirror.there().len(), "differences": differences.len(), "digest": digest }),
    );
    name_differences(&differences, progress);
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
            progress.say(&format!("the two sides differ in {count} znodes"));
            ExitCode::from(NOT_THE_SAME)
        }
    }
}

fn name_differences(differences: &[Difference], progress: &mut Progress) {
    for difference in differences.iter().take(NAMED) {
        progress.event(
            "difference",
            json!({ "path": difference.path, "what": difference.what }),
        );
        if !progress.is_json() {
            progress.say(&format!("  {:?}: {}", difference.path, difference.what));
        }
    }
    if differences.len() > NAMED && !progress.is_json() {
        progress.say(&format!("  and {} more", differences.len() - NAMED));
    }
}

/// Tells of what does not come along.
fn report_what_stays(mirror: &Mirror, progress: &mut Progress) {
    let locks = held_locks(mirror.ephemerals());
    let kept = mirror.foreign();
    progress.event(
        "stays",
        json!({
            "ephemerals": mirror.ephemerals().len(),
            "locks": locks,
            "only_at_target": kept,
            "misfits": mirror.misfits().len(),
        }),
    );
    if progress.is_json() {
        return;
    }
    if kept > 0 {
        progress.say(&format!(
            "{kept} znodes are the target's alone, and stay as they are"
        ));
    }
    if mirror.ephemerals().is_empty() {
        return;
    }
    progress.say(&format!(
        "{} ephemeral znodes are not copied: their sessions live at the source",
        mirror.ephemerals().len()
    ));
    for lock in locks.iter().take(NAMED) {
        progress.say(&format!(
            "  a lock is held at {:?} by session 0x{} ({} contenders)",
            lock.path, lock.session, lock.contenders
        ));
    }
    if locks.len() > NAMED {
        progress.say(&format!("  and {} more locks", locks.len() - NAMED));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_named_as_in_connection_strings() {
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
    fn credentials_are_read_and_not_repeated() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# of the super user\n\ndigest:super:se:cret\n").unwrap();
        let pair = ("digest".to_owned(), "super:se:cret".to_owned());
        assert_eq!(read_auth(file.path()).unwrap(), [pair]);
        std::fs::write(file.path(), "secret").unwrap();
        let error = format!("{:#}", read_auth(file.path()).unwrap_err());
        assert!(!error.contains("secret"), "{error}");
    }
}
