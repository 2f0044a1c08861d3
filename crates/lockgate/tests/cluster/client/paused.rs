//! Client that is paused longer than its session's timeout: a process of its own, stopped by SIGSTOP.

use std::process::Stdio;

use lock_client::{AcquireOptions, LockClient};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{ChildStdout, Command};

use super::SHORT_TTL;
use crate::harness::{TIMEOUT, TestCluster};
use local_cluster::process::send_signal;

/// Variables that make the process the client: the servers, and the address of the storage.
const SERVERS: &str = "LOCKGATE_TEST_PAUSED_SERVERS";
const STORAGE: &str = "LOCKGATE_TEST_PAUSED_STORAGE";

/// Storage that checks fencing tokens: it writes the text of a line `TOKEN TEXT` unless it has seen a larger
/// token.
async fn serve_storage(listener: TcpListener) {
    let (mut largest, mut text) = (0, String::new());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let (token, data) = line.trim_end().split_once(' ').unwrap();
        let token: u64 = token.parse().unwrap();
        let answer = if token < largest {
            format!("refused: {text}\n")
        } else {
            (largest, text) = (token, data.to_owned());
            "written\n".to_owned()
        };
        stream.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn write(storage: &str, token: u64, text: &str) -> String {
    let mut stream = BufReader::new(TcpStream::connect(storage).await.unwrap());
    stream
        .write_all(format!("{token} {text}\n").as_bytes())
        .await
        .unwrap();
    let mut answer = String::new();
    stream.read_line(&mut answer).await.unwrap();
    answer.trim_end().to_owned()
}

/// Program of the client process. In a run of the tests it does nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paused_client_process() {
    let (Ok(servers), Ok(storage)) = (std::env::var(SERVERS), std::env::var(STORAGE)) else {
        return;
    };
    let session = LockClient::new(servers.split(','))
        .unwrap()
        .session()
        .ttl(SHORT_TTL)
        .open()
        .await
        .unwrap();
    let guard = session
        .acquire("paused", AcquireOptions::exclusive())
        .await
        .unwrap();
    assert_eq!(
        write(&storage, guard.fencing_token().0, "before").await,
        "written"
    );
    println!("> holding {}", guard.fencing_token());
    // The test stops the process here, at any point of its tasks.
    let mut line = String::new();
    tokio::task::spawn_blocking(move || std::io::stdin().read_line(&mut line))
        .await
        .unwrap()
        .unwrap();
    println!("> check {:?}", guard.check());
    println!("> lost {}", guard.lost().await);
    println!(
        "> write {}",
        write(&storage, guard.fencing_token().0, "too late").await
    );
    println!("> release {:?}", guard.release().await);
}

async fn said(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    loop {
        let line = tokio::time::timeout(TIMEOUT, lines.next_line())
            .await
            .expect("a line in time");
        let line = line.unwrap().expect("the process runs");
        // The test harness also prints, without line ends.
        if let Some((_, said)) = line.split_once("> ") {
            return said.to_owned();
        }
    }
}

#[tokio::test]
async fn paused_client_learns_of_its_loss_and_its_late_writes_are_rejected() {
    let cluster = TestCluster::start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let storage = listener.local_addr().unwrap().to_string();
    let _storage = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(serve_storage(listener)));
    let mut paused = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "client::paused::paused_client_process", "--nocapture"])
        .env(SERVERS, cluster.http_addresses().join(","))
        .env(STORAGE, &storage)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(paused.stdout.take().unwrap()).lines();
    let holding = said(&mut lines).await;
    let token: u64 = holding.strip_prefix("holding ").unwrap().parse().unwrap();
    let pid = Pid::from_raw(i32::try_from(paused.id().unwrap()).unwrap());
    send_signal(pid, Signal::SIGSTOP).unwrap();

    // Its session expires, and another session acquires the lock and writes.
    let heir = cluster.lock_session("heir").await;
    let guard = heir.acquire("paused", AcquireOptions::exclusive()).await.unwrap();
    assert!(guard.fencing_token().0 > token);
    assert_eq!(
        write(&storage, guard.fencing_token().0, "the heir's").await,
        "written"
    );

    let mut stdin = paused.stdin.take().unwrap();
    stdin.write_all(b"act\n").await.unwrap();
    send_signal(pid, Signal::SIGCONT).unwrap();
    assert_eq!(said(&mut lines).await, "check Err(Lost(NoHeartbeat))");
    assert_eq!(
        said(&mut lines).await,
        "lost the session is lost: no heartbeat was confirmed in time"
    );
    assert_eq!(said(&mut lines).await, "write refused: the heir's");
    assert_eq!(said(&mut lines).await, "release Err(Lost(NoHeartbeat))");
    assert!(paused.wait().await.unwrap().success());
    assert!(guard.verify().await.unwrap(), "the late release has no effect");
}
