//! One connection to one server, and requests over it one after another: the only door to the HTTP library. What an answer
//! means is decided elsewhere; here is only told whether the server may have seen the request.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::AbortOnDropHandle;

/// A server on the same machine that does not take a connection for so long is cut off or stopped.
const CONNECT_PATIENCE: Duration = Duration::from_millis(700);

/// The largest answer that is read: a page of a thousand znodes or holds stays far below.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// A connection that is kept alive between requests.
pub struct Connection {
    to: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    /// Ends the connection when it is dropped, by which a server learns that nobody waits for its answer.
    _driver: AbortOnDropHandle<()>,
}

/// What a server answered.
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// Why there is no answer.
pub enum Silence {
    /// The server has certainly not seen the request.
    NotSent(String),
    /// It was sent, or begun to be.
    Broken(String),
}

impl Connection {
    /// Connects.
    pub async fn open(to: SocketAddr) -> Result<Self, Silence> {
        let not_sent = |why: String| Silence::NotSent(format!("connecting: {why}"));
        let stream = match tokio::time::timeout(CONNECT_PATIENCE, TcpStream::connect(to)).await {
            Ok(stream) => stream.map_err(|error| not_sent(error.kind().to_string()))?,
            Err(_) => return Err(not_sent("no answer".to_owned())),
        };
        stream
            .set_nodelay(true)
            .map_err(|error| not_sent(error.to_string()))?;
        let (sender, driver) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| not_sent(error.to_string()))?;
        let driver = tokio::spawn(async move {
            // Whoever waits for an answer gets the same error.
            driver.await.ok();
        });
        Ok(Self {
            to,
            sender,
            _driver: AbortOnDropHandle::new(driver),
        })
    }

    /// Whether another request can be sent over it.
    pub async fn is_usable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request and reads the answer. After an error, and after a call that was dropped before its end, the
    /// connection is of no more use.
    pub async fn send(&mut self, method: Method, path: &str, body: Bytes) -> Result<Answered, Silence> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.to.to_string());
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| Silence::NotSent(format!("{path}: {error}")))?;
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                // The library gives back what it has not begun to write.
                let untouched = error.take_message().is_some();
                let why = with_causes(error.error());
                return Err(match untouched {
                    true => Silence::NotSent(why),
                    false => Silence::Broken(why),
                });
            }
        };
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
        match body.await {
            Ok(body) => Ok(Answered {
                status,
                body: body.to_bytes(),
            }),
            Err(error) => Err(Silence::Broken(format!("in the answer: {error}"))),
        }
    }
}

/// An error in one line: the library's own text says little without what caused it.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
