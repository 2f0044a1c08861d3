//! A whole node of Lockgate with its front end, in this process: the other end of a real connection.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use ::lockgate::Lockgate;
use ::lockgate::raft_node::{SessionBounds, SweepConfig};
use ::lockgate::zk_front::ZkConfig;
use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::server::SUPER_DIGEST;
use crate::zookeeper::Observer;

/// Longer than any run: what is swept, programs that know the moment sweep themselves.
const NEVER: Duration = Duration::from_secs(100_000);

/// What ZooKeeper grants at most, twenty ticks of two seconds, and at least, two.
const SESSIONS: (Duration, Duration) = (Duration::from_secs(4), Duration::from_secs(40));

/// How long a node may take until it leads itself.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// See the module.
pub struct FrontNode {
    address: SocketAddr,
    observer: Observer,
    lockgate: Lockgate,
    runtime: Runtime,
    _dir: TempDir,
}

impl FrontNode {
    /// Starts a node that is its own cluster.
    pub fn start() -> Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()?;
        let dir = tempfile::tempdir()?;
        // Nobody else looks for it, but its own address has to be one that is to be had.
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
        let address = lockgate.zookeeper_address().context("it was told to listen")?;
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

    /// Where it serves clients of ZooKeeper, and somebody who may do everything there.
    pub fn parts(&mut self) -> (SocketAddr, &mut Observer) {
        (self.address, &mut self.observer)
    }
}

impl Drop for FrontNode {
    fn drop(&mut self) {
        self.runtime.block_on(self.lockgate.stop());
    }
}
