//! Cluster whose nodes use TLS, with each other and with clients.

use std::fs;
use std::path::Path;

use cli_support::http_client::{Connection, request, request_with};
use local_cluster::START_TIMEOUT;
use local_cluster::ports::free_ports;
use lockgate::lock_api::http::HttpConfig;
use lockgate::transport_security::{ClientTls, TlsFiles};
use lockgate::{Lockgate, StartError, TlsConfig};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

use crate::command_line::{fails, succeeds};
use crate::harness::{LONG_TTL, RenewedSession, TestCluster, eventually};

fn text(path: &Path) -> &str {
    path.to_str().expect("paths of tests are text")
}

#[tokio::test]
async fn lock_survives_a_failover_over_tls() {
    let mut cluster = TestCluster::start_secured().await;
    let mut client = cluster.client(1);
    let session = RenewedSession::open(&mut client, LONG_TTL, "orders")
        .await
        .unwrap();
    let held = client.acquire(session.id(), "orders/1").await.unwrap();
    let leader = cluster.leader_now().await;
    cluster.kill(leader).await.unwrap();
    // Another node answers, and a new leader is elected over connections of authenticated peers.
    assert!(client.check(&held).await.unwrap());
    client.release(session.id(), &held).await.unwrap();
    cluster.up(START_TIMEOUT).await.unwrap();
    let mut restarted = cluster.client_of(leader);
    assert!(!restarted.check(&held).await.unwrap());
}

#[tokio::test]
async fn clients_without_tls_or_of_another_authority_are_rejected() {
    let cluster = TestCluster::start_secured().await;
    let address = cluster.http(1);
    assert!(request(&address, "GET", "/healthz", "").await.is_err());
    let other = TestCluster::configure_secured();
    let stranger = other.tls().expect("it has certificates");
    let refused = request_with(&address, Some(stranger), "GET", "/healthz", "")
        .await
        .unwrap_err();
    let reason = "its certificate is not signed by the authority that is trusted here";
    assert_eq!(refused.to_string(), reason);

    // A client's certificate is valid for clients' ports only, whichever authority signed it.
    let peer = cluster.node(1).unwrap().peer.clone();
    for tls in [cluster.tls().unwrap(), stranger] {
        let socket = TcpStream::connect(&peer).await.unwrap();
        // The node rejects the connection: the client accepts the node's certificate by its host name.
        let _ = tls.connect("127.0.0.1", socket).await;
    }
    let log = cluster.node(1).unwrap().log_file();
    eventually("the node logs the rejected connection", async || {
        let said = fs::read_to_string(&log).unwrap();
        said.contains("its certificate names no node") && said.contains("peers: rejected a peer")
    })
    .await;
    // The node serves all others.
    assert_eq!(cluster.send(1, "GET", "/readyz", &json!(null)).await.status, 200);
}

/// Cluster that the command line has started. Its nodes are not child processes of the test.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        let down = std::process::Command::new(env!("CARGO_BIN_EXE_lockgate"))
            .args(["cluster", "down", "--dir", text(self.0)])
            .output();
        let ended = down.is_ok_and(|output| output.status.success());
        assert!(ended || std::thread::panicking(), "a node is still running");
    }
}

#[tokio::test]
async fn curl_and_the_command_line_are_served_over_tls() {
    let cluster = TestCluster::start_secured().await;
    let url = format!("https://{}", cluster.http(1));
    let file = |name: &str| cluster.dir().join(name);
    let (ca, cert, key) = (file("ca.pem"), file("client.pem"), file("client.key"));
    let curl = async |arguments: &[&str]| {
        let output = Command::new("curl")
            .args(["-sS", "--max-time", "20"])
            .args(arguments)
            .output()
            .await
            .expect("curl can be run");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let health = format!("{url}/healthz");
    let (done, said, _) = curl(&["--cacert", text(&ca), &health]).await;
    assert!(done && said.contains("alive"), "{said}");
    let (done, _, why) = curl(&[&health]).await;
    assert!(!done && why.contains("SSL certificate problem"), "{why}");
    let (done, _, why) = curl(&["--cacert", text(&ca), "--tls-max", "1.2", &health]).await;
    assert!(!done && why.contains("alert protocol version"), "{why}");

    // A client with the certificate can read a znode for its subject.
    let znode = format!("{url}/v1/znodes/secret");
    let body = json!({ "data": "s", "acl": [{ "scheme": "x509", "id": "CN=try-out", "perms": "ra" }] });
    let with = ["--cacert", text(&ca), "--cert", text(&cert), "--key", text(&key)];
    let (_, said, why) = curl(&[&with[..], &["-d", &body.to_string(), &znode]].concat()).await;
    let (done, read, _) = curl(&[&with[..], &[&znode]].concat()).await;
    assert!(done && read.contains("\"stat\""), "{read}, after {said}{why}");
    let (_, read, _) = curl(&["--cacert", text(&ca), &znode]).await;
    assert!(read.contains("\"forbidden\""), "{read}");

    // The command line.
    let server = ["--server", url.as_str()];
    let own = [&with[..2], &["--cert", text(&cert), "--key", text(&key)]].concat();
    let own: Vec<_> = own.iter().map(|word| word.replace("--cacert", "--ca")).collect();
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let listed = succeeds(&[&["ls", "/"], &server[..], &own[..]].concat()).await;
    assert!(listed.contains("secret"), "{listed}");
    let ran = succeeds(
        &[
            &["lock"],
            &server[..],
            &own[..],
            &["jobs/1", "--", "echo", "held"],
        ]
        .concat(),
    )
    .await;
    assert_eq!(ran, "held\n");
    let refused = fails(&[&["ls", "/"], &server[..]].concat()).await;
    assert!(
        refused.contains("asks for TLS: say by which authority"),
        "{refused}"
    );
    let backup = file("backup");
    let saved = succeeds(&[&["snapshot", "save", text(&backup), "--server", &url], &own[..]].concat()).await;
    assert!(saved.contains("is a complete backup"), "{saved}");
    let _started_by_the_command_line = Down(cluster.dir());
    let grown = succeeds(&["member", "add", "--dir", text(cluster.dir()), "--voter"]).await;
    assert!(grown.contains("node 4 has a vote"), "{grown}");
}

/// Returns the answer of a ZooKeeper port to `srvr` without TLS; empty without an answer.
async fn srvr(address: &str) -> String {
    let asked = async {
        let mut stream = TcpStream::connect(address).await?;
        stream.write_all(b"srvr").await?;
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await?;
        std::io::Result::Ok(said)
    };
    let said = tokio::time::timeout(START_TIMEOUT, asked)
        .await
        .expect("an answer in time");
    String::from_utf8_lossy(&said.unwrap_or_default()).into_owned()
}

/// Clients can move from one port to the other while both exist.
#[tokio::test]
async fn zookeeper_is_served_without_tls_and_over_1_2_if_configured() {
    let mut cluster = TestCluster::configure_secured();
    let plain = format!("127.0.0.1:{}", free_ports(1).unwrap()[0]);
    let both = [
        ("LOCKGATE_ZOOKEEPER_PLAIN_LISTEN", plain.as_str()),
        ("LOCKGATE_TLS_ZOOKEEPER_OLDEST_VERSION", "1.2"),
    ];
    cluster.start_with(1, &both).unwrap();
    for id in [2, 3] {
        cluster.start(id).unwrap();
    }
    cluster.wait_ready(&[1, 2, 3], START_TIMEOUT).await.unwrap();
    let zookeeper = |id| cluster.node(id).unwrap().zookeeper.clone().unwrap();
    assert!(srvr(&plain).await.contains("Zookeeper version"));
    assert!(!srvr(&zookeeper(1)).await.contains("Zookeeper version"));
    let log = fs::read_to_string(cluster.node(1).unwrap().log_file()).unwrap();
    assert!(log.contains(&format!("without TLS at {plain}")), "{log}");

    let ca = cluster.dir().join("ca.pem");
    let speak = async |address: &str| {
        let output = Command::new("curl")
            .args([
                "-v",
                "--max-time",
                "20",
                "--tls-max",
                "1.2",
                "--cacert",
                text(&ca),
            ])
            .arg(format!("https://{address}/"))
            .output()
            .await
            .expect("curl can be run");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (address, spoken) in [
        (zookeeper(1), true),
        (zookeeper(2), false),
        (cluster.http(1), false),
        (cluster.node(1).unwrap().peer.clone(), false),
    ] {
        let said = speak(&address).await;
        assert_eq!(
            said.contains("SSL connection using TLSv1.2"),
            spoken,
            "{address}: {said}"
        );
        assert_eq!(
            said.contains("alert protocol version"),
            !spoken,
            "{address}: {said}"
        );
    }
    let log = cluster.node(2).unwrap().log_file();
    eventually("the node logs the rejected connection", async || {
        let said = fs::read_to_string(&log).unwrap();
        said.contains("it offers no version of TLS that is accepted here")
    })
    .await;
}

#[tokio::test]
async fn renewed_certificates_apply_to_new_connections() {
    let cluster = TestCluster::start_secured().await;
    let before = cluster.tls().unwrap();
    let mut established = Connection::connect_with(&cluster.http(1), Some(before))
        .await
        .unwrap();
    assert_eq!(established.send("GET", "/healthz", "").await.unwrap().status, 200);

    // Node 1 gets a certificate of another authority.
    let other = TestCluster::configure_secured();
    let node = cluster.node(1).unwrap();
    for name in ["node.key", "node.pem"] {
        let new = node.dir.join("new");
        fs::copy(other.node(1).unwrap().dir.join(name), &new).unwrap();
        fs::rename(&new, node.dir.join(name)).unwrap();
    }
    let pid = cluster.pid(1).unwrap().expect("the node runs");
    local_cluster::process::send_signal(pid, Signal::SIGHUP).unwrap();
    let ca = other.dir().join("ca.pem");
    let after = ClientTls::new(&ca, None).unwrap();
    let address = cluster.http(1);
    eventually("new connections see the new certificate", async || {
        let answer = request_with(&address, Some(&after), "GET", "/healthz", "").await;
        answer.is_ok_and(|answer| answer.status == 200)
    })
    .await;
    assert!(
        request_with(&address, Some(before), "GET", "/healthz", "")
            .await
            .is_err()
    );
    assert_eq!(established.send("GET", "/healthz", "").await.unwrap().status, 200);
}

#[tokio::test]
async fn reachable_node_does_not_start_without_tls() {
    let dir = tempfile::tempdir().unwrap();
    let server = || {
        Lockgate::builder()
            .member(1, "127.0.0.1:0", "127.0.0.1:0")
            .data_dir(dir.path().join("data"))
            .http_config(HttpConfig::default())
    };
    // Addresses of no machine: a server that passes the check fails to listen there.
    for (what, server) in [
        ("HTTP", server().http_listen("192.0.2.1:7400")),
        ("HTTP", server().http_listen("0.0.0.0:0")),
        ("HTTP", server().http_listen("[::]:0")),
        (
            "clients of ZooKeeper",
            server().zookeeper_listen("192.0.2.1:2181"),
        ),
        (
            "clients of ZooKeeper",
            server().zookeeper_plain_listen("192.0.2.1:2182"),
        ),
        (
            "its peers",
            server().peer_listen("192.0.2.1:7500".parse().unwrap()),
        ),
        ("its peers", server().member(1, "192.0.2.1:7500", "127.0.0.1:0")),
    ] {
        let refused = server.start().await.expect_err(what);
        assert!(
            matches!(&refused, StartError::Exposed { what: exposed, .. } if *exposed == what),
            "{refused}"
        );
        let text = refused.to_string();
        for word in ["Builder::tls", "127.0.0.1", "Builder::insecure"] {
            assert!(text.contains(word), "{text}");
        }
        for foreign in ["[tls]", "--insecure"] {
            assert!(!text.contains(foreign), "{text}");
        }
    }
    let permitted = server()
        .http_listen("192.0.2.1:7400")
        .insecure(true)
        .start()
        .await
        .unwrap_err();
    assert!(matches!(permitted, StartError::Http { .. }), "{permitted}");

    // With certificates the server passes the check too, if the files are valid.
    let files = TlsFiles {
        certificate: dir.path().join("none.pem"),
        key: dir.path().join("none.key"),
        ca: dir.path().join("none.ca"),
    };
    let refused = server()
        .http_listen("192.0.2.1:7400")
        .tls(TlsConfig::new(files))
        .start()
        .await
        .unwrap_err();
    assert!(
        refused.to_string().contains("none.pem: No such file"),
        "{refused}"
    );
}

#[tokio::test]
async fn serve_names_its_settings_and_insecure_permits_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("node.toml");
    let config = "node_id = 1\n[members.1]\npeer = \"127.0.0.1:0\"\nhttp = \"192.0.2.1:7400\"\n";
    fs::write(&file, config).unwrap();
    let last_line = async |more: &[&str]| {
        let output = Command::new(crate::harness::LOCKGATE)
            .args(["serve", "--config", text(&file)])
            .args(more)
            .output()
            .await
            .unwrap();
        assert!(!output.status.success());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        said.lines().last().unwrap_or_default().to_owned()
    };
    let refused = last_line(&[]).await;
    for word in [
        "give it certificates",
        "[tls]",
        "lockgate cert",
        "127.0.0.1",
        "insecure = true",
        "--insecure",
    ] {
        assert!(refused.contains(word), "{refused}");
    }
    let permitted = last_line(&["--insecure"]).await;
    assert!(
        permitted.contains("cannot listen for HTTP at 192.0.2.1:7400"),
        "{permitted}"
    );
    fs::write(&file, format!("insecure = true\n{config}")).unwrap();
    let permitted = last_line(&[]).await;
    assert!(
        permitted.contains("cannot listen for HTTP at 192.0.2.1:7400"),
        "{permitted}"
    );
}
