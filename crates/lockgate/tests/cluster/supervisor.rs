//! Notifications of a node to its supervisor, as for systemd: it is ready, alive, reloading and stopping.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use local_cluster::process::send_signal;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::process::Command;
use tokio::time::timeout;

use crate::harness::{LOCKGATE, TIMEOUT};

/// Returns the next messages, up to one with this text.
async fn received(socket: &UnixDatagram, wanted: &str) -> Vec<String> {
    let mut messages = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let received = timeout(TIMEOUT, socket.recv(&mut buffer)).await;
        let length = received
            .unwrap_or_else(|_| panic!("no message with {wanted}; got {messages:?}"))
            .unwrap();
        messages.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        if messages.last().is_some_and(|message| message.contains(wanted)) {
            return messages;
        }
    }
}

#[tokio::test]
async fn supervisor_is_notified_of_the_process_state() {
    let dir = TempDir::new().unwrap();
    let place = dir.path().join("notify");
    let socket = UnixDatagram::bind(&place).unwrap();
    let file = dir.path().join("node.toml");
    write(&file, "");
    let mut node = Command::new(LOCKGATE)
        .args(["serve", "--config", file.to_str().unwrap()])
        .env("NOTIFY_SOCKET", &place)
        .env("WATCHDOG_USEC", "600000")
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    let first = received(&socket, "READY=1").await;
    assert_eq!(first.len(), 1, "no message before the node listens: {first:?}");
    assert!(first[0].contains("STATUS=node 1 is serving"), "{first:?}");
    received(&socket, "WATCHDOG=1").await;
    received(&socket, "WATCHDOG=1").await;

    let process = Pid::from_raw(node.id().unwrap() as i32);
    write(&file, "[http]\nmax_body_bytes = 1000\n");
    send_signal(process, Signal::SIGHUP).unwrap();
    let reloading = received(&socket, "RELOADING=1").await;
    assert!(
        reloading.last().unwrap().contains("MONOTONIC_USEC="),
        "{reloading:?}"
    );
    received(&socket, "READY=1").await;

    send_signal(process, Signal::SIGTERM).unwrap();
    received(&socket, "STOPPING=1").await;
    let ended = timeout(TIMEOUT, node.wait())
        .await
        .expect("the node ends")
        .unwrap();
    assert!(ended.success(), "{ended}");
}

fn write(file: &Path, more: &str) {
    let text = format!(
        "node_id = 1\nhttp_listen = \"127.0.0.1:0\"\npeer_listen = \"127.0.0.1:0\"\nzookeeper_listen = \"off\"\n{more}\
         [members.1]\npeer = \"127.0.0.1:1\"\nhttp = \"127.0.0.1:2\"\n"
    );
    fs::write(file, text).unwrap();
}
