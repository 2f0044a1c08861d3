//! A whole Lockgate node with its ZooKeeper port, in this process: the other end of a real connection.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use ::lockgate::Lockgate;
use ::lockgate::lock_node::{SessionBounds, SweepConfig};
use ::lockgate::zk_front::ZkConfig;
use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::server::SUPER_DIGEST;
use crate::zookeeper::Observer;

/// Longer than any run: programs that depend on a sweep trigger it themselves.
const NEVER: Duration = Duration::from_secs(100_000);

/// Bounds of session timeouts, as in ZooKeeper: two to twenty ticks of two seconds.
const SESSIONS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(40));

/// Time limit of the election of the single node.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Lockgate node of a run; see the module.
pub struct FrontNode {
    address: SocketAddr,
    observer: Observer,
    lockgate: Lockgate,
    runtime: Runtime,
    _dir: TempDir,
}

impl FrontNode {
    /// Starts a cluster of one node.
    pub fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let dir = tempfile::tempdir()?;
        // No other node connects to it, but its own address has to be available.
        let peer = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let (min, max) = SESSIONS;
        let builder = Lockgate::builder()
            .member(1, peer.to_string(), "127.0.0.1:1")
            .data_dir(dir.path())
            .without_http()
            .sessions(SessionBounds {
                min,
                default: max,
                max,
                ..SessionBounds::default()
            })
            .sweeps(SweepConfig {
                empty_for: NEVER,
                every: NEVER,
            })
            .zookeeper_listen("127.0.0.1:0")
            .zookeeper_config(ZkConfig {
                super_digest: Some(SUPER_DIGEST.to_owned()),
                ..ZkConfig::default()
            });
        let lockgate = runtime.block_on(builder.start())?;
        let address = lockgate
            .zookeeper_address()
            .context("the node has a ZooKeeper address")?;
        runtime.block_on(async {
            let ready = async {
                while lockgate.node().not_ready().is_some() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            let ready = tokio::time::timeout(START_TIMEOUT, ready).await;
            ensure!(
                ready.is_ok(),
                "the node does not serve: {:?}",
                lockgate.node().not_ready()
            );
            Ok(())
        })?;
        Ok(Self {
            address,
            observer: Observer::connect(address)?,
            lockgate,
            runtime,
            _dir: dir,
        })
    }

    /// Returns the ZooKeeper address, and an observer with all permissions.
    pub fn parts(&mut self) -> (SocketAddr, &mut Observer) {
        (self.address, &mut self.observer)
    }
}

impl Drop for FrontNode {
    fn drop(&mut self) {
        self.runtime.block_on(self.lockgate.stop());
    }
}
