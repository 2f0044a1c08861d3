//! Lockgate as a system under test: the program that users get.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use hyper::Method;
use serde_json::Value;

use super::software::{Node, Software, StartCommand};
use crate::{command, http};

/// Time limit of a query of a node's state; a running node answers at once.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Time limit of a download of a small state, which starts with a round to a quorum.
const DIGEST_TIMEOUT: Duration = Duration::from_secs(20);

/// Settings under which snapshots, purges and new segments happen repeatedly in a run of a minute, and under
/// which a small disk has enough room.
const SETTINGS: &str = "\
[snapshots]
every_entries = 400
keep_entries = 100

[disk]
segment_bytes = 4194304
low_water_bytes = 2097152
resume_bytes = 3145728
check_interval_ms = 200
";

/// Lockgate's program.
#[derive(Clone, Debug)]
pub struct Lockgate {
    /// Path of the executable.
    pub program: PathBuf,
    /// Additional environment variables of every node, such as the number of a planted bug.
    pub environment: Vec<(String, String)>,
}

impl Software for Lockgate {
    fn configure(&self, node: &Node, all: &[Node], joins: bool) -> anyhow::Result<()> {
        let file = node.dir.join("config.toml");
        std::fs::write(&file, configuration(node, all, joins)).with_context(|| file.display().to_string())
    }

    fn start(&self, node: &Node) -> StartCommand {
        let config = node.dir.join("config.toml").display().to_string();
        StartCommand {
            program: self.program.clone(),
            arguments: ["serve".to_owned(), "--config".to_owned(), config].into(),
            environment: self.environment.clone(),
        }
    }

    fn is_ready<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, bool> {
        async move {
            let answer = http::call(node.addresses.http, Method::GET, "/readyz", &Value::Null, TIMEOUT);
            answer.await.is_ok_and(|answer| answer.status == 200)
        }
        .boxed()
    }

    fn leader<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, Option<(u64, u64)>> {
        async move {
            let status = http::get(node.addresses.http, "/v1/cluster", TIMEOUT)
                .await
                .ok()?;
            // A response of another node means that the port belongs to the wrong process.
            (status["node_id"].as_u64()? == node.id).then_some(())?;
            Some((status["leader"].as_u64()?, status["term"].as_u64()?))
        }
        .boxed()
    }

    fn digest<'a>(&'a self, node: &'a Node) -> BoxFuture<'a, anyhow::Result<Option<(u64, String)>>> {
        async move {
            let path = "/v1/snapshot?linearizable=true";
            let answer = http::call(
                node.addresses.http,
                Method::GET,
                path,
                &Value::Null,
                DIGEST_TIMEOUT,
            )
            .await?;
            anyhow::ensure!(answer.status == 200, "GET {path}: {}", answer.json());
            // The program verifies all checksums and restores the state from the file, as a node would.
            let file = node.dir.join("backup");
            std::fs::write(&file, &answer.body).with_context(|| file.display().to_string())?;
            let arguments = ["snapshot", "inspect", "--json", &file.display().to_string()];
            let program = self.program.display().to_string();
            let seen: Value = serde_json::from_str(&command::run(&program, &arguments).await?)?;
            let position = seen["zxid"].as_u64().context("a backup has a position")?;
            let digest = seen["digest"].as_str().context("a backup has a digest")?;
            Ok(Some((position, digest.to_owned())))
        }
        .boxed()
    }
}

fn configuration(node: &Node, all: &[Node], joins: bool) -> String {
    let own = &node.addresses;
    let mut text = format!(
        "node_id = {}\ncluster = \"jepsen\"\ndata_dir = \"data\"\njoin = {joins}\ninsecure = true\nhttp_listen = \"{}\"\n\
         peer_listen = \"{}\"\nzookeeper_listen = \"{}\"\nredis_listen = \"{}\"\n\n{SETTINGS}",
        node.id, own.http, own.peer, own.zookeeper, own.redis
    );
    for member in all {
        write!(
            text,
            "\n[members.{}]\npeer = \"{}\"\nhttp = \"{}\"\n",
            member.id, member.peer_as_seen, member.addresses.http
        )
        .expect("a String takes all");
    }
    text
}
