//! Access control in a cluster of real nodes, from the operator's first command to a worker whose token is
//! revoked. This file has the helpers of its tests.

mod operator;
mod revoked;
mod unsecured;
mod worker;

use std::fs;
use std::path::{Path, PathBuf};

use local_cluster::LocalCluster;
use lock_client::{LockClient, Token};
use lockgate::lock_node::NodeId;
use tokio::process::Command;

use crate::harness::{LOCKGATE, TestCluster};

/// Exit code of a command without the right for its request.
const NOT_ALLOWED: i32 = 77;

/// Result of a command.
#[derive(Debug)]
struct CommandOutput {
    code: i32,
    out: String,
    err: String,
}

async fn run_in(environment: &[(&str, &str)], arguments: &[&str]) -> CommandOutput {
    let output = Command::new(LOCKGATE)
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .await
        .expect("the program can be run");
    CommandOutput {
        code: output.status.code().expect("no signal ended it"),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

async fn run(arguments: &[&str]) -> CommandOutput {
    run_in(&[], arguments).await
}

/// Runs a command that must succeed. Returns its standard output.
async fn succeeds(arguments: &[&str]) -> String {
    let ran = run(arguments).await;
    assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    ran.out
}

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

fn operator_token(cluster: &LocalCluster, id: NodeId) -> PathBuf {
    cluster.node(id).unwrap().data_dir().join("operator.token")
}

/// Returns the secret part of a token: everything after its id.
fn secret_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    let (_, secret) = text.trim().rsplit_once('_').expect("a token has parts");
    assert_eq!(secret.len(), 64);
    secret.to_owned()
}

fn id_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap();
    text.split('_').nth(1).expect("a token has parts").to_owned()
}

/// Asserts that no node has written a secret into its log.
fn assert_not_logged<'a>(
    logs: impl Iterator<Item = PathBuf>,
    secrets: impl Iterator<Item = &'a String> + Clone,
) {
    for log in logs {
        let said = fs::read_to_string(&log).unwrap();
        assert!(said.contains("serving HTTP"), "{}: {said}", log.display());
        for secret in secrets.clone() {
            assert!(!said.contains(secret), "a secret is in {}", log.display());
        }
    }
}

/// Directory of a cluster that the command line has started; its nodes are killed with the test.
struct LaunchedCluster(tempfile::TempDir);

impl Drop for LaunchedCluster {
    fn drop(&mut self) {
        if let Ok(mut cluster) = LocalCluster::open(self.0.path(), Path::new(LOCKGATE)) {
            cluster.kill_now();
        }
    }
}

fn client(cluster: &TestCluster, token: Token) -> LockClient {
    let tls = cluster.tls().expect("it has certificates").clone();
    let builder = LockClient::builder(cluster.http_addresses())
        .tls(tls)
        .token(token);
    builder.build().unwrap()
}
