//! Operator of a node, who has its files: access when every administrator's token is lost.

use std::fs;

use local_cluster::START_TIMEOUT;
use lock_client::{Code, Token};

use super::{NOT_ALLOWED, client, id_of, operator_token, run, secret_of, text};
use crate::harness::TestCluster;

#[tokio::test]
async fn operator_regains_access_at_its_own_node() {
    let mut cluster = TestCluster::start_with_access().await;
    let ca = cluster.dir().join("ca.pem");
    let admin = cluster.admin_token_file().expect("it is secured");
    let operator = operator_token(&cluster, 1);
    let as_operator_at = |node: &str| {
        let words = [
            "--server",
            node,
            "--ca",
            text(&ca),
            "--token-file",
            text(&operator),
        ];
        words.map(str::to_owned)
    };
    let run_at = async |words: &[&str], node: &str| {
        let more = as_operator_at(node);
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        run(&[words, &more].concat()).await
    };

    // Another node rejects the operator's token, and the command line does not send it to several nodes.
    let elsewhere = run_at(&["token", "list"], &cluster.http(2)).await;
    assert_eq!(elsewhere.code, NOT_ALLOWED, "{elsewhere:?}");
    let many = run_at(&["token", "list"], &cluster.http_addresses().join(",")).await;
    assert!(many.err.contains("is valid only at its own node"), "{many:?}");

    // The administrator's token is lost.
    let lost = id_of(&admin);
    let new = cluster.dir().join("new.token");
    let words = ["token", "create", "--role", "admin", "--out", text(&new)];
    let made = run_at(&words, &cluster.http(1)).await;
    assert_eq!(made.code, 0, "{made:?}");
    let administrator = client(&cluster, Token::read(&new).unwrap());
    administrator.access().revoke_token(&lost).await.unwrap();
    let old = client(&cluster, Token::read(&admin).unwrap());
    let refused = old.access().tokens().await.unwrap_err();
    assert!(refused.is(Code::Unauthenticated), "{refused:?}");
    let left = administrator.access().tokens().await.unwrap();
    let ids: Vec<&str> = left.iter().map(|token| token.id.as_str()).collect();
    assert_eq!(ids, [id_of(&new)]);
    // The last administrator's token cannot be revoked.
    let last = run_at(&["token", "revoke", &id_of(&new)], &cluster.http(1)).await;
    assert!(last.code == 1, "{last:?}");

    // The next start generates another token, also after a crash.
    let before = cluster.dir().join("before");
    fs::copy(&operator, &before).unwrap();
    cluster.kill(1).await.unwrap();
    cluster.up(START_TIMEOUT).await.unwrap();
    assert_ne!(secret_of(&before), secret_of(&operator));
    let node = cluster.http(1);
    let as_before = [
        "--server",
        &node,
        "--ca",
        text(&ca),
        "--token-file",
        text(&before),
    ];
    let refused = run(&[&["token", "list"][..], &as_before].concat()).await;
    assert_eq!(refused.code, NOT_ALLOWED, "{refused:?}");
    let ran = run_at(&["token", "list"], &node).await;
    assert_eq!(ran.code, 0, "{ran:?}");
}
