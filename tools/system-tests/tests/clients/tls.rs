//! ZooKeeper's own Java client over TLS: with its defaults, and configured for the newest version.

use std::fs;
use std::path::Path;

use local_cluster::{LocalCluster, Ports, START_TIMEOUT};
use tempfile::TempDir;

use crate::expectations::skip;
use crate::installed::Java;
use crate::programs::{ALL, Client};

/// Options for TLS, which the client supports only with Netty; it trusts the authority in a file.
const SECURE: &str =
    "-Dzookeeper.client.secure=true -Dzookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty";

/// Options for TLS 1.3: before 3.9 the client speaks only 1.2 by default. docs/reference/security.md shows the same.
const NEWEST: &str = "-Dzookeeper.ssl.protocol=TLSv1.3 -Dzookeeper.ssl.ciphersuites=TLS_AES_256_GCM_SHA384,TLS_AES_128_GCM_SHA256";

/// Runs a program with these JVM options against a node with TLS; its output must be the same as without TLS.
async fn run_java_client(options: &str, environment: &[(&str, &str)]) {
    let java = match Java::find() {
        Ok(java) => java,
        Err(missing) => return skip("the client", &missing),
    };
    let program = ALL
        .iter()
        .find(|program| program.client == Client::Java && program.name == "Chroot")
        .expect("the list has this program");
    let directory = TempDir::new().unwrap();
    let executable = Path::new(env!("CARGO_BIN_EXE_lockgate-with-faults"));
    let mut cluster = LocalCluster::create_secured(directory.path(), executable, 1, Ports::Free, "").unwrap();
    cluster.start_with(1, environment).unwrap();
    cluster.wait_ready(&[1], START_TIMEOUT).await.unwrap();
    let trusted = directory.path().join("ca.pem");
    let options = format!(
        "{SECURE} -Dzookeeper.ssl.trustStore.location={} {options}",
        trusted.display()
    );
    let mut command = java.program(program.name);
    command
        .arg(cluster.node(1).unwrap().zookeeper.clone().unwrap())
        .env("JAVA_TOOL_OPTIONS", options)
        .kill_on_drop(true);
    let output = tokio::time::timeout(program.deadline, command.output())
        .await
        .expect("the program ends")
        .unwrap();
    let log = cluster.log_tail(1).unwrap_or_default();
    cluster.kill_now();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        fs::read_to_string(program.expected_file()).unwrap(),
        "{}\n{log}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test]
async fn java_client_with_defaults_connects_to_a_node_that_accepts_tls_1_2() {
    run_java_client("", &[("LOCKGATE_TLS_ZOOKEEPER_OLDEST_VERSION", "1.2")]).await;
}

#[tokio::test]
async fn java_client_configured_for_tls_1_3_connects() {
    run_java_client(NEWEST, &[]).await;
}
