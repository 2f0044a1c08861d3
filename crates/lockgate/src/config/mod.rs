//! What `lockgate serve` is told: a TOML file, and environment variables that override it.
//!
//! The settings of the node itself and their defaults are `raft_node`'s; here they get their names in the file, and `settings.rs`
//! tells what each of them takes. Every problem is reported at once, with the name of the setting and the place, so that a file
//! is mended in one round. Whether what the file names is there, and good, `check.rs` looks at.

pub mod settings;
pub mod reference;
mod problem;
mod environment;
mod given;
mod members;
mod tls;
mod contradictions;
mod given_files;
pub mod changes;
pub mod check;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_api::http::HttpConfig;
use raft_node::{AdmissionConfig, NodeConfig};
use zk_front::FourLetterWord;
use zk_front::ZkConfig;

pub use self::environment::Environment;
pub use self::problem::{ConfigErrors, ConfigProblem, Source};
use crate::traces::TracesConfig;

use self::given::Settings;
use crate::transport::TlsConfig;

/// openraft tells at info what it does at every election in words that only its authors read.
const DEFAULT_LOG_LEVEL: &str = "info";

/// More worker threads than this bring contention and no throughput: one thread carries Raft anyway.
const MAX_DEFAULT_WORKERS: usize = 4;

/// An entry of the log is at most about 2 MiB. One that does not fit into a segment would need space that a full disk
/// does not have.
const MIN_SEGMENT_BYTES: u64 = 4 * 1024 * 1024;

/// A start reads the segment that was written to last as a whole.
const MAX_SEGMENT_BYTES: u64 = 256 * 1024 * 1024;

/// Enough to see a pattern, and little enough to cost nothing.
const DEFAULT_TRACES_RATIO: f64 = 0.01;

/// Where clients of ZooKeeper look for a server.
const ZOOKEEPER_PORT: u16 = 2181;

/// In the place of an address: not at all.
pub const NOT_SERVED: &str = "off";

/// The largest number of worker threads that makes any sense to ask for.
const MAX_WORKERS: u64 = 1024;

/// What `lockgate serve` is told.
#[derive(Debug, Clone)]
pub struct ServeConfig {
    /// The node itself.
    pub node: NodeConfig,
    /// Where to listen for HTTP: `host:port`.
    pub http_listen: String,
    /// Where to listen for clients of ZooKeeper: `host:port`; none: nowhere.
    pub zookeeper_listen: Option<String>,
    /// Where to listen for clients of ZooKeeper without TLS, beside `zookeeper_listen` with TLS: `host:port`; none: nowhere.
    pub zookeeper_plain_listen: Option<String>,
    /// Where to listen for the people who look after the cluster: `host:port`; none: nowhere but at the other ports.
    pub admin_listen: Option<String>,
    /// Worker threads of the runtime; 1 is a runtime on the main thread alone.
    pub workers: usize,
    /// Locked for as long as the process lives, with its process id in it.
    pub pid_file: Option<PathBuf>,
    /// What one HTTP caller can cost.
    pub http: HttpConfig,
    /// The same for a client of ZooKeeper.
    pub zookeeper: ZkConfig,
    /// The same for callers of the port for administration.
    pub admin: HttpConfig,
    /// How connections are protected; none: not at all.
    pub tls: Option<TlsConfig>,
    /// Whether to start without protection where others than this machine can call.
    pub insecure: bool,
    /// Whether nobody but the operator is served before the cluster is secured; none: where others than this machine can
    /// call, unless that is insecure.
    pub access_required: Option<bool>,
    /// What to log, and how.
    pub log: LogConfig,
    /// Which requests are traced; none: none is.
    pub traces: Option<TracesConfig>,
}

/// What to log, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogConfig {
    /// A level, or directives as `RUST_LOG` takes them (which goes before this).
    pub level: String,
    /// How a line looks.
    pub format: LogFormat,
}

/// How a line of the log looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A configuration, and how it came about.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// What was read.
    pub config: ServeConfig,
    /// What the file and the environment set, as it would be written in the file: by the names of the settings.
    pub set: BTreeMap<&'static str, String>,
    /// What is not wrong, and deserves a look.
    pub warnings: Vec<ConfigProblem>,
}

/// The number of worker threads unless it is configured: measured on small machines, one thread that does
/// everything beats several that hand things over, by a fifth to a half.
pub fn default_workers() -> usize {
    match std::thread::available_parallelism().map_or(1, |cores| cores.get()) {
        0..=2 => 1,
        cores => cores.min(MAX_DEFAULT_WORKERS),
    }
}

impl ServeConfig {
    /// Reads `file` (none: everything comes from the environment) and overrides it by the environment of this
    /// process.
    pub fn load(file: Option<&Path>) -> Result<Loaded, ConfigErrors> {
        let environment = Environment::of_this_process();
        let Some(file) = file else {
            return Self::parse("", Path::new(""), &environment);
        };
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigErrors(vec![ConfigProblem::new("", error.to_string()).in_file(file)]))?;
        let told = |problem: ConfigProblem| problem.in_file(file);
        match Self::parse(&text, file.parent().unwrap_or(Path::new("")), &environment) {
            Ok(mut loaded) => {
                loaded.warnings = loaded.warnings.into_iter().map(told).collect();
                Ok(loaded)
            }
            Err(errors) => Err(ConfigErrors(errors.0.into_iter().map(told).collect())),
        }
    }

    /// Reads a configuration from `text`. Relative paths in it are meant relative to `base`.
    pub fn parse(text: &str, base: &Path, environment: &Environment) -> Result<Loaded, ConfigErrors> {
        let mut settings = Settings::new(text, environment);
        // Where a line is no TOML, what it was about is missing for that reason only.
        if !settings.errors.is_empty() {
            return Err(ConfigErrors(settings.errors));
        }
        let config = settings.read(base);
        settings.refuse_unknown();
        settings.refuse_contradictions(&config);
        let Settings {
            mut errors,
            mut warnings,
            set,
            ..
        } = settings;
        // As in the file, then what is in no line of it.
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

impl Settings<'_> {
    /// All settings, in the order of the sample files.
    fn read(&mut self, base: &Path) -> ServeConfig {
        let node_id = match self.node_id("node_id") {
            Some(id) => id,
            None if !self.is_wrong("node_id") => self.wrong("node_id", "is required"),
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

        let zookeeper_listen = match self.text("zookeeper_listen") {
            Some(text) if text == NOT_SERVED => None,
            Some(address) => Some(self.address("zookeeper_listen", address)),
            // Beside HTTP, for the same clients.
            None => http_listen
                .rsplit_once(':')
                .map(|(host, _)| format!("{host}:{ZOOKEEPER_PORT}")),
        };

        let zookeeper_plain_listen = self.optional_address("zookeeper_plain_listen");
        let admin_listen = self.optional_address("admin_listen");

        let mut node = NodeConfig::new(node_id, cluster, members, data_dir);
        node.join = join.unwrap_or(node.join);
        if let Some(address) = self.text("peer_listen") {
            node.peer_listen = match address.parse() {
                Ok(address) => Some(address),
                Err(_) => self.wrong(
                    "peer_listen",
                    "must be \"ADDRESS:PORT\", as \"0.0.0.0:7500\", and no name",
                ),
            };
        }
        self.duration("propose_timeout_ms", &mut node.propose_timeout);

        self.duration("raft.heartbeat_ms", &mut node.timing.heartbeat);
        self.duration("raft.election_min_ms", &mut node.timing.election_min);
        self.duration("raft.election_max_ms", &mut node.timing.election_max);

        self.positive("snapshots.every_entries", &mut node.snapshots.every_entries);
        self.positive("snapshots.every_bytes", &mut node.snapshots.every_bytes);
        if let Some(entries) = self.integer("snapshots.keep_entries") {
            node.snapshots.keep_entries = entries;
        }
        if let Some(bytes) = self.integer("snapshots.keep_bytes") {
            node.snapshots.keep_bytes = bytes;
        }
        self.positive(
            "snapshots.send_bytes_per_second",
            &mut node.snapshots.send_bytes_per_second,
        );

        self.positive("disk.low_water_bytes", &mut node.disk.low_water_bytes);
        node.disk.resume_bytes = node
            .disk
            .low_water_bytes
            .saturating_add(node.disk.low_water_bytes / 4);
        self.positive("disk.resume_bytes", &mut node.disk.resume_bytes);
        self.duration("disk.check_interval_ms", &mut node.disk.check_interval);
        self.duration("disk.stall_ms", &mut node.disk.stall);
        self.duration("disk.hand_over_pause_ms", &mut node.disk.hand_over_pause);
        self.size("disk.segment_bytes", &mut node.log.segment_bytes);

        self.duration("sessions.min_ms", &mut node.sessions.min);
        self.duration("sessions.max_ms", &mut node.sessions.max);
        self.duration("sessions.default_ms", &mut node.sessions.default);

        self.count("limits.data_bytes", &mut node.limits.data_bytes);
        self.count("limits.children", &mut node.limits.children);
        self.count("limits.ephemerals", &mut node.limits.ephemerals);
        self.count("limits.sessions", &mut node.limits.sessions);

        self.duration("sweeps.empty_for_ms", &mut node.sweeps.empty_for);
        self.duration("sweeps.every_ms", &mut node.sweeps.every);

        self.count("watches.per_watcher", &mut node.watches.limits.per_watcher);
        self.count("watches.per_node", &mut node.watches.limits.per_node);
        self.size("watches.backlog", &mut node.watches.backlog);

        self.size("events.backlog", &mut node.events.backlog);
        self.size("events.backlog_bytes", &mut node.events.backlog_bytes);
        self.size("events.streams_per_session", &mut node.events.streams_per_session);
        self.size("events.streams_per_node", &mut node.events.streams_per_node);

        self.load(&mut node.admission);

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

        let mut workers = default_workers();
        self.size("workers", &mut workers);
        let pid_file = self.text("pid_file").map(|path| base.join(path));
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
        self.duration("http.header_timeout_ms", &mut http.header_timeout);
        self.duration("http.body_timeout_ms", &mut http.body_timeout);
        self.duration("http.send_timeout_ms", &mut http.send_timeout);
        self.duration("http.waiter_grace_ms", &mut http.waiter_grace);
        self.duration("http.drain_timeout_ms", &mut http.drain_timeout);
        self.list("http.allowed_hosts", &mut http.names.hosts);
        self.list("http.allowed_origins", &mut http.names.origins);
        let mut admin = HttpConfig::administration();
        self.size("admin.max_connections", &mut admin.max_connections);
        admin.max_connections_per_address = admin.max_connections;
        admin.paths = http.paths;
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
        let insecure = self.flag("insecure").unwrap_or(false);
        let access_required = self.flag("access.required");
        let tls = self.tls(base);
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
            self.wrong::<()>(
                "log.level",
                "is a level (error, warn, info, debug, trace) or a list of directives",
            );
        }
        let traces = self.traces();
        ServeConfig {
            node,
            http_listen,
            zookeeper_listen,
            zookeeper_plain_listen,
            admin_listen,
            workers,
            pid_file,
            http,
            zookeeper,
            admin,
            tls,
            insecure,
            access_required,
            log,
            traces,
        }
    }

    /// An address that is "off" unless it is given.
    fn optional_address(&mut self, key: &'static str) -> Option<String> {
        match self.text(key) {
            Some(address) if address != NOT_SERVED => Some(self.address(key, address)),
            _ => None,
        }
    }

    /// How much is taken in.
    fn load(&mut self, load: &mut AdmissionConfig) {
        self.duration("load.target_ms", &mut load.target);
        self.size("load.max_outstanding", &mut load.max_outstanding);
        self.size("load.max_outstanding_bytes", &mut load.max_outstanding_bytes);
        let openings = &mut load.openings;
        self.count("load.session_openings_per_second", &mut openings.per_second);
        self.count("load.session_openings_at_once", &mut openings.burst);
        self.count("load.session_openings_share", &mut openings.share);
    }

    /// Where spans go, and of how many requests.
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
            Err(fact) => self.wrong("traces.endpoint", &fact),
        }
    }

    /// Four-letter words with commas between; `*` for all.
    fn words(&mut self, text: &str) -> Vec<FourLetterWord> {
        let mut words = Vec::new();
        for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
            match part.parse() {
                Ok(word) => words.push(word),
                Err(_) if part == "*" => words.extend(FourLetterWord::ALL),
                Err(error) => self.wrong("zookeeper.four_letter_words", &format!("{part:?}: {error}")),
            }
        }
        words
    }
}

#[cfg(test)]
mod limits_table;
#[cfg(test)]
mod tests;
