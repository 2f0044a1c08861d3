//! `lockgate lock`: a command that runs while a lock is held.

use std::process::Stdio;
use std::time::Duration;

use lock_client::AcquireOptions;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::Instant;

use super::ProcessTree;
use super::commands::{fails, lockgate};
use crate::harness::{LOCKGATE, TIMEOUT, TestCluster, eventually};
use local_cluster::process::send_signal;

/// Starts `lockgate lock`; its output can be read while it runs.
fn start(cluster: &TestCluster, arguments: &[&str]) -> (ProcessTree, Lines<BufReader<ChildStdout>>) {
    start_command(cluster, &[&["lock"], arguments].concat())
}

/// Starts a command; its output can be read while it runs.
pub fn start_command(
    cluster: &TestCluster,
    arguments: &[&str],
) -> (ProcessTree, Lines<BufReader<ChildStdout>>) {
    // A shell starts background processes with SIGINT ignored, and the program would inherit that.
    start_under(cluster, &["env", "--default-signal=INT"], arguments)
}

/// Starts the program by another one, which executes it.
fn start_under(
    cluster: &TestCluster,
    under: &[&str],
    arguments: &[&str],
) -> (ProcessTree, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(under[0])
        .args(&under[1..])
        .arg(LOCKGATE)
        .args(arguments)
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (ProcessTree::of(child), lines)
}

/// Returns the next line of the output.
pub async fn line(lines: &mut Lines<BufReader<ChildStdout>>) -> String {
    let line = tokio::time::timeout(TIMEOUT, lines.next_line())
        .await
        .expect("a line");
    line.unwrap().expect("a line")
}

/// Returns the exit code and standard error.
pub async fn exit_of(child: ProcessTree) -> (Option<i32>, String) {
    let output = tokio::time::timeout(TIMEOUT, child.into_child().wait_with_output())
        .await
        .expect("it ends")
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id().unwrap()).unwrap())
}

/// Returns the state of a process in the kernel; `None` if the process does not exist.
pub fn state(pid: &str) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[tokio::test]
async fn command_runs_under_the_lock_and_its_exit_code_is_returned() {
    let cluster = TestCluster::start().await;
    let output = lockgate(
        &cluster,
        &[
            "lock",
            "job",
            "--",
            "sh",
            "-c",
            "echo $LOCKGATE_LOCK $LOCKGATE_FENCING_TOKEN; exit 7",
        ],
    )
    .await;
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (name, token) = said.trim_end().split_once(' ').unwrap();
    assert!(name == "job" && token.parse::<u64>().is_ok(), "{said}");
    let killed = lockgate(&cluster, &["lock", "job", "--", "sh", "-c", "kill -KILL $$"]).await;
    assert_eq!(killed.status.code(), Some(128 + 9));
    fails(&cluster, 127, &["lock", "job", "--", "/no/such/program"]).await;
    fails(&cluster, 126, &["lock", "job", "--", "/etc/passwd"]).await;

    let session = cluster.lock_session("holder").await;
    let held = session.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let stderr = fails(&cluster, 75, &["lock", "job", "--try", "--", "true"]).await;
    assert!(stderr.contains("job"), "{stderr}");
    fails(&cluster, 75, &["lock", "job", "--wait", "50ms", "--", "true"]).await;
    fails(&cluster, 75, &["lock", "job", "--shared", "--try", "--", "true"]).await;
    held.release().await.unwrap();
    let pool = session
        .acquire("pool", AcquireOptions::semaphore(3))
        .await
        .unwrap();
    let take = |permits| {
        [
            "lock",
            "pool",
            "--semaphore",
            "3",
            "--permits",
            permits,
            "--try",
            "--",
            "true",
        ]
    };
    assert!(lockgate(&cluster, &take("2")).await.status.success());
    fails(&cluster, 75, &take("3")).await;
    pool.release().await.unwrap();
    let nobody = [
        "lock",
        "job",
        "--server",
        "127.0.0.1:1",
        "--patience",
        "100ms",
        "--",
        "true",
    ];
    fails(&cluster, 69, &nobody).await;
    // The program leaves no session.
    session.close().await.unwrap();
    assert_eq!(cluster.lock_client().sessions().await.unwrap(), []);
}

#[tokio::test]
async fn signals_are_forwarded_to_the_command_and_end_a_wait() {
    let cluster = TestCluster::start().await;
    let trap = "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.02; done";
    let (child, mut lines) = start(&cluster, &["job", "--", "sh", "-c", trap]);
    assert_eq!(line(&mut lines).await, "ready");
    // A waiter leaves the queue.
    let (waiting, _) = start(&cluster, &["job", "--", "true"]);
    cluster.wait_queued(1, "job", 1).await;
    send_signal(pid(&waiting), Signal::SIGINT).unwrap();
    assert_eq!(exit_of(waiting).await, (Some(128 + 2), String::new()));
    cluster.wait_queued(1, "job", 0).await;
    send_signal(pid(&child), Signal::SIGTERM).unwrap();
    assert_eq!(line(&mut lines).await, "got it");
    let (code, stderr) = exit_of(child).await;
    // The shell may report the end of its sleep, which got the signal too; there is no other message.
    assert_eq!(code, Some(5));
    assert!(!stderr.contains("lockgate"), "{stderr}");
    let view = cluster.lock_client().lock("job").await.unwrap().unwrap();
    assert_eq!((view.holders.len(), view.queue.len()), (0, 0));
}

#[tokio::test]
async fn command_is_ended_or_killed_after_the_loss_of_its_lock() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let obedient = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.02; done";
    // It ends neither itself nor its child processes.
    let stubborn = "trap '' TERM; sleep 1000 & echo $!; while :; do sleep 0.02; done";
    for (script, grace) in [(obedient, "30s"), (stubborn, "200ms")] {
        let (child, mut lines) = start(
            &cluster,
            &["job", "--ttl", "9s", "--grace", grace, "--", "sh", "-c", script],
        );
        let first = line(&mut lines).await;
        let view = client.lock("job").await.unwrap().unwrap();
        assert_eq!(view.holders[0].note, "sh", "the program without its arguments");
        client
            .break_lock("job", &view.holders[0].holder, "maintenance")
            .await
            .unwrap();
        if script == obedient {
            assert_eq!(line(&mut lines).await, "bye");
        }
        let (code, stderr) = exit_of(child).await;
        assert_eq!(code, Some(79), "{stderr}");
        let how = "the lock job is lost: the lock was broken by ip:127.0.0.1: maintenance";
        assert!(stderr.contains(how), "{stderr}");
        assert_eq!(
            stderr.matches("is lost").count(),
            1,
            "the loss is reported once: {stderr}"
        );
        if script == stubborn {
            eventually("its child process has ended", async || {
                matches!(state(&first), None | Some('Z'))
            })
            .await;
        }
    }
}

#[tokio::test]
async fn release_request_ends_a_command_with_on_release_request_end() {
    let cluster = TestCluster::start().await;
    let client = cluster.lock_client();
    let script = "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let command =
        |more: &[&'static str]| [&["job", "--ttl", "9s"], more, &["--", "sh", "-c", script]].concat();
    let (goes_on, mut lines) = start(&cluster, &command(&["--semaphore", "2"]));
    assert_eq!(line(&mut lines).await, "ready");
    let end = command(&[
        "--semaphore",
        "any",
        "--on-release-request",
        "end",
        "--lock-delay",
        "1m",
    ]);
    let (ends, mut last_lines) = start(&cluster, &end);
    assert_eq!(line(&mut last_lines).await, "ready");
    assert_eq!(client.request_release("job", None, "maintenance").await, Ok(2));
    assert_eq!(line(&mut last_lines).await, "bye");
    let (code, stderr) = exit_of(ends).await;
    assert_eq!(code, Some(3), "{stderr}");
    assert!(
        stderr.contains("requests the release of the lock: maintenance"),
        "{stderr}"
    );
    // A regular release has no lock delay.
    let view = client.lock("job").await.unwrap().unwrap();
    assert_eq!(view.holders.len(), 1);
    send_signal(pid(&goes_on), Signal::SIGTERM).unwrap();
    let (code, stderr) = exit_of(goes_on).await;
    assert_eq!(code, Some(3), "{stderr}");
    fails(&cluster, 1, &["lock", "job", "--semaphore", "any", "--", "true"]).await;
    assert!(lockgate(&cluster, &["limit", "job", "1"]).await.status.success());
    let one = ["lock", "job", "--semaphore", "any", "--", "true"];
    assert!(lockgate(&cluster, &one).await.status.success());
    fails(&cluster, 1, &["lock", "job", "--semaphore", "2", "--", "true"]).await;
    assert!(
        lockgate(&cluster, &["limit", "job", "--unset"])
            .await
            .status
            .success()
    );
}

#[tokio::test]
async fn command_is_paused_while_the_session_is_uncertain() {
    let cluster = TestCluster::start().await;
    let script = "echo $$; while :; do sleep 0.02; done";
    let arguments = ["--ttl", "6s", "--on-uncertain"];
    let (paused, mut paused_lines) = start(
        &cluster,
        &[&["paused"], &arguments[..], &["pause", "--", "sh", "-c", script]].concat(),
    );
    let (killed, mut killed_lines) = start(
        &cluster,
        &[&["killed"], &arguments[..], &["kill", "--", "sh", "-c", script]].concat(),
    );
    let (pid_of_paused, pid_of_killed) = (line(&mut paused_lines).await, line(&mut killed_lines).await);
    // All servers are stopped: no heartbeat is confirmed or rejected.
    for node in cluster.ids() {
        cluster.signal(node, Signal::SIGSTOP).unwrap();
    }
    eventually("the command is paused", async || {
        state(&pid_of_paused) == Some('T')
    })
    .await;
    for node in cluster.ids() {
        cluster.signal(node, Signal::SIGCONT).unwrap();
    }
    eventually("the command continues", async || {
        state(&pid_of_paused) != Some('T')
    })
    .await;
    let view = cluster.lock_client().lock("paused").await.unwrap().unwrap();
    assert_eq!(view.holders.len(), 1, "the lock was never lost");

    // When they stay stopped, the commands end: the lock counts as lost, though no server can report it.
    for node in cluster.ids() {
        cluster.signal(node, Signal::SIGSTOP).unwrap();
    }
    eventually("both have ended", async || {
        state(&pid_of_paused).is_none() && state(&pid_of_killed).is_none()
    })
    .await;
    for node in cluster.ids() {
        cluster.signal(node, Signal::SIGCONT).unwrap();
    }
    // This command ended in the first interruption or in the second: its last heartbeat was confirmed at
    // another moment.
    let (code, stderr) = exit_of(killed).await;
    assert_eq!(code, Some(79), "{stderr}");
    assert!(!stderr.contains("paused"), "{stderr}");
    let (code, stderr) = exit_of(paused).await;
    assert_eq!(code, Some(79), "{stderr}");
    for part in [
        "the command is paused",
        "the command continues",
        "no heartbeat was confirmed in time",
    ] {
        assert!(stderr.contains(part), "{part}: {stderr}");
    }
}

#[tokio::test]
async fn one_command_runs_at_a_time_while_leaders_die() {
    let mut cluster = TestCluster::start().await;
    let place = tempfile::TempDir::new().unwrap();
    let (busy, log) = (place.path().join("busy"), place.path().join("log"));
    // mkdir fails if another command is running.
    let script = format!(
        "mkdir {busy} || exit 1; echo $LOCKGATE_FENCING_TOKEN >> {log}; sleep 0.05; rmdir {busy}",
        busy = busy.display(),
        log = log.display()
    );
    let runs: Vec<_> = (0..8)
        .map(|_| start(&cluster, &["cron", "--", "sh", "-c", &script]))
        .collect();
    eventually("some commands have run", async || log.exists()).await;
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    for (run, _) in runs {
        let (code, stderr) = exit_of(run).await;
        assert_eq!(code, Some(0), "{stderr}");
    }
    let tokens = std::fs::read_to_string(&log).unwrap();
    let tokens: Vec<u64> = tokens.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(tokens.len(), 8);
    assert!(tokens.is_sorted(), "{tokens:?}");
}

/// Arguments that start a program with SIGHUP ignored, as under `nohup`.
const NO_HANGUP: [&str; 3] = ["env", "--default-signal=TERM", "--ignore-signal=HUP"];

#[tokio::test]
async fn hangup_that_is_ignored_at_the_start_ends_neither_the_holder_nor_its_command() {
    let cluster = TestCluster::start().await;
    let script = "echo runs; read line; echo $line";
    let mut child = Command::new(NO_HANGUP[0])
        .args(&NO_HANGUP[1..])
        .args([LOCKGATE, "lock", "job", "--", "sh", "-c", script])
        .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let holder = ProcessTree::of(child);
    assert_eq!(line(&mut lines).await, "runs");
    let own = pid(&holder);
    let commands = children(own);
    assert_eq!(commands.len(), 1, "{commands:?}");
    // If a signal ended a process, it would do so before the process reads another line.
    for process in [own, commands[0]] {
        assert!(ignores_hangup(process), "process {process}");
        kill(process, Signal::SIGHUP).unwrap();
    }
    input.write_all(b"goes on\n").await.unwrap();
    assert_eq!(line(&mut lines).await, "goes on");
    let (code, stderr) = exit_of(holder).await;
    assert_eq!(code, Some(0), "{stderr}");
}

#[tokio::test]
async fn hangup_that_is_ignored_at_the_start_does_not_end_the_wait() {
    let cluster = TestCluster::start().await;
    let session = cluster.lock_session("holder").await;
    let held = session.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let (waiter, mut lines) = start_under(&cluster, &NO_HANGUP, &["lock", "job", "--", "echo", "held"]);
    cluster.wait_queued(1, "job", 1).await;
    assert!(ignores_hangup(pid(&waiter)));
    kill(pid(&waiter), Signal::SIGHUP).unwrap();
    held.release().await.unwrap();
    assert_eq!(line(&mut lines).await, "held");
    let (code, stderr) = exit_of(waiter).await;
    assert_eq!(code, Some(0), "{stderr}");
}

/// Returns whether a process ignores SIGHUP.
fn ignores_hangup(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap();
    let mask = u64::from_str_radix(mask.trim(), 16).unwrap();
    mask & 1 << (Signal::SIGHUP as i32 - 1) != 0
}

fn children(of: Pid) -> Vec<Pid> {
    let ids = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    ids.split_whitespace()
        .map(|id| Pid::from_raw(id.parse().unwrap()))
        .collect()
}

#[tokio::test]
async fn wait_ends_in_time_when_all_servers_stall() {
    /// Additional time for the command on a busy machine: less than the time limit of a request, 15 s, and
    /// its retries.
    const MORE: Duration = Duration::from_secs(10);
    let cluster = TestCluster::start().await;
    let session = cluster.lock_session("holder").await;
    let _held = session.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let (queued, _) = start(&cluster, &["job", "--wait", "6s", "--", "true"]);
    let queued_at = Instant::now();
    cluster.wait_queued(1, "job", 1).await;
    for id in cluster.ids() {
        cluster.signal(id, Signal::SIGSTOP).unwrap();
    }
    let begun = Instant::now();
    let (new, _) = start(&cluster, &["job", "--wait", "2s", "--", "true"]);
    let (tries, _) = start(&cluster, &["job", "--try", "--", "true"]);
    let in_time = async |name: &str, child, since: Instant, limit: Duration| {
        let (code, stderr) = exit_of(child).await;
        assert!(matches!(code, Some(75 | 69)), "{name}: {code:?} {stderr}");
        assert!(
            since.elapsed() < limit + MORE,
            "{name} took {:?}",
            since.elapsed()
        );
    };
    let ms = Duration::from_millis;
    tokio::join!(
        in_time("a new one", new, begun, ms(2_250)),
        in_time("one that tries", tries, begun, ms(2_000)),
        in_time("one in the queue", queued, queued_at, ms(7_250)),
    );
    for id in cluster.ids() {
        cluster.signal(id, Signal::SIGCONT).unwrap();
    }
}

#[tokio::test]
async fn ttl_outside_the_bounds_is_reported() {
    let cluster = TestCluster::start().await;
    for (wanted, in_force) in [("1h", "5m"), ("100ms", "2s")] {
        let output = lockgate(&cluster, &["lock", "job", "--ttl", wanted, "--", "true"]).await;
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        assert!(
            stderr.contains(&format!("the ttl is {in_force};")),
            "{wanted}: {stderr}"
        );
    }
}

#[tokio::test]
async fn orphans_are_collected_by_the_first_process_of_a_container() {
    let namespace = ["unshare", "--pid", "--fork", "--kill-child"];
    let permitted = Command::new(namespace[0])
        .args(&namespace[1..])
        .arg("true")
        .output()
        .await;
    if !permitted.is_ok_and(|output| output.status.success()) {
        eprintln!("not tested: this machine gives the test no namespace of processes");
        return;
    }
    let cluster = TestCluster::start().await;
    // The shell between them ends, and its child gets a new parent.
    let script = "sh -c 'sleep 1000 &'; echo started; exec cat /dev/zero > /dev/null";
    let (tree, mut lines) = start_under(&cluster, &namespace, &["lock", "job", "--", "sh", "-c", script]);
    assert_eq!(line(&mut lines).await, "started");
    let [first] = children(pid(&tree))[..] else {
        panic!("unshare has one child");
    };
    let name = |process: &Pid| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let mut orphan = None;
    eventually("the orphan is a child of the first process", async || {
        orphan = children(first).into_iter().find(|child| name(child) == "sleep\n");
        orphan.is_some()
    })
    .await;
    let orphan = orphan.unwrap();
    kill(orphan, Signal::SIGKILL).unwrap();
    eventually("the orphan is collected", async || {
        state(&orphan.to_string()).is_none()
    })
    .await;
    assert_eq!(children(first).len(), 1, "the command still runs");
}

#[tokio::test]
async fn several_locks_are_acquired_in_one_step_and_one_loss_ends_the_command() {
    let cluster = TestCluster::start().await;
    let other = cluster.lock_session("other").await;
    let held = other.acquire("b", AcquireOptions::exclusive()).await.unwrap();
    fails(&cluster, 75, &["lock", "a", "b", "--try", "--", "true"]).await;
    fails(&cluster, 75, &["lock", "a", "b", "--wait", "50ms", "--", "true"]).await;
    held.release().await.unwrap();
    let script = "echo $LOCKGATE_LOCK $LOCKGATE_FENCING_TOKEN; exit 5";
    let arguments = [
        "lock", "a", "b", "--name", "job", "--owner", "me", "--", "sh", "-c", script,
    ];
    let output = lockgate(&cluster, &arguments).await;
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.code() == Some(5) && printed.starts_with("a b "),
        "{printed}"
    );

    let (child, mut lines) = start(
        &cluster,
        &["a", "b", "--", "sh", "-c", "echo runs; exec sleep 60"],
    );
    assert_eq!(line(&mut lines).await, "runs");
    assert_eq!(
        lockgate(&cluster, &["break", "b", "--reason", "test"])
            .await
            .status
            .code(),
        Some(0)
    );
    let (code, stderr) = exit_of(child).await;
    assert!(
        code == Some(79) && stderr.contains("the lock b is lost"),
        "{code:?} {stderr}"
    );
    assert_eq!(
        lockgate(&cluster, &["lock", "a", "--try", "--", "true"])
            .await
            .status
            .code(),
        Some(0)
    );
}

#[tokio::test]
async fn owner_and_name_of_the_session_are_shown() {
    let cluster = TestCluster::start().await;
    let script = format!("{LOCKGATE} lock show a --json; {LOCKGATE} session show $LOCKGATE_SESSION --json");
    let arguments = [
        "lock", "run", "a", "--owner", "me", "--name", "nightly", "--note", "report", "--", "sh", "-c",
        &script,
    ];
    let output = lockgate(&cluster, &arguments).await;
    assert!(output.status.success(), "{output:?}");
    let mut documents = serde_json::Deserializer::from_slice(&output.stdout).into_iter::<serde_json::Value>();
    let lock = documents.next().unwrap().unwrap();
    let holder = &lock["holders"][0];
    assert_eq!(
        (&holder["owner"], &holder["note"]),
        (&"me".into(), &"report".into())
    );
    let session = documents.next().unwrap().unwrap();
    assert_eq!(session["name"], "nightly");
}

#[tokio::test]
async fn holds_have_a_minimum_and_a_maximum_time() {
    let cluster = TestCluster::start().await;
    let run = ["lock", "cron", "--min-hold", "1h", "--try", "--", "true"];
    assert!(lockgate(&cluster, &run).await.status.success());
    let stderr = fails(&cluster, 75, &run).await;
    assert!(stderr.contains("cron"), "{stderr}");

    let (child, mut lines) = start(
        &cluster,
        &[
            "hangs",
            "--max-hold",
            "500ms",
            "--",
            "sh",
            "-c",
            "echo runs; exec sleep 60",
        ],
    );
    assert_eq!(line(&mut lines).await, "runs");
    let (code, stderr) = exit_of(child).await;
    assert!(
        code == Some(79) && stderr.contains("the lock was held for its maximum time"),
        "{code:?} {stderr}"
    );
}
