//! Who calls, as a server hears it: which token comes with which request, and what becomes of a refusal. The server here is a
//! listener that says what a test has told it to.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

use std::sync::Arc;
use std::time::Duration;

use lock_client::{Code, Error, LockClient, Token, TokenError};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a server answers: a status with a document; or nothing, and it hangs up.
type Answer = Option<(u16, &'static str)>;

/// A request, as far as it matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Heard {
    /// Method and path, without the query.
    what: String,
    authorization: String,
}

struct Server {
    address: String,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl Server {
    /// Answers each request by what it is.
    async fn start(answer: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (answer, all) = (Arc::new(answer), heard.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, all) = (answer.clone(), all.clone());
                tokio::spawn(async move { serve(stream, &*answer, &all).await });
            }
        });
        Self { address, heard }
    }

    fn heard(&self) -> Vec<(String, String)> {
        let heard = self.heard.lock().clone();
        heard.into_iter().map(|it| (it.what, it.authorization)).collect()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&str, usize) -> Answer + Sync),
    all: &Mutex<Vec<Heard>>,
) {
    let mut received = Vec::new();
    loop {
        let request = loop {
            if let Some(request) = take_request(&mut received) {
                break request;
            }
            match stream.read_buf(&mut received).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
        };
        let count = {
            let mut all = all.lock();
            all.push(request.clone());
            all.len()
        };
        let Some((status, body)) = answer(&request.what, count) else {
            return;
        };
        let length = body.len();
        let text = format!("HTTP/1.1 {status} x\r\ncontent-length: {length}\r\n\r\n{body}");
        if stream.write_all(text.as_bytes()).await.is_err() {
            return;
        }
    }
}

/// Takes a request that is there as a whole.
fn take_request(received: &mut Vec<u8>) -> Option<Heard> {
    let text = String::from_utf8_lossy(received).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n")?;
    let header = |name: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(':'));
        let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
        found
            .map(|(_, value)| value.trim().to_owned())
            .unwrap_or_default()
    };
    let length: usize = header("content-length").parse().unwrap_or(0);
    if rest.len() < length {
        return None;
    }
    received.drain(..head.len() + 4 + length);
    let mut first = head.lines().next()?.split(' ');
    let (method, path) = (first.next()?, first.next()?);
    let path = path.split('?').next()?;
    Some(Heard {
        what: format!("{method} {path}"),
        authorization: header("authorization"),
    })
}

fn friendly(what: &str, _: usize) -> Answer {
    Some(match what {
        "POST /v1/sessions" => (201, r#"{"session": "s1", "ttl_ms": 60000}"#),
        "DELETE /v1/sessions/s1" => (204, ""),
        "GET /v1/locks" => (200, r#"{"locks": [], "next_after": null}"#),
        other => panic!("{other} is not expected"),
    })
}

const REFUSAL: &str = r#"{"code": "unauthenticated", "detail": "the token does not count", "status": 401}"#;

fn pair(what: &str, token: &str) -> (String, String) {
    (what.to_owned(), format!("Bearer {token}"))
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
async fn nothing_is_sent_without_the_token_that_there_should_be() {
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
    // The first try is perhaps carried out, and then the token is revoked.
    let server = Server::start(|_, count| (count > 1).then_some((401, REFUSAL))).await;
    let token = Token::parse("lg_one").unwrap();
    let client = LockClient::builder([&server.address])
        .token(token)
        .build()
        .unwrap();
    let error = client.drain("a", true).await.unwrap_err();
    assert!(matches!(error, Error::Unknown(_)), "{error:?}");
    assert!(server.heard().len() >= 2);

    // What must not be done twice is not even tried twice.
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
