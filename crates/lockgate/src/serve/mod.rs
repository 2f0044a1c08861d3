//! `lockgate serve`: one node as a process, from its configuration to its exit code.

pub mod open_files;
mod logging;
mod huge_pages;
mod reload;
mod supervisor;

use std::io;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use cli_support::orphans::Orphans;
use local_cluster::process::PidFile;
use lock_api::http::{HttpConfig, Tracing};
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::reload::Reloader;
use self::supervisor::Supervisor;
use crate::config::{Loaded, ServeConfig};
use crate::server::Lockgate;
use crate::start_error::StartError;
use crate::traces;

/// The node is no member of its cluster any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Removed(String);

/// After a failure there is nothing to save and nothing to wait for: those who call are told if that is quickly done, and
/// go to another node, and so does whatever this node led.
const FAILED_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// After SIGTERM a node has stopped within this, if its disk does not hang: calls for locks, the hand-over, and connections take less
/// together. Longer drain timeouts are added.
const STOP_TIMEOUT: Duration = Duration::from_millis(2_700);

/// A failed process: a node that had to be ended before it had stopped.
const EXIT_UNSTOPPED: i32 = 1;

/// Runs a node with the configuration in `file` (none: all of it is in the environment) until it is told to stop, or cannot go
/// on. `insecure`: it was said on the command line, whatever the configuration says.
pub fn serve(file: Option<&Path>, insecure: bool) -> anyhow::Result<()> {
    let Loaded {
        mut config,
        set,
        warnings,
    } = ServeConfig::load(file)?;
    config.insecure |= insecure;
    let _claim = config.pid_file.as_deref().map(PidFile::claim).transpose()?;
    let level = logging::start(&config.log)?;
    for warning in warnings {
        warn!("configuration: {warning}");
    }
    open_files::raise_limit(&config);
    huge_pages::disable();
    abort_on_panic();
    #[cfg(feature = "failpoints")]
    raft_node::fail_points::order_from_environment().map_err(anyhow::Error::msg)?;
    #[cfg(feature = "planted")]
    plant_from_environment()?;
    let runtime = runtime(config.workers).context("starting the runtime")?;
    let ended = runtime.block_on(run(config, Reloader::new(file, set, level)));
    // A thread that waits for a disk which hangs would keep the process for as long.
    runtime.shutdown_background();
    ended
}

/// Gives this node the bug that `LOCKGATE_PLANTED` numbers. Only builds for the tests of the tests can do so.
#[cfg(feature = "planted")]
fn plant_from_environment() -> anyhow::Result<()> {
    use znode_store::planted::{Bug, plant};
    let Some(number) = std::env::var_os("LOCKGATE_PLANTED") else {
        return Ok(());
    };
    let bug = number
        .to_str()
        .and_then(|number| Bug::numbered(number.parse().ok()?));
    let Some(bug) = bug else {
        bail!(
            "LOCKGATE_PLANTED is {number:?}, and there is no such bug: 1 to {}",
            Bug::ALL.len()
        );
    };
    warn!(
        "THIS NODE IS BROKEN ON PURPOSE: it has the planted bug {} ({bug:?}); do not use it",
        bug as u8
    );
    plant(Some(bug));
    Ok(())
}

/// A panic ends the process there and then. What it leaves half changed is never shown to anybody, and whoever looks
/// after the process starts it again, from what is on its disk. Unwinding would give locks back whose tables are half
/// changed, and `panic = "abort"` would hold for release builds only, and for those who embed the library as well. What the
/// index of lock history panics about is its own affair: nothing depends on it.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if raft_node::lock_history::contains_this_panic() {
            return;
        }
        eprintln!("the node ends: after a panic nothing that it says could be relied on");
        std::process::abort();
    }));
}

/// The runtime of a node: one thread that does everything, or a pool of workers.
fn runtime(workers: usize) -> io::Result<Runtime> {
    match workers {
        1 => runtime::Builder::new_current_thread().enable_all().build(),
        workers => runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build(),
    }
}

async fn run(config: ServeConfig, mut reloader: Reloader) -> anyhow::Result<()> {
    // Before anything is started: a signal that comes meanwhile is not lost, and does not kill halfway.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    // In a container this may be the first process, to which orphans of `exec` come. A node has no children of its own.
    if std::process::id() == 1 {
        Orphans::collect()?;
    }
    let node_id = config.node.node_id;
    let cluster = config.node.cluster.clone();
    info!(
        node = node_id,
        cluster = config.node.cluster,
        version = env!("CARGO_PKG_VERSION"),
        workers = config.workers,
        "starting"
    );
    let drains = [&config.http, &config.admin].map(|http| http.drain_timeout);
    let drains = drains.into_iter().max().max(Some(config.zookeeper.drain_timeout));
    let stop_timeout = STOP_TIMEOUT
        + drains
            .unwrap_or_default()
            .saturating_sub(HttpConfig::default().drain_timeout);
    let mut server = Lockgate::configured(config.node)
        .http_listen(config.http_listen)
        .http_config(config.http)
        .admin_config(config.admin)
        .zookeeper_config(config.zookeeper)
        .access_required(config.access_required);
    if let Some(address) = config.admin_listen {
        server = server.admin_listen(address);
    }
    if let Some(address) = config.zookeeper_listen {
        server = server.zookeeper_listen(address);
    }
    if let Some(address) = config.zookeeper_plain_listen {
        server = server.zookeeper_plain_listen(address);
    }
    if let Some(tls) = config.tls {
        server = server.tls(tls);
        if config.insecure || config.access_required == Some(false) {
            warn!(
                node = node_id,
                "whoever reaches this node can do everything for as long as the cluster is not secured"
            );
        }
    } else if config.insecure {
        warn!(
            node = node_id,
            "insecure: whoever reaches this node can do everything"
        );
    }
    let stop_exporting = CancellationToken::new();
    let mut exporter = None;
    if let Some(traces) = config.traces {
        let ratio = traces.ratio;
        let (spans, sender) = traces::exporter(traces, &cluster, node_id);
        server = server.traces(Tracing {
            collector: Arc::new(spans),
            ratio,
        });
        exporter = Some(tokio::spawn(sender.run(stop_exporting.clone())));
    }
    let server = server
        .insecure(config.insecure)
        .start()
        .await
        .map_err(with_setting_names)?;
    if let Some(address) = server.http_address() {
        let scheme = if server.is_secured() { "https" } else { "http" };
        info!(node = node_id, "serving HTTP at {scheme}://{address}");
    }
    if let Some(address) = server.admin_address() {
        info!(node = node_id, "serving administration at {address}");
    }
    if let Some(address) = server.zookeeper_address() {
        info!(node = node_id, "serving clients of ZooKeeper at {address}");
    }
    if let Some(address) = server.zookeeper_plain_address() {
        warn!(
            node = node_id,
            "serving clients of ZooKeeper without TLS at {address}: whoever is on the way can read and change what they say"
        );
    }
    let supervisor = Supervisor::from_environment();
    let serving = format!("node {node_id} is serving");
    supervisor.ready(&serving);
    let mut watchdog = pin!(supervisor.run_watchdog());
    let failure = loop {
        tokio::select! {
            failure = server.node().failed() => break Some(failure),
            () = &mut watchdog => {}
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            // None any more: the process has no more signals, and ends by the other ones.
            Some(()) = hangup.recv() => {
                info!(node = node_id, "reading configuration and certificates again, as SIGHUP asks for");
                supervisor.reloading();
                reloader.reload(&server);
                server.reload_certificates();
                supervisor.ready(&serving);
            }
        }
    };
    match failure {
        None => {
            info!(node = node_id, "stopping");
            supervisor.stopping();
            let exit_unstopped = |why: &str| {
                let waits_for = server.stops_at().unwrap_or("nothing");
                warn!(
                    node = node_id,
                    waits_for, "{why}; what was acknowledged is on its disk"
                );
                std::process::exit(EXIT_UNSTOPPED)
            };
            tokio::select! {
                () = server.stop() => {}
                // The supervisor still waits for signs of life.
                () = watchdog => {}
                () = tokio::time::sleep(stop_timeout) => {
                    exit_unstopped(&format!("the node has not stopped within {stop_timeout:?} and ends as it is"))
                }
                _ = terminate.recv() => exit_unstopped("a second signal: the node ends as it is"),
                _ = interrupt.recv() => exit_unstopped("a second signal: the node ends as it is"),
            }
            stop_exporting.cancel();
            if let Some(exporter) = exporter
                && let Err(error) = exporter.await
            {
                error!(%error, "whoever sends spans has ended badly");
            }
            info!(node = node_id, "stopped");
            Ok(())
        }
        Some(failure) => {
            error!(node = node_id, "{failure}");
            let removed = server.node().was_removed();
            if tokio::time::timeout(FAILED_STOP_TIMEOUT, server.stop())
                .await
                .is_err()
            {
                warn!(
                    node = node_id,
                    "the node has failed and ends without having answered everybody"
                );
            }
            if removed {
                return Err(Removed(failure).into());
            }
            bail!("node {node_id} cannot go on: {failure}")
        }
    }
}

/// A refusal to start as it is said to whoever has written a configuration, and not a program.
fn with_setting_names(error: StartError) -> anyhow::Error {
    match error {
        StartError::Exposed { what, address } => anyhow::anyhow!(
            "this node would listen for {what} at {address}, where others than this machine can call it, and nothing is protected: \
             give it certificates ([tls] in its configuration; `lockgate cert` makes some), or have it listen on 127.0.0.1, or say \
             that all who can call it are trusted (`insecure = true`, or `--insecure`)"
        ),
        other => other.into(),
    }
}
