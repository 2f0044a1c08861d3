//! Three servers that speak ZooKeeper's protocol, of ZooKeeper or of Lockgate; tests use both in the same
//! way.

mod lockgate;
mod status;
mod zookeeper;

use std::time::Duration;

use tokio::time::Instant;

use lockgate::LockgateServers;
use zookeeper::ZooKeeperServers;

/// Number of servers: one may fail.
const SERVERS: u64 = 3;

/// Time limit of a start. A server needs one or two seconds; a busy machine may need far longer.
const START_TIMEOUT: Duration = Duration::from_secs(90);

/// Interval between two queries of a starting server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Three servers on free ports of this machine. They end with this value.
pub enum Ensemble {
    /// Three JVMs of ZooKeeper.
    ZooKeeper(ZooKeeperServers),
    /// Three Lockgate nodes.
    Lockgate(LockgateServers),
}

impl Ensemble {
    /// Starts three ZooKeeper servers and waits until they serve; an error names what is not installed.
    pub async fn zookeeper() -> Result<Self, String> {
        let mut ensemble = Self::ZooKeeper(ZooKeeperServers::configure()?);
        ensemble.start_all();
        ensemble.wait_all().await;
        Ok(ensemble)
    }

    /// Starts three Lockgate nodes and waits until they serve.
    pub async fn lockgate() -> Result<Self, String> {
        let mut ensemble = Self::Lockgate(LockgateServers::configure());
        ensemble.start_all();
        ensemble.wait_all().await;
        Ok(ensemble)
    }

    /// Returns the servers' client addresses as `host:port`.
    pub fn servers(&self) -> Vec<String> {
        match self {
            Self::ZooKeeper(servers) => servers.addresses(),
            Self::Lockgate(servers) => servers.addresses(),
        }
    }

    /// Returns the HTTP addresses as `host:port`, if the servers have any.
    pub fn http(&self) -> Option<Vec<String>> {
        match self {
            Self::ZooKeeper(_) => None,
            Self::Lockgate(servers) => Some(servers.http_addresses()),
        }
    }

    /// Kills a server with SIGKILL once all others serve, so that a quorum is left. Does nothing if it does
    /// not run.
    pub async fn kill(&mut self, server: &str) {
        self.start_all_but(Some(server));
        for other in self.servers() {
            if other != server {
                self.wait_serving(&other).await;
            }
        }
        match self {
            Self::ZooKeeper(servers) => servers.kill(server),
            Self::Lockgate(servers) => servers.kill(server).await,
        }
    }

    /// Starts a server unless it runs, and waits until it serves.
    pub async fn start(&mut self, server: &str) {
        self.begin(server);
        self.wait_serving(server).await;
    }

    /// Starts all servers that do not run, without waiting for them.
    pub fn start_all(&mut self) {
        self.start_all_but(None);
    }

    /// Returns the ends of the servers' logs, for the diagnosis of a failure.
    pub fn logs(&self) -> String {
        let tail = |server: &String| {
            let log = match self {
                Self::ZooKeeper(servers) => servers.log_tail(server),
                Self::Lockgate(servers) => servers.log_tail(server),
            };
            format!("--- the end of the log of {server}:\n{log}\n")
        };
        self.servers().iter().map(tail).collect()
    }

    /// Waits until all servers serve.
    pub async fn wait_all(&mut self) {
        for server in self.servers() {
            self.wait_serving(&server).await;
        }
    }

    fn start_all_but(&mut self, not: Option<&str>) {
        for server in self.servers() {
            if Some(server.as_str()) != not {
                self.begin(&server);
            }
        }
    }

    fn begin(&mut self, server: &str) {
        match self {
            Self::ZooKeeper(servers) => servers.start(server),
            Self::Lockgate(servers) => servers.start(server),
        }
    }

    async fn wait_serving(&mut self, server: &str) {
        if let Self::Lockgate(servers) = self {
            servers.wait_ready(server, START_TIMEOUT).await;
        }
        let deadline = Instant::now() + START_TIMEOUT;
        while !status::serves(server).await {
            assert!(
                Instant::now() < deadline,
                "{server} does not serve after {START_TIMEOUT:?}\n{}",
                self.logs()
            );
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}
