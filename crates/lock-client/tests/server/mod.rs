//! Server whose answers a test chooses, and which records its requests.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on may say so shortly, also in its helpers"
)]

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Answer: a status with a document; `None` closes the connection.
pub type Answer = Option<(u16, &'static str)>;

/// Request, as far as the tests need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// Method and path, without the query.
    pub what: String,
    pub authorization: String,
    pub traceparent: String,
}

pub struct Server {
    pub address: String,
    /// Requests so far, for tests that wait for one.
    pub heard: watch::Receiver<Vec<Heard>>,
}

impl Server {
    /// Chooses the answer to a request.
    pub async fn start(answer: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (all, heard) = watch::channel(Vec::new());
        let (answer, all) = (Arc::new(answer), Arc::new(all));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, all) = (answer.clone(), all.clone());
                tokio::spawn(async move { serve(stream, &*answer, &all).await });
            }
        });
        Self { address, heard }
    }

    /// Returns the requests so far.
    pub fn heard(&self) -> Vec<Heard> {
        self.heard.borrow().clone()
    }
}

async fn serve(
    mut stream: TcpStream,
    answer: &(impl Fn(&str, usize) -> Answer + Sync),
    all: &watch::Sender<Vec<Heard>>,
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
        all.send_modify(|all| all.push(request.clone()));
        let count = all.borrow().len();
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

/// Parses a complete request.
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
        traceparent: header("traceparent"),
    })
}
