//! Three ZooKeeper servers: processes of this machine's installation, with empty data in a temporary
//! directory.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};

use local_cluster::ports::free_ports;
use tempfile::TempDir;

use super::SERVERS;
use crate::installed::Java;

/// Number of bytes shown from the end of a server's log.
const LOG_TAIL_BYTES: u64 = 8192;

/// Properties that differ between tests and production.
const PROPERTIES: [&str; 6] = [
    // The client with `super:secret` has all permissions.
    "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=",
    // Znodes with a time to live.
    "-Dzookeeper.extendedTypesEnabled=true",
    // Frequent sweeps of containers, so that tests do not wait a minute for them.
    "-Dznode.container.checkIntervalMs=500",
    // A killed process loses nothing that it has written; only a power cut would.
    "-Dzookeeper.forceSync=no",
    "-Dzookeeper.snapCount=100000000",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
];

/// The servers.
pub struct ZooKeeperServers {
    java: &'static Java,
    servers: Vec<Server>,
    _directory: TempDir,
}

struct Server {
    address: String,
    directory: PathBuf,
    process: Option<Child>,
}

impl ZooKeeperServers {
    /// Configures three servers without starting them; an error names what is not installed.
    pub fn configure() -> Result<Self, String> {
        let java = Java::find()?;
        let directory = tempfile::Builder::new()
            .prefix("zookeeper-clients-")
            .tempdir()
            .unwrap();
        let ports = free_ports(3 * SERVERS as usize).unwrap();
        let mut members = String::new();
        for (id, ports) in (1..).zip(ports.chunks(3)) {
            // With the client port, which Curator reads from here.
            members += &format!(
                "server.{id}=127.0.0.1:{}:{}:participant;127.0.0.1:{}\n",
                ports[0], ports[1], ports[2]
            );
        }
        let mut servers = Vec::new();
        for (id, ports) in (1..).zip(ports.chunks(3)) {
            let own = directory.path().join(format!("server-{id}"));
            fs::create_dir_all(own.join("data")).unwrap();
            fs::write(own.join("data/myid"), format!("{id}\n")).unwrap();
            fs::write(own.join("zoo.cfg"), configuration(&own.join("data"), &members)).unwrap();
            servers.push(Server {
                address: format!("127.0.0.1:{}", ports[2]),
                directory: own,
                process: None,
            });
        }
        Ok(Self {
            java,
            servers,
            _directory: directory,
        })
    }

    /// Returns the servers' client addresses.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.address.clone()).collect()
    }

    /// Starts a server unless it runs.
    pub fn start(&mut self, address: &str) {
        let java = self.java;
        let server = self.server(address);
        if server.process.is_some() {
            return;
        }
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(server.directory.join("log"))
            .unwrap();
        let process = java
            .server(&PROPERTIES, "org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(server.directory.join("zoo.cfg"))
            .current_dir(&server.directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            // Ctrl-C in the terminal reaches only the test, which ends its servers.
            .process_group(0)
            .spawn()
            .unwrap();
        server.process = Some(process);
    }

    /// Kills a server if it runs.
    pub fn kill(&mut self, address: &str) {
        self.server(address).kill();
    }

    /// Returns the end of a server's log.
    pub fn log_tail(&self, address: &str) -> String {
        let server = self.servers.iter().find(|server| server.address == address);
        let path = server
            .expect("the address is that of a server")
            .directory
            .join("log");
        let mut tail = Vec::new();
        if let Ok(mut log) = File::open(path) {
            let length = log.metadata().unwrap().len();
            log.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))
                .unwrap();
            log.read_to_end(&mut tail).unwrap();
        }
        String::from_utf8_lossy(&tail).into_owned()
    }

    fn server(&mut self, address: &str) -> &mut Server {
        self.servers
            .iter_mut()
            .find(|server| server.address == address)
            .unwrap_or_else(|| panic!("no server listens at {address}"))
    }
}

impl Drop for ZooKeeperServers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            server.kill();
        }
    }
}

impl Server {
    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // An error means that the process has already ended.
            process.kill().ok();
            process.wait().ok();
        }
    }
}

fn configuration(data: &std::path::Path, members: &str) -> String {
    format!(
        "tickTime=500\n\
         initLimit=10\n\
         syncLimit=10\n\
         minSessionTimeout=1000\n\
         maxSessionTimeout=60000\n\
         maxClientCnxns=0\n\
         dataDir={}\n\
         4lw.commands.whitelist=*\n\
         admin.enableServer=false\n\
         {members}",
        data.display()
    )
}
