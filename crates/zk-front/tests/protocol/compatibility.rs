//! Details by which clients could distinguish a server from ZooKeeper: null data, the empty path as a name of
//! the root, the end of a connection, the members of the ensemble. The expected values were observed at
//! ZooKeeper 3.8.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zk_front::FourLetterWord;
use zk_front::ZkConfig;
use zk_wire::{ErrorCode, MultiResult, Reply, Request, watch_mode};
use znode_store::{Command, MAX_OPERATIONS, NamespaceName, Quotas};

use crate::client::{Client, PERSISTENT, Received, Stream, create, delete, exists, get, set};
use crate::cluster::{Cluster, TIMEOUT};

fn create_null(path: &str) -> Request {
    match create(path, PERSISTENT) {
        Request::Create {
            call,
            path,
            acl,
            flags,
            data: _,
        } => Request::Create {
            call,
            path,
            data: None,
            acl,
            flags,
        },
        other => other,
    }
}

fn set_null(path: &str) -> Request {
    Request::SetData {
        path: path.to_owned(),
        data: None,
        version: -1,
    }
}

async fn data(client: &mut Client, path: &str) -> Option<Bytes> {
    match client.call(&get(path, false)).await {
        Ok(Reply::Data(data, stat)) => {
            assert_eq!(stat.data_length as usize, data.as_ref().map_or(0, Bytes::len));
            data
        }
        other => panic!("{path}: {other:?}"),
    }
}

#[tokio::test]
async fn items_of_a_multi_read_are_refused_after_its_maximum() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let read = Request::MultiRead(vec![get("/", false); MAX_OPERATIONS + 1]);
    let Ok(Reply::Results(mut results)) = client.call(&read).await else {
        panic!("it has results");
    };
    let last = results.pop();
    assert_eq!(last, Some(MultiResult::Error(ErrorCode::QUOTA_EXCEEDED)));
    assert_eq!(results.len(), MAX_OPERATIONS);
    let is_read = |result: &MultiResult| matches!(result, MultiResult::GetData(..));
    assert!(results.iter().all(is_read));
    cluster.stop().await;
}

#[tokio::test]
async fn null_data_is_distinct_from_empty_data() {
    let cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let empty = Some(Bytes::new());
    client.call(&create_null("/null")).await.unwrap();
    client.call(&create("/empty", PERSISTENT)).await.unwrap();
    client.call(&set("/empty", "")).await.unwrap();
    assert_eq!(data(&mut client, "/null").await, None);
    assert_eq!(data(&mut client, "/empty").await, empty);
    let read = Request::MultiRead(vec![get("/null", false), get("/empty", false)]);
    match client.call(&read).await.unwrap() {
        Reply::Results(results) => {
            let data = results.into_iter().map(|result| match result {
                MultiResult::GetData(data, _) => data,
                other => panic!("{other:?}"),
            });
            assert_eq!(data.collect::<Vec<_>>(), [None, empty.clone()]);
        }
        other => panic!("{other:?}"),
    }
    let multi = Request::Multi(vec![
        set_null("/empty"),
        set("/null", ""),
        create_null("/null/within"),
    ]);
    client.call(&multi).await.unwrap();
    // At another node, which gets the data from the log.
    let mut other = Client::connect(cluster.address(2)).await;
    other.call(&crate::client::sync()).await.unwrap();
    assert_eq!(data(&mut other, "/empty").await, None);
    assert_eq!(data(&mut other, "/null").await, empty);
    assert_eq!(data(&mut other, "/null/within").await, None);
    cluster.stop().await;
}

#[tokio::test]
async fn root_can_be_read_by_the_empty_path() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.call(&create("/a", PERSISTENT)).await.unwrap();
    let reads = |path: &str| {
        let path = path.to_owned();
        [
            get(&path, true),
            exists(&path, true),
            Request::GetChildren {
                path: path.clone(),
                watch: true,
            },
            Request::GetChildren2 {
                path: path.clone(),
                watch: false,
            },
            Request::GetAcl { path },
        ]
    };
    for (named, root) in reads("").iter().zip(&reads("/")) {
        let read = client.call(named).await.unwrap();
        assert_eq!(read, client.call(root).await.unwrap(), "{named:?}");
    }
    let count = |path: &str| Request::GetAllChildrenNumber {
        path: path.to_owned(),
    };
    assert_eq!(client.call(&count("/")).await, Ok(Reply::Number(4)));
    assert_eq!(
        client.call(&count("")).await,
        Ok(Reply::Number(5)),
        "the root counts as a descendant of the empty path"
    );
    let watch = Request::AddWatch {
        path: String::new(),
        mode: watch_mode::PERSISTENT,
    };
    assert_eq!(client.call(&watch).await, Ok(Reply::Number(0)));
    assert_eq!(
        client.call(&set("", "x")).await,
        Err(ErrorCode::BAD_ARGUMENTS),
        "the empty path can only be read"
    );
    cluster.stop().await;
}

/// Sends bytes of which the server reads a part at most, and expects the end of the stream.
async fn assert_stream_ends(mut socket: TcpStream, bytes: &[u8]) {
    // The server may close the connection before everything is sent.
    let sent = socket.write_all(bytes).await;
    let mut rest = Vec::new();
    let read = tokio::time::timeout(TIMEOUT, socket.read_to_end(&mut rest))
        .await
        .expect("the server closes the connection");
    match (&sent, &read) {
        (Ok(()), read) => assert!(read.is_ok(), "{read:?}"),
        (Err(error), _) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn oversized_request_ends_the_stream_without_a_reset() {
    let cluster = Cluster::start(1).await;
    // An invalid length, and more data than the server reads.
    let mut too_long = 2_000_000_i32.to_be_bytes().to_vec();
    too_long.resize(60_000, b'x');
    let first = TcpStream::connect(cluster.address(1)).await.unwrap();
    assert_stream_ends(first, &too_long).await;
    let mut socket = TcpStream::connect(cluster.address(1)).await.unwrap();
    let mut hello = bytes::BytesMut::new();
    crate::client::new_session(Duration::from_secs(10)).write_frame(&mut hello);
    socket.write_all(&hello).await.unwrap();
    let mut granted = [0; 41];
    socket.read_exact(&mut granted).await.unwrap();
    assert_stream_ends(socket, &too_long).await;
    cluster.stop().await;
}

#[tokio::test]
async fn config_znode_lists_the_members() {
    let cluster = Cluster::start(3).await;
    let mut client = Client::connect(cluster.address(2)).await;
    let config = data(&mut client, "/zookeeper/config").await.unwrap();
    let text = String::from_utf8(config.to_vec()).unwrap();
    let status = cluster.node(2).status();
    let mut expected: Vec<_> = status
        .members
        .iter()
        .map(|member| {
            let port = member.http.rsplit_once(':').unwrap().1;
            format!("server.{}={}:{port}:participant", member.node_id, member.peer)
        })
        .collect();
    assert_eq!(expected.len(), 3);
    expected.push(format!("version={:x}", cluster.node(2).membership_index()));
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
    match client.call(&exists("/zookeeper/config", false)).await {
        Ok(Reply::Stat(stat)) => assert_eq!(stat.data_length as usize, text.len()),
        other => panic!("{other:?}"),
    }
    cluster.stop().await;

    let alone = Cluster::start(1).await;
    let mut client = Client::connect(alone.address(1)).await;
    assert_eq!(data(&mut client, "/zookeeper/config").await, Some(Bytes::new()));
    alone.stop().await;
}

#[tokio::test]
async fn mean_latency_lies_between_minimum_and_maximum() {
    let config = ZkConfig {
        four_letter_words: FourLetterWord::ALL.to_vec(),
        ..ZkConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut client = Client::connect(cluster.address(1)).await;
    for _ in 0..20 {
        client.call(&exists("/", false)).await.unwrap();
    }
    // A read takes less than a millisecond, so a mean of exact times would exceed the truncated maximum.
    for word in ["srvr", "mntr"] {
        let mut stream = Stream::open(cluster.address(1)).await;
        stream.write(word.as_bytes()).await;
        let text = String::from_utf8(stream.rest().await).unwrap();
        let figures: Vec<f64> = match text
            .lines()
            .find_map(|line| line.strip_prefix("Latency min/avg/max: "))
        {
            Some(figures) => figures.split('/').map(|figure| figure.parse().unwrap()).collect(),
            None => ["min", "avg", "max"]
                .map(|which| {
                    let name = format!("zk_{which}_latency\t");
                    let found = text.lines().find_map(|line| line.strip_prefix(&name));
                    found.unwrap().parse().unwrap()
                })
                .to_vec(),
        };
        assert!(figures.is_sorted(), "{text}");
    }
    cluster.stop().await;
}

/// Sets the quotas of the namespace `a`.
async fn set_quotas(cluster: &Cluster, quotas: Quotas) {
    let command = Command::SetQuotas {
        namespace: NamespaceName::parse("a").unwrap(),
        quotas: Some(quotas),
    };
    let applied = cluster
        .node(1)
        .propose(znode_store::Request::anonymous(command))
        .await;
    applied.unwrap().outcome.unwrap();
}

#[tokio::test]
async fn quota_of_a_namespace_is_quota_exceeded() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    let quotas = Quotas {
        znodes: Some(2),
        bytes: Some(100),
        ..Quotas::default()
    };
    set_quotas(&cluster, quotas).await;
    client.create("/a/b", PERSISTENT).await;
    let exceeded = Err(ErrorCode::QUOTA_EXCEEDED);
    assert_eq!(client.call(&create("/a/c", PERSISTENT)).await, exceeded);
    assert_eq!(client.call(&set("/a", &"x".repeat(101))).await, exceeded);
    assert!(client.call(&set("/a", &"x".repeat(50))).await.is_ok());
    let multi = Request::Multi(vec![set("/a", ""), create("/a/c", PERSISTENT)]);
    let Ok(Reply::Results(results)) = client.call(&multi).await else {
        panic!("it has results");
    };
    assert_eq!(results[1], MultiResult::Error(ErrorCode::QUOTA_EXCEEDED));
    assert!(client.call(&delete("/a/b")).await.is_ok());
    client.create("/a/c", PERSISTENT).await;
    cluster.stop().await;
}

#[tokio::test]
async fn rate_of_a_namespace_refuses_writes_in_their_order() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    client.create("/other", PERSISTENT).await;
    let quotas = Quotas {
        requests_per_second: Some(1),
        ..Quotas::default()
    };
    set_quotas(&cluster, quotas).await;
    // Sent at once, so that no second passes between them. The bucket has one token, and perhaps gets another one meanwhile.
    let mut writes = Vec::new();
    for _ in 0..50 {
        writes.extend([set("/a", "x"), set("/other", "x"), get("/a", false)]);
    }
    client.send_all(&writes).await;
    let mut refused = 0;
    for write in &writes {
        let Received::Reply { outcome, .. } = client.receive(write).await else {
            panic!("{write:?} has no reply");
        };
        match (write, outcome) {
            (_, Ok(_)) => {}
            (Request::SetData { path, .. }, Err(ErrorCode::QUOTA_EXCEEDED)) if path == "/a" => refused += 1,
            (_, Err(code)) => panic!("{write:?}: {code:?}"),
        }
    }
    assert!(refused > 0 && refused < 50, "{refused} of 50 were refused");
    // A delete takes no token.
    assert!(client.call(&delete("/a")).await.is_ok());
    cluster.stop().await;
}
