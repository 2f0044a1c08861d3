//! The switch: verifies that nobody writes to the source any more and that both sides are equal znode by
//! znode, and only then reports that the new cluster may serve. If a condition fails, the attempt ends and
//! the mirror can continue.
//!
//! A ZooKeeper ensemble cannot be made read-only: it has no such mode, and its access control lists protect
//! single znodes. The operator stops the writers, or blocks them from the servers' ports; this module
//! verifies that it worked.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;
use tokio::time::Instant;

use super::mirror::{Difference, Mirror};
use super::progress::Progress;

/// Time without a change after which the source seems to be quiet. This is verified afterwards.
const QUIET: Duration = Duration::from_millis(500);

/// Poll interval for changes.
const POLL_INTERVAL: Duration = Duration::from_millis(25);

/// Maximum number of checks of all znodes that each find a change; after that the source is not quiet.
const MAX_RECHECKS: u32 = 5;

/// Commands and limits of the switch.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Hooks {
    /// With --switch: command that blocks writers of the source (but not this program); run when all znodes
    /// are copied
    #[arg(long, value_name = "COMMAND", requires = "switch")]
    on_freeze: Option<String>,
    /// With --switch: command that moves clients to the new cluster; run when both sides are verified
    #[arg(long, value_name = "COMMAND", requires = "switch")]
    on_switched: Option<String>,
    /// With --switch: command that unblocks writers of the source; run when the switch was refused
    #[arg(long, value_name = "COMMAND", requires = "switch")]
    on_refused: Option<String>,
    /// With --switch: maximum time to wait until nobody writes to the source
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    quiet_within: Duration,
}

/// Outcome of the switch.
pub enum SwitchOutcome {
    /// The new cluster may serve.
    Done(Proof),
    /// The new cluster must not serve.
    Refused(Refusal),
}

/// Proof that both sides are equal.
#[derive(Debug, Clone)]
pub struct Proof {
    /// Number of znodes that both sides have.
    pub znodes: usize,
    /// Newest zxid of the source.
    pub source_zxid: i64,
    /// Digest of all compared properties, equal on both sides.
    pub digest: String,
    /// Time since the last change of the source, or since the end of the freeze command if that is later.
    pub frozen: Duration,
    /// Longest part of that time in which the source did not respond to a pending request.
    pub source_silent: Duration,
}

/// Reason why the switch was refused.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// Description.
    pub why: String,
    /// Differences, if they are the reason.
    pub differences: Vec<Difference>,
}

impl Refusal {
    fn of(why: String) -> SwitchOutcome {
        SwitchOutcome::Refused(Self {
            why,
            differences: Vec::new(),
        })
    }
}

/// Attempts the switch. The caller has copied all changes a moment ago.
pub async fn switch(
    mirror: &mut Mirror,
    hooks: &Hooks,
    progress: &mut Progress,
) -> anyhow::Result<SwitchOutcome> {
    let switched = attempt(mirror, hooks, progress).await;
    let command = match &switched {
        Ok(SwitchOutcome::Done(_)) => None,
        Ok(SwitchOutcome::Refused(_)) | Err(_) => hooks.on_refused.as_ref(),
    };
    if let Some(command) = command {
        run("--on-refused", command).await?;
    }
    switched
}

/// Runs the command that moves clients to the new cluster. The caller has recorded the switch in the
/// checkpoint.
pub async fn send_clients(hooks: &Hooks) -> anyhow::Result<()> {
    match &hooks.on_switched {
        Some(command) => run("--on-switched", command).await,
        None => Ok(()),
    }
}

async fn attempt(
    mirror: &mut Mirror,
    hooks: &Hooks,
    progress: &mut Progress,
) -> anyhow::Result<SwitchOutcome> {
    let incompatible = mirror.incompatible_znodes().len();
    if incompatible > 0 {
        // The switch is bound to fail, so the writers need not be blocked.
        return Ok(SwitchOutcome::Refused(Refusal {
            why: format!("{incompatible} znodes of the source exceed the target's limits"),
            differences: mirror.differences(),
        }));
    }
    match &hooks.on_freeze {
        Some(command) => {
            progress.say("blocking writers of the source");
            run("--on-freeze", command).await?;
        }
        None => progress.say("waiting for the source to become quiet: stop all its writers now"),
    }
    let freeze_begin = Instant::now();
    let begin = mirror.changes().0;
    if !wait_until_quiet(mirror, hooks.quiet_within, progress).await? {
        let (changes, last) = mirror.changes();
        let at = last.map_or_else(String::new, |(_, path)| format!(", the last one at {path}"));
        return Ok(Refusal::of(format!(
            "the source is still written to: {} changes within {:?}{at}",
            changes - begin,
            hooks.quiet_within
        )));
    }
    // The freeze is measured from here on. Without a freeze command, it begins with the last write.
    let (_, last_change) = mirror.changes();
    let frozen_at = match &hooks.on_freeze {
        Some(_) => freeze_begin,
        None => last_change.map_or(freeze_begin, |(at, _)| at.max(freeze_begin)),
    };
    // Reset: silence before the freeze does not count.
    mirror.source().take_silence();
    let Some(position) = settle(mirror, progress).await? else {
        let (_, last) = mirror.changes();
        let at = last.map_or_else(String::new, |(_, path)| format!(", the last time at {path}"));
        return Ok(Refusal::of(format!(
            "the source changed after it had become quiet{at}"
        )));
    };
    progress.say("the source is quiet: comparing both sides");
    progress.begin("comparing both sides", None);
    mirror.read_target().await?;
    if mirror.restore_swept(progress).await? > 0 {
        mirror.read_target().await?;
    }
    let differences = mirror.differences();
    if !differences.is_empty() {
        return Ok(SwitchOutcome::Refused(Refusal {
            why: format!("both sides differ in {} znodes", differences.len()),
            differences,
        }));
    }
    // A writer may have returned while the target was read.
    let changes = mirror.changes().0;
    if !is_unchanged(mirror, position, progress).await? || mirror.changes().0 != changes {
        let (_, last) = mirror.changes();
        let at = last.map_or_else(String::new, |(_, path)| format!(" at {path}"));
        return Ok(Refusal::of(format!(
            "the source changed{at} while both sides were compared"
        )));
    }
    let (there, here) = mirror.digests();
    ensure!(
        there == here,
        "both sides are equal, but their digests differ: {there} and {here}"
    );
    Ok(SwitchOutcome::Done(Proof {
        znodes: mirror.common(),
        source_zxid: position,
        digest: here,
        frozen: frozen_at.elapsed(),
        source_silent: mirror.source().take_silence(),
    }))
}

/// Copies changes until there are no more; returns false if that takes longer than `within`.
async fn wait_until_quiet(
    mirror: &mut Mirror,
    within: Duration,
    progress: &mut Progress,
) -> anyhow::Result<bool> {
    let deadline = Instant::now() + within;
    let mut quiet_since = Instant::now();
    let mut changes = mirror.changes().0;
    progress.begin("following", None);
    loop {
        mirror.follow(progress).await?;
        if mirror.changes().0 != changes {
            (changes, quiet_since) = (mirror.changes().0, Instant::now());
        }
        if quiet_since.elapsed() >= QUIET {
            return Ok(true);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// Checks every znode of the source until nothing has changed, and returns the zxid of that state; `None` if
/// there is always a change.
async fn settle(mirror: &mut Mirror, progress: &mut Progress) -> anyhow::Result<Option<i64>> {
    for _ in 0..MAX_RECHECKS {
        let changes = mirror.changes().0;
        let position = mirror.sync().await?;
        mirror.recheck(progress).await?;
        mirror.follow(progress).await?;
        if mirror.changes().0 == changes {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

/// Returns whether the source is unchanged since a zxid. It is if nothing was committed since. Otherwise the
/// commits may have been ends of sessions, so all znodes are checked once more.
async fn is_unchanged(mirror: &mut Mirror, position: i64, progress: &mut Progress) -> anyhow::Result<bool> {
    let changes = mirror.changes().0;
    let now = mirror.sync().await?;
    mirror.follow(progress).await?;
    if now == position {
        return Ok(mirror.changes().0 == changes);
    }
    mirror.recheck(progress).await?;
    mirror.follow(progress).await?;
    Ok(mirror.changes().0 == changes)
}

/// Runs an operator's command and waits for its end.
async fn run(option: &str, command: &str) -> anyhow::Result<()> {
    let mut shell = Command::new("sh");
    // Standard output is reserved for JSON lines.
    shell
        .args(["-c", command])
        .stdin(Stdio::null())
        .stdout(std::io::stderr());
    let status = shell
        .status()
        .await
        .with_context(|| format!("running the command of {option}"))?;
    ensure!(status.success(), "the command of {option} ended with {status}");
    Ok(())
}
