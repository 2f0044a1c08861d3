//! ZooKeeper as a system under test: Debian's packages with the times of ZooKeeper's sample configuration.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::cluster::software::{Node, Software, StartCommand};

/// Jars of Debian's packages, with a logger.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar";

/// Heap size; three servers share a machine with their clients.
const HEAP: &str = "-Xmx256m";

/// Time limit of a four-letter word; a running server answers at once.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Transactions between two snapshots, so that several are made in a run of a minute.
const SNAPSHOT_COUNT: &str = "-Dzookeeper.snapCount=2000";

/// Returns the reason if ZooKeeper cannot run on this machine.
pub fn missing() -> Option<String> {
    let jar = CLASS_PATH.split(':').next().expect("there is a first part");
    (!std::path::Path::new(jar).exists()).then(|| format!("{jar} is not installed (libzookeeper-java)"))
}

/// The system under test.
#[derive(Clone, Debug)]
pub struct ZooKeeper;

impl Software for ZooKeeper {
    fn configure(&self, node: &Node, all: &[Node], _joins: bool) -> Result<()> {
        let data = node.data_dir();
        std::fs::create_dir_all(&data).with_context(|| data.display().to_string())?;
        std::fs::write(data.join("myid"), node.id.to_string())?;
        let client = node.addresses.zookeeper;
        let mut text = format!(
            "tickTime=2000\ninitLimit=10\nsyncLimit=5\ndataDir={}\nclientPort={}\nclientPortAddress={}\n\
             maxClientCnxns=0\n4lw.commands.whitelist=srvr\nadmin.enableServer=false\n",
            data.display(),
            client.port(),
            client.ip(),
        );
        for member in all {
            let peer = member.addresses.peer;
            // Elections use a port of their own, next to the one for followers of the leader.
            writeln!(
                text,
                "server.{}={}:{}:{}",
                member.id,
                peer.ip(),
                peer.port(),
                peer.port() + 1
            )
            .expect("a string takes all");
        }
        let file = node.dir.join("zoo.cfg");
        std::fs::write(&file, text).with_context(|| file.display().to_string())
    }

    fn start(&self, node: &Node) -> StartCommand {
        let config = node.dir.join("zoo.cfg").display().to_string();
        let arguments = [
            HEAP,
            SNAPSHOT_COUNT,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            "-Dorg.slf4j.simpleLogger.showDateTime=true",
            "-cp",
            CLASS_PATH,
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
            &config,
        ];
        StartCommand {
            program: PathBuf::from("/usr/bin/java"),
            arguments: arguments.map(str::to_owned).to_vec(),
            environment: Vec::new(),
        }
    }

    fn is_ready<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, bool> {
        async move { status(node.addresses.zookeeper).await.is_some() }.boxed()
    }

    fn leader<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Option<(u64, u64)>> {
        async move {
            let (mode, zxid) = status(node.addresses.zookeeper).await?;
            // Followers do not report their leader.
            (mode == "leader").then_some((node.id, zxid >> 32))
        }
        .boxed()
    }

    fn digest<'a>(&'a self, _node: &'a Node) -> BoxFuture<'a, Result<Option<(u64, String)>>> {
        async { Ok(None) }.boxed()
    }
}

/// Returns the server's mode and last zxid; `None` if it does not serve.
async fn status(server: SocketAddr) -> Option<(String, u64)> {
    let ask = async {
        let mut stream = TcpStream::connect(server).await.ok()?;
        stream.write_all(b"srvr").await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        parse(&answer)
    };
    tokio::time::timeout(TIMEOUT, ask).await.ok().flatten()
}

fn parse(answer: &str) -> Option<(String, u64)> {
    let field = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
    let mode = field("Mode: ")?.trim().to_owned();
    let zxid = field("Zxid: 0x")?.trim();
    Some((mode, u64::from_str_radix(zxid, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn srvr_response_has_mode_and_zxid() {
        let answer = "Zookeeper version: 3.8.0\nZxid: 0x30000000a\nMode: leader\nNode count: 5\n";
        assert_eq!(parse(answer), Some(("leader".to_owned(), 0x3_0000_000a)));
        assert_eq!(
            parse("This ZooKeeper instance is not currently serving requests\n"),
            None
        );
    }
}
