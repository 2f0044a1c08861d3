//! `lockgate migrate` against a real ensemble: trees are moved under writes, servers and the tool itself are
//! killed, and a ZooKeeper client compares both sides by the same requests.
//!
//! LOCKGATE_MIGRATION_ZNODES and LOCKGATE_MIGRATION_WRITES set the size and the load; see docs/operate/migrate-from-zookeeper.md.

mod client;
mod late_changes;
mod incompatible;
mod secured;
mod writers;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use cli_support::api_client::ApiClient;
use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;
use zk_wire::Request;

use self::client::Client;
use self::writers::{Writers, create, delete, fill, next_job, set};
use crate::ensemble::Ensemble;
use crate::expectations::skip;

/// Time limit of every step, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Settings with required authentication, and with a super user `super:secret` as at the source.
const SETTINGS: &str = "
[access]
required = true

[zookeeper]
super_digest = \"super:lK75jTNcA+U9vtVEw5vB51mj/w4=\"
";

/// Target of a migration: three nodes with required authentication.
struct Target {
    cluster: LocalCluster,
    directory: TempDir,
}

impl Target {
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// Starts the target with additional settings.
    async fn start_with(more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_lockgate-with-faults"));
        let settings = format!("{SETTINGS}{more}");
        let mut cluster = LocalCluster::create(directory.path(), program, 3, Ports::Free, &settings).unwrap();
        cluster.up(START_TIMEOUT).await.unwrap();
        cluster.secure().await.unwrap();
        // ZooKeeper clients connect before they authenticate.
        let mut admin =
            ApiClient::new(&cluster.http_addresses(), 0, TIMEOUT).with(cluster.credentials().clone());
        let nothing = json!({ "grants": [] });
        admin
            .call("PUT", "/v1/roles/anonymous", &nothing, TIMEOUT)
            .await
            .unwrap();
        Self { cluster, directory }
    }

    fn zookeeper(&self) -> String {
        let node = self.cluster.nodes().next().unwrap();
        node.zookeeper.clone().unwrap()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns the command of the tool from this source to this cluster.
    fn tool(&self, source: &[String], options: &[&str]) -> Command {
        self.tool_for(&self.cluster.http_addresses(), source, options)
    }

    /// Returns the same command with another address of the target.
    fn tool_for(&self, target: &[String], source: &[String], options: &[&str]) -> Command {
        let auth = self.file("source.auth");
        std::fs::write(&auth, format!("digest:{}\n", client::SUPER)).unwrap();
        let mut tool = Command::new(env!("CARGO_BIN_EXE_lockgate-with-faults"));
        tool.args(["migrate", "--json", "--from", &source.join(",")])
            .args(["--to", &target.join(",")])
            .arg("--token-file")
            .arg(self.cluster.admin_token_file().unwrap())
            .arg("--from-auth-file")
            .arg(auth)
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true);
        tool
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        self.cluster.kill_now();
    }
}

/// Running tool, with its events.
struct Running {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Running {
    fn start(mut tool: Command) -> Self {
        let mut process = tool.spawn().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// Waits for this event, with a text that begins so.
    async fn until(&mut self, event: &str, begins: &str) -> Value {
        let told = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                println!("{line}");
                let told: Value = serde_json::from_str(&line).unwrap();
                let text = told["text"].as_str().unwrap_or_default();
                if told["event"] == event && text.starts_with(begins) {
                    return told;
                }
            }
            panic!("the tool ended without {event:?} {begins:?}");
        };
        tokio::time::timeout(TIMEOUT, told)
            .await
            .expect("the event in time")
    }

    /// Returns all further events and the exit status.
    async fn end(mut self) -> (Vec<Value>, Option<i32>) {
        let ended = async {
            let mut told = Vec::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                println!("{line}");
                told.push(serde_json::from_str(&line).unwrap());
            }
            (told, self.process.wait().await.unwrap().code())
        };
        tokio::time::timeout(TIMEOUT, ended)
            .await
            .expect("the tool ends in time")
    }

    async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

fn event<'t>(told: &'t [Value], name: &str) -> &'t Value {
    let found = told.iter().find(|told| told["event"] == name);
    found.unwrap_or_else(|| panic!("no event {name:?} in {told:#?}"))
}

fn number_of(variable: &str, usually: u64) -> u64 {
    std::env::var(variable).map_or(usually, |text| text.parse().expect("the variable is a number"))
}

/// Waits until a condition holds.
async fn wait_until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let becomes_true = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, becomes_true).await.expect(what);
}

/// Returns whether the znode exists.
async fn has(client: &mut Client, path: &str) -> bool {
    let (path, watch) = (path.to_owned(), false);
    client
        .call(Request::Exists { path, watch })
        .await
        .unwrap()
        .is_ok()
}

/// Compares both sides, znode by znode.
async fn assert_same(source: &str, target: &str) -> usize {
    let there = Client::open(source).await.tree().await;
    let here = Client::open(target).await.tree().await;
    for (path, seen) in &there {
        // Each side removes empty containers and expired TTL znodes by itself.
        if seen.owner != 0 && !here.contains_key(path) {
            continue;
        }
        assert_eq!(here.get(path), Some(seen), "{path}");
    }
    let invented: Vec<_> = here.keys().filter(|path| !there.contains_key(*path)).collect();
    assert!(
        invented.is_empty(),
        "znodes that were never created: {invented:?}"
    );
    here.len()
}

#[tokio::test]
async fn tree_is_moved_during_writes_and_failures() {
    let znodes = number_of("LOCKGATE_MIGRATION_ZNODES", 3_000);
    let per_second = number_of("LOCKGATE_MIGRATION_WRITES", 150);
    let mut source = match Ensemble::zookeeper().await {
        Ok(source) => source,
        Err(missing) => return skip("the servers", &missing),
    };
    let target = Target::start().await;
    let servers = source.servers();
    // This client keeps its ephemeral znodes until the end.
    let mut keeper = Client::open(&servers[0]).await;
    fill(&mut keeper, znodes as usize).await;
    let writers = Writers::start(&servers[..2], per_second, znodes as usize);

    // The tool is killed while it copies, and continues in the next run.
    let mut first = Running::start(target.tool(&servers, &[]));
    first.until("progress", "").await;
    first.kill().await;
    let begun = Instant::now();
    let mut second = Running::start(target.tool(&servers[2..], &["--recheck-every", "2s"]));
    second.until("note", "all znodes are copied").await;
    println!("copied the rest in {:?}", begun.elapsed());
    let written = writers.written();
    wait_until("the writers continue", async || {
        writers.written() >= written + per_second
    })
    .await;
    second.kill().await;

    keeper.stay_connected(&servers[..2]).await;

    // The server that the tool reads from is killed while the tool follows.
    let mut third = Running::start(target.tool(
        &[servers[2].clone(), servers[1].clone()],
        &["--recheck-every", "2s"],
    ));
    third.until("note", "all znodes are copied").await;
    source.kill(&servers[2]).await;
    third.until("note", "the connection to the source is lost").await;
    third.until("note", "reading from").await;
    third.until("progress", "").await;
    third.kill().await;
    source.start(&servers[2]).await;

    keeper.stay_connected(&servers[..2]).await;

    // A command stops the writers, as in an operator's script.
    let (freeze, frozen) = (target.file("freeze"), target.file("frozen"));
    let command = format!(
        "touch {}; until [ -e {} ]; do sleep 0.02; done",
        freeze.display(),
        frozen.display()
    );
    let switch = Running::start(target.tool(&servers, &["--switch", "--on-freeze", &command]));
    let stopped = async {
        wait_until("the tool asks for the freeze", async || freeze.exists()).await;
        let rate = writers.rate();
        let written = writers.stop().await;
        std::fs::write(&frozen, "").unwrap();
        (written, rate)
    };
    let ((told, code), (written, rate)) = tokio::join!(switch.end(), stopped);
    assert_eq!(code, Some(0), "{told:#?}");
    let switched = event(&told, "switched");
    let frozen_ms = switched["frozen_ms"].as_u64().unwrap();
    let stays = event(&told, "stays");
    assert_eq!(stays["locks"][0]["path"], "/locks/orders");
    assert_eq!(
        stays["locks"][0]["session"],
        format!("{:016x}", keeper.session),
        "{stays}"
    );

    let here = assert_same(&servers[0], &target.zookeeper()).await;
    println!(
        "{here} znodes, {written} writes ({rate:.0} a second), frozen for {frozen_ms} ms; {}",
        switched["digest"]
    );
    assert!(here as u64 > znodes, "{here}");
    assert!(frozen_ms < 60_000, "frozen for {frozen_ms} ms");

    // Sequence numbers continue.
    let mut client = Client::open(&target.zookeeper()).await;
    let mut there = Client::open(&servers[0]).await;
    assert_eq!(next_job(&mut client).await, next_job(&mut there).await);

    // Clients write to the target now: another run must not overwrite that by mistake.
    let (_, code) = Running::start(target.tool(&servers, &["--once"])).end().await;
    assert_eq!(code, Some(1));
    let (told, code) = Running::start(target.tool(&servers, &["--verify-only"]))
        .end()
        .await;
    // The two jobs have different creation times.
    assert_eq!(code, Some(80), "{told:#?}");
    assert_eq!(event(&told, "compared")["differences"], 1);
}

#[tokio::test]
async fn unsafe_runs_are_rejected() {
    let source = match Ensemble::zookeeper().await {
        Ok(source) => source,
        Err(missing) => return skip("the servers", &missing),
    };
    let target = Target::start().await;
    let servers = source.servers();
    let mut client = Client::open(&servers[0]).await;
    let mut there = Client::open(&target.zookeeper()).await;
    for path in ["/a", "/a/b", "/a/b/c"] {
        client.call(create(path, b"x", 0)).await.unwrap().unwrap();
    }

    // Existing znodes are not overwritten without `--into`; with it they stay.
    there.call(create("/mine", b"mine", 0)).await.unwrap().unwrap();
    let run = async |options: &[&str]| Running::start(target.tool(&servers, options)).end().await;
    assert_eq!(run(&["--once"]).await.1, Some(1));
    assert_eq!(run(&["--verify-only"]).await.1, Some(80));
    assert_eq!(run(&["--once", "--root", "/a/b"]).await.1, Some(0));
    assert_eq!(
        run(&["--once", "--root", "/a/b/c"]).await.1,
        Some(1),
        "another migration was begun"
    );
    there
        .call(delete("/zookeeper/lockgate_migration"))
        .await
        .unwrap()
        .unwrap();
    let (told, code) = run(&["--once", "--into"]).await;
    assert_eq!(code, Some(0), "{told:#?}");
    assert_eq!(event(&told, "stays")["only_at_target"], 1);
    client.call(delete("/a/b/c")).await.unwrap().unwrap();
    // Begun with `--into`, it must continue with `--into`.
    assert_eq!(run(&["--once"]).await.1, Some(1));

    // A write to the target during the migration is detected, with its path.
    there.call(set("/a", b"too early")).await.unwrap().unwrap();
    let (told, code) = run(&["--verify-only"]).await;
    assert_eq!(code, Some(80), "{told:#?}");
    assert_eq!(event(&told, "difference")["path"], "/a");

    // Continuing writes to the source prevent the switch, and the writers are allowed again.
    let servers_of_writer = servers.clone();
    let (writes, mut written) = tokio::sync::watch::channel(0);
    let writer = tokio::spawn(async move {
        let mut client = Client::open(&servers_of_writer[1]).await;
        for n in 0_u64.. {
            client.call(set("/a", &n.to_le_bytes())).await.unwrap().unwrap();
            writes.send_replace(n);
        }
    });
    // The first session at a server takes as long as Java needs, which is longer than the tool waits for
    // quiet.
    written.wait_for(|writes| *writes > 0).await.unwrap();
    let back = target.file("back");
    let command = format!("touch {}", back.display());
    let options = [
        "--switch",
        "--into",
        "--quiet-within",
        "2s",
        "--on-refused",
        &command,
    ];
    let (told, code) = run(&options).await;
    assert_eq!(code, Some(80), "{told:#?}");
    let why = event(&told, "refused")["why"].as_str().unwrap();
    assert!(why.contains("still written to") && why.contains("/a"), "{why}");
    assert!(back.exists());
    writer.abort();

    // The source is quiet now.
    let (told, code) = run(&["--switch", "--into"]).await;
    assert_eq!(code, Some(0), "{told:#?}");
    let mine = there.call(Request::GetData {
        path: "/mine".to_owned(),
        watch: false,
    });
    assert!(mine.await.unwrap().is_ok());

    // The source does not answer.
    let nobody = ["127.0.0.1:1".to_owned()];
    let tool = target.tool(&nobody, &["--verify-only", "--patience", "1s"]);
    assert_eq!(Running::start(tool).end().await.1, Some(1));
}
