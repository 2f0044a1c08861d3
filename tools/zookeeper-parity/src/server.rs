//! ZooKeeper server of this machine, started for a test and ended with it. Nothing here is the protocol.

use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

/// Environment variable with the class path of a ZooKeeper that was not installed by Debian's packages.
pub const CLASS_PATH_VARIABLE: &str = "ZOOKEEPER_CLASSPATH";

/// Server's jar in Debian's `libzookeeper-java`; its manifest names everything else that it needs.
const DEBIAN_SERVER: &str = "/usr/share/java/zookeeper.jar";

/// Logger, without which the server has no log.
const DEBIAN_LOGGER: &str = "/usr/share/java/slf4j-simple.jar";

/// Time limit of a start. A server answers after about a second; a busy machine may need far longer.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Sweeps depend on the clock, and a program's outcome must not: this is long after any program has ended.
const NEVER: Duration = Duration::from_secs(24 * 60 * 60);

/// Interval between two queries of a starting server.
pub(crate) const START_POLL: Duration = Duration::from_millis(20);

/// Attempts to start a server: another program may take the port after it was found free.
pub(crate) const START_ATTEMPTS: usize = 3;

/// Heap size that the programs of a test need.
const HEAP_MEGABYTES: u32 = 512;

/// SHA-1 and base64 of `super:secret`, which [`SUPER_CREDENTIALS`] proves.
pub const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// Credentials of the super user on servers that were started here.
pub const SUPER_CREDENTIALS: &str = "super:secret";

/// Installation of ZooKeeper.
#[derive(Clone, Debug)]
pub struct Installation {
    class_path: String,
}

impl Installation {
    /// Returns the installation of this machine; `None` without ZooKeeper or Java.
    pub fn find() -> Option<Self> {
        let class_path = match env::var(CLASS_PATH_VARIABLE) {
            Ok(given) => given,
            Err(_) if Path::new(DEBIAN_SERVER).exists() => format!("{DEBIAN_SERVER}:{DEBIAN_LOGGER}"),
            Err(_) => return None,
        };
        let java = Command::new("java")
            .arg("-version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        java.is_ok_and(|status| status.success())
            .then_some(Self { class_path })
    }

    /// Returns the class path.
    pub(crate) fn class_path(&self) -> &str {
        &self.class_path
    }
}

/// Running standalone server on a port of 127.0.0.1. Its process and its files end with this value.
pub struct Server {
    process: Child,
    address: SocketAddr,
    version: String,
    directory: TempDir,
}

impl Server {
    /// Starts a server with empty data, and waits until it serves. It does nothing by the clock.
    pub fn start(installation: &Installation) -> Result<Self> {
        Self::start_as(installation, HEAP_MEGABYTES, NEVER)
    }

    /// Starts a server with this heap size.
    pub fn start_with_heap(installation: &Installation, megabytes: u32) -> Result<Self> {
        Self::start_as(installation, megabytes, NEVER)
    }

    /// Starts a server that sweeps containers and TTL nodes at this interval.
    pub fn start_sweeping(installation: &Installation, every: Duration) -> Result<Self> {
        Self::start_as(installation, HEAP_MEGABYTES, every)
    }

    fn start_as(installation: &Installation, heap_megabytes: u32, sweep_every: Duration) -> Result<Self> {
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            match Self::start_once(installation, heap_megabytes, sweep_every) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one attempt"))
    }

    /// Returns the client address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the version, as `3.8.0-...`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Returns the end of the log, for the diagnosis of a failure.
    pub fn log_tail(&self) -> String {
        log_tail(&self.directory.path().join("log"))
    }

    /// Returns the process id.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    fn start_once(installation: &Installation, heap_megabytes: u32, sweep_every: Duration) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("zookeeper-parity-").tempdir()?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let data = directory.path().join("data");
        fs::write(directory.path().join("zoo.cfg"), configuration(&data, address))?;
        let log = File::create(directory.path().join("log"))?;
        let process = Command::new("java")
            .arg(format!("-Xmx{heap_megabytes}m"))
            .args(PROPERTIES)
            .arg(format!(
                "-Dznode.container.checkIntervalMs={}",
                sweep_every.as_millis()
            ))
            .arg(format!(
                "-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"
            ))
            .args(["-cp", &installation.class_path])
            .arg("org.apache.zookeeper.server.ZooKeeperServerMain")
            .arg(directory.path().join("zoo.cfg"))
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start Java")?;
        let mut server = Self {
            process,
            address,
            version: String::new(),
            directory,
        };
        server.wait_until_serving()?;
        Ok(server)
    }

    fn wait_until_serving(&mut self) -> Result<()> {
        let started = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!(
                    "ZooKeeper ended with {status} when it was started\n{}",
                    self.log_tail()
                );
            }
            // `ruok` is answered too early; only a serving server reports its version.
            if let Some(version) = ask(self.address, "srvr").and_then(|answer| parse_version(&answer)) {
                self.version = version;
                return Ok(());
            }
            if started.elapsed() > START_TIMEOUT {
                bail!(
                    "ZooKeeper did not serve within {START_TIMEOUT:?}\n{}",
                    self.log_tail()
                );
            }
            thread::sleep(START_POLL);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail only if the process has already ended.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Properties that differ between tests and production.
const PROPERTIES: [&str; 8] = [
    "-XX:+UseSerialGC",
    // TTL nodes, and enforced quotas.
    "-Dzookeeper.extendedTypesEnabled=true",
    "-Dzookeeper.enforceQuota=true",
    // No data has to survive.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.snapCount=100000000",
    "-Dzookeeper.admin.enableServer=false",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
];

fn configuration(data: &Path, address: SocketAddr) -> String {
    format!(
        "tickTime=2000\ndataDir={}\nclientPort={}\nclientPortAddress={}\nmaxClientCnxns=0\n\
         4lw.commands.whitelist=*\n",
        data.display(),
        address.port(),
        address.ip(),
    )
}

/// Returns the end of a log; empty if there is none.
pub(crate) fn log_tail(log: &Path) -> String {
    let log = fs::read(log).unwrap_or_default();
    let lines = String::from_utf8_lossy(&log)
        .lines()
        .map(str::to_owned)
        .collect::<Vec<_>>();
    lines[lines.len().saturating_sub(40)..].join("\n")
}

/// Returns the answer to a four-letter word; `None` if the server does not answer yet.
pub(crate) fn ask(server: SocketAddr, word: &str) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    stream.write_all(word.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

pub(crate) fn parse_version(answer: &str) -> Option<String> {
    let rest = answer.strip_prefix("Zookeeper version: ")?;
    Some(rest.split(',').next()?.trim().to_owned())
}
