//! Znodes above the target's limits: the tool names them before it writes anything, and skips them while it
//! follows everything else.

use std::collections::BTreeSet;

use serde_json::Value;
use zk_wire::Request;

use super::client::Client;
use super::writers::{create, delete, entry, set};
use super::{Running, Target, assert_same, event, has, wait_until};
use crate::ensemble::Ensemble;
use crate::expectations::skip;

/// Low limits that a test can reach.
const LIMITS: &str = "
[limits]
data_bytes = 1000
children = 60

[http]
max_path_bytes = 1024
max_path_depth = 32
";

fn named(told: &[Value]) -> BTreeSet<&str> {
    let misfits = told.iter().filter(|told| told["event"] == "misfit");
    misfits.map(|misfit| misfit["path"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn incompatible_znodes_are_named_before_anything_is_written() {
    let source = match Ensemble::zookeeper().await {
        Ok(source) => source,
        Err(missing) => return skip("the servers", &missing),
    };
    let target = Target::start_with(LIMITS).await;
    let servers = source.servers();
    let mut client = Client::open(&servers[0]).await;
    let mut there = Client::open(&target.zookeeper()).await;

    let deep: Vec<String> = (1..=33).map(|depth| "/d".repeat(depth)).collect();
    let long = ["/long".to_owned(), format!("/long/{}", "a".repeat(600))];
    let too_long = format!("{}/{}", long[1], "b".repeat(600));
    let wide: Vec<String> = (0..61).map(|n| format!("/wide/{n}")).collect();
    let plain = ["/fits", "/listed", "/wide"].map(str::to_owned);
    let all = plain
        .iter()
        .chain(&deep)
        .chain(&long)
        .chain([&too_long])
        .chain(&wide);
    let mut requests: Vec<Request> = all.map(|path| create(path, b"x", 0)).collect();
    requests.push(create("/large", &[7; 1001], 0));
    requests.push(create("/large/below", b"x", 0));
    // Data of the maximum size whose every byte takes six bytes in JSON.
    requests.push(create("/fits/exactly", &[1; 1000], 0));
    let entries = (0..200).map(|n| entry(1, "digest", &format!("user-{n}:{}", "h".repeat(90))));
    requests.push(Request::SetAcl {
        path: "/listed".to_owned(),
        acl: Some(entries.collect()),
        version: -1,
    });
    for (request, outcome) in requests.iter().zip(client.call_all(&requests).await.unwrap()) {
        assert!(outcome.is_ok(), "{request:?}: {outcome:?}");
    }

    // Both `--verify-only` and `--once` name all of them, and nothing has been written.
    let misfits = BTreeSet::from([deep[32].as_str(), &too_long, "/wide", "/large", "/listed"]);
    let run = async |options: &[&str]| Running::start(target.tool(&servers, options)).end().await;
    for options in [["--verify-only"], ["--once"]] {
        let (told, code) = run(&options).await;
        assert_eq!(code, Some(80), "{told:#?}");
        assert_eq!(named(&told), misfits);
        assert_eq!(event(&told, "misfits")["count"], 5);
        assert!(!has(&mut there, "/fits").await);
    }

    // The source is cleaned up, except for znodes that are created during the following. Everything else is
    // copied.
    let mut gone = vec![delete(&deep[32]), delete(&too_long), delete("/wide/0")];
    gone.extend([delete("/listed"), delete("/large/below"), delete("/large")]);
    for outcome in client.call_all(&gone).await.unwrap() {
        outcome.unwrap();
    }
    let mut following = Running::start(target.tool(&servers, &[]));
    following.until("note", "all znodes are copied").await;
    assert!(has(&mut there, "/fits/exactly").await && has(&mut there, "/wide/60").await);
    let more = [
        create("/large", &[7; 1001], 0),
        create("/large/below", b"x", 0),
        create("/wide/0", b"x", 0),
        create("/fits/more", b"x", 0),
    ];
    for outcome in client.call_all(&more).await.unwrap() {
        outcome.unwrap();
    }
    let named = [
        following.until("misfit", "").await["path"].clone(),
        following.until("misfit", "").await["path"].clone(),
    ];
    assert_eq!(named, ["/large", "/wide"]);
    wait_until("all other changes are followed", async || {
        has(&mut there, "/fits/more").await
    })
    .await;
    assert!(!has(&mut there, "/large").await && !has(&mut there, "/wide/0").await);

    // The switch is rejected, and writers are not frozen for it.
    let frozen = target.file("frozen");
    let command = format!("touch {}", frozen.display());
    let (told, code) = run(&["--switch", "--on-freeze", &command]).await;
    assert_eq!(code, Some(80), "{told:#?}");
    let why = event(&told, "refused")["why"].as_str().unwrap();
    assert!(
        why.contains("2 znodes") && why.contains("exceed the target's limits"),
        "{why}"
    );
    let path = event(&told, "difference")["path"].as_str().unwrap();
    assert_eq!(path, "/large");
    assert!(!frozen.exists());

    // A znode that fits again is copied with everything below it.
    client.call(set("/large", &[7; 1000])).await.unwrap().unwrap();
    client.call(delete("/wide/1")).await.unwrap().unwrap();
    wait_until("znodes that fit again are copied", async || {
        has(&mut there, "/large/below").await && has(&mut there, "/wide/0").await
    })
    .await;
    following.kill().await;
    let (told, code) = run(&["--switch"]).await;
    assert_eq!(code, Some(0), "{told:#?}");
    assert_same(&servers[0], &target.zookeeper()).await;
}
