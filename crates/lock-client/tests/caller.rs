//! Authentication, as a server sees it: the token of each request, and the effect of a refusal.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

mod server;

use std::sync::Arc;
use std::time::Duration;

use lock_client::{Code, Error, LockClient, Token, TokenError};
use parking_lot::Mutex;
use server::{Answer, Heard, Server};

fn friendly(what: &str, _: usize) -> Answer {
    Some(match what {
        "POST /v1/sessions" => (201, r#"{"session": "s1", "ttl_ms": 60000}"#),
        "DELETE /v1/sessions/s1" => (204, ""),
        "GET /v1/locks" => (200, r#"{"locks": [], "next_cursor": null}"#),
        other => panic!("{other} is not expected"),
    })
}

const REFUSAL: &str = r#"{"code": "unauthenticated", "detail": "the token does not count", "status": 401}"#;

fn pair(what: &str, token: &str) -> Heard {
    Heard {
        what: what.to_owned(),
        authorization: format!("Bearer {token}"),
        traceparent: String::new(),
    }
}

#[tokio::test]
async fn a_session_keeps_the_token_that_opened_it_and_the_next_request_has_the_next() {
    let server = Server::start(friendly).await;
    let now = Arc::new(Mutex::new("lg_one"));
    let asked = now.clone();
    let provider = move || Token::parse(*asked.lock());
    let client = LockClient::builder([&server.address])
        .token(provider)
        .build()
        .unwrap();
    let session = client.session().open().await.unwrap();
    *now.lock() = "lg_two";
    client.locks("").await.unwrap();
    session.close().await.unwrap();
    assert_eq!(
        server.heard(),
        [
            pair("POST /v1/sessions", "lg_one"),
            pair("GET /v1/locks", "lg_two"),
            pair("DELETE /v1/sessions/s1", "lg_one"),
        ]
    );
}

#[tokio::test]
async fn request_without_an_available_token_is_not_sent() {
    let server = Server::start(friendly).await;
    let none = || Err(TokenError::Other("the vault is closed".to_owned()));
    let builder = LockClient::builder([&server.address]).token(none);
    let client = builder.patience(Duration::from_millis(50)).build().unwrap();
    let error = client.locks("").await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable(why) if why.contains("the vault is closed")),
        "{error:?}"
    );
    assert_eq!(server.heard(), []);
}

#[tokio::test]
async fn a_refusal_of_the_caller_is_not_asked_for_again() {
    let server = Server::start(|_, _| Some((401, REFUSAL))).await;
    let token = Token::parse("lg_one").unwrap();
    let client = LockClient::builder([&server.address])
        .token(token)
        .build()
        .unwrap();
    let error = client.session().open().await.unwrap_err();
    assert!(error.is(Code::Unauthenticated), "{error:?}");
    assert_eq!(error.to_string(), "the token does not count");
    assert_eq!(server.heard(), [pair("POST /v1/sessions", "lg_one")]);
}

#[tokio::test]
async fn a_refusal_says_nothing_about_an_earlier_try() {
    // The first attempt may have been executed, and then the token is revoked.
    let server = Server::start(|_, count| (count > 1).then_some((401, REFUSAL))).await;
    let token = Token::parse("lg_one").unwrap();
    let client = LockClient::builder([&server.address])
        .token(token)
        .build()
        .unwrap();
    let error = client.drain("a", true).await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert!(server.heard().len() >= 2);

    // A request that is not idempotent is sent once.
    let server = Server::start(|_, _| None).await;
    let token = Token::parse("lg_one").unwrap();
    let client = LockClient::builder([&server.address])
        .token(token)
        .build()
        .unwrap();
    let error = client
        .access()
        .create_token("worker", "", None)
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert_eq!(server.heard().len(), 1);
}
