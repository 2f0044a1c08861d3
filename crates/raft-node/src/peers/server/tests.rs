//! Tests of a server that requires proof of identity, with callers that claim another one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use transport_security::issue::{Authority, CertificateRequest};
use transport_security::{HandshakeError, HandshakeLimits, PeerTls, Stream, TlsFiles};

use super::super::wire::MAX_HELLO_BYTES;
use super::*;
use crate::config::RaftNodeConfig;
use crate::ids::DiskId;
use crate::ids::MemberAddress;
use crate::testing;

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Time limit, longer than any answer takes.
const TIMEOUT: Duration = Duration::from_secs(30);

fn name(node: NodeId) -> PeerName {
    PeerName {
        cluster: "c".to_owned(),
        node,
    }
}

fn tls(authority: &Authority, dir: &Path, node: NodeId) -> PeerTls {
    let path = |ending: &str| dir.join(format!("{node}.{ending}"));
    let issued = authority
        .issue(&CertificateRequest::node(&name(node), &[], DAY))
        .unwrap();
    let files = TlsFiles {
        certificate: path("pem"),
        key: path("key"),
        ca: dir.join("ca"),
    };
    for (path, text) in [(&files.certificate, issued.certificate), (&files.key, issued.key)] {
        fs::write(path, text).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    PeerTls::new(&files, "c", node, HandshakeLimits::default()).unwrap()
}

/// Returns node 1's reply to a caller with a certificate of `proven` and a hello of `claimed`, or `None` if
/// node 1 closes the connection.
async fn answered(
    address: &str,
    members: &BTreeMap<NodeId, MemberAddress>,
    proven: Option<&PeerTls>,
    claimed: NodeId,
) -> Option<HelloReply> {
    let (cluster, disk) = ("c".to_owned(), DiskId([claimed as u8; 16]));
    let registry = PeerRegistry::new(
        claimed,
        cluster,
        disk,
        None,
        members.clone(),
        watch::Sender::new(None),
    );
    let socket = TcpStream::connect(address).await.unwrap();
    let stream = match proven {
        Some(tls) => tls.connect(1, socket).await.unwrap(),
        None => Stream::Plain(socket),
    };
    let (reader, mut writer) = stream.into_split();
    let mut out = BytesMut::new();
    put_frame(&mut out, &registry.hello(1, Purpose::Control));
    send_frames(&mut writer, &out).await.unwrap();
    let reply = tokio::time::timeout(TIMEOUT, FrameReader::new(reader).message()).await;
    reply
        .expect("the node answers or closes the connection")
        .ok()
        .flatten()
}

#[tokio::test]
async fn peer_identity_must_match_its_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, issued) = Authority::new("test", DAY).unwrap();
    fs::write(dir.path().join("ca"), issued.certificate).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let member = |id: NodeId, peer: &str| {
        let http = format!("127.0.0.1:{id}");
        let peer = peer.to_owned();
        (id, MemberAddress { peer, http })
    };
    // The other members do not exist: these requests are answered before a quorum is needed.
    let members = BTreeMap::from([
        member(1, &address),
        member(2, "127.0.0.1:2"),
        member(3, "127.0.0.1:3"),
    ]);
    let mut config = RaftNodeConfig::new(1, "c", members.clone(), dir.path().join("data"));
    config.tls = Some(tls(&authority, dir.path(), 1));
    let node = testing::start(config, listener).await;
    assert!(node.certificate_expiry().is_some());

    let two = tls(&authority, dir.path(), 2);
    assert!(answered(&address, &members, Some(&two), 2).await.is_some());
    assert!(answered(&address, &members, Some(&two), 3).await.is_none());
    assert!(answered(&address, &members, None, 2).await.is_none());

    // The client connects with another node's name.
    let socket = TcpStream::connect(&address).await.unwrap();
    let refused = two.connect(3, socket).await.map(drop).unwrap_err();
    assert!(matches!(refused, HandshakeError::Peer(_)), "{refused}");
    testing::stop(&node).await;
}

#[tokio::test]
async fn silent_callers_do_not_block_peers() {
    let dir = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let member = |id: NodeId, peer: &str| {
        let http = format!("127.0.0.1:{id}");
        let peer = peer.to_owned();
        (id, MemberAddress { peer, http })
    };
    let members = BTreeMap::from([member(1, &address), member(2, "127.0.0.1:2")]);
    let config = RaftNodeConfig::new(1, "c", members.clone(), dir.path().join("data"));
    let node = testing::start(config, listener).await;
    // More callers than connections. Some announce a hello that is too long.
    let mut strangers = Vec::new();
    for number in 0..MAX_CONNECTIONS + 50 {
        let mut stranger = TcpStream::connect(&address).await.unwrap();
        if number % 2 == 0 {
            let length = (MAX_HELLO_BYTES as u32 + 1).to_le_bytes();
            // The server may already have closed it in favour of a later one.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut stranger, &length).await;
        }
        strangers.push(stranger);
    }
    assert!(answered(&address, &members, None, 2).await.is_some());
    // A caller that announces too much is disconnected before or after the time limit of the hello, without
    // an answer.
    let mut told = Vec::new();
    let hung_up = tokio::io::AsyncReadExt::read_to_end(&mut strangers[0], &mut told);
    let hung_up = tokio::time::timeout(TIMEOUT, hung_up)
        .await
        .expect("the server closes the connection");
    assert!(hung_up.is_err() || told.is_empty());
    testing::stop(&node).await;
}
