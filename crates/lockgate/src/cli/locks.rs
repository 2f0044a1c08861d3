//! `locks`, `show`, `break`, `request-release`, `drain` and `limit`: views of locks, and the interventions of an operator.

use anyhow::anyhow;
use clap::Args;
use cli_support::format::Output;
use cli_support::output::{say, shown};
use lock_client::{Contender, LockView, Mode};
use serde_json::json;

use super::exit::Failure;
use super::servers::Servers;
use super::table::table;

/// `lockgate locks`
#[derive(Debug, Args)]
pub struct List {
    /// Only locks whose names have this prefix
    #[arg(default_value = "")]
    prefix: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate show`
#[derive(Debug, Args)]
pub struct Show {
    /// Name of the lock
    name: String,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate break`
#[derive(Debug, Args)]
pub struct Break {
    /// Name of the lock
    name: String,
    /// Reason, shown to the clients of the lock
    #[arg(long)]
    reason: String,
    /// A holder or a waiter, as `lockgate show` names it. Required if there are several holders
    #[arg(long)]
    holder: Option<String>,
    /// Break the holds of all holders
    #[arg(long, conflicts_with = "holder")]
    all: bool,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate request-release`
#[derive(Debug, Args)]
pub struct RequestRelease {
    /// Name of the lock
    name: String,
    /// Reason, shown to the holders
    #[arg(long)]
    reason: String,
    /// Only this holder, as `lockgate show` names it
    #[arg(long)]
    holder: Option<String>,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate drain`
#[derive(Debug, Args)]
pub struct Drain {
    /// Name of the lock
    name: String,
    /// End the drain: waiters are granted the lock again
    #[arg(long)]
    off: bool,
    #[command(flatten)]
    servers: Servers,
}

/// `lockgate limit`
#[derive(Debug, Args)]
pub struct Limit {
    /// Name of the semaphore
    name: String,
    /// New number of permits. If it is below the permits in use, holders keep theirs and no permit is granted
    /// until enough are released
    #[arg(required_unless_present = "unset")]
    limit: Option<u32>,
    /// Remove the limit: the first user sets it again (only while the semaphore is unused)
    #[arg(long, conflicts_with = "limit")]
    unset: bool,
    #[command(flatten)]
    servers: Servers,
}

/// Runs `lockgate locks`.
pub async fn list(arguments: List) -> Result<(), Failure> {
    let locks = arguments.servers.client()?.locks(&arguments.prefix).await?;
    let row = |lock: &lock_client::LockSummary| {
        let mode = lock.mode.map_or("free", Mode::word).to_owned();
        let of_first = |field: &str| {
            let first = lock
                .more
                .get("first_holder")
                .and_then(|first| first[field].as_str());
            first.unwrap_or_default().to_owned()
        };
        [
            lock.lock.clone(),
            mode,
            lock.holders.to_string(),
            lock.waiters.to_string(),
            of_first("session"),
            of_first("since_at"),
            of_first("note"),
        ]
    };
    let rows: Vec<_> = locks.iter().map(row).collect();
    let headings = ["LOCK", "MODE", "HOLDERS", "WAITING", "SESSION", "SINCE", "NOTE"];
    Ok(arguments.output.say(&locks, || table(headings, &rows))?)
}

/// Runs `lockgate show`.
pub async fn show(arguments: Show) -> Result<(), Failure> {
    let found = arguments.servers.client()?.lock(&arguments.name).await?;
    // A lock that was not used lately does not exist, and is free.
    let view = found.unwrap_or_else(|| LockView {
        lock: arguments.name,
        mode: None,
        limit: None,
        holders: Vec::new(),
        queue: Vec::new(),
        draining: false,
        more: serde_json::Map::new(),
    });
    if arguments.output.is_document() {
        return Ok(arguments.output.say(&view, String::new)?);
    }
    let used = match (&view.mode, view.limit) {
        (None, _) => "free".to_owned(),
        (Some(mode), None) => mode.to_string(),
        (Some(mode), Some(limit)) => format!("{mode} of {limit}"),
    };
    let closed = view.more.get("closed").filter(|closed| closed.is_object());
    let shut = match (view.draining, closed) {
        (true, _) => ", draining: no new grants",
        (false, Some(_)) => ", closed by a lock delay: no new grants yet",
        (false, None) => "",
    };
    say(format!("{}: {used}{shut}", shown(&view.lock)))?;
    for name in view.blocking_znodes() {
        let name = shown(name);
        say(format!(
            "the znode {name} blocks recipes of ZooKeeper clients: it is named like a contender and belongs to no session"
        ))?;
    }
    if view.holders.is_empty() && view.queue.is_empty() {
        return Ok(());
    }
    let row = |contender: &Contender, place: String| {
        [
            place,
            contender.mode.to_string(),
            contender.permits.to_string(),
            contender.fencing_token.to_string(),
            contender.since_at.clone(),
            contender.session.clone(),
            contender.address.clone(),
            contender.holder.clone(),
            contender.note.clone(),
        ]
    };
    let stands = |holder: &Contender| {
        let is_there = |fact| {
            holder
                .more
                .get(fact)
                .is_some_and(|fact: &serde_json::Value| !fact.is_null())
        };
        match (is_there("upgrading_since_at"), is_there("release_requested")) {
            (true, _) => "upgrades",
            (false, true) => "release requested",
            (false, false) => "holds",
        }
    };
    let holders = view
        .holders
        .iter()
        .map(|holder| row(holder, stands(holder).to_owned()));
    let queue = view
        .queue
        .iter()
        .zip(1..)
        .map(|(waiter, place)| row(waiter, format!("waits {place}")));
    let rows: Vec<_> = holders.chain(queue).collect();
    let headings = [
        "", "MODE", "PERMITS", "TOKEN", "SINCE", "SESSION", "ADDRESS", "HOLDER", "NOTE",
    ];
    say(table(headings, &rows))?;
    if !view.is_complete() {
        say(format!(
            "not all are shown: {} hold it, {} wait",
            view.holding(),
            view.waiting()
        ))?;
    }
    Ok(())
}

/// Runs `lockgate break`.
pub async fn break_lock(arguments: Break) -> Result<(), Failure> {
    let client = arguments.servers.client()?;
    let name = &arguments.name;
    let break_hold = async |holder: &str| -> Result<(), Failure> {
        client.break_lock(name, holder, &arguments.reason).await?;
        let text = || format!("{} has lost the lock {}", shown(holder), shown(name));
        let document = json!({ "lock": name, "holder": holder });
        arguments.output.say_next(&document, text)?;
        Ok(())
    };
    if let Some(holder) = &arguments.holder {
        return break_hold(holder).await;
    }
    let mut view = client.lock(name).await?;
    match view.as_ref().map_or(0, LockView::holding) {
        0 => return Err(anyhow!("the lock {} has no holder", shown(name)).into()),
        1 => {}
        _ if arguments.all => {}
        count => {
            return Err(anyhow!(
                "the lock {} has {count} holders: give --holder HOLDER (see `lockgate show`) or --all",
                shown(name)
            )
            .into());
        }
    }
    // A view has only the first holders of many.
    while let Some(some) = view {
        for held in &some.holders {
            break_hold(&held.holder).await?;
        }
        view = match some.holders.len() < some.holding() {
            true => client.lock(name).await?,
            false => None,
        };
    }
    Ok(())
}

/// Runs `lockgate request-release`.
pub async fn request_release(arguments: RequestRelease) -> Result<(), Failure> {
    let RequestRelease {
        name,
        reason,
        holder,
        output,
        servers,
    } = arguments;
    let asked = servers
        .client()?
        .request_release(&name, holder.as_deref(), &reason)
        .await?;
    let text = || match asked {
        1 => "1 holder got the request".to_owned(),
        count => format!("{count} holders got the request"),
    };
    Ok(output.say(&json!({ "asked": asked }), text)?)
}

/// Runs `lockgate drain`.
pub async fn drain(arguments: Drain) -> Result<(), Failure> {
    let client = arguments.servers.client()?;
    Ok(client.drain(&arguments.name, !arguments.off).await?)
}

/// Runs `lockgate limit`.
pub async fn limit(arguments: Limit) -> Result<(), Failure> {
    let client = arguments.servers.client()?;
    // Without a limit it is `--unset`, which clap enforces.
    Ok(client.set_limit(&arguments.name, arguments.limit).await?)
}
