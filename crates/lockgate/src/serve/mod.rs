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

use anyhow::Context;
use cli_support::orphans::Orphans;
use local_cluster::process::PidFile;
use lock_api::http::{HttpConfig, Tracing};
use lock_node::NodeId;
use tokio::runtime::{self, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::reload::Reloader;
use self::supervisor::Supervisor;
use crate::config::{Loaded, ServeConfig};
use crate::server::{Builder, Lockgate};
use crate::start_error::StartError;
use crate::traces::{self, TracesConfig};

/// Error of a node that was removed from its cluster.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Removed(String);

/// Time for a failed node to stop. It has nothing to save and nothing to wait for: callers get a reply if
/// that is quick, and go to another node. If the node was the leader, the others elect a new one.
const FAILED_STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Time within which a node stops after SIGTERM, if its disk does not hang. Pending calls for locks, the
/// leadership transfer and open connections take less together. Longer drain timeouts are added.
const STOP_TIMEOUT: Duration = Duration::from_millis(2_700);

/// Exit code of a node that was ended before it had stopped.
const EXIT_UNSTOPPED: i32 = 1;

/// Runs a node until it is signalled to stop or fails. The configuration is in `file`, or completely in the
/// environment if that is `None`. `insecure` is the option of the command line, which overrides the
/// configuration.
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
    lock_node::fail_points::order_from_environment().map_err(anyhow::Error::msg)?;
    #[cfg(feature = "planted")]
    plant_from_environment()?;
    let runtime = runtime(config.workers).context("starting the runtime")?;
    let ended = runtime.block_on(run(config, Reloader::new(file, set, level)));
    // A thread that waits for a hanging disk would keep the process alive.
    runtime.shutdown_background();
    ended
}

/// Plants the bug that `LOCKGATE_PLANTED` numbers. Only builds for the tests of the tests can do so.
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
        anyhow::bail!(
            "LOCKGATE_PLANTED is {number:?}, but bugs have the numbers 1 to {}",
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

/// Makes every panic abort the process. No client sees the half-changed state, and the supervisor starts the
/// process again from the state on its disk. Unwinding would release locks whose tables are half changed.
/// `panic = "abort"` would apply to release builds only, and also to programs that embed the library. Panics
/// of the lock history's index are exempt: nothing depends on it.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        if lock_node::lock_history::contains_this_panic() {
            return;
        }
        eprintln!("the node aborts: after a panic its state cannot be trusted");
        std::process::abort();
    }));
}

/// Builds the runtime: one thread that does everything, or a pool of worker threads.
fn runtime(workers: usize) -> io::Result<Runtime> {
    match workers {
        1 => runtime::Builder::new_current_thread().enable_all().build(),
        workers => runtime::Builder::new_multi_thread()
            .worker_threads(workers)
            .enable_all()
            .build(),
    }
}

async fn run(mut config: ServeConfig, mut reloader: Reloader) -> anyhow::Result<()> {
    // First of all: a signal during the start is not lost, and does not end the process halfway.
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
    // In a container this may be process 1, which inherits the orphans of `exec`. A node has no children of
    // its own.
    if std::process::id() == 1 {
        Orphans::collect()?;
    }
    let node_id = config.node.raft.node_id;
    let cluster = config.node.raft.cluster.clone();
    info!(
        node = node_id,
        cluster,
        version = env!("CARGO_PKG_VERSION"),
        workers = config.workers,
        "starting"
    );
    warn_of_unlimited_callers(&config);
    let stop_timeout = stop_timeout(&config);
    let (tracing, exporter) = match config.traces.take() {
        Some(traces) => {
            let (tracing, exporter) = ExporterTask::start(traces, &cluster, node_id);
            (Some(tracing), Some(exporter))
        }
        None => (None, None),
    };
    let mut server = builder(config);
    if let Some(tracing) = tracing {
        server = server.traces(tracing);
    }
    let server = server.start().await.map_err(with_setting_names)?;
    log_addresses(&server);
    let supervisor = Supervisor::from_environment();
    let serving = format!("node {node_id} is serving");
    supervisor.ready(&serving);
    let mut watchdog = pin!(supervisor.run_watchdog());
    let failure = loop {
        tokio::select! {
            failure = server.node().failed() => break Some(failure),
            () = &mut watchdog => {}
            () = stop_signal(&mut terminate, &mut interrupt) => break None,
            // On `None` the process gets no more SIGHUP, and ends by the other signals.
            Some(()) = hangup.recv() => {
                info!(node = node_id, "received SIGHUP: reloading configuration and certificates");
                supervisor.reloading();
                reloader.reload(&server);
                server.reload_certificates();
                supervisor.ready(&serving);
            }
        }
    };
    if let Some(failure) = failure {
        return Err(stop_failed(&server, failure).await);
    }
    info!(node = node_id, "stopping");
    supervisor.stopping();
    tokio::select! {
        () = server.stop() => {}
        // The supervisor still expects watchdog notifications.
        () = watchdog => {}
        () = tokio::time::sleep(stop_timeout) => {
            exit_unstopped(&server, &format!("the node has not stopped within {stop_timeout:?} and exits"))
        }
        () = stop_signal(&mut terminate, &mut interrupt) => {
            exit_unstopped(&server, "the node received a second signal and exits before it has stopped")
        }
    }
    if let Some(exporter) = exporter {
        exporter.stop().await;
    }
    info!(node = node_id, "stopped");
    Ok(())
}

/// Waits for SIGTERM or SIGINT.
async fn stop_signal(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

fn warn_of_unlimited_callers(config: &ServeConfig) {
    let node = config.node.raft.node_id;
    if config.tls.is_none() {
        if config.insecure {
            warn!(
                node,
                "insecure: every caller that reaches this node can do everything"
            );
        }
    } else if config.insecure || config.access_required == Some(false) {
        warn!(
            node,
            "every caller that reaches this node can do everything until the cluster is secured"
        );
    }
}

/// Returns the time within which the node stops: longer drain timeouts are added.
fn stop_timeout(config: &ServeConfig) -> Duration {
    let drains = [
        config.http.drain_timeout,
        config.admin.drain_timeout,
        config.zookeeper.drain_timeout,
    ];
    let longest = drains.into_iter().max().unwrap_or_default();
    STOP_TIMEOUT + longest.saturating_sub(HttpConfig::default().drain_timeout)
}

fn builder(config: ServeConfig) -> Builder {
    let mut server = Lockgate::configured(config.node)
        .http_listen(config.http_listen)
        .http_config(config.http)
        .admin_config(config.admin)
        .zookeeper_config(config.zookeeper)
        .redis_config(config.redis)
        .access_required(config.access_required)
        .insecure(config.insecure);
    if let Some(address) = config.admin_listen {
        server = server.admin_listen(address);
    }
    if let Some(address) = config.zookeeper_listen {
        server = server.zookeeper_listen(address);
    }
    if let Some(address) = config.redis_listen {
        server = server.redis_listen(address);
    }
    if let Some(address) = config.zookeeper_plain_listen {
        server = server.zookeeper_plain_listen(address);
    }
    if let Some(tls) = config.tls {
        server = server.tls(tls);
    }
    server
}

/// Task that sends spans to their collector.
struct ExporterTask {
    task: JoinHandle<()>,
    stop: CancellationToken,
}

impl ExporterTask {
    fn start(traces: TracesConfig, cluster: &str, node: NodeId) -> (Tracing, Self) {
        let (ratio, stop) = (traces.ratio, CancellationToken::new());
        let (spans, sender) = traces::exporter(traces, cluster, node);
        let tracing = Tracing {
            collector: Arc::new(spans),
            ratio,
        };
        let task = tokio::spawn(sender.run(stop.clone()));
        (tracing, Self { task, stop })
    }

    async fn stop(self) {
        self.stop.cancel();
        if let Err(error) = self.task.await {
            error!(%error, "the exporter of spans panicked");
        }
    }
}

fn log_addresses(server: &Lockgate) {
    let node = server.node().id();
    if let Some(address) = server.http_address() {
        let scheme = if server.is_secured() { "https" } else { "http" };
        info!(node, "serving HTTP at {scheme}://{address}");
    }
    if let Some(address) = server.admin_address() {
        info!(node, "serving administration at {address}");
    }
    if let Some(address) = server.zookeeper_address() {
        info!(node, "serving clients of ZooKeeper at {address}");
    }
    if let Some(address) = server.redis_address() {
        info!(node, "serving clients of Redis at {address}");
    }
    if let Some(address) = server.zookeeper_plain_address() {
        warn!(
            node,
            "serving clients of ZooKeeper without TLS at {address}: everybody on the network path can read and change their requests"
        );
    }
}

/// Ends the process although the node has not stopped.
fn exit_unstopped(server: &Lockgate, why: &str) -> ! {
    let waits_for = server.stops_at().unwrap_or("nothing");
    warn!(
        node = server.node().id(),
        waits_for, "{why}; all acknowledged writes are on its disk"
    );
    std::process::exit(EXIT_UNSTOPPED)
}

/// Stops a node that has failed. Returns the error of the process.
async fn stop_failed(server: &Lockgate, failure: String) -> anyhow::Error {
    let node = server.node().id();
    error!(node, "{failure}");
    let removed = server.node().was_removed();
    if tokio::time::timeout(FAILED_STOP_TIMEOUT, server.stop())
        .await
        .is_err()
    {
        warn!(
            node,
            "the node has failed and exits before it has answered every caller"
        );
    }
    match removed {
        true => Removed(failure).into(),
        false => anyhow::anyhow!("node {node} has failed: {failure}"),
    }
}

/// Converts an error of the start into one for users of a configuration file, who have settings and options
/// instead of methods.
fn with_setting_names(error: StartError) -> anyhow::Error {
    match error {
        StartError::Exposed { what, address } => anyhow::anyhow!(
            "this node would listen for {what} without TLS at {address}, which other machines can reach: give it certificates \
             ([tls] in its configuration; `lockgate cert` issues some), let it listen on 127.0.0.1, or trust every machine that \
             can reach it (`insecure = true`, or `--insecure`)"
        ),
        other => other.into(),
    }
}
