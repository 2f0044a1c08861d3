//! Ensemble of three ZooKeeper servers on this machine, configured as in production, for measurements beside
//! Lockgate. Nothing here measures.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::server::{Installation, START_ATTEMPTS, START_POLL, START_TIMEOUT, ask, log_tail, parse_version};

/// Number of servers: the minimum that survives the loss of one.
const SERVERS: usize = 3;

/// Running ensemble on ports of 127.0.0.1. Its processes and files end with this value.
pub struct Ensemble {
    servers: Vec<Server>,
    version: String,
    /// Removed after the processes that write there have ended.
    directory: TempDir,
}

struct Server {
    process: Child,
    client_address: SocketAddr,
    log: PathBuf,
}

/// Ports of one server.
struct Ports {
    client: SocketAddr,
    /// For its followers while it leads.
    quorum: SocketAddr,
    election: SocketAddr,
}

impl Ensemble {
    /// Starts three servers with empty data in a new directory in `under`, with the given maximum heap size,
    /// and waits until all serve. Except for addresses and paths all settings are ZooKeeper's defaults: every
    /// write is synced to disk before it is acknowledged (`forceSync`).
    pub fn start(installation: &Installation, under: &Path, heap_megabytes: u32) -> Result<Self> {
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            match Self::start_once(installation, under, heap_megabytes) {
                Ok(ensemble) => return Ok(ensemble),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("there is at least one attempt"))
    }

    /// Returns the servers' client addresses.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.servers.iter().map(|server| server.client_address)
    }

    /// Returns the servers' version without build information, as `3.8.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    fn start_once(installation: &Installation, under: &Path, heap_megabytes: u32) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("zookeeper-").tempdir_in(under)?;
        let ports = free_ports()?;
        let mut ensemble = Self {
            servers: Vec::new(),
            version: String::new(),
            directory,
        };
        for number in 1..=SERVERS {
            let home = ensemble.directory.path().join(number.to_string());
            let server = Server::start(installation, &home, number, &ports, heap_megabytes)?;
            ensemble.servers.push(server);
        }
        let started = Instant::now();
        for server in &mut ensemble.servers {
            let version = server.wait_until_serving(started)?;
            ensemble.version = version.split('-').next().unwrap_or_default().to_owned();
        }
        Ok(ensemble)
    }
}

impl Server {
    fn start(
        installation: &Installation,
        home: &Path,
        number: usize,
        ports: &[Ports],
        heap_megabytes: u32,
    ) -> Result<Self> {
        let data = home.join("data");
        fs::create_dir_all(&data)?;
        fs::write(data.join("myid"), number.to_string())?;
        let configuration_file = home.join("zoo.cfg");
        fs::write(&configuration_file, configuration(home, number, ports))?;
        let log = home.join("log");
        let output = File::create(&log)?;
        let process = Command::new("java")
            .arg(format!("-Xmx{heap_megabytes}m"))
            .args(PROPERTIES)
            .args(["-cp", installation.class_path()])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(&configuration_file)
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("start Java")?;
        Ok(Self {
            process,
            client_address: ports[number - 1].client,
            log,
        })
    }

    /// Waits until the server serves; returns its version. A server without a leader answers as well, but
    /// does not report the version.
    fn wait_until_serving(&mut self, started: Instant) -> Result<String> {
        loop {
            if let Some(status) = self.process.try_wait()? {
                bail!(
                    "ZooKeeper ended with {status} when it was started\n{}",
                    log_tail(&self.log)
                );
            }
            if let Some(version) = ask(self.client_address, "srvr").and_then(|answer| parse_version(&answer))
            {
                return Ok(version);
            }
            ensure!(
                started.elapsed() < START_TIMEOUT,
                "ZooKeeper did not serve within {START_TIMEOUT:?}\n{}",
                log_tail(&self.log)
            );
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

/// Properties of a server. Its web server would need another free port, and is not used. The log has the
/// level of a service.
const PROPERTIES: [&str; 3] = [
    "-Dzookeeper.admin.enableServer=false",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
];

/// Returns the configuration. The times are those of ZooKeeper's sample.
fn configuration(home: &Path, number: usize, ports: &[Ports]) -> String {
    let own = &ports[number - 1].client;
    let mut text = format!(
        "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\ndataLogDir={}\nclientPort={}\nclientPortAddress={}\n\
         maxClientCnxns=0\n",
        home.join("data").display(),
        home.join("log-of-transactions").display(),
        own.port(),
        own.ip(),
    );
    for (number, ports) in (1..).zip(ports) {
        text += &format!("server.{number}={}:{}\n", ports.quorum, ports.election.port());
    }
    text
}

/// Returns ports that were free a moment ago, all at the same time.
fn free_ports() -> Result<Vec<Ports>> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let mut listeners = Vec::new();
    for _ in 0..SERVERS {
        listeners.push([listen()?, listen()?, listen()?]);
    }
    let ports = |[client, quorum, election]: &[TcpListener; 3]| {
        Ok(Ports {
            client: client.local_addr()?,
            quorum: quorum.local_addr()?,
            election: election.local_addr()?,
        })
    };
    listeners.iter().map(ports).collect()
}
