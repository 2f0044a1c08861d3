//! One connection to one server, with one request at a time; the only module that uses the HTTP library. It
//! reports whether the server may have seen a request; the meaning of a response is decided elsewhere.

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

const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Time limit of connecting. A server on the same machine that takes longer is partitioned or stopped.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);

/// Largest response body that is read; a page of a thousand znodes or holds stays far below.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Keep-alive HTTP connection.
pub struct Connection {
    to: SocketAddr,
    sender: SendRequest<Full<Bytes>>,
    /// Ends the connection when it is dropped, by which the server notices that the client has gone.
    _driver: AbortOnDropHandle<()>,
}

/// Response of a server.
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Bytes,
}

/// Reason for a missing response.
pub enum RequestError {
    /// The server has certainly not seen the request.
    NotSent(String),
    /// The request was sent, at least in part.
    Broken(String),
}

impl Connection {
    /// Opens a connection.
    pub async fn open(to: SocketAddr) -> Result<Self, RequestError> {
        let not_sent = |why: String| RequestError::NotSent(format!("connecting: {why}"));
        let stream = match tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await {
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
            // The error is returned to the caller of `send` as well.
            driver.await.ok();
        });
        Ok(Self {
            to,
            sender,
            _driver: AbortOnDropHandle::new(driver),
        })
    }

    /// Returns whether another request can be sent on this connection.
    pub async fn is_usable(&mut self) -> bool {
        self.sender.ready().await.is_ok()
    }

    /// Sends a request, with an `Idempotency-Key` if there is one, and reads the response. After an error, and
    /// after a call whose future was dropped before its end, the connection is unusable.
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
        key: Option<&str>,
    ) -> Result<Response, RequestError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.to.to_string());
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(key) = key {
            request = request.header(IDEMPOTENCY_KEY, key);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| RequestError::NotSent(format!("{path}: {error}")))?;
        let response = match self.sender.try_send_request(request).await {
            Ok(response) => response,
            Err(mut error) => {
                // The library returns a request that it has not begun to write.
                let untouched = error.take_message().is_some();
                let why = with_causes(error.error());
                return Err(match untouched {
                    true => RequestError::NotSent(why),
                    false => RequestError::Broken(why),
                });
            }
        };
        let status = response.status().as_u16();
        let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES).collect();
        match body.await {
            Ok(body) => Ok(Response {
                status,
                body: body.to_bytes(),
            }),
            Err(error) => Err(RequestError::Broken(format!("in the response: {error}"))),
        }
    }
}

/// Formats an error with its causes in one line: the library's own text says little without them.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
