//! `lockgate serve`: one node as a process, from its configuration to its exit code.

pub(crate) mod open_files;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use lock_api::http::Tracing;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use tracing_subscriber::EnvFilter;

use crate::cluster::process::PidFile;
use crate::config::{LogConfig, LogFormat, ServeConfig};
use crate::log_lines::{Escapes, OneLine};
use crate::server::Lockgate;
use crate::traces;

/// The node is no member of its cluster any more.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Removed(String);

/// After a failure there is nothing to save and nothing to wait for: those who call are told if that is quickly done, and
/// go to another node, and so does whatever this node led.
const FAILED_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop, or cannot go on.
pub fn serve(config: ServeConfig) -> anyhow::Result<()> {
    let _claim = config.pid_file.as_deref().map(PidFile::claim).transpose()?;
    start_logging(&config.log)?;
    open_files::raise_for(&config);
    end_at_panics();
    #[cfg(feature = "failpoints")]
    raft_node::fail_points::order_from_environment().map_err(anyhow::Error::msg)?;
    #[cfg(feature = "planted")]
    plant_from_environment()?;
    runtime(config.workers)
        .context("starting the runtime")?
        .block_on(run(config))
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
fn end_at_panics() {
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

/// One thread that does everything, or a pool of workers.
fn runtime(workers: usize) -> io::Result<Runtime> {
    match workers {
        1 => runtime::Builder::new_current_thread().enable_all().build(),
        workers => runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build(),
    }
}

async fn run(config: ServeConfig) -> anyhow::Result<()> {
    // Before anything is started: a signal that comes meanwhile is not lost, and does not kill halfway.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let node_id = config.node.node_id;
    let cluster = config.node.cluster.clone();
    info!(
        node = node_id,
        cluster = config.node.cluster,
        version = env!("CARGO_PKG_VERSION"),
        workers = config.workers,
        "starting"
    );
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
    // Without certificates a hangup ends the process, as always.
    let mut hangup = match &config.tls {
        Some(_) => Some(signal(SignalKind::hangup()).context("listening for SIGHUP")?),
        None => None,
    };
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
    let exporting = CancellationToken::new();
    let mut exporter = None;
    if let Some(traces) = config.traces {
        let ratio = traces.ratio;
        let (spans, sends) = traces::exporter(traces, &cluster, node_id);
        server = server.traces(Tracing {
            collector: Arc::new(spans),
            ratio,
        });
        exporter = Some(tokio::spawn(sends.run(exporting.clone())));
    }
    let server = server.insecure(config.insecure).start().await?;
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
    let failure = loop {
        tokio::select! {
            failure = server.node().failed() => break Some(failure),
            _ = terminate.recv() => break None,
            _ = interrupt.recv() => break None,
            () = told_to_reload(hangup.as_mut()) => {
                info!(node = node_id, "looking at the certificates, as SIGHUP asks for");
                server.reload_certificates();
            }
        }
    };
    match failure {
        None => {
            info!(node = node_id, "stopping");
            server.stop().await;
            exporting.cancel();
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

/// Waits for the signal by which daemons are told to read their files again.
async fn told_to_reload(hangup: Option<&mut Signal>) {
    let told = match hangup {
        Some(hangup) => hangup.recv().await.is_some(),
        None => false,
    };
    if !told {
        // Nobody can tell it.
        std::future::pending().await
    }
}

fn start_logging(config: &LogConfig) -> anyhow::Result<()> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(directives) => EnvFilter::try_new(directives).context("RUST_LOG")?,
        // Checked when the configuration was read.
        Err(_) => EnvFilter::try_new(&config.level).context("log.level")?,
    };
    let escapes = match config.format {
        LogFormat::Text => Escapes::Text,
        LogFormat::Json => Escapes::Json,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(move || OneLine::new(io::stderr(), escapes))
        .with_ansi(false)
        // A line that cannot be written, as on a full disk, is lost. To complain of it on the same stream would be the
        // end of the thread that wanted to log.
        .log_internal_errors(false);
    match config.format {
        LogFormat::Text => subscriber.try_init(),
        LogFormat::Json => subscriber.json().try_init(),
    }
    .map_err(|error| anyhow::anyhow!("starting the log: {error}"))
}
