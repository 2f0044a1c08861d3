//! Unauthorized connections to the peer ports of a working cluster: each is rejected, the log names it and the reason if it presented something, and
//! the cluster keeps its leader and serves.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::BytesMut;
use lock_node::fuzz::{ClusterId, DiskId, FrameReader, HelloReply, PeerRegistry, Purpose, put_frame};
use lock_node::{NodeConfig, NodeId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use transport_security::issue::{Authority, CertificateRequest};
use transport_security::{ClientTls, HandshakeLimits, PeerName, PeerTls, TlsFiles};

use crate::cluster::{Cluster, create, eventually, request};
use lock_node::znode_store::CreateMode;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Timeout of an unauthorized connection; a working node closes it sooner.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Certificates of all participants.
struct Ca {
    authority: Authority,
    dir: tempfile::TempDir,
}

impl Ca {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (authority, issued) = Authority::new("test", DAY).unwrap();
        fs::write(dir.path().join("ca"), issued.certificate).unwrap();
        Self { authority, dir }
    }

    fn ca(&self) -> PathBuf {
        self.dir.path().join("ca")
    }

    fn files(&self, name: &str, wanted: &CertificateRequest) -> TlsFiles {
        let issued = self.authority.issue(wanted).unwrap();
        let files = TlsFiles {
            certificate: self.dir.path().join(format!("{name}.pem")),
            key: self.dir.path().join(format!("{name}.key")),
            ca: self.ca(),
        };
        write(&files.certificate, &issued.certificate);
        write(&files.key, &issued.key);
        files
    }

    fn peer(&self, cluster: &str, node: NodeId) -> PeerTls {
        let files = self.files(&format!("{cluster}-{node}"), &wanted(cluster, node));
        PeerTls::new(&files, cluster, node, HandshakeLimits::default()).unwrap()
    }

    /// Returns a TLS client with this certificate that accepts any node.
    fn stranger(&self, name: &str, wanted: &CertificateRequest) -> ClientTls {
        let files = self.files(name, wanted);
        ClientTls::new(&self.ca(), Some((&files.certificate, &files.key))).unwrap()
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn wanted(cluster: &str, node: NodeId) -> CertificateRequest {
    let name = PeerName {
        cluster: cluster.to_owned(),
        node,
    };
    CertificateRequest::node(&name, &["localhost".to_owned()], DAY)
}

/// Log of this thread, on which all nodes run except the threads of their write-ahead logs.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn count(&self, text: &str) -> usize {
        String::from_utf8_lossy(&self.0.lock().unwrap())
            .matches(text)
            .count()
    }
}

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Makes elections rare, so that any election is an effect of an unauthorized connection.
fn patient(config: &mut NodeConfig) {
    config.raft.timing.heartbeat = Duration::from_millis(500);
    config.raft.timing.election_min = Duration::from_secs(20);
    config.raft.timing.election_max = Duration::from_secs(40);
    config.raft.propose_timeout = Duration::from_secs(60);
    config.sessions.min = Duration::from_secs(80);
    config.sessions.default = Duration::from_secs(80);
}

/// Returns everything that a node sends until it closes the connection.
async fn heard(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let ended = timeout(TIMEOUT, stream.read_to_end(&mut bytes)).await;
    // The kind of close does not matter.
    let _: io::Result<usize> = ended.expect("the node closes the connection");
    bytes
}

/// Sends the hello of node `from`, and returns the reply.
async fn hello(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    from: NodeId,
    cluster: &str,
    cluster_id: Option<ClusterId>,
    to: NodeId,
) -> Option<HelloReply> {
    let registry = PeerRegistry::new(
        from,
        cluster.to_owned(),
        DiskId([from as u8; 16]),
        cluster_id,
        Default::default(),
        watch::Sender::new(None),
    );
    let mut out = BytesMut::new();
    put_frame(&mut out, &registry.hello(to, Purpose::Control));
    stream.write_all(&out).await.ok()?;
    stream.flush().await.ok()?;
    let reply = timeout(TIMEOUT, FrameReader::new(&mut *stream).message()).await;
    reply
        .expect("the node answers or closes the connection")
        .ok()
        .flatten()
}

#[tokio::test]
async fn strangers_are_rejected_and_have_no_effect() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone());
    let _logging = tracing::subscriber::set_default(subscriber.finish());
    let (ca, other) = (Ca::new(), Ca::new());
    let mut cluster = Cluster::start_with(3, |config| {
        patient(config);
        config.raft.tls = Some(ca.peer("test", config.raft.node_id));
    })
    .await;
    let leader = cluster.leader().await;
    let (term, before) = (cluster.node(leader).status().term, log.count("rejected a peer"));
    let addresses: Vec<(NodeId, String)> = cluster.configs[&1]
        .raft
        .members
        .iter()
        .map(|(id, member)| (*id, member.peer.clone()))
        .collect();

    for (id, address) in &addresses {
        let connect = || async { TcpStream::connect(address).await.unwrap() };
        // Random bytes, another protocol, and the frame of a peer without TLS.
        let long = vec![0xff; 100_000];
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0; 64],
            &long,
            &[0xff, 0xff, 0xff, 0xff, 1],
        ] {
            let mut stream = connect().await;
            // The node may close the connection before it has read everything.
            let _: io::Result<()> = stream.write_all(bytes).await;
            let _: io::Result<()> = stream.shutdown().await;
            let said = heard(&mut stream).await;
            assert!(said.len() < 100, "it sends no more than a TLS alert: {said:?}");
        }
        // Silence.
        assert_eq!(heard(&mut connect().await).await, b"");

        // Certificates: a client's, another cluster's, an expired one, another authority's.
        let now = SystemTime::now();
        let expired = wanted("test", 2).valid(now - 2 * DAY, now - DAY);
        let strangers = [
            (
                "client",
                ca.stranger("client", &CertificateRequest::client("orders", DAY)),
            ),
            ("other cluster", ca.stranger("cluster", &wanted("prod", 2))),
            ("expired", ca.stranger("expired", &expired)),
        ];
        for (what, tls) in &strangers {
            // The client completes its side of the handshake before it receives the rejection.
            if let Ok(mut stream) = tls.connect("localhost", connect().await).await {
                assert_eq!(hello(&mut stream, 2, "test", None, *id).await, None, "{what}");
            }
        }
        let theirs = other.peer("test", 2);
        assert!(theirs.connect(*id, connect().await).await.is_err());

        // A node's certificate with another node's name; and the certificate of a node that is not a member.
        let nine = ca.peer("test", 9);
        let mut stream = nine.connect(*id, connect().await).await.unwrap();
        assert_eq!(hello(&mut stream, 2, "test", None, *id).await, None);
        let mut stream = nine.connect(*id, connect().await).await.unwrap();
        let reply = hello(&mut stream, 9, "test", None, *id).await;
        assert!(matches!(reply, Some(HelloReply::Refused { .. })), "{reply:?}");
        let mut stream = nine.connect(*id, connect().await).await.unwrap();
        let reply = hello(&mut stream, 9, "test", Some(ClusterId([9; 16])), *id).await;
        assert!(matches!(reply, Some(HelloReply::Refused { .. })), "{reply:?}");

        // A node's certificate without a hello, with a frame larger than any hello, and with a frame that is no hello.
        let mut stream = nine.connect(*id, connect().await).await.unwrap();
        assert_eq!(heard(&mut stream).await, b"");
        for bytes in [
            &[0xff; 4][..],
            &(20 * 1024_u32).to_le_bytes(),
            &[4, 0, 0, 0, 1, 2, 3, 4],
        ] {
            let mut stream = nine.connect(*id, connect().await).await.unwrap();
            stream.write_all(bytes).await.unwrap();
            stream.flush().await.unwrap();
            assert_eq!(heard(&mut stream).await, b"");
        }
        replayed(&ca, *id, address).await;
    }

    // The nodes process the messages in tasks of their own.
    for said in [
        "it presented \\\"CN=orders\\\": its certificate names no node",
        "it is of cluster \\\"prod\\\"",
        "its certificate has expired",
        "node 2 of cluster \\\"test\\\" was expected, but it presented lockgate://test/node/9: it is node 9",
        "node 9 is not a member of the cluster",
    ] {
        let quoted = said;
        let plain = said.replace('\\', "");
        eventually(said, || {
            log.count(quoted).max(log.count(&plain)) >= addresses.len()
        })
        .await;
    }
    assert!(log.count("rejected a peer") >= before + 4 * addresses.len());

    // There was no other effect.
    assert_eq!(cluster.leader().await, leader);
    for id in 1..=3 {
        assert_eq!(cluster.node(id).status().term, term, "there was no election");
        let path = format!("/by-{id}");
        let created = cluster
            .node(id)
            .propose(request(create(&path, "", CreateMode::Persistent)));
        assert!(created.await.unwrap().outcome.is_ok());
    }
    cluster.stop_all().await;
}

/// A replay of everything that a node has sent in a connection is rejected.
async fn replayed(ca: &Ca, to: NodeId, address: &str) {
    let relay = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let place = relay.local_addr().unwrap();
    let recording = async {
        let (caller, _) = relay.accept().await.unwrap();
        let (mut from_caller, mut to_caller) = caller.into_split();
        let (mut from_node, mut to_node) = TcpStream::connect(address).await.unwrap().into_split();
        let back = tokio::spawn(async move { tokio::io::copy(&mut from_node, &mut to_caller).await });
        let mut recorded = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let read = from_caller.read(&mut buffer).await.unwrap_or(0);
            if read == 0 {
                break;
            }
            recorded.extend_from_slice(&buffer[..read]);
            to_node.write_all(&buffer[..read]).await.unwrap();
        }
        drop(to_node);
        let _: io::Result<u64> = back.await.unwrap();
        recorded
    };
    let conversation = async {
        let own = ca.peer("test", to % 3 + 1);
        let mut stream = own
            .connect(to, TcpStream::connect(place).await.unwrap())
            .await
            .unwrap();
        let reply = hello(&mut stream, to % 3 + 1, "test", None, to).await;
        // It has the right certificate and another data directory, so it gets a reply.
        assert!(reply.is_some());
        stream.shutdown().await.unwrap();
    };
    let (recorded, ()) = tokio::join!(recording, conversation);
    assert!(
        recorded.len() > 500,
        "a handshake and a hello: {}",
        recorded.len()
    );
    let mut stream = TcpStream::connect(address).await.unwrap();
    let _: io::Result<()> = stream.write_all(&recorded).await;
    let _: io::Result<()> = stream.shutdown().await;
    // The node sends its side of a handshake that cannot be completed: it contains no reply to the hello.
    let said = heard(&mut stream).await;
    assert!(!said.is_empty());
    assert!(said.len() < 4096, "{}", said.len());
}
