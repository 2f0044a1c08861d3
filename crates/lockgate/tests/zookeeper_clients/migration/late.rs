//! Somebody writes to the source after it had become quiet: the switch is refused, and says where.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use zk_wire::Request;

use super::client::Client;
use super::writers::{create, entry, set};
use super::{Running, Target, assert_same, event, until_so};
use crate::ensemble::Ensemble;
use crate::wanted::skip;

/// Stands before a node, and lets nobody to it while it is closed.
struct Gate {
    address: String,
    is_open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Gate {
    async fn before(node: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (is_open, opened) = watch::channel(true);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (mut caller, _) = listener.accept().await.unwrap();
                let (node, mut opened) = (node.clone(), opened.clone());
                connections.spawn(async move {
                    opened.wait_for(|is_open| *is_open).await.unwrap();
                    let mut there = TcpStream::connect(&node).await.unwrap();
                    // A request that comes while it is closed finds the connection gone, and waits on a new one.
                    tokio::select! {
                        _ = copy_bidirectional(&mut caller, &mut there) => {}
                        _ = opened.wait_for(|is_open| !is_open) => {}
                    }
                });
            }
        });
        Self {
            address,
            is_open,
            task,
        }
    }

    fn close(&self) {
        self.is_open.send_replace(false);
    }

    fn open(&self) {
        self.is_open.send_replace(true);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[tokio::test]
async fn a_source_that_changes_after_it_was_quiet_is_not_switched_from() {
    let source = match Ensemble::zookeeper().await {
        Ok(source) => source,
        Err(missing) => return skip("the servers", &missing),
    };
    let target = Target::start().await;
    let servers = source.servers();
    let mut client = Client::open(&servers[0]).await;
    for path in ["/a", "/a/b", "/c"] {
        client.call(create(path, b"x", 0)).await.unwrap().unwrap();
    }

    // While both sides are compared: the target does not answer before that has happened.
    let gate = Gate::before(target.cluster.http_addresses().remove(0)).await;
    let (freeze, frozen, back) = (target.file("freeze"), target.file("frozen"), target.file("back"));
    let on_freeze = format!(
        "touch {}; until [ -e {} ]; do sleep 0.02; done",
        freeze.display(),
        frozen.display()
    );
    let on_refused = format!("touch {}", back.display());
    let options = ["--switch", "--on-freeze", &on_freeze, "--on-refused", &on_refused];
    let mut switch = Running::start(target.tool_to(std::slice::from_ref(&gate.address), &servers, &options));
    until_so("it is frozen", async || freeze.exists()).await;
    gate.close();
    std::fs::write(&frozen, "").unwrap();
    switch.until("note", "the source is quiet").await;
    client.call(set("/a/b", b"too late")).await.unwrap().unwrap();
    gate.open();
    let (told, code) = switch.end().await;
    assert_eq!(code, Some(80), "{told:#?}");
    let why = event(&told, "refused")["why"].as_str().unwrap();
    assert_eq!(why, "the source changed at /a/b while both sides were compared");
    assert!(back.exists(), "writers are let back");

    // Lists are replaced without an event: it is quiet to those who only listen.
    let server = servers[1].clone();
    let writer = tokio::spawn(async move {
        let mut client = Client::open(&server).await;
        for n in (0_i32..16).cycle() {
            let acl = Some(vec![entry(31, "world", "anyone"), entry(n, "ip", "10.1.2.3")]);
            let (path, version) = ("/c".to_owned(), -1);
            client
                .call(Request::SetAcl { path, acl, version })
                .await
                .unwrap()
                .unwrap();
        }
    });
    let run = async |options: &[&str]| Running::start(target.tool(&servers, options)).end().await;
    let (told, code) = run(&["--switch"]).await;
    assert_eq!(code, Some(80), "{told:#?}");
    let why = event(&told, "refused")["why"].as_str().unwrap();
    assert!(
        why.starts_with("the source changed") && why.contains("/c"),
        "{why}"
    );
    writer.abort();

    // Nothing was lost by either.
    until_so("the last write has ended", async || writer.is_finished()).await;
    let (told, code) = run(&["--switch"]).await;
    assert_eq!(code, Some(0), "{told:#?}");
    assert_same(&servers[0], &target.zookeeper()).await;
}
