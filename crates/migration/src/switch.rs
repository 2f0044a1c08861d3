//! The switch: nobody writes to the source any more, all that it has is in the target, both are looked at znode by znode, and
//! only then it is said that the new cluster may serve. Whatever is not so ends the attempt, and the mirror can go on.
//!
//! That nobody writes cannot be had from a ZooKeeper ensemble: it has no read-only mode, and its lists protect single znodes.
//! The operator sees to it, by stopping the writers or keeping them away from its ports; here it is proven.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::process::Command;
use tokio::time::Instant;

use super::mirror::{Difference, Mirror};
use super::progress::Progress;

/// After so long without a change nobody writes, it seems. It is proven afterwards.
const QUIET: Duration = Duration::from_millis(500);

/// How often it is looked whether something was written.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// After so many looks at all znodes that each found something new, somebody does write.
const MAX_LOOKS: u32 = 5;

/// What an operator has the tool do.
#[derive(Debug, Clone, Default, clap::Args)]
pub struct Hooks {
    /// With --switch: a command that keeps writers away from the source (but not this program); run when all is carried over
    #[arg(long, value_name = "COMMAND", requires = "switch")]
    on_freeze: Option<String>,
    /// With --switch: a command that sends clients to the new cluster; run when both sides are verified
    #[arg(long, value_name = "COMMAND", requires = "switch")]
    on_switched: Option<String>,
    /// With --switch: a command that lets writers back to the source; run when the switch was refused
    #[arg(long, value_name = "COMMAND", requires = "switch")]
    on_refused: Option<String>,
    /// With --switch: how long to wait for the source to become quiet
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = humantime::parse_duration)]
    quiet_within: Duration,
}

/// What came of it.
pub enum Switched {
    /// The new cluster may serve.
    Done(Proof),
    /// It may not.
    Refused(Refusal),
}

/// Both sides are the same.
#[derive(Debug, Clone)]
pub struct Proof {
    /// How many znodes both have.
    pub znodes: usize,
    /// The newest position of the source.
    pub source_zxid: i64,
    /// Of all that is compared, the same on both sides.
    pub digest: String,
    /// From the last change of the source (or the end of the command that keeps writers away, if that is later) until now.
    pub frozen: Duration,
    /// The longest time of that in which the source was asked, and answered nothing.
    pub source_silent: Duration,
}

/// Why it may not.
#[derive(Debug, Clone)]
pub struct Refusal {
    /// In words.
    pub why: String,
    /// What differs, if that is why.
    pub differences: Vec<Difference>,
}

impl Refusal {
    fn of(why: String) -> Switched {
        Switched::Refused(Self {
            why,
            differences: Vec::new(),
        })
    }
}

/// Attempts the switch. All has been carried over a moment ago.
pub async fn switch(mirror: &mut Mirror, hooks: &Hooks, progress: &mut Progress) -> anyhow::Result<Switched> {
    let switched = attempt(mirror, hooks, progress).await;
    let command = match &switched {
        Ok(Switched::Done(_)) => None,
        Ok(Switched::Refused(_)) | Err(_) => hooks.on_refused.as_ref(),
    };
    if let Some(command) = command {
        run("--on-refused", command).await?;
    }
    switched
}

/// Sends clients to the new cluster, once it was noted that they are there.
pub async fn send_clients(hooks: &Hooks) -> anyhow::Result<()> {
    match &hooks.on_switched {
        Some(command) => run("--on-switched", command).await,
        None => Ok(()),
    }
}

async fn attempt(mirror: &mut Mirror, hooks: &Hooks, progress: &mut Progress) -> anyhow::Result<Switched> {
    let misfits = mirror.misfits().len();
    if misfits > 0 {
        // Nobody is kept from writing for what could not come of it.
        return Ok(Switched::Refused(Refusal {
            why: format!("{misfits} znodes of the source do not fit into the target"),
            differences: mirror.differences(),
        }));
    }
    match &hooks.on_freeze {
        Some(command) => {
            progress.say("keeping writers away from the source");
            run("--on-freeze", command).await?;
        }
        None => progress.say("waiting for the source to become quiet: stop everybody who writes to it now"),
    }
    let asked = Instant::now();
    let begin = mirror.changes().0;
    if !become_quiet(mirror, hooks.quiet_within, progress).await? {
        let (changes, last) = mirror.changes();
        let at = last.map_or_else(String::new, |(_, path)| format!(", the last one at {path}"));
        return Ok(Refusal::of(format!(
            "the source is still written to: {} changes within {:?}{at}",
            changes - begin,
            hooks.quiet_within
        )));
    }
    // From here on it counts how long it takes. Who waits for writers to be stopped is not frozen by us.
    let (_, last_change) = mirror.changes();
    let frozen_at = match &hooks.on_freeze {
        Some(_) => asked,
        None => last_change.map_or(asked, |(at, _)| at.max(asked)),
    };
    // What was before is not counted.
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
    mirror.look_at_target().await?;
    if mirror.bring_swept(progress).await? > 0 {
        mirror.look_at_target().await?;
    }
    let differences = mirror.differences();
    if !differences.is_empty() {
        return Ok(Switched::Refused(Refusal {
            why: format!("the two sides differ in {} znodes", differences.len()),
            differences,
        }));
    }
    // While the target was looked at, somebody may have come back.
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
        "both sides are the same, and their digests are not: {there} and {here}"
    );
    Ok(Switched::Done(Proof {
        znodes: mirror.common(),
        source_zxid: position,
        digest: here,
        frozen: frozen_at.elapsed(),
        source_silent: mirror.source().take_silence(),
    }))
}

/// Carries over until nothing comes any more; false if that does not end in time.
async fn become_quiet(
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
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Looks at every znode of the source until nothing is new, and returns the position at which that was so; none if there is
/// always something new.
async fn settle(mirror: &mut Mirror, progress: &mut Progress) -> anyhow::Result<Option<i64>> {
    for _ in 0..MAX_LOOKS {
        let changes = mirror.changes().0;
        let position = mirror.sync().await?;
        mirror.sweep(progress).await?;
        mirror.follow(progress).await?;
        if mirror.changes().0 == changes {
            return Ok(Some(position));
        }
    }
    Ok(None)
}

/// Whether the source is still what it was at a position. If nothing at all was committed since, it is. Else it may have been
/// sessions that ended, and all is looked at once more.
async fn is_unchanged(mirror: &mut Mirror, position: i64, progress: &mut Progress) -> anyhow::Result<bool> {
    let changes = mirror.changes().0;
    let now = mirror.sync().await?;
    mirror.follow(progress).await?;
    if now == position {
        return Ok(mirror.changes().0 == changes);
    }
    mirror.sweep(progress).await?;
    mirror.follow(progress).await?;
    Ok(mirror.changes().0 == changes)
}

/// Runs an operator's command to its end.
async fn run(option: &str, command: &str) -> anyhow::Result<()> {
    let mut shell = Command::new("sh");
    // What it prints must not get between the lines for programs.
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
