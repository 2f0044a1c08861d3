//! What `lockgate serve` is told: a TOML file, and environment variables that override it.
//!
//! The settings of the node itself and their defaults are `raft_node`'s; here they get their names in the
//! file. Every problem is reported at once, with the name of the setting, so that a file is mended in one
//! round.

mod given_files;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lock_api::http::HttpConfig;
use raft_node::{AdmissionConfig, MemberAddress, NodeConfig, NodeId, StartError};
use transport_security::{ClientCertificates, HandshakeBounds};
use zk_front::ZkConfig;
use zk_front::words::FourLetterWord;

use self::given_files::GivenFiles;
use crate::traces::TracesConfig;
use crate::transport::TlsConfig;

/// The beginning of every environment variable that overrides a setting.
const ENVIRONMENT_PREFIX: &str = "LOCKGATE_";

/// openraft tells at info what it does at every election in words that only its authors read.
const DEFAULT_LOG_LEVEL: &str = "info,openraft=warn";

/// More worker threads than this bring contention and no throughput: one thread carries Raft anyway.
const MAX_DEFAULT_WORKERS: usize = 4;

/// An entry of the log is at most about 2 MiB. One that does not fit into a segment would need space that a full disk
/// does not have.
#[cfg(not(feature = "failpoints"))]
const MIN_SEGMENT_BYTES: usize = 4 * 1024 * 1024;
/// What is rare elsewhere shall happen all the time.
#[cfg(feature = "failpoints")]
const MIN_SEGMENT_BYTES: usize = 4096;

/// A start reads the segment that was written to last as a whole.
const MAX_SEGMENT_BYTES: usize = 256 * 1024 * 1024;

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

/// Everything that is wrong with a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigErrors(pub Vec<String>);

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl std::error::Error for ConfigErrors {}

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
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigErrors> {
        let environment = |name: &str| std::env::var(name).ok();
        let Some(file) = file else {
            return Self::parse("", Path::new(""), &environment);
        };
        let text = std::fs::read_to_string(file)
            .map_err(|error| ConfigErrors(vec![format!("{}: {error}", file.display())]))?;
        Self::parse(&text, file.parent().unwrap_or(Path::new("")), &environment).map_err(|errors| {
            ConfigErrors(
                errors
                    .0
                    .iter()
                    .map(|error| format!("{}: {error}", file.display()))
                    .collect(),
            )
        })
    }

    /// Reads a configuration from `text`. Relative paths in it are meant relative to `base`.
    pub fn parse(
        text: &str,
        base: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, ConfigErrors> {
        Self::parse_known(text, base, environment).0
    }

    /// The same, with the names of all settings there are.
    fn parse_known(
        text: &str,
        base: &Path,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> (Result<Self, ConfigErrors>, BTreeSet<&'static str>) {
        let table = match text.parse::<toml::Table>() {
            Ok(table) => table,
            Err(error) => return (Err(ConfigErrors(vec![one_line(&error)])), BTreeSet::new()),
        };
        let mut settings = Settings {
            table,
            environment,
            asked: BTreeSet::new(),
            errors: Vec::new(),
        };
        let config = settings.read(base);
        settings.refuse_unknown();
        let result = match settings.errors {
            errors if errors.is_empty() => Ok(config),
            errors => Err(ConfigErrors(errors)),
        };
        (result, settings.asked)
    }
}

/// toml's messages span lines to point at the place; the line number is in the first, the fact in the last.
fn one_line(error: &toml::de::Error) -> String {
    let text = error.to_string();
    let place = text.lines().next().unwrap_or_default().trim().to_owned();
    match error.message() {
        message if place.contains(message) => place,
        message => format!("{place}: {}", message.replace('\n', ", ")),
    }
}

/// The settings as they are being read: whatever is asked for is known, everything else is a typing error.
struct Settings<'a> {
    table: toml::Table,
    environment: &'a dyn Fn(&str) -> Option<String>,
    asked: BTreeSet<&'static str>,
    errors: Vec<String>,
}

impl Settings<'_> {
    /// All settings, in the order of the sample files.
    fn read(&mut self, base: &Path) -> ServeConfig {
        let node_id = match self.integer("node_id") {
            Some(0) => self.wrong("node_id", "ids of nodes start at 1"),
            Some(id) => id,
            None if self.errors.is_empty() => self.wrong("node_id", "is required"),
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

        let admin_listen = match self.text("admin_listen") {
            Some(address) if address != NOT_SERVED => Some(self.address("admin_listen", address)),
            _ => None,
        };

        let mut node = NodeConfig::new(node_id, cluster, members, data_dir);
        node.join = join.unwrap_or(node.join);
        node.peer_listen = self
            .text("peer_listen")
            .and_then(|address| match address.parse() {
                Ok(address) => Some(address),
                Err(_) => {
                    self.wrong::<Option<SocketAddr>>("peer_listen", "is not of the form 127.0.0.1:7500")
                }
            });
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
        if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&node.log.segment_bytes) {
            self.wrong::<()>(
                "disk.segment_bytes",
                &format!("must be {MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES}"),
            );
        }

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

        // Whether it makes sense as a whole the node knows best; without id and members it would only say so.
        if node_id != 0
            && !node.members.is_empty()
            && let Err(error) = node.validate()
        {
            self.errors.push(match error {
                StartError::Config(facts) => facts,
                other => other.to_string(),
            });
        }

        let workers = match self.integer("workers") {
            None => default_workers(),
            Some(workers @ 1..=MAX_WORKERS) => workers as usize,
            Some(_) => self.wrong("workers", &format!("must be 1 to {MAX_WORKERS}")),
        };
        let pid_file = self.text("pid_file").map(|path| base.join(path));
        let mut http = HttpConfig::default();
        self.size("http.max_body_bytes", &mut http.max_body_bytes);
        self.size("http.max_data_body_bytes", &mut http.max_data_body_bytes);
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
        self.duration("http.drain_timeout_ms", &mut http.drain_timeout);
        self.list("http.allowed_hosts", &mut http.names.hosts);
        self.list("http.allowed_origins", &mut http.names.origins);
        let mut admin = HttpConfig::administration();
        self.size("admin.max_connections", &mut admin.max_connections);
        admin.max_connections_per_address = admin.max_connections;
        let mut zookeeper = ZkConfig::default();
        self.size("zookeeper.max_request_bytes", &mut zookeeper.max_request_bytes);
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
                None | Some("text") => LogFormat::Text,
                Some("json") => LogFormat::Json,
                Some(_) => {
                    self.wrong::<()>("log.format", "is \"text\" or \"json\"");
                    LogFormat::Text
                }
            },
        };
        if tracing_subscriber::EnvFilter::try_new(&log.level).is_err() {
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

    /// What protects connections: none without a certificate.
    fn tls(&mut self, base: &Path) -> Option<TlsConfig> {
        let mut path = |key| {
            let path = self.text(key).filter(|path| !path.is_empty());
            path.map(|path| base.join(path))
        };
        let files = GivenFiles {
            certificate: path("tls.certificate"),
            key: path("tls.key"),
            ca: path("tls.ca"),
        };
        let peers = GivenFiles {
            certificate: path("tls.peer_certificate"),
            key: path("tls.peer_key"),
            ca: path("tls.peer_ca"),
        };
        let client_ca = path("tls.client_ca");
        let mut handshakes = HandshakeBounds::default();
        self.duration("tls.handshake_timeout_ms", &mut handshakes.timeout);
        self.size("tls.handshakes_at_once", &mut handshakes.at_once);
        let asked = self.text("tls.client_certificates");
        let files = files.complete().unwrap_or_else(|missing| {
            self.wrong(
                &format!("tls.{missing}"),
                "is required with the others of certificate, key and ca",
            )
        });
        let peers = peers.complete().unwrap_or_else(|missing| {
            let others = "is required with the others of peer_certificate, peer_key and peer_ca";
            self.wrong(&format!("tls.peer_{missing}"), others)
        });
        let Some(files) = files else {
            let asks = asked.is_some_and(|asked| asked != "optional");
            if peers.is_some() || client_ca.is_some() || asks {
                self.wrong::<()>(
                    "tls.certificate",
                    "is required where other settings of [tls] are given",
                );
            }
            return None;
        };
        let client_ca = client_ca.unwrap_or_else(|| files.ca.clone());
        let clients = match asked.as_deref() {
            None | Some("optional") => ClientCertificates::Optional(client_ca),
            Some("required") => ClientCertificates::Required(client_ca),
            Some("ignored") => ClientCertificates::Ignored,
            Some(_) => {
                self.wrong::<()>(
                    "tls.client_certificates",
                    "is \"optional\", \"required\" or \"ignored\"",
                );
                ClientCertificates::Ignored
            }
        };
        Some(TlsConfig {
            files,
            clients,
            peers,
            handshakes,
        })
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

    /// The members: `[members.1]` with `peer` and `http` in the file; `1=PEER/HTTP,2=…` in the environment.
    fn members(&mut self) -> BTreeMap<NodeId, MemberAddress> {
        self.asked.insert("members");
        let mut members = BTreeMap::new();
        if let Some(text) = (self.environment)(&variable("members")) {
            for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
                let fields = part.split_once('=').and_then(|(id, rest)| {
                    let (peer, http) = rest.split_once('/')?;
                    Some((id.parse::<NodeId>().ok().filter(|id| *id > 0)?, peer, http))
                });
                match fields {
                    Some((id, peer, http)) => {
                        let address = MemberAddress {
                            peer: peer.to_owned(),
                            http: http.to_owned(),
                        };
                        self.member(&mut members, id, address);
                    }
                    None => self.wrong("members", &format!("{part:?} is not of the form ID=PEER/HTTP")),
                }
            }
        } else if let Some(value) = self.table.get("members").cloned() {
            let Some(table) = value.as_table() else {
                self.wrong::<()>("members", "is a table: [members.1]");
                return members;
            };
            for (name, member) in table {
                let id = name.parse::<NodeId>().ok().filter(|id| *id > 0);
                let fields = member
                    .as_table()
                    .filter(|fields| fields.len() == 2)
                    .and_then(|fields| Some((fields.get("peer")?.as_str()?, fields.get("http")?.as_str()?)));
                match (id, fields) {
                    (Some(id), Some((peer, http))) => {
                        let address = MemberAddress {
                            peer: peer.to_owned(),
                            http: http.to_owned(),
                        };
                        self.member(&mut members, id, address);
                    }
                    (None, _) => self.wrong(&format!("members.{name}"), "ids of nodes are numbers from 1"),
                    (_, None) => {
                        self.wrong::<()>(&format!("members.{name}"), "has exactly two texts: peer and http");
                    }
                }
            }
        }
        if members.is_empty() && !self.errors.iter().any(|error| error.starts_with("members")) {
            self.wrong::<()>("members", "at least one is required");
        }
        members
    }

    fn member(&mut self, members: &mut BTreeMap<NodeId, MemberAddress>, id: NodeId, member: MemberAddress) {
        let name = format!("members.{id}");
        let peer = self.address(&name, member.peer);
        let http = self.address(&name, member.http);
        if members
            .values()
            .any(|other| other.peer == peer || other.http == http)
        {
            self.wrong::<()>(&name, "has the address of another member");
        }
        if members.insert(id, MemberAddress { peer, http }).is_some() {
            self.wrong::<()>(&name, "is given twice");
        }
    }

    /// `host:port`; the host is resolved later, when it is needed.
    fn address(&mut self, name: &str, address: String) -> String {
        match address.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
            _ => self.wrong(name, &format!("{address:?} is not of the form HOST:PORT")),
        }
        address
    }

    fn text(&mut self, key: &'static str) -> Option<String> {
        match self.value(key)? {
            Given::Environment(text) => Some(text),
            Given::File(toml::Value::String(text)) => Some(text),
            Given::File(_) => self.wrong(key, "must be a text in quotes"),
        }
    }

    /// Several texts, with commas between.
    fn list(&mut self, key: &'static str, setting: &mut Vec<String>) {
        if let Some(text) = self.text(key) {
            let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
            *setting = parts.map(str::to_owned).collect();
        }
    }

    fn integer(&mut self, key: &'static str) -> Option<u64> {
        let number = match self.value(key)? {
            Given::Environment(text) => text.trim().parse().ok(),
            Given::File(toml::Value::Integer(number)) => u64::try_from(number).ok(),
            Given::File(_) => None,
        };
        number.or_else(|| self.wrong(key, "must be a whole number, not negative"))
    }

    /// A part of all: 0 to 1.
    fn ratio(&mut self, key: &'static str, setting: &mut f64) {
        let given = match self.value(key) {
            None => return,
            Some(Given::Environment(text)) => text.trim().parse().ok(),
            Some(Given::File(toml::Value::Float(ratio))) => Some(ratio),
            Some(Given::File(toml::Value::Integer(number))) => Some(number as f64),
            Some(Given::File(_)) => None,
        };
        match given {
            Some(ratio) if (0.0..=1.0).contains(&ratio) => *setting = ratio,
            _ => self.wrong(key, "must be a number from 0 to 1"),
        }
    }

    fn flag(&mut self, key: &'static str) -> Option<bool> {
        let flag = match self.value(key)? {
            Given::Environment(text) => text.trim().parse().ok(),
            Given::File(toml::Value::Boolean(flag)) => Some(flag),
            Given::File(_) => None,
        };
        flag.or_else(|| self.wrong(key, "must be true or false"))
    }

    fn positive(&mut self, key: &'static str, setting: &mut u64) {
        match self.integer(key) {
            Some(0) => self.wrong(key, "must be at least 1"),
            Some(number) => *setting = number,
            None => {}
        }
    }

    fn count(&mut self, key: &'static str, setting: &mut u32) {
        let mut number = u64::from(*setting);
        self.positive(key, &mut number);
        match u32::try_from(number) {
            Ok(number) => *setting = number,
            Err(_) => self.wrong(key, &format!("must be at most {}", u32::MAX)),
        }
    }

    fn size(&mut self, key: &'static str, setting: &mut usize) {
        let mut number = *setting as u64;
        self.positive(key, &mut number);
        *setting = usize::try_from(number).unwrap_or(usize::MAX);
    }

    fn switch(&mut self, key: &'static str, setting: &mut bool) {
        let given = match self.value(key) {
            None => return,
            Some(Given::Environment(text)) => text.trim().parse().ok(),
            Some(Given::File(toml::Value::Boolean(on))) => Some(on),
            Some(Given::File(_)) => None,
        };
        match given {
            Some(on) => *setting = on,
            None => self.wrong(key, "must be true or false"),
        }
    }

    fn duration(&mut self, key: &'static str, setting: &mut Duration) {
        let mut milliseconds = setting.as_millis() as u64;
        self.positive(key, &mut milliseconds);
        *setting = Duration::from_millis(milliseconds);
    }

    /// The environment goes before the file, so that one image serves many nodes.
    fn value(&mut self, key: &'static str) -> Option<Given> {
        self.asked.insert(key);
        if let Some(text) = (self.environment)(&variable(key)) {
            return Some(Given::Environment(text));
        }
        let value = match key.split_once('.') {
            None => self.table.get(key),
            Some((section, key)) => self.table.get(section).and_then(|section| section.get(key)),
        };
        value.cloned().map(Given::File)
    }

    /// Notes what is wrong with a setting and goes on with something harmless.
    fn wrong<T: Default>(&mut self, key: &str, fact: &str) -> T {
        self.errors.push(format!("{key}: {fact}"));
        T::default()
    }

    fn refuse_unknown(&mut self) {
        let sections: BTreeSet<_> = self
            .asked
            .iter()
            .filter_map(|key| key.split_once('.'))
            .map(|(section, _)| section)
            .collect();
        let mut unknown = Vec::new();
        for (name, value) in &self.table {
            match value.as_table() {
                Some(table) if sections.contains(name.as_str()) => {
                    unknown.extend(table.keys().map(|key| format!("{name}.{key}")));
                }
                _ => unknown.push(name.clone()),
            }
        }
        unknown.retain(|key| !self.asked.contains(key.as_str()));
        self.errors.extend(
            unknown
                .iter()
                .map(|key| format!("{key}: there is no such setting")),
        );
    }
}

enum Given {
    Environment(String),
    File(toml::Value),
}

/// The environment variable of a setting: `raft.heartbeat_ms` is `LOCKGATE_RAFT_HEARTBEAT_MS`.
fn variable(key: &str) -> String {
    format!("{ENVIRONMENT_PREFIX}{}", key.replace('.', "_").to_uppercase())
}

#[cfg(test)]
mod limits_table;
#[cfg(test)]
mod tests;
