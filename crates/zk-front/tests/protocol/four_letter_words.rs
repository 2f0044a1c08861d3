//! Four-letter words: ZooKeeper's formats with Lockgate's values. The formats were observed at ZooKeeper 3.8.

use std::collections::BTreeMap;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use zk_front::FourLetterWord;
use zk_front::ZkConfig;
use zk_wire::{Request, watch_mode};
use znode_store::{Identities, ZPath};

use crate::client::{Client, EPHEMERAL, PERSISTENT, Stream, exists, get, set};
use crate::cluster::{Cluster, MIN_SESSION_TIMEOUT, until};

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

async fn start(size: u64) -> Cluster {
    let config = ZkConfig {
        four_letter_words: FourLetterWord::ALL.to_vec(),
        ..ZkConfig::default()
    };
    Cluster::start_with(size, config).await
}

/// Sends a word to node `id` and returns the answer after the connection has ended.
async fn ask(cluster: &Cluster, id: u64, word: &str) -> String {
    let front = &cluster.served[&id].front;
    let before = front.connections();
    let mut stream = Stream::open(cluster.address(id)).await;
    stream.write(word.as_bytes()).await;
    let answer = stream.rest().await;
    drop(stream);
    until("the word's connection is gone", || front.connections() == before).await;
    String::from_utf8(answer).unwrap()
}

/// Replaces every number, also hexadecimal ones, and every date up to the end of its line by `#`.
fn masked(text: &str) -> String {
    let mut masked = String::new();
    let mut rest = text;
    while let Some(char) = rest.chars().next() {
        let date = [" expire at ", ", built on "]
            .into_iter()
            .find(|words| rest.starts_with(words));
        let (taken, shown) = if let Some(hex) = rest.strip_prefix("0x") {
            let digits = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
            (2 + digits, "0x#".to_owned())
        } else if let Some(words) = date {
            (rest.find('\n').unwrap(), format!("{words}#"))
        } else if char.is_ascii_digit() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            (digits, "#".to_owned())
        } else {
            (char.len_utf8(), char.to_string())
        };
        masked.push_str(&shown);
        rest = &rest[taken..];
    }
    masked
}

fn hex(client: &Client) -> String {
    format!("{:#x}", client.session.session_id)
}

/// Parses the answer of `mntr`.
fn figures(text: &str) -> BTreeMap<&str, &str> {
    let figure = |line| str::split_once(line, '\t').unwrap();
    text.lines().map(figure).collect()
}

#[tokio::test]
async fn server_words_report_the_server() {
    let cluster = start(1).await;
    assert_eq!(ask(&cluster, 1, "ruok").await, "imok");
    assert_eq!(ask(&cluster, 1, "isro").await, "rw");
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    let figures = "Latency min/avg/max: #/#.#/#\nReceived: #\nSent: #\nConnections: #\nOutstanding: #\n\
                   Zxid: 0x#\nMode: standalone\nNode count: #\n";
    let srvr = ask(&cluster, 1, "srvr").await;
    let version = "Zookeeper version: #.#.#-lockgate-#.#.#, built on #\n";
    assert_eq!(masked(&srvr), format!("{version}{figures}"));
    // The prefix that programs search for.
    assert!(srvr.starts_with("Zookeeper version: 3.8.0-"), "{srvr}");
    for line in [
        // Three words including this one, and two requests of the client.
        "Received: 5",
        // Answers to two words, and two replies to the client.
        "Sent: 4",
        // The connection of the word is counted, too.
        "Connections: 2",
        "Outstanding: 0",
        // The root, ZooKeeper's own three znodes, and one more.
        "Node count: 5",
    ] {
        assert!(srvr.lines().any(|l| l == line), "no {line:?} in {srvr}");
    }
    assert!(
        srvr.contains(&format!("\nZxid: {:#x}\n", client.seen)),
        "{srvr} and {}",
        client.seen
    );
    let clients = " /#.#.#.#:#[#](queued=#,recved=#,sent=#)\n";
    assert_eq!(
        masked(&ask(&cluster, 1, "stat").await),
        format!("{version}Clients:\n{clients}{clients}\n{figures}")
    );
    assert_eq!(ask(&cluster, 1, "srst").await, "Server stats reset.\n");
    let srvr = ask(&cluster, 1, "srvr").await;
    assert!(
        srvr.contains("\nLatency min/avg/max: 0/0.0/0\nReceived: 1\nSent: 1\n"),
        "{srvr}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn client_words_report_each_client() {
    let cluster = start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    let own = |text: &str, sid: &str| -> String {
        let line = text.lines().find(|line| line.contains(sid));
        line.unwrap_or_else(|| panic!("no {sid} in {text}")).to_owned()
    };
    let sid = hex(&client);
    let cons = ask(&cluster, 1, "cons").await;
    let timeout = client.session.timeout_ms;
    let line = own(&cons, &sid);
    assert!(
        line.contains(&format!("[1](queued=0,recved=1,sent=1,sid={sid},lop=SESS,est="))
            && line.contains(&format!(",to={timeout},lcxid=0x0,lzxid=0x")),
        "{line}"
    );
    // A client, and the connection of the word, which is not read from and has no session.
    assert_eq!(
        masked(&cons),
        " /#.#.#.#:#[#](queued=#,recved=#,sent=#,sid=0x#,lop=SESS,est=#,to=#,lcxid=0x#,lzxid=0x#,lresp=#,llat=#,\
         minlat=#,avglat=#,maxlat=#)\n /#.#.#.#:#[#](queued=#,recved=#,sent=#)\n\n"
    );
    assert!(cons.ends_with("[0](queued=0,recved=1,sent=0)\n\n"), "{cons}");
    client.create("/a", PERSISTENT).await;
    client.call(&get("/a", false)).await.unwrap();
    // A ping has no xid of its own and does not replace the last one.
    client.send(&Request::Ping).await;
    client.receive(&Request::Ping).await;
    let line = own(&ask(&cluster, 1, "cons").await, &sid);
    assert!(
        line.contains(&format!("recved=4,sent=4,sid={sid},lop=PING,")) && line.contains(",lcxid=0x2,"),
        "{line}"
    );
    assert_eq!(ask(&cluster, 1, "crst").await, "Connection stats reset.\n");
    let line = own(&ask(&cluster, 1, "cons").await, &sid);
    assert!(
        line.contains("(queued=0,recved=0,sent=0,") && line.contains(",lop=NA,"),
        "{line}"
    );
    let last = ",lzxid=0xffffffffffffffff,lresp=0,llat=0,minlat=0,avglat=0,maxlat=0)";
    assert!(line.ends_with(&format!("to={timeout}{last}")), "{line}");
    cluster.stop().await;
}

#[tokio::test]
async fn watch_words_report_all_watches() {
    let cluster = start(1).await;
    assert_eq!(
        ask(&cluster, 1, "wchs").await,
        "0 connections watching 0 paths\nTotal watches:0\n"
    );
    assert_eq!(ask(&cluster, 1, "wchc").await, "\n");
    assert_eq!(ask(&cluster, 1, "wchp").await, "\n");
    let mut one = Client::connect(cluster.address(1)).await;
    let mut two = Client::connect(cluster.address(1)).await;
    one.create("/a", PERSISTENT).await;
    one.call(&get("/a", true)).await.unwrap();
    two.call(&exists("/none", true)).await.unwrap_err();
    let recursive = Request::AddWatch {
        path: "/a".to_owned(),
        mode: watch_mode::PERSISTENT_RECURSIVE,
    };
    two.call(&recursive).await.unwrap();
    let children = Request::GetChildren {
        path: "/a".to_owned(),
        watch: true,
    };
    two.call(&children).await.unwrap();
    // An HTTP request that waits for a notification.
    let path = ZPath::parse("/b").unwrap();
    let node = cluster.node(1);
    let (_, waits) = node
        .read_and_watch(&path, lock_node::WatchKind::Data, Identities::none(), |_| ())
        .unwrap();
    assert_eq!(
        ask(&cluster, 1, "wchs").await,
        "3 connections watching 3 paths\nTotal watches:5\n"
    );
    let mut sessions = [
        (one.session.session_id.cast_unsigned(), "\t/a\n"),
        (two.session.session_id.cast_unsigned(), "\t/a\n\t/none\n"),
    ];
    sessions.sort_unstable();
    let [(first, of_first), (second, of_second)] = sessions;
    assert_eq!(
        ask(&cluster, 1, "wchc").await,
        format!("0x0\n\t/b\n{first:#x}\n{of_first}{second:#x}\n{of_second}\n")
    );
    assert_eq!(
        ask(&cluster, 1, "wchp").await,
        format!(
            "/a\n\t{first:#x}\n\t{second:#x}\n/b\n\t0x0\n/none\n\t{}\n\n",
            hex(&two)
        )
    );
    // The watches of ended connections are removed.
    drop((one, two, waits));
    until("the watches are gone", || node.watch_counts().watches == 0).await;
    assert_eq!(ask(&cluster, 1, "wchc").await, "\n");
    cluster.stop().await;
}

#[tokio::test]
async fn dump_reports_sessions_at_leader_and_follower() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let mut client = Client::connect(cluster.address(follower)).await;
    client.create("/mine", EPHEMERAL).await;
    let sid = hex(&client);
    let owned = format!("ephemeral nodes dump:\nSessions with Ephemerals (1):\n{sid}:\n\t/mine\n");
    let dump = ask(&cluster, follower, "dump").await;
    let timeout = client.session.timeout_ms;
    let begin =
        format!("SessionTracker dump:\nGlobal Sessions(1):\n{sid}\t{timeout}ms\n{owned}Connections dump:\n");
    let connections = dump.strip_prefix(&begin).unwrap_or_else(|| panic!("{dump}"));
    assert_eq!(
        masked(connections),
        "Connections Sets (#)/(#):\n\tip: /#.#.#.#:# sessionId: 0x#\n\tip: /#.#.#.#:# sessionId: 0x#\n"
    );
    assert!(
        connections.starts_with("Connections Sets (0)/(2):")
            && connections.contains(&format!(" sessionId: {sid}\n"))
            && connections.ends_with(" sessionId: 0x0\n"),
        "{connections}"
    );
    // The leader may receive the word before it has applied the write.
    let seen = client.seen.cast_unsigned();
    let at_leader = cluster.node(leader);
    until("the leader has applied it", || {
        at_leader.read(|store| store.zxid().0) >= seen
    })
    .await;
    let dump = ask(&cluster, leader, "dump").await;
    assert_eq!(
        masked(&dump),
        "SessionTracker dump:\nSession Sets (#)/(#):\n# expire at #\n\t0x#\nephemeral nodes dump:\n\
         Sessions with Ephemerals (#):\n0x#:\n\t/mine\nConnections dump:\nConnections Sets (#)/(#):\n\
         \tip: /#.#.#.#:# sessionId: 0x#\n"
    );
    assert!(
        dump.contains(&format!("\n\t{sid}\n")) && dump.contains(&owned),
        "{dump}"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn mntr_reports_the_values_of_the_node() {
    let cluster = start(3).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    let mut client = Client::connect(cluster.address(follower)).await;
    client.create("/mine", EPHEMERAL).await;
    client.call(&get("/mine", true)).await.unwrap();
    let mntr = ask(&cluster, follower, "mntr").await;
    let keys: Vec<&str> = mntr
        .lines()
        .map(|line| line.split_once('\t').unwrap().0)
        .collect();
    let expected = [
        "zk_version",
        "zk_server_state",
        "zk_avg_latency",
        "zk_max_latency",
        "zk_min_latency",
        "zk_packets_received",
        "zk_packets_sent",
        "zk_num_alive_connections",
        "zk_outstanding_requests",
        "zk_uptime",
        "zk_znode_count",
        "zk_watch_count",
        "zk_ephemerals_count",
        "zk_approximate_data_size",
        "zk_global_sessions",
        "zk_local_sessions",
        "zk_open_file_descriptor_count",
        "zk_max_file_descriptor_count",
        "zk_quorum_size",
    ];
    assert_eq!(keys, expected);
    let found = figures(&mntr);
    for (key, value) in [
        ("zk_server_state", "follower"),
        ("zk_packets_received", "4"),
        ("zk_packets_sent", "3"),
        ("zk_num_alive_connections", "2"),
        ("zk_outstanding_requests", "0"),
        ("zk_znode_count", "5"),
        ("zk_watch_count", "1"),
        ("zk_ephemerals_count", "1"),
        ("zk_global_sessions", "1"),
        ("zk_local_sessions", "0"),
        ("zk_quorum_size", "3"),
    ] {
        assert_eq!(found[key], value, "{key}");
    }
    for (key, value) in &found {
        let is_text = ["zk_version", "zk_server_state"].contains(key);
        assert!(is_text || value.parse::<f64>().is_ok(), "{key} is {value}");
    }
    let at_leader = cluster.node(leader);
    until("both followers are in sync", || {
        at_leader
            .followers()
            .is_some_and(|followers| followers.synced_voters == 2)
    })
    .await;
    let mntr = ask(&cluster, leader, "mntr").await;
    let found = figures(&mntr);
    assert_eq!(found["zk_server_state"], "leader");
    assert_eq!(found["zk_synced_observers"], "0");
    assert_eq!(found["zk_learners"], found["zk_synced_followers"]);
    cluster.stop().await;
}

#[tokio::test]
async fn leader_notices_a_lost_follower() {
    let mut cluster = start(3).await;
    let leader = cluster.leader().await;
    let follower = (1..=3).find(|id| *id != leader).unwrap();
    cluster.lose(follower).await;
    let at_leader = cluster.node(leader);
    until("one follower remains", || {
        at_leader
            .followers()
            .is_some_and(|followers| (followers.answering, followers.synced_voters) == (1, 1))
    })
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn environment_words_report_configuration_and_files() {
    let cluster = start(1).await;
    let conf = ask(&cluster, 1, "conf").await;
    let config = cluster.node(1).config();
    let data = config.raft.data_dir.display();
    let max = config.sessions.max.as_millis();
    let min = MIN_SESSION_TIMEOUT.as_millis();
    // The log preallocates files in the meantime.
    let log_bytes = |text: &str, after: &str| -> u64 {
        let (_, rest) = text.split_once(after).unwrap();
        rest.lines().next().unwrap().parse().unwrap()
    };
    let bytes = log_bytes(&conf, "dataLogSize=");
    assert!(bytes > 0);
    assert_eq!(
        conf,
        format!(
            "clientPort={}\nsecureClientPort=-1\ndataDir={data}/snapshots\ndataDirSize=0\ndataLogDir={data}/log\n\
             dataLogSize={bytes}\nmaxClientCnxns=5000\nminSessionTimeout={min}\n\
             maxSessionTimeout={max}\nclientPortListenBacklog=-1\nserverId=1\n",
            cluster.address(1).port(),
        )
    );
    let dirs = ask(&cluster, 1, "dirs").await;
    let bytes = log_bytes(&dirs, "logdir_size: ");
    assert_eq!(dirs, format!("datadir_size: 0\nlogdir_size: {bytes}\n"));
    let envi = ask(&cluster, 1, "envi").await;
    let mut lines = envi.lines();
    assert_eq!(lines.next(), Some("Environment:"));
    // In the form that kazoo parses.
    let found: BTreeMap<_, _> = lines.map(|line| line.split_once('=').unwrap()).collect();
    assert!(
        found["zookeeper.version"].starts_with("3.8.0-lockgate-"),
        "{envi}"
    );
    assert_eq!(found["os.name"], "Linux");
    let here = std::env::current_dir().unwrap();
    assert_eq!(found["user.dir"], here.display().to_string());
    cluster.stop().await;
}

#[tokio::test]
async fn word_may_arrive_in_pieces_and_with_a_line_end() {
    let cluster = start(1).await;
    for pieces in [
        &["r", "u", "o", "k"][..],
        &["ru", "ok\n"],
        &["ruok", "\r\n"],
        &["ruok and what else there is to say"],
    ] {
        let mut stream = TcpStream::connect(cluster.address(1)).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in pieces {
            stream.write_all(piece.as_bytes()).await.unwrap();
            stream.flush().await.unwrap();
            tokio::task::yield_now().await;
        }
        // As `echo ruok | nc` does.
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "imok", "{pieces:?}");
    }
    // The line end arrives after the answer.
    let mut stream = TcpStream::connect(cluster.address(1)).await.unwrap();
    stream.write_all(b"ruok").await.unwrap();
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, *b"imok");
    stream.write_all(b"\n").await.unwrap();
    assert_eq!(stream.read(&mut answer).await.unwrap(), 0, "no reset");
    cluster.stop().await;
}

#[tokio::test]
async fn words_outside_the_whitelist_are_rejected() {
    let cluster = Cluster::start(1).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    client.call(&set("/a", "x")).await.unwrap();
    for word in FourLetterWord::ALL {
        let answer = ask(&cluster, 1, word.as_str()).await;
        if word == FourLetterWord::Srvr {
            // Three replies and ten words: no counter was reset.
            assert!(answer.contains("\nSent: 13\n"), "{answer}");
            continue;
        }
        assert_eq!(
            answer,
            format!(
                "{} is not executed because it is not in the whitelist.\n",
                word.as_str()
            )
        );
    }
    for unknown in ["xxxx", "RUOK", "gtmk", "stmk"] {
        assert_eq!(ask(&cluster, 1, unknown).await, "");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn words_report_a_node_that_cannot_serve() {
    let mut cluster = start(3).await;
    let mut client = Client::connect(cluster.address(1)).await;
    client.create("/a", PERSISTENT).await;
    drop(client);
    for id in [2, 3] {
        cluster.lose(id).await;
    }
    let node = cluster.node(1);
    until("the node has noticed", || node.not_ready().is_some()).await;
    for word in FourLetterWord::ALL {
        let answer = ask(&cluster, 1, word.as_str()).await;
        match word {
            FourLetterWord::Ruok => assert_eq!(answer, "imok"),
            FourLetterWord::Isro => assert_eq!(answer, "null"),
            FourLetterWord::Envi => assert!(answer.starts_with("Environment:\n"), "{answer}"),
            word => assert_eq!(answer, NOT_SERVING, "{word:?}"),
        }
    }
    cluster.stop().await;
}
