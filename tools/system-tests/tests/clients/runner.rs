//! Execution of one program: reads its output, executes its requests, and checks its end.

use std::process::Stdio;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use crate::ensemble::Ensemble;
use crate::programs::Program;

/// Prefix of a program's line that is a request instead of a result.
const REQUEST: char = '!';

/// Program with its child processes. All of them end with this value.
struct Running {
    child: Child,
    group: Pid,
}

impl Running {
    fn start(mut command: Command) -> Result<Self, String> {
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| format!("the program cannot be started: {error}"))?;
        let id = child.id().expect("a child that was not awaited has an id") as i32;
        Ok(Self {
            child,
            group: Pid::from_raw(id),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A script may be dead while its children run. An error means that none is left.
        killpg(self.group, Signal::SIGKILL).ok();
    }
}

/// Runs a program against the ensemble to its end. Returns its results, a line each, or the failure.
pub async fn run(program: &Program, command: Command, ensemble: &mut Ensemble) -> Result<String, String> {
    let command = with_addresses(command, ensemble);
    follow(program, command, async |request, answers| {
        execute(request, ensemble, answers).await
    })
    .await
}

/// Runs programs at the same time, which may not send requests. Returns the result of each.
pub async fn run_together(
    programs: Vec<(&Program, Command)>,
    ensemble: &Ensemble,
) -> Vec<Result<String, String>> {
    let running = programs.into_iter().map(|(program, command)| {
        let command = with_addresses(command, ensemble);
        follow(program, command, async |request, _| {
            Err(format!("the program requested `{request}` while others run"))
        })
    });
    futures_util::future::join_all(running).await
}

fn with_addresses(mut command: Command, ensemble: &Ensemble) -> Command {
    command.arg(ensemble.servers().join(","));
    if let Some(http) = ensemble.http() {
        command.env("LOCKGATE_HTTP", http.join(","));
    }
    command
}

async fn follow(
    program: &Program,
    command: Command,
    execute: impl AsyncFnMut(&str, &mut ChildStdin) -> Result<(), String>,
) -> Result<String, String> {
    let mut running = Running::start(command)?;
    let mut stderr = running.child.stderr.take().expect("it is piped");
    // Read continuously, so that the program never blocks on a full pipe.
    let errors = tokio::spawn(async move {
        let mut text = Vec::new();
        stderr.read_to_end(&mut text).await.map(|_| text)
    });
    let mut results = String::new();
    let talk = talk(&mut running.child, execute, &mut results);
    let ended = tokio::time::timeout(program.deadline, talk).await;
    drop(running);
    let failure = match ended {
        Ok(Ok(())) => return Ok(results),
        Ok(Err(failure)) => failure,
        Err(_) => format!("the program has not ended after {:?}", program.deadline),
    };
    let errors = errors
        .await
        .expect("reading does not panic")
        .map_err(|error| error.to_string())?;
    Err(format!(
        "{failure}\n--- output so far:\n{results}--- on standard error:\n{}",
        String::from_utf8_lossy(&errors)
    ))
}

async fn talk(
    child: &mut Child,
    mut execute: impl AsyncFnMut(&str, &mut ChildStdin) -> Result<(), String>,
    results: &mut String,
) -> Result<(), String> {
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
        match line.strip_prefix(REQUEST) {
            Some(request) => execute(request, &mut stdin).await?,
            None => {
                results.push_str(&line);
                results.push('\n');
            }
        }
    }
    let status = child.wait().await.map_err(|error| error.to_string())?;
    if status.success() {
        Ok(())
    } else {
        Err(format!("the program ended with {status}"))
    }
}

async fn execute(request: &str, ensemble: &mut Ensemble, answers: &mut ChildStdin) -> Result<(), String> {
    match request.split_once(' ') {
        Some(("kill", server)) => ensemble.kill(server).await,
        Some(("start", server)) => ensemble.start(server).await,
        _ => return Err(format!("the program sent an unknown request `{request}`")),
    }
    answers
        .write_all(b"done\n")
        .await
        .map_err(|error| format!("the program does not read the answer: {error}"))
}
