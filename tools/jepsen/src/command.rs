//! Runs short-lived system programs such as `ip`, `nft` and `mount`, each with a time limit.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// Time limit of one program, far longer than any needs on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Runs a program and returns its output. If it fails, the error contains what it printed on stderr.
pub async fn run(program: &str, arguments: &[&str]) -> anyhow::Result<String> {
    run_with(program, arguments, "").await
}

/// Runs a program like [`run`], with `input` on its standard input.
pub async fn run_with(program: &str, arguments: &[&str], input: &str) -> anyhow::Result<String> {
    let what = || format!("{program} {}", arguments.join(" "));
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(what)?;
    let mut stdin = child.stdin.take().context("the program has an input")?;
    stdin.write_all(input.as_bytes()).await.with_context(what)?;
    drop(stdin);
    let output = tokio::time::timeout(TIMEOUT, child.wait_with_output())
        .await
        .with_context(what)?
        .with_context(what)?;
    if !output.status.success() {
        let complaint = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}: {}", what(), output.status, complaint.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
