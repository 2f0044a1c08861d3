//! Conversations of lock libraries with scripts and channels of their own, as their sources have them.

use crate::harness::{Client, Cluster};

/// Scripts of Redisson from 3.44 on.
const ENTER: &str = "EVALSHA 149c5a8bf18676fd99e9e6e24923bd64d9b62f94";
const LEAVE: &str = "EVALSHA 6866459238a13a701d42f4971f12d9f3a50e2442";
const FORCE: &str = "EVALSHA 605e338249a7a1d40df83b04f7658354f883b41b";
const RENEW_ALL: &str = "EVALSHA 6a3d31570dc6f4b0bd32bcdc8e75667747c6f635";
const ENTER_FENCED: &str = "EVALSHA 49babb5a1e6a0c5f188c2ae62b93b51cdfd63e45";

/// Ends a hold as Redisson does, whose call has this id.
fn leave(holder: &str, id: &str) -> String {
    let keys = format!("order redisson_lock__channel:{{order}} redisson_unlock_latch:{{order}}:{id}");
    format!("{LEAVE} 3 {keys} 0 30000 {holder} PUBLISH 13500")
}

async fn number(client: &mut Client, command: &str) -> i64 {
    let reply = client.command(command).await;
    let number = reply.strip_prefix(':').and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("{command}: {reply}"))
}

#[tokio::test]
async fn redisson_enters_and_leaves_again_and_again() {
    let cluster = Cluster::start(3).await;
    let (mut one, mut two) = (cluster.client(0).await, cluster.client(1).await);
    one.script(&format!(
        r#"
        {ENTER} 1 order 30000 a:1 => null
        {ENTER} 1 order 30000 a:1 => null
        TYPE order => +hash
        HEXISTS order a:1 => :1
        HEXISTS order b:1 => :0
        HGET order a:1 => "2"
        HGET order b:1 => null
        HLEN order => :1
        HGETALL order => ["a:1" "2"]
        "#
    ))
    .await;
    let token = one.command("LOCKGATE.TOKEN order").await;
    let left = number(&mut two, &format!("{ENTER} 1 order 30000 b:1")).await;
    assert!((1..=30_000).contains(&left), "{left}");
    two.script(&format!(
        r#"
        {0} => null
        {RENEW_ALL} 2 order other 30000 a:1 a:1 => [:1 :0]
        {RENEW_ALL} 1 order 20000 b:1 => [:0]
        "#,
        leave("b:1", "1")
    ))
    .await;
    // The holder is still there, with the same token, after one of two ends; a repetition of the call ends no other hold.
    for _ in 0..2 {
        assert_eq!(one.command(&leave("a:1", "2")).await, ":0");
    }
    assert_eq!(two.command("HGET order a:1").await, "\"1\"");
    assert_eq!(one.command("LOCKGATE.TOKEN order").await, token);
    for _ in 0..2 {
        assert_eq!(one.command(&leave("a:1", "3")).await, ":1");
    }
    assert_eq!(one.command(&leave("a:1", "4")).await, "null");
    two.script(&format!(
        r#"
        EXISTS order => :0
        {ENTER} 1 order 30000 b:1 => null
        {FORCE} 2 order redisson_lock__channel:{{order}} 0 PUBLISH => :1
        {FORCE} 2 order redisson_lock__channel:{{order}} 0 PUBLISH => :0
        "#
    ))
    .await;
    cluster.stop().await;
}

#[tokio::test]
async fn hash_of_a_lock_is_changed_by_its_holder_alone() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    client
        .script(
            r#"
        HINCRBY order a:1 1 => :1
        HINCRBY order a:1 2 => :3
        HGETALL order => ["a:1" "3"]
        TTL order => :-1
        PEXPIRE order 30000 => :1
        HINCRBY order a:1 -1 => :2
        HSET order a:1 5 => :0
        HGET order a:1 => "5"
        HDEL order b:1 => :0
        HINCRBY order b:1 1 => -BUSY another holder has the lock, and the hash of a lock has one holder
        HSET order b:1 1 => -BUSY another holder has the lock, and the hash of a lock has one holder
        HINCRBY order a:1 -6 => -ERR the hash of a lock has a number of holds of 0 to 1000
        HSET order a:1 0 => -ERR the hash of a lock has a number of holds of 0 to 1000
        HINCRBY order a:1 9223372036854775807 => -ERR the hash of a lock has a number of holds of 0 to 1000
        HINCRBY order a:1 -5 => :0
        EXISTS order => :0
        HSET order b:1 2 => :1
        HDEL order b:1 => :1
        HDEL order b:1 => :0
        SET order x => +OK
        HINCRBY order a:1 1 => -BUSY another holder has the lock, and the hash of a lock has one holder
        "#,
        )
        .await;
    client
        .script("HINCRBY other a:1 1 => :1\nPEXPIRE other 30000 => :1\nHINCRBY other a:1 1 => :2")
        .await;
    let left = number(&mut client, "PTTL other").await;
    assert!((1..=30_000).contains(&left), "{left}");
    cluster.stop().await;
}

#[tokio::test]
async fn fencing_token_of_redisson_is_that_of_the_lock() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let enter = |holder| format!("{ENTER_FENCED} 2 order redisson_lock_token:{{order}} 30000 {holder}");
    let entered = client.command(&enter("a:1")).await;
    let token = client.command("LOCKGATE.TOKEN order").await;
    assert_eq!(entered, format!("[:-1 {token}]"));
    assert_eq!(client.command(&enter("a:1")).await, entered);
    let number = token.trim_start_matches(':');
    assert_eq!(
        client.command("GET redisson_lock_token:{order}").await,
        format!("\"{number}\"")
    );
    let busy = client.command(&enter("b:1")).await;
    assert!(busy.ends_with(" :-1]") && !busy.starts_with("[:-1"), "{busy}");
    cluster.stop().await;
}

#[tokio::test]
async fn end_of_a_hold_wakes_the_waiters_at_every_node() {
    let cluster = Cluster::start(3).await;
    let (mut holder, mut waiter) = (cluster.client(0).await, cluster.client(2).await);
    waiter
        .script(
            r#"
            SUBSCRIBE redisson_lock__channel:{order} => ["subscribe" "redisson_lock__channel:{order}" :1]
            SUBSCRIBE jobs-channel => ["subscribe" "jobs-channel" :2]
            PSUBSCRIBE jobs-channel:* => ["psubscribe" "jobs-channel:*" :3]
            PING => ["pong" ""]
            SUBSCRIBE news => -ERR there are no channels…
            SUBSCRIBE redisson_lock__channel:{other} news => -ERR there are no channels…
            SUBSCRIBE redisson_lock__channel:other => -ERR there are no channels…
            "#,
        )
        .await;
    holder
        .script(
            r#"
            SET order v NX PX 60000 => +OK
            SET other v NX PX 60000 => +OK
            SET jobs:7 v NX PX 60000 => +OK
            DEL other => :1
            DEL order => :1
            DELIFEQ jobs:7 v => :1
            "#,
        )
        .await;
    let mut messages = Vec::new();
    for _ in 0..3 {
        messages.push(waiter.reply().await);
    }
    assert_eq!(
        messages,
        [
            r#"["message" "redisson_lock__channel:{order}" "0"]"#,
            r#"["message" "jobs-channel" "jobs:7"]"#,
            r#"["pmessage" "jobs-channel:*" "jobs-channel:jobs:7" "jobs:7"]"#,
        ]
    );
    // An expired lease, and a second subscriber after the first.
    holder.script("SET order v NX PX 50 => +OK").await;
    assert_eq!(waiter.reply().await, messages[0]);
    waiter
        .script(
            r#"
            UNSUBSCRIBE redisson_lock__channel:{order} => ["unsubscribe" "redisson_lock__channel:{order}" :2]
            PUNSUBSCRIBE => ["punsubscribe" "jobs-channel:*" :1]
            UNSUBSCRIBE => ["unsubscribe" "jobs-channel" :0]
            UNSUBSCRIBE => ["unsubscribe" null :0]
            PING => +PONG
            "#,
        )
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn subscriptions_of_a_connection_are_bounded() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    for number in 1..=64 {
        let reply = client
            .command(&format!("SUBSCRIBE redisson_lock__channel:{{{number}}}"))
            .await;
        assert!(reply.ends_with(&format!(" :{number}]")), "{reply}");
    }
    client
        .script("SUBSCRIBE redisson_lock__channel:{65} => -ERR a connection has at most 64 subscriptions")
        .await;
    assert_eq!(
        client.command("UNSUBSCRIBE redisson_lock__channel:{1}").await,
        "[\"unsubscribe\" \"redisson_lock__channel:{1}\" :63]"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn scripts_of_other_libraries_answer_as_lua_does() {
    let cluster = Cluster::start(3).await;
    let mut client = cluster.client(1).await;
    let redlock = "EVALSHA ceb2b2062e40c51a2b3963fd078bc71f11bdc65c";
    let remaining = "EVALSHA 78d2ca48a6dc9ef6892059792a3a0c5237733d64";
    let spring = "EVALSHA 175897a4e379e99e79a54937be09226f76cdcfe5";
    let unlock = "EVALSHA 7a71e9443a2a41539fb115a5a27d5a748a871aed";
    let redsync = "EVALSHA e950836ed1e694540c503ef9972b8de518044d3b";
    let dapr = "EVALSHA 08741c111900b6318ee3f60cb3c2fa1f6c74d859";
    let obtain = "EVALSHA eb0c00d98f6f33b4262419a509002884540f30be";
    let release = "EVALSHA 9470c810040e272ee6c579d8d4331aaf6332a7b1";
    let refresh = "EVALSHA 5a22d7e8431313862816d4416b5e46dd70fc340d";
    let shortest = "EVALSHA 66e1084c2d842a7e8c271925aae90219fac4e129";
    client
        .script(&format!(
            r#"
            {redlock} 1 r one 60000 no => null
            {redlock} 1 r one 60000 yes => +OK
            {redlock} 1 r one 90000 no => +OK
            {redlock} 1 r two 60000 yes => null
            {remaining} 1 r => ["one" :…
            {remaining} 1 none => [null :-2]
            {spring} 1 s a 60000 => :1
            {spring} 1 s a 60000 => :1
            {spring} 1 s b 60000 => null
            {unlock} 1 s b s-channel:s => null
            {unlock} 1 s a s-channel:s => :1
            {redsync} 1 r two => :0
            {redsync} 1 r one => :1
            {redsync} 1 r one => :-1
            SET d one NX EX 60 => +OK
            {dapr} 1 d two => :-2
            {dapr} 1 d one => :1
            {dapr} 1 d one => :-1
            {obtain} 2 x y tokenA 6 60000 => +OK
            {obtain} 2 x y other 5 60000 => null
            {obtain} 2 x y tokenA 6 60000 => +OK
            {obtain} 2 x y tokenA.more 6 60000 => +OK
            GET y => "tokenA.more"
            {obtain} 2 x z tokenA.more 6 60000 => null
            EXISTS z => :0
            {refresh} 2 x y tokenA 90000 => null
            {refresh} 2 x y tokenA.more 90000 => +OK
            {shortest} 2 x y tokenA => null
            {shortest} 2 x y tokenA.more => :…
            {release} 2 x y tokenA => null
            {release} 2 x y tokenA.more => +OK
            EXISTS x y => :0
            "#
        ))
        .await;
    cluster.stop().await;
}

#[tokio::test]
async fn compare_and_delete_of_a_tutorial_is_recognised_and_remembered() {
    let cluster = Cluster::start(1).await;
    let mut client = cluster.client(0).await;
    let text = "if redis.call(\"get\", KEYS[1]) == ARGV[1]\nthen return redis.call(\"del\", KEYS[1])\nelse return 0 end";
    let parts = ["EVAL", text, "1", "job", "one"];
    let mut request = format!("*{}\r\n", parts.len());
    for part in parts {
        request.push_str(&format!("${}\r\n{part}\r\n", part.len()));
    }
    let sha1 = "ca8e76181615f6427080a7c9c490631314b3d11b";
    let by_sha1 = format!("EVALSHA {sha1} 1 job one");
    client
        .script(&format!(
            "
            SET job one NX PX 60000 => +OK
            {by_sha1} => -NOSCRIPT…
            "
        ))
        .await;
    client.send(request.as_bytes()).await;
    assert_eq!(client.reply().await, ":1");
    client
        .script(&format!(
            "
            SET job one NX PX 60000 => +OK
            {by_sha1} => :1
            SCRIPT EXISTS {sha1} => [:1]
            SCRIPT FLUSH => +OK
            SCRIPT EXISTS {sha1} => [:0]
            "
        ))
        .await;
    cluster.stop().await;
}
