//! `lockgate lock` in a terminal, under a shell with job control and without.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use lock_client::AcquireOptions;
use nix::pty::openpty;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use tokio::process::Command;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use super::ProcessTree;
use super::lock_command::state;
use crate::harness::{LOCKGATE, TIMEOUT, TestCluster, eventually};

/// Terminal and the program in it.
struct Terminal {
    keyboard: File,
    screen: UnboundedReceiver<String>,
    /// Output that no line was matched in yet.
    shown: String,
    /// All output, for the message of a failure.
    seen: String,
    _program: ProcessTree,
}

impl Terminal {
    fn open(cluster: &TestCluster, program: &[&str]) -> Self {
        let pty = openpty(None, None).unwrap();
        let (keyboard, slave) = (File::from(pty.master), File::from(pty.slave));
        let (sender, screen) = unbounded_channel();
        let mut master = keyboard.try_clone().unwrap();
        // The thread ends when no process has the terminal open.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                if sender
                    .send(String::from_utf8_lossy(&bytes[..count]).into_owned())
                    .is_err()
                {
                    return;
                }
            }
        });
        let file = || Stdio::from(slave.try_clone().unwrap());
        let program = Command::new("setsid")
            .arg("--ctty")
            .args(program)
            .env("LOCKGATE_SERVERS", cluster.http_addresses().join(","))
            .env("PS1", "the shell is ready\\n")
            .stdin(file())
            .stdout(file())
            .stderr(file())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self {
            keyboard,
            screen,
            shown: String::new(),
            seen: String::new(),
            _program: ProcessTree::of(program),
        }
    }

    /// Starts a shell and waits for its prompt: input before it may get lost.
    async fn shell(cluster: &TestCluster) -> Self {
        let shell = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
        let mut terminal = Self::open(cluster, &[&["env", "--default-signal=INT"][..], &shell].concat());
        terminal.line("the shell is ready").await;
        terminal
    }

    fn type_in(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits for a line with this beginning. Returns the rest of it.
    async fn line(&mut self, begin: &str) -> String {
        loop {
            while let Some((line, rest)) = self.shown.split_once('\n') {
                let found = line.trim_end().strip_prefix(begin).map(str::to_owned);
                self.shown = rest.to_owned();
                if let Some(rest) = found {
                    return rest;
                }
            }
            let more = tokio::time::timeout(TIMEOUT, self.screen.recv()).await;
            let more = more.unwrap_or_else(|_| panic!("no line begins with {begin:?}: {}", self.seen));
            let more = more.expect("the terminal is open");
            self.shown.push_str(&more);
            self.seen.push_str(&more);
        }
    }

    /// Runs a command under the lock `job`. Returns the process ids of the command and of `lockgate`. The
    /// command should start no processes: a shell in the middle of `vfork` is not suspended before its child
    /// runs.
    async fn run(&mut self, ttl: &str, script: &str) -> (String, String) {
        self.type_in(&format!(
            "{LOCKGATE} lock job --ttl {ttl} -- sh -c 'echo pids $$ $PPID; {script}'\n"
        ));
        let pids = self.line("pids ").await;
        let (command, lockgate) = pids.split_once(' ').unwrap();
        (command.to_owned(), lockgate.to_owned())
    }
}

async fn until_suspended(command: &str, lockgate: &str) {
    eventually("both are suspended", async || {
        (state(command), state(lockgate)) == (Some('T'), Some('T'))
    })
    .await;
}

#[tokio::test]
async fn ctrl_z_returns_the_terminal_to_the_shell_and_fg_resumes() {
    let cluster = TestCluster::start().await;
    let mut terminal = Terminal::shell(&cluster).await;
    let (command, lockgate) = terminal.run("60s", "exec sleep 1000").await;
    for _ in 0..3 {
        terminal.type_in("\u{1a}");
        until_suspended(&command, &lockgate).await;
        terminal.type_in("echo the shell reads $((40 + 2))\n");
        assert_eq!(terminal.line("the shell reads ").await, "42");
        terminal.type_in("fg\n");
        eventually("both have resumed", async || {
            state(&command) != Some('T') && state(&lockgate) != Some('T')
        })
        .await;
    }
    // The command has the terminal again.
    terminal.type_in("\u{3}");
    eventually("both have ended", async || {
        (state(&command), state(&lockgate)) == (None, None)
    })
    .await;
    terminal.type_in("echo ended with $?\n");
    assert_eq!(terminal.line("ended with ").await, "130");
}

#[tokio::test]
async fn command_suspended_too_long_loses_its_lock_and_is_not_resumed() {
    let cluster = TestCluster::start().await;
    let place = tempfile::TempDir::new().unwrap();
    let (work, done) = (place.path().join("work"), place.path().join("done"));
    mkfifo(&work, Mode::S_IRWXU).unwrap();
    // Opened for reading too, so that it does not wait for a reader.
    let mut hand_out = File::options().read(true).write(true).open(&work).unwrap();
    let mut terminal = Terminal::shell(&cluster).await;
    let script = format!(
        "while read task; do echo $task >> {}; done < {}",
        done.display(),
        work.display()
    );
    let (command, lockgate) = terminal.run("5s", &script).await;
    hand_out.write_all(b"one\n").unwrap();
    let has_done = || std::fs::read_to_string(&done).unwrap_or_default();
    eventually("the command works", async || has_done() == "one\n").await;
    terminal.type_in("\u{1a}");
    until_suspended(&command, &lockgate).await;
    hand_out.write_all(b"two\n").unwrap();
    let heir = cluster.lock_session("heir").await;
    let guard = heir.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    terminal.type_in("fg\n");
    eventually("both have ended", async || {
        (state(&command), state(&lockgate)) == (None, None)
    })
    .await;
    terminal.type_in("echo ended with $?\n");
    assert_eq!(terminal.line("ended with ").await, "79");
    assert_eq!(has_done(), "one\n");
    assert!(guard.verify().await.unwrap());
}

#[tokio::test]
async fn waiter_can_be_suspended() {
    let cluster = TestCluster::start().await;
    let holder = cluster.lock_session("holder").await;
    let held = holder.acquire("job", AcquireOptions::exclusive()).await.unwrap();
    let mut terminal = Terminal::shell(&cluster).await;
    terminal.type_in(&format!("{LOCKGATE} lock job --ttl 60s -- echo it runs\n"));
    cluster.wait_queued(1, "job", 1).await;
    terminal.type_in("\u{1a}");
    terminal.type_in("echo the shell reads $((40 + 2))\n");
    assert_eq!(terminal.line("the shell reads ").await, "42");
    terminal.type_in("fg\n");
    held.release().await.unwrap();
    assert_eq!(terminal.line("it runs").await, "");
    terminal.type_in("echo ended with $?\n");
    assert_eq!(terminal.line("ended with ").await, "0");
}

#[tokio::test]
async fn ctrl_z_does_nothing_without_a_shell() {
    let cluster = TestCluster::start().await;
    let script = "echo ready; while read line; do echo got $line; done";
    let mut terminal = Terminal::open(&cluster, &[LOCKGATE, "lock", "job", "--", "sh", "-c", script]);
    terminal.line("ready").await;
    for word in ["one", "two"] {
        terminal.type_in("\u{1a}");
        terminal.type_in(&format!("{word}\n"));
        assert_eq!(terminal.line("got ").await, word);
    }
}
