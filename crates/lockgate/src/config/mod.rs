//! Configuration of `lockgate serve`: a TOML file, and environment variables that override it.
//!
//! The settings of the node and their defaults belong to `lock_node`. This module names them in the file, and `settings.rs` has the table
//! of all settings. Every problem is reported at once, with the name of the setting and the place, so that one round corrects a file.
//! `check.rs` checks the files, directories and ports that the configuration names.

pub mod settings;
pub mod reference;
mod problem;
mod environment;
mod settings_reader;
mod members;
mod tls;
mod contradictions;
mod tls_file_paths;
pub mod changes;
pub mod check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_api::http::HttpConfig;
use lock_node::{AdmissionConfig, DiskConfig, NodeConfig, RaftNodeConfig, SnapshotConfig};
use redis_front::RedisConfig;
use zk_front::FourLetterWord;
use zk_front::ZkConfig;
use znode_store::LockName;

pub use self::environment::Environment;
pub use self::problem::{ConfigErrors, ConfigProblem, Source};
use crate::traces::TracesConfig;

use self::settings_reader::SettingsReader;
use crate::transport::TlsConfig;

/// Default level. openraft also logs each election at this level, in its own terms; its log is off
/// (`serve/logging.rs`).
const DEFAULT_LOG_LEVEL: &str = "info";

/// Default maximum of worker threads. More cause contention and no throughput, because Raft runs on one thread.
const MAX_DEFAULT_WORKERS: usize = 4;

/// Minimum size of a log segment. A log entry has at most about 2 MiB, and an entry that does not fit into a segment needs space that a
/// full disk does not have.
const MIN_SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// Maximum size of a log segment: a start reads the last one as a whole.
const MAX_SEGMENT_BYTES: u64 = 256 * 1024 * 1024;

/// Default share of traced requests: enough for a pattern, at hardly any cost.
const DEFAULT_TRACES_RATIO: f64 = 0.01;

/// Default address for clients of ZooKeeper, at which they expect a server.
const ZOOKEEPER_PORT: u16 = 2181;

/// Value of an address that is not listened at.
pub const NOT_SERVED: &str = "off";

/// Largest useful number of worker threads.
const MAX_WORKERS: u64 = 1024;

/// Configuration of `lockgate serve`.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// Configuration of the node.
    pub node: NodeConfig,
    /// Address to listen at for HTTP: `host:port`.
    pub http_listen: String,
    /// Address to listen at for clients of ZooKeeper: `host:port`; `None` if none are served.
    pub zookeeper_listen: Option<String>,
    /// Address without TLS for clients of ZooKeeper, beside `zookeeper_listen` with TLS: `host:port`.
    pub zookeeper_plain_listen: Option<String>,
    /// Address to listen at for clients of Redis: `host:port`; `None` if none are served.
    pub redis_listen: Option<String>,
    /// Address of the administration port: `host:port`; `None` without one.
    pub admin_listen: Option<String>,
    /// Number of worker threads of the runtime; 1 is a runtime on the main thread alone.
    pub workers: usize,
    /// File that is locked while the process lives, and has its process id.
    pub pid_file: Option<PathBuf>,
    /// Bounds of HTTP callers.
    pub http: HttpConfig,
    /// Bounds of clients of ZooKeeper.
    pub zookeeper: ZkConfig,
    /// Bounds of clients of Redis, and where their locks are.
    pub redis: RedisConfig,
    /// Bounds of callers of the administration port.
    pub admin: HttpConfig,
    /// Certificates; `None` without TLS.
    pub tls: Option<TlsConfig>,
    /// Permits a start without TLS at addresses that other machines can reach.
    pub insecure: bool,
    /// Restriction to the operator before the cluster is secured. `None`: if other machines can reach the
    /// node, unless it is insecure.
    pub access_required: Option<bool>,
    /// Configuration of the log.
    pub log: LogConfig,
    /// Configuration of traces; `None` without traces.
    pub traces: Option<TracesConfig>,
}

/// Configuration of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// Level, or directives in the form of `RUST_LOG`, which overrides this.
    pub level: String,
    /// Format of a line.
    pub format: LogFormat,
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// Text.
    Text,
    /// One JSON object per line.
    Json,
}

/// Configuration with its origin.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Configuration.
    pub config: ServeConfig,
    /// Settings of the file and the environment, in the form of the file, by name.
    pub set: BTreeMap<&'static str, String>,
    /// Warnings.
    pub warnings: Vec<ConfigProblem>,
}

/// Returns the default number of worker threads. On small machines one thread for everything is faster by a fifth to a half than several
/// that exchange work.
pub fn default_workers() -> usize {
    match std::thread::available_parallelism().map_or(1, |cores| cores.get()) {
        0..=2 => 1,
        cores => cores.min(MAX_DEFAULT_WORKERS),
    }
}

impl ServeConfig {
    /// Reads `file`, or only the environment if it is `None`, and overrides it by the environment of this process.
    pub fn load(file: Option<&Path>) -> Result<Loaded, ConfigErrors> {
        let environment = Environment::of_this_process();
        let Some(file) = file else {
            return Self::parse("", Path::new(""), &environment);
        };
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigErrors(vec![ConfigProblem::new("", error.to_string()).in_file(file)]))?;
        let located = |problem: ConfigProblem| problem.in_file(file);
        match Self::parse(&text, file.parent().unwrap_or(Path::new("")), &environment) {
            Ok(mut loaded) => {
                loaded.warnings = loaded.warnings.into_iter().map(located).collect();
                Ok(loaded)
            }
            Err(errors) => Err(ConfigErrors(errors.0.into_iter().map(located).collect())),
        }
    }

    /// Reads a configuration from `text`. Relative paths are relative to `base`.
    pub fn parse(text: &str, base: &Path, environment: &Environment) -> Result<Loaded, ConfigErrors> {
        let mut settings = SettingsReader::new(text, environment);
        // A setting on a line with a syntax error would also be reported as missing.
        if !settings.errors.is_empty() {
            return Err(ConfigErrors(settings.errors));
        }
        let config = settings.read(base);
        settings.refuse_unknown();
        settings.refuse_contradictions(&config);
        let SettingsReader {
            mut errors,
            mut warnings,
            set,
            ..
        } = settings;
        // In the order of the file, then settings without a line.
        let place = |problem: &ConfigProblem| match problem.source {
            Source::Line(line) => line,
            Source::Variable(_) | Source::Nowhere => usize::MAX,
        };
        errors.sort_by_key(place);
        warnings.sort_by_key(place);
        match errors.is_empty() {
            true => Ok(Loaded {
                config,
                set,
                warnings,
            }),
            false => Err(ConfigErrors(errors)),
        }
    }
}

impl SettingsReader<'_> {
    /// Reads all settings, in the order of the sample files.
    fn read(&mut self, base: &Path) -> ServeConfig {
        let node_id = match self.node_id("node_id") {
            Some(id) => id,
            None if !self.has_error("node_id") => self.error("node_id", "is required"),
            None => 0,
        };
        let cluster = self.text("cluster").unwrap_or_else(|| "lockgate".to_owned());
        let data_dir = base.join(self.text("data_dir").unwrap_or_else(|| "data".to_owned()));
        let join = self.flag("join");
        let members = self.members();
        let own_http = members.get(&node_id).map(|own| own.http.clone());
        let http_listen = match self.text("http_listen") {
            Some(address) => self.address("http_listen", address),
            None => own_http.unwrap_or_default(),
        };
        let zookeeper_listen = self.zookeeper_listen(&http_listen);
        let zookeeper_plain_listen = self.optional_address("zookeeper_plain_listen");
        let redis_listen = self.optional_address("redis_listen");
        let admin_listen = self.optional_address("admin_listen");
        let mut node = NodeConfig::new(node_id, cluster, members, data_dir);
        node.raft.join = join.unwrap_or(node.raft.join);
        self.replication(&mut node.raft);
        self.snapshots(&mut node.raft.snapshots);
        self.disk(&mut node.raft.disk);
        self.size("disk.segment_bytes", &mut node.raft.log.segment_bytes);
        self.state(&mut node);
        self.observers(&mut node);
        self.load(&mut node.admission);
        self.history_and_metrics(&mut node);
        let mut workers = default_workers();
        self.size("workers", &mut workers);
        let pid_file = self.text("pid_file").map(|path| base.join(path));
        let http = self.http();
        let mut admin = HttpConfig::administration();
        self.size("admin.max_connections", &mut admin.max_connections);
        admin.max_connections_per_address = admin.max_connections;
        admin.paths = http.paths;
        ServeConfig {
            node,
            http_listen,
            zookeeper_listen,
            zookeeper_plain_listen,
            redis_listen,
            admin_listen,
            workers,
            pid_file,
            http,
            zookeeper: self.zookeeper(),
            redis: self.redis(),
            admin,
            insecure: self.flag("insecure").unwrap_or(false),
            access_required: self.flag("access.required"),
            tls: self.tls(base),
            log: self.log(),
            traces: self.traces(),
        }
    }

    /// Reads the address for clients of ZooKeeper. It is beside that for HTTP by default, for the same clients.
    fn zookeeper_listen(&mut self, http_listen: &str) -> Option<String> {
        match self.text("zookeeper_listen") {
            Some(text) if text == NOT_SERVED => None,
            Some(address) => Some(self.address("zookeeper_listen", address)),
            None => http_listen
                .rsplit_once(':')
                .map(|(host, _)| format!("{host}:{ZOOKEEPER_PORT}")),
        }
    }

    /// Reads the settings of replication.
    fn replication(&mut self, raft: &mut RaftNodeConfig) {
        if let Some(address) = self.text("peer_listen") {
            raft.peer_listen = match address.parse() {
                Ok(address) => Some(address),
                Err(_) => self.error(
                    "peer_listen",
                    "must be \"ADDRESS:PORT\", such as \"0.0.0.0:7500\", without a host name",
                ),
            };
        }
        self.duration("propose_timeout_ms", &mut raft.propose_timeout);

        self.duration("raft.heartbeat_ms", &mut raft.timing.heartbeat);
        self.duration("raft.election_min_ms", &mut raft.timing.election_min);
        self.duration("raft.election_max_ms", &mut raft.timing.election_max);
    }

    /// Reads when snapshots are made, and how much of the log stays.
    fn snapshots(&mut self, snapshots: &mut SnapshotConfig) {
        self.positive("snapshots.every_entries", &mut snapshots.every_entries);
        self.positive("snapshots.every_bytes", &mut snapshots.every_bytes);
        if let Some(entries) = self.integer("snapshots.keep_entries") {
            snapshots.keep_entries = entries;
        }
        if let Some(bytes) = self.integer("snapshots.keep_bytes") {
            snapshots.keep_bytes = bytes;
        }
        self.positive(
            "snapshots.send_bytes_per_second",
            &mut snapshots.send_bytes_per_second,
        );
    }

    /// Reads the thresholds at which the disk counts as nearly full or slow.
    fn disk(&mut self, disk: &mut DiskConfig) {
        self.positive("disk.low_water_bytes", &mut disk.low_water_bytes);
        disk.resume_bytes = disk.low_water_bytes.saturating_add(disk.low_water_bytes / 4);
        self.positive("disk.resume_bytes", &mut disk.resume_bytes);
        self.duration("disk.check_interval_ms", &mut disk.check_interval);
        self.duration("disk.stall_ms", &mut disk.stall);
        self.duration("disk.hand_over_pause_ms", &mut disk.hand_over_pause);
    }

    /// Reads the bounds of the state, and when it is swept.
    fn state(&mut self, node: &mut NodeConfig) {
        self.duration("sessions.min_ms", &mut node.sessions.min);
        self.duration("sessions.max_ms", &mut node.sessions.max);
        self.duration("sessions.default_ms", &mut node.sessions.default);
        self.duration("leases.max_ms", &mut node.sessions.lease_max);

        self.count("limits.data_bytes", &mut node.limits.data_bytes);
        self.count("limits.children", &mut node.limits.children);
        self.count("limits.ephemerals", &mut node.limits.ephemerals);
        self.count("limits.sessions", &mut node.limits.sessions);

        self.duration("sweeps.empty_for_ms", &mut node.sweeps.empty_for);
        self.duration("sweeps.every_ms", &mut node.sweeps.every);
    }

    /// Reads the bounds of watches and event streams.
    fn observers(&mut self, node: &mut NodeConfig) {
        self.count("watches.per_watcher", &mut node.watches.limits.per_watcher);
        self.count("watches.per_node", &mut node.watches.limits.per_node);
        self.size("watches.backlog", &mut node.watches.backlog);

        self.size("events.backlog", &mut node.events.backlog);
        self.size("events.backlog_bytes", &mut node.events.backlog_bytes);
        self.size("events.streams_per_session", &mut node.events.streams_per_session);
        self.size("events.streams_per_node", &mut node.events.streams_per_node);
    }

    /// Reads the bounds of the lock history, and the labels and thresholds of metrics.
    fn history_and_metrics(&mut self, node: &mut NodeConfig) {
        self.switch("history.enabled", &mut node.history.enabled);
        self.size("history.records", &mut node.history.bounds.records);
        self.duration("history.max_age_ms", &mut node.history.bounds.max_age);
        self.positive("history.cache_bytes", &mut node.history.bounds.cache_bytes);

        self.list("metrics.lock_prefixes", &mut node.metrics.lock_prefixes);
        match self.integer("log.slow_ms") {
            None => {}
            Some(0) => node.metrics.slow = None,
            Some(ms) => node.metrics.slow = Some(Duration::from_millis(ms)),
        }
    }

    /// Reads the bounds of HTTP callers.
    fn http(&mut self) -> HttpConfig {
        let mut http = HttpConfig::default();
        self.size("http.max_body_bytes", &mut http.max_body_bytes);
        self.size("http.max_data_body_bytes", &mut http.max_data_body_bytes);
        self.size("http.max_path_bytes", &mut http.paths.bytes);
        self.size("http.max_path_depth", &mut http.paths.depth);
        self.size("http.max_connections", &mut http.max_connections);
        self.size(
            "http.max_connections_per_address",
            &mut http.max_connections_per_address,
        );
        self.size("http.max_large_bodies_bytes", &mut http.max_large_bodies_bytes);
        self.size("http.max_large_answers_bytes", &mut http.max_large_answers_bytes);
        let waits = &mut http.max_waiting_calls_per_caller;
        self.size("http.max_waiting_calls_per_caller", waits);
        self.duration("http.header_timeout_ms", &mut http.header_timeout);
        self.duration("http.first_header_timeout_ms", &mut http.first_header_timeout);
        self.duration("http.body_timeout_ms", &mut http.body_timeout);
        self.duration("http.send_timeout_ms", &mut http.send_timeout);
        self.duration("http.waiter_grace_ms", &mut http.waiter_grace);
        self.duration("http.drain_timeout_ms", &mut http.drain_timeout);
        self.list("http.allowed_hosts", &mut http.names.hosts);
        self.list("http.allowed_origins", &mut http.names.origins);
        http
    }

    /// Reads the bounds of clients of ZooKeeper.
    fn zookeeper(&mut self) -> ZkConfig {
        let mut zookeeper = ZkConfig::default();
        self.size("zookeeper.max_request_bytes", &mut zookeeper.max_request_bytes);
        self.size("zookeeper.max_path_bytes", &mut zookeeper.paths.bytes);
        self.size("zookeeper.max_path_depth", &mut zookeeper.paths.depth);
        self.size("zookeeper.max_connections", &mut zookeeper.max_connections);
        self.size(
            "zookeeper.max_connections_per_address",
            &mut zookeeper.max_connections_per_address,
        );
        self.size("zookeeper.max_outstanding", &mut zookeeper.max_outstanding);
        self.size(
            "zookeeper.max_outstanding_bytes",
            &mut zookeeper.max_outstanding_bytes,
        );
        self.size(
            "zookeeper.max_large_requests_bytes",
            &mut zookeeper.max_large_requests_bytes,
        );
        self.duration("zookeeper.handshake_timeout_ms", &mut zookeeper.handshake_timeout);
        self.duration("zookeeper.send_timeout_ms", &mut zookeeper.send_timeout);
        self.duration("zookeeper.drain_timeout_ms", &mut zookeeper.drain_timeout);
        if let Some(words) = self.text("zookeeper.four_letter_words") {
            zookeeper.four_letter_words = self.words(&words);
        }
        zookeeper.super_digest = self
            .text("zookeeper.super_digest")
            .filter(|digest| !digest.is_empty());
        zookeeper
    }

    /// Reads the bounds of clients of Redis, and where their locks are.
    fn redis(&mut self) -> RedisConfig {
        let mut redis = RedisConfig::default();
        if let Some(prefix) = self.text("redis.prefix") {
            match LockName::parse(&prefix) {
                Ok(_) => redis.prefix = prefix,
                Err(bad) => self.error("redis.prefix", &format!("must be the name of a lock: {bad}")),
            }
        }
        self.size("redis.max_connections", &mut redis.max_connections);
        self.size(
            "redis.max_connections_per_address",
            &mut redis.max_connections_per_address,
        );
        if let Some(redlock) = self.flag("redis.redlock") {
            redis.redlock = redlock;
        }
        self.list("redis.disabled_commands", &mut redis.disabled_commands);
        for command in &mut redis.disabled_commands {
            command.make_ascii_uppercase();
            if !redis_front::is_command(command) {
                self.error::<()>(
                    "redis.disabled_commands",
                    &format!("there is no command {command}"),
                );
            }
        }
        redis
    }

    /// Reads the configuration of the log.
    fn log(&mut self) -> LogConfig {
        let log = LogConfig {
            level: self
                .text("log.level")
                .unwrap_or_else(|| DEFAULT_LOG_LEVEL.to_owned()),
            format: match self.text("log.format").as_deref() {
                Some("json") => LogFormat::Json,
                _ => LogFormat::Text,
            },
        };
        if log.level.parse::<tracing_subscriber::filter::Targets>().is_err() {
            self.error::<()>(
                "log.level",
                "must be a level (error, warn, info, debug, trace) or a list of directives",
            );
        }
        log
    }

    /// Reads an address that is "off" by default.
    fn optional_address(&mut self, key: &'static str) -> Option<String> {
        match self.text(key) {
            Some(address) if address != NOT_SERVED => Some(self.address(key, address)),
            _ => None,
        }
    }

    /// Reads the admission control.
    fn load(&mut self, load: &mut AdmissionConfig) {
        self.duration("load.target_ms", &mut load.target);
        self.size("load.max_outstanding", &mut load.max_outstanding);
        self.size("load.max_outstanding_bytes", &mut load.max_outstanding_bytes);
        let openings = &mut load.openings;
        self.count("load.session_openings_per_second", &mut openings.per_second);
        self.count("load.session_openings_at_once", &mut openings.burst);
        self.count("load.session_openings_share", &mut openings.share);
        let large_writes = &mut load.large_writes.per_second;
        self.count("load.large_writes_kib_per_second", large_writes);
    }

    /// Reads the collector of spans, and the share of traced requests.
    fn traces(&mut self) -> Option<TracesConfig> {
        let endpoint = self.text("traces.endpoint").unwrap_or_default();
        let mut ratio = DEFAULT_TRACES_RATIO;
        self.ratio("traces.ratio", &mut ratio);
        if endpoint.is_empty() {
            return None;
        }
        match TracesConfig::parse(&endpoint) {
            Ok((collector, path)) => Some(TracesConfig {
                collector,
                path,
                ratio,
            }),
            Err(fact) => self.error("traces.endpoint", &fact),
        }
    }

    /// Reads four-letter words, separated by commas; `*` for all.
    fn words(&mut self, text: &str) -> Vec<FourLetterWord> {
        let mut words = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.parse() {
                Ok(word) => words.push(word),
                Err(_) if part == "*" => words.extend(FourLetterWord::ALL),
                Err(error) => self.error("zookeeper.four_letter_words", &format!("{part:?}: {error}")),
            }
        }
        words
    }
}

#[cfg(test)]
mod limits_table;
#[cfg(test)]
mod tests;
