//! Writes to the source after it had become quiet: the migration tool rejects the switch, and names the
//! znode.

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use zk_wire::Request;

use super::client::Client;
use super::writers::{create, entry, set};
use super::{Running, Target, assert_same, event, wait_until};
use crate::ensemble::Ensemble;
use crate::expectations::skip;

/// Proxy in front of a node that blocks all traffic while it is closed.
struct BlockingProxy {
    address: String,
    is_open: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl BlockingProxy {
    async fn in_front_of(node: String) -> Self {
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
                    // A request that arrives while the proxy is closed loses its connection, and waits on a
                    // new one.
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

impl Drop for BlockingProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a switch, makes the change while both sides are compared, and returns the reason of the rejection.
async fn refused_for(
    target: &Target,
    proxy: &BlockingProxy,
    servers: &[String],
    client: &mut Client,
    change: Request,
) -> String {
    let files = ["freeze", "frozen", "back"].map(|name| target.file(name));
    for file in files.iter().filter(|file| file.exists()) {
        std::fs::remove_file(file).unwrap();
    }
    let [freeze, frozen, back] = files;
    let on_freeze = format!(
        "touch {}; until [ -e {} ]; do sleep 0.02; done",
        freeze.display(),
        frozen.display()
    );
    let on_refused = format!("touch {}", back.display());
    let options = ["--switch", "--on-freeze", &on_freeze, "--on-refused", &on_refused];
    let mut switch = Running::start(target.tool_for(std::slice::from_ref(&proxy.address), servers, &options));
    wait_until("the source is frozen", async || freeze.exists()).await;
    // The target does not answer until the change has been made.
    proxy.close();
    std::fs::write(&frozen, "").unwrap();
    switch.until("note", "the source is quiet").await;
    client.call(change).await.unwrap().unwrap();
    proxy.open();
    let (told, code) = switch.end().await;
    assert_eq!(code, Some(80), "{told:#?}");
    assert!(back.exists(), "writers are allowed again");
    event(&told, "refused")["why"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn switch_is_rejected_if_the_source_changes_during_the_comparison() {
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
    let proxy = BlockingProxy::in_front_of(target.cluster.http_addresses().remove(0)).await;

    let why = refused_for(&target, &proxy, &servers, &mut client, set("/a/b", b"too late")).await;
    assert_eq!(why, "the source changed at /a/b while both sides were compared");

    // Replacing an ACL causes no event: to a client that only listens the source is quiet.
    let change = Request::SetAcl {
        path: "/c".to_owned(),
        acl: Some(vec![entry(31, "world", "anyone"), entry(1, "ip", "10.1.2.3")]),
        version: -1,
    };
    let why = refused_for(&target, &proxy, &servers, &mut client, change).await;
    assert_eq!(why, "the source changed at /c while both sides were compared");

    // A later switch succeeds: nothing was lost.
    let (told, code) = Running::start(target.tool(&servers, &["--switch"])).end().await;
    assert_eq!(code, Some(0), "{told:#?}");
    assert_same(&servers[0], &target.zookeeper()).await;
}
