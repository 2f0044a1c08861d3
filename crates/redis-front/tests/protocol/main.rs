//! Conversations with the front end over a socket, at the nodes of a cluster in this process. A line of a script is an inline command; below it
//! are its replies.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod harness;
mod libraries;

use std::time::Duration;

use lock_node::Node;
use lock_node::admission::{AdmissionConfig, PaceBounds};
use redis_front::RedisConfig;
use znode_store::{Command, HoldingLease, LockName, LockUse, NamespaceName, Quotas, Request};

use crate::harness::{Cluster, until};

fn lease(node: &Node, lock: &str) -> HoldingLease {
    match node.read(|store| store.lock_use(&LockName::parse(lock).unwrap())) {
        LockUse::Leased(lease) => lease,
        other => panic!("{lock} is {other:?}"),
    }
}

#[tokio::test]
async fn keys_are_locks_of_the_tree() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    client
        .script(
            r#"
            PING => +PONG
            SET job one NX PX 60000 => +OK
            SET job two NX PX 60000 => null
            GET job => "one"
            EXISTS job job other => :2
            TYPE job => +string
            STRLEN job => :3
            SETNX job two => :0
            KEYS j* => ["job"]
            DBSIZE => :1
            DELIFEQ job two => :0
            DELEX job IFEQ one => :1
            GET job => null
            TTL job => :-2
            SETNX job two => :1
            TTL job => :-1
            EXPIRE job 100 => :1
            TTL job => :100
            EXPIRE job 50 GT => :0
            PEXPIRE job 50000 LT => :1
            TTL job => :50
            PERSIST job => :1
            PERSIST job => :0
            TTL job => :-1
            GETSET job three => "two"
            SET job four XX GET => "three"
            SET job five IFEQ three => null
            SET job five IFEQ four => +OK
            PEXPIRE job -1 => :1
            EXISTS job => :0
            SET job six XX => null
            "#,
        )
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn value_that_holds_a_lock_is_not_confirmed_at_another_node() {
    let cluster = Cluster::start(3).await;
    let mut replies = Vec::new();
    for index in [0, 1, 2, 0] {
        let mut client = cluster.client(index).await;
        replies.push(client.command("SET k 0123456789abcdef NX PX 60000").await);
    }
    assert_eq!(replies, ["+OK", "null", "null", "null"]);
    let mut client = cluster.client(1).await;
    assert_eq!(client.command("DELIFEQ k 0123456789abcdef").await, ":1");
    let mut granter = cluster.client(0).await;
    assert_eq!(granter.command("DELIFEQ k 0123456789abcdef").await, ":0");
    cluster.stop().await;
}

#[tokio::test]
async fn each_node_confirms_a_value_once() {
    let cluster = Cluster::start_for_redlock().await;
    let mut clients = Vec::new();
    for index in 0..3 {
        clients.push(cluster.client(index).await);
    }
    let mut tokens = Vec::new();
    for client in &mut clients {
        assert_eq!(client.command("SET k 0123456789abcdef NX PX 60000").await, "+OK");
        assert_eq!(client.command("SET k 0123456789abcdef NX PX 60000").await, "null");
        assert_eq!(client.command("SET k other NX PX 60000").await, "null");
        assert_eq!(client.command("GET k").await, "\"0123456789abcdef\"");
        tokens.push(client.command("LOCKGATE.TOKEN k").await);
    }
    assert!(tokens.iter().all(|token| *token == tokens[0]), "{tokens:?}");
    // Nor is a value confirmed that two clients can have in common, or that never expires.
    assert_eq!(
        clients[0].command("SET short 0123456789 NX PX 60000").await,
        "+OK"
    );
    assert_eq!(
        clients[1].command("SET short 0123456789 NX PX 60000").await,
        "null"
    );
    assert_eq!(clients[0].command("SETNX long 0123456789abcdef").await, ":1");
    assert_eq!(clients[1].command("SETNX long 0123456789abcdef").await, ":0");
    // Each node confirms the release once, as an independent server would. A key that was deleted by another client is not confirmed.
    for expected in [":1", ":0"] {
        for client in &mut clients {
            assert_eq!(client.command("DELIFEQ k 0123456789abcdef").await, expected);
        }
    }
    for client in &mut clients {
        assert_eq!(client.command("SET k fedcba9876543210 NX PX 60000").await, "+OK");
    }
    assert_eq!(clients[0].command("DEL k").await, ":1");
    for client in &mut clients {
        assert_eq!(client.command("DELIFEQ k fedcba9876543210").await, ":0");
    }
    assert_eq!(clients[1].command("SET k other").await, "+OK");
    assert_ne!(clients[2].command("LOCKGATE.TOKEN k").await, tokens[0]);
    cluster.stop().await;
}

/// As node-redlock over the nodes of one cluster, with several keys: the nodes acquire them at the same time.
#[tokio::test]
async fn redlock_over_all_nodes_gets_all_keys_or_none() {
    const ACQUIRE: &str = "EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 3 a b c";
    const RELEASE: &str = "EVALSHA e4612211c9f8f51c257e26e056b0a654b3187242 3 a b c";
    let cluster = Cluster::start_for_redlock().await;
    let mut clients = Vec::new();
    for index in 0..3 {
        clients.push(cluster.client(index).await);
    }
    for round in 0..20 {
        let value = format!("0123456789abcdef{round}");
        for (script, expected) in [
            (format!("{ACQUIRE} {value} 60000"), ":3"),
            (format!("{RELEASE} {value}"), ":3"),
        ] {
            for client in &mut clients {
                client.send(format!("{script}\r\n").as_bytes()).await;
            }
            for client in &mut clients {
                assert_eq!(client.reply().await, expected, "{script}");
            }
        }
        for client in &mut clients {
            assert_eq!(client.command("EXISTS a b c").await, ":0");
        }
    }
    assert_eq!(clients[0].command("SET c other NX PX 60000").await, "+OK");
    for client in &mut clients {
        assert_eq!(
            client.command(&format!("{ACQUIRE} 0123456789abcdef 60000")).await,
            ":0"
        );
        assert_eq!(client.command("EXISTS a b").await, ":0");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn key_expires_after_its_time_and_not_before() {
    let cluster = Cluster::start(1).await;
    let node = cluster.served[0].node.clone();
    let mut client = cluster.client(0).await;
    let begun = tokio::time::Instant::now();
    assert_eq!(client.command("SET k v NX PX 300").await, "+OK");
    until("the key has expired", || {
        node.read(|store| store.lock_use(&LockName::parse("redis/k").unwrap())) == LockUse::Free
    })
    .await;
    assert!(begun.elapsed() >= Duration::from_millis(300));
    assert_eq!(client.command("SET k w NX").await, "+OK");
    assert_eq!(lease(&node, "redis/k").timeout_ms, znode_store::NEVER_ENDS_MS);
    cluster.stop().await;
}

#[tokio::test]
async fn transactions_scripts_and_errors_are_as_in_redis() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    client
        .script(
            r#"
            MULTI => +OK
            SET k v NX => +QUEUED
            GET k => +QUEUED
            EXEC => [+OK "v"]
            MULTI => +OK
            NONSENSE => -ERR unknown command 'NONSENSE', with args beginning with:…
            EXEC => -EXECABORT…
            EXEC => -ERR EXEC without MULTI
            ZADD k f => -ERR unknown command 'ZADD', with args beginning with: 'k' 'f'
            GET => -ERR wrong number of arguments for 'get' command
            SET k v NX XX => -ERR syntax error
            SET k v EX 0 => -ERR invalid expire time in 'set' command
            SELECT 1 => -ERR DB index is out of range
            EVALSHA 0000000000000000000000000000000000000000 1 k v => -NOSCRIPT No matching script. Please use EVAL.
            EVAL "return 1" 0 => -ERR unknown script…
            SCRIPT EXISTS 0000 c3f8721cbb97f72bc19e972846bd7aaf91901658 => [:0 :1]
            EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 k other => :0
            EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 k v => :1
            EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 k v => :0
            EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2 a b v 60000 => :2
            EVALSHA 96da70f7716f27d278a5218544df37fd8b0a5e4c 2 c b w 60000 => :0
            EXISTS a b c => :2
            EVALSHA aed6f382e410db8ba7926d4e5e9aab410bf2a78a 2 a b v 90000 => :2
            TTL a => :90
            EVALSHA e4612211c9f8f51c257e26e056b0a654b3187242 3 a b c v => :2
            SET k v => +OK
            GETDEL k => "v"
            GETDEL k => null
            SET k v => +OK
            FLUSHDB => +OK
            EXISTS k => :0
            CLIENT SETNAME worker-1 => +OK
            CLIENT GETNAME => "worker-1"
            CLIENT SETNAME "a b" => -ERR Client names cannot contain spaces…
            BLPOP other-list 1 => -ERR BLPOP knows only…
            BLPOP lock-signal:k 1 => ["lock-signal:k" "1"]
            SET lock:k v => +OK
            BLPOP lock-signal:k 0.1 => null
            MULTI => +OK
            BLPOP lock-signal:k 100 => +QUEUED
            EXEC => [null]
            AUTH nonsense => -WRONGPASS…
            QUIT => +OK
            "#,
        )
        .await;
    assert_eq!(client.line().await, "", "the connection has ended");
    let mut client = cluster.client(0).await;
    client.send(b"*1\r\n$99999999\r\n").await;
    assert_eq!(client.reply().await, "-ERR Protocol error: invalid bulk length");
    assert_eq!(client.line().await, "", "the connection has ended");
    let mut client = cluster.client(0).await;
    client.send(b"HELLO 3\r\nGET none\r\nPING\r\n").await;
    assert_eq!(client.line().await, "%7");
    let mut line = String::new();
    while line != "_" {
        line = client.line().await;
    }
    assert_eq!(client.line().await, "+PONG");
    cluster.stop().await;
}

#[tokio::test]
async fn disabled_commands_are_refused_also_in_a_transaction() {
    let config = RedisConfig {
        disabled_commands: vec!["DEL".to_owned(), "FLUSHALL".to_owned()],
        ..RedisConfig::default()
    };
    let cluster = Cluster::start_with(1, config).await;
    let mut client = cluster.client(0).await;
    client
        .script(
            r#"
            SET job one NX => +OK
            del job => -NOPERM the command DEL is disabled…
            MULTI => +OK
            FLUSHALL => -NOPERM the command FLUSHALL is disabled…
            EXEC => -EXECABORT…
            DELIFEQ job one => :1
            "#,
        )
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn quota_of_the_namespace_of_all_keys_refuses_more_keys() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let quotas = Quotas {
        locks: Some(1),
        ..Quotas::default()
    };
    let set = Command::SetQuotas {
        namespace: NamespaceName::parse("redis").unwrap(),
        quotas: Some(quotas),
    };
    let applied = cluster.served[0]
        .node
        .propose(Request::anonymous(set))
        .await
        .unwrap();
    applied.outcome.unwrap();
    client
        .script(
            r#"
            SET a one NX PX 60000 => +OK
            SET b one NX PX 60000 => -ERR the quota of namespace redis for locks is 1, and this would make it 2
            SET a two NX PX 60000 => null
            GET b => null
            DEL a => :1
            SET b one NX PX 60000 => +OK
            "#,
        )
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn replies_to_refused_commands_beyond_the_pace_are_delayed() {
    let cluster = Cluster::start(1).await;
    let node = &cluster.served[0].node;
    node.set_admission(AdmissionConfig {
        refusals: PaceBounds {
            per_second: 1_000,
            at_once: 0,
        },
        ..AdmissionConfig::default()
    });
    let mut client = cluster.client(0).await;
    client.script("PING => +PONG").await;
    assert_eq!(node.admission_counts().answers_delayed, 0);
    client.script("AUTH nonsense => -WRONGPASS…").await;
    assert_eq!(node.admission_counts().answers_delayed, 1);
    cluster.stop().await;
}
