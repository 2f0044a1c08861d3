//! Effects of changed files on new and established connections.

use std::fs;
use std::sync::Arc;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use transport_security::{HandshakeError, PeerFault, keep_fresh};

use crate::support::{Ca, meet, node, peer, put, replace, talk};

#[tokio::test]
async fn new_authority_applies_to_new_connections_only() {
    let (before, after) = (Ca::new(), Ca::new());
    let (files_1, files_2) = (before.issue("1", &node("c", 1)), before.issue("2", &node("c", 2)));
    let (one, two) = (peer(&files_1, 1), peer(&files_2, 2));
    let (called, taken) = meet(&one, &two).await;
    let (mut here, (mut there, _)) = (called.unwrap(), taken.unwrap());

    // Node 2 moves to another authority; all of its files change at once.
    put(&files_2, &after.authority.issue(&node("c", 2)).unwrap());
    replace(&files_2.ca, &fs::read_to_string(after.ca()).unwrap());
    assert!(two.reloadable().refresh().unwrap());
    assert!(
        !two.reloadable().refresh().unwrap(),
        "the files have not changed since"
    );

    talk(&mut here, &mut there).await.unwrap();
    talk(&mut there, &mut here).await.unwrap();
    let (called, _) = meet(&one, &two).await;
    let Err(HandshakeError::Peer(refused)) = called else {
        panic!("{called:?}")
    };
    assert!(matches!(refused.fault, PeerFault::Certificate(_)), "{refused}");

    // Node 1 follows. (The nodes share the authority's file.)
    put(&files_1, &after.authority.issue(&node("c", 1)).unwrap());
    assert!(one.reloadable().refresh().unwrap());
    let (called, taken) = meet(&one, &two).await;
    assert!(called.is_ok() && taken.is_ok());
    talk(&mut here, &mut there).await.unwrap();
}

#[tokio::test]
async fn invalid_files_leave_the_old_certificate_in_use() {
    let ca = Ca::new();
    let (files_1, files_2) = (ca.issue("1", &node("c", 1)), ca.issue("2", &node("c", 2)));
    let (one, two) = (peer(&files_1, 1), peer(&files_2, 2));
    let good = fs::read_to_string(&files_2.certificate).unwrap();
    let renewed = ca.authority.issue(&node("c", 2)).unwrap();
    // Garbage; a missing file; another node's certificate; half of a renewal: the new certificate with the
    // old key.
    let of_another = ca.authority.issue(&node("c", 3)).unwrap().certificate;
    for text in [
        Some("garbage"),
        None,
        Some(&of_another),
        Some(&renewed.certificate),
    ] {
        match text {
            Some(text) => replace(&files_2.certificate, text),
            None => fs::remove_file(&files_2.certificate).unwrap(),
        }
        for _ in 0..2 {
            assert!(two.reloadable().refresh().is_err(), "{text:?}");
        }
        let (called, taken) = meet(&one, &two).await;
        assert!(called.is_ok() && taken.is_ok(), "{text:?}");
    }
    // The key of the renewal follows.
    replace(&files_2.key, &renewed.key);
    assert!(two.reloadable().refresh().unwrap());
    // The old certificate returns, with the new key.
    replace(&files_2.certificate, &good);
    assert!(two.reloadable().refresh().is_err());
}

#[tokio::test(start_paused = true)]
async fn keep_fresh_reloads_changed_files() {
    let ca = Ca::new();
    let files = ca.issue("1", &node("c", 1));
    let one = peer(&files, 1);
    let before = one.reloadable().not_after();
    let (now, stop) = (Arc::new(Notify::new()), CancellationToken::new());
    let task = tokio::spawn(keep_fresh(vec![one.reloadable()], now.clone(), stop.clone()));
    let later = std::time::SystemTime::now() + 90 * crate::support::DAY;
    let wanted = node("c", 1).valid(std::time::SystemTime::now(), later);
    put(&files, &ca.authority.issue(&wanted).unwrap());
    now.notify_one();
    // Time is paused and advances while nothing else is ready; the timeout only ends a test that hangs.
    let followed = async {
        while one.reloadable().not_after() == before {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(20 * transport_security::CHECK_INTERVAL, followed)
        .await
        .unwrap();
    stop.cancel();
    task.await.unwrap();
}
