//! `lockgate migrate` against a real ensemble: trees are moved while they are written to, servers and the tool itself are
//! killed, and both sides are compared by a client of ZooKeeper that asks each in the same words.
//!
//! LOCKGATE_MIGRATION_ZNODES and LOCKGATE_MIGRATION_WRITES make it as large and as busy as one likes: see docs/operate/migrate-from-zookeeper.md.

mod client;
mod late;
mod misfits;
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
use crate::wanted::skip;

/// No step may take longer, on however busy a machine.
const PATIENCE: Duration = Duration::from_secs(300);

/// It is to be known who calls; and whoever shows `super:secret` may do everything there, too.
const SETTINGS: &str = "
[access]
required = true

[zookeeper]
super_digest = \"super:lK75jTNcA+U9vtVEw5vB51mj/w4=\"
";

/// Three nodes that want to know who calls, to be moved to.
struct Target {
    cluster: LocalCluster,
    directory: TempDir,
}

impl Target {
    async fn start() -> Self {
        Self::start_with("").await
    }

    /// With these settings beside the usual ones.
    async fn start_with(more: &str) -> Self {
        let directory = TempDir::new().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_lockgate-with-faults"));
        let settings = format!("{SETTINGS}{more}");
        let mut cluster = LocalCluster::create(directory.path(), program, 3, Ports::Free, &settings).unwrap();
        cluster.up(START_TIMEOUT).await.unwrap();
        cluster.secure().await.unwrap();
        // Clients of ZooKeeper come before they show anything.
        let mut admin =
            ApiClient::new(&cluster.http_addresses(), 0, PATIENCE).with(cluster.credentials().clone());
        let nothing = json!({ "grants": [] });
        admin
            .call("PUT", "/v1/roles/anonymous", &nothing, PATIENCE)
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

    /// The tool from this ensemble to this cluster.
    fn tool(&self, source: &[String], options: &[&str]) -> Command {
        self.tool_to(&self.cluster.http_addresses(), source, options)
    }

    /// The same by way of whatever stands before it.
    fn tool_to(&self, target: &[String], source: &[String], options: &[&str]) -> Command {
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

/// The tool at work, and what it tells.
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

    /// Waits until it tells of this event, or has a note that begins so.
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
            panic!("it ended without {event:?} {begins:?}");
        };
        tokio::time::timeout(PATIENCE, told)
            .await
            .expect("it is told in time")
    }

    /// All that it still tells, and how it ends.
    async fn end(mut self) -> (Vec<Value>, Option<i32>) {
        let ended = async {
            let mut told = Vec::new();
            while let Some(line) = self.lines.next_line().await.unwrap() {
                println!("{line}");
                told.push(serde_json::from_str(&line).unwrap());
            }
            (told, self.process.wait().await.unwrap().code())
        };
        tokio::time::timeout(PATIENCE, ended)
            .await
            .expect("it ends in time")
    }

    async fn kill(mut self) {
        self.process.kill().await.unwrap();
    }
}

fn event<'t>(told: &'t [Value], name: &str) -> &'t Value {
    let found = told.iter().find(|told| told["event"] == name);
    found.unwrap_or_else(|| panic!("it told of no {name:?}: {told:#?}"))
}

fn number_of(variable: &str, usually: u64) -> u64 {
    std::env::var(variable).map_or(usually, |text| text.parse().expect("it is a number"))
}

/// Waits until something is so.
async fn until_so(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let becomes_so = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, becomes_so).await.expect(what);
}

/// Whether there is such a znode.
async fn has(client: &mut Client, path: &str) -> bool {
    let (path, watch) = (path.to_owned(), false);
    client
        .call(Request::Exists { path, watch })
        .await
        .unwrap()
        .is_ok()
}

/// Both sides, znode by znode.
async fn assert_same(source: &str, target: &str) -> usize {
    let there = Client::open(source).await.tree().await;
    let here = Client::open(target).await.tree().await;
    for (path, seen) in &there {
        // Empty containers, and what is swept when its time is over, are swept at each side.
        if seen.owner != 0 && !here.contains_key(path) {
            continue;
        }
        assert_eq!(here.get(path), Some(seen), "{path}");
    }
    let invented: Vec<_> = here.keys().filter(|path| !there.contains_key(*path)).collect();
    assert!(invented.is_empty(), "nobody created {invented:?}");
    here.len()
}

#[tokio::test]
async fn a_tree_is_moved_while_it_is_written_to() {
    let znodes = number_of("LOCKGATE_MIGRATION_ZNODES", 3_000);
    let per_second = number_of("LOCKGATE_MIGRATION_WRITES", 150);
    let mut source = match Ensemble::zookeeper().await {
        Ok(source) => source,
        Err(missing) => return skip("the servers", &missing),
    };
    let target = Target::start().await;
    let servers = source.servers();
    // It holds its ephemeral znodes until the end.
    let mut keeper = Client::open(&servers[0]).await;
    fill(&mut keeper, znodes as usize).await;
    let writers = Writers::start(&servers[..2], per_second, znodes as usize);

    // The tool is killed while it copies, and goes on when it is run again.
    let mut first = Running::start(target.tool(&servers, &[]));
    first.until("progress", "").await;
    first.kill().await;
    let begun = Instant::now();
    let mut second = Running::start(target.tool(&servers[2..], &["--recheck-every", "2s"]));
    second.until("note", "all is copied").await;
    println!("copied the rest in {:?}", begun.elapsed());
    let written = writers.written();
    until_so("the writers go on writing", async || {
        writers.written() >= written + per_second
    })
    .await;
    second.kill().await;

    keeper.stay(&servers[..2]).await;

    // The server that it reads from is killed while it follows.
    let mut third = Running::start(target.tool(
        &[servers[2].clone(), servers[1].clone()],
        &["--recheck-every", "2s"],
    ));
    third.until("note", "all is copied").await;
    source.kill(&servers[2]).await;
    third.until("note", "the connection to the source is lost").await;
    third.until("note", "reading from").await;
    third.until("progress", "").await;
    third.kill().await;
    source.start(&servers[2]).await;

    keeper.stay(&servers[..2]).await;

    // Writers are kept away by a command, as an operator would have it.
    let (freeze, frozen) = (target.file("freeze"), target.file("frozen"));
    let command = format!(
        "touch {}; until [ -e {} ]; do sleep 0.02; done",
        freeze.display(),
        frozen.display()
    );
    let switch = Running::start(target.tool(&servers, &["--switch", "--on-freeze", &command]));
    let stopped = async {
        until_so("the tool asks for the freeze", async || freeze.exists()).await;
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

    // Numbers go on where they were.
    let mut client = Client::open(&target.zookeeper()).await;
    let mut there = Client::open(&servers[0]).await;
    assert_eq!(next_job(&mut client).await, next_job(&mut there).await);

    // Clients write here now: nobody overwrites that by mistake.
    let (_, code) = Running::start(target.tool(&servers, &["--once"])).end().await;
    assert_eq!(code, Some(1));
    let (told, code) = Running::start(target.tool(&servers, &["--verify-only"]))
        .end()
        .await;
    // The two jobs were created at two times.
    assert_eq!(code, Some(80), "{told:#?}");
    assert_eq!(event(&told, "compared")["differences"], 1);
}

#[tokio::test]
async fn what_is_not_right_is_refused() {
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

    // What is there is not overwritten, unless that is said; then it stays.
    there.call(create("/mine", b"mine", 0)).await.unwrap().unwrap();
    let run = async |options: &[&str]| Running::start(target.tool(&servers, options)).end().await;
    assert_eq!(run(&["--once"]).await.1, Some(1));
    assert_eq!(run(&["--verify-only"]).await.1, Some(80));
    assert_eq!(run(&["--once", "--root", "/a/b"]).await.1, Some(0));
    assert_eq!(
        run(&["--once", "--root", "/a/b/c"]).await.1,
        Some(1),
        "another one was begun"
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
    // Begun with --into, and so it goes on.
    assert_eq!(run(&["--once"]).await.1, Some(1));

    // Somebody writes at the target while the source is switched from: it is seen, and said where.
    there.call(set("/a", b"too early")).await.unwrap().unwrap();
    let (told, code) = run(&["--verify-only"]).await;
    assert_eq!(code, Some(80), "{told:#?}");
    assert_eq!(event(&told, "difference")["path"], "/a");

    // Somebody goes on writing at the source: not switched, and writers are let back.
    let servers_of_writer = servers.clone();
    let (writes, mut written) = tokio::sync::watch::channel(0);
    let writer = tokio::spawn(async move {
        let mut client = Client::open(&servers_of_writer[1]).await;
        for n in 0_u64.. {
            client.call(set("/a", &n.to_le_bytes())).await.unwrap().unwrap();
            writes.send_replace(n);
        }
    });
    // The first session at a server takes as long as Java needs for it: longer than the tool waits for quiet.
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

    // It is quiet now.
    let (told, code) = run(&["--switch", "--into"]).await;
    assert_eq!(code, Some(0), "{told:#?}");
    let mine = there.call(Request::GetData {
        path: "/mine".to_owned(),
        watch: false,
    });
    assert!(mine.await.unwrap().is_ok());

    // Nobody answers, or not to these credentials.
    let nobody = ["127.0.0.1:1".to_owned()];
    let tool = target.tool(&nobody, &["--verify-only", "--patience", "1s"]);
    assert_eq!(Running::start(tool).end().await.1, Some(1));
}
