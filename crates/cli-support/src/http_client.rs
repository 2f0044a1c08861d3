//! Persistent HTTP/1.1 connection for the launcher, the load generator and the tests.
//!
//! A load generator on the same machine must cost less than what it measures, which is why this client
//! exists: one write and usually one read per request, no tasks, no locks. It supports what Lockgate's nodes
//! send (a status, a length, a body): no redirects, no compression, no chunked bodies.

use std::fmt::{self, Write};
use std::io;
use std::time::Duration;

use lock_client::Token;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transport_security::{ClientTls, Stream};

use crate::credentials::Credentials;

/// Maximum number of response headers; a Lockgate node sends fewer.
const MAX_HEADERS: usize = 64;

/// Maximum size of a response in bytes. A page of locks, or of children with their data, stays far below.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// Maximum time without data in a download. The node may have to write a snapshot before the first byte,
/// which takes at most two minutes.
const DOWNLOAD_IDLE_TIMEOUT: Duration = Duration::from_secs(150);

/// Bytes that a download reads at once.
const DOWNLOAD_READ_BYTES: usize = 256 * 1024;

/// Connect timeout. A live node on the same network accepts a connection sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Returns the host of `host:port`.
pub fn host_of(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Connection to one node.
pub struct Connection {
    address: String,
    /// Token that every request presents.
    token: Option<Token>,
    stream: Stream,
    request: String,
    received: Vec<u8>,
    /// True while a response is outstanding. If a caller gave up waiting for it, the next request must not
    /// read it.
    in_flight: bool,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The buffer with the last request is omitted, as it contains the token.
        f.debug_struct("Connection")
            .field("address", &self.address)
            .field("in_flight", &self.in_flight)
            .finish_non_exhaustive()
    }
}

/// Response of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// HTTP status.
    pub status: u16,
    /// Response body.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the body as JSON; null if it is not JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or(serde_json::Value::Null)
    }

    /// Returns the stable error code in the body; empty if there is none.
    pub fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    /// Returns whether an idempotent request can be sent again, here or to another node: the node did not serve it, does
    /// not know its outcome, or the answer is a proxy's and has no code.
    pub fn is_retryable(&self) -> bool {
        match self.code().as_str() {
            "unavailable" | "read_only" | "outcome_unknown" => true,
            "" => self.status >= 500,
            _ => false,
        }
    }
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn connect(address: &str) -> io::Result<Self> {
        Self::connect_with(address, None).await
    }

    /// Connects over TLS if `tls` is given.
    pub async fn connect_with(address: &str, tls: Option<&ClientTls>) -> io::Result<Self> {
        Self::connect_as(address, &Credentials::of_tls(tls)).await
    }

    /// Connects with the given credentials.
    pub async fn connect_as(address: &str, credentials: &Credentials) -> io::Result<Self> {
        let token = credentials.token_for(address)?.cloned();
        let tls = credentials.tls.as_ref();
        let dial = async {
            let socket = TcpStream::connect(address).await?;
            socket.set_nodelay(true)?;
            let Some(tls) = tls else {
                return Ok::<_, io::Error>(Stream::Plain(socket));
            };
            Ok(tls.connect(host_of(address), socket).await?)
        };
        let stream = tokio::time::timeout(CONNECT_TIMEOUT, dial)
            .await
            .map_err(|_| io::Error::new(io::ErrorKind::TimedOut, "connect timeout"))??;
        Ok(Self {
            address: address.to_owned(),
            token,
            stream,
            request: String::new(),
            received: Vec::with_capacity(4096),
            in_flight: false,
        })
    }

    /// Returns the node's address as it was given to [`Connection::connect`].
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sends a request and waits for its response. After an error, and after a cancelled call, the connection
    /// is unusable.
    pub async fn send(&mut self, method: &str, path: &str, body: &str) -> io::Result<Response> {
        if self.in_flight {
            return Err(io::Error::other(
                "an earlier request on this connection was cancelled",
            ));
        }
        self.in_flight = true;
        self.request.clear();
        let content = if body.is_empty() {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        write!(
            self.request,
            "{method} {path} HTTP/1.1\r\nhost: {}\r\n{}{content}content-length: {}\r\n\r\n{body}",
            self.address,
            Authorization(self.token.as_ref()),
            body.len(),
        )
        .expect("a String takes all that is written to it");
        self.stream.write_all(self.request.as_bytes()).await?;
        self.stream.flush().await?;
        self.received.clear();
        let response = loop {
            if self.stream.read_buf(&mut self.received).await? == 0 {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the node closed the connection",
                ));
            }
            if let Some(response) = parse(&self.received)? {
                break response;
            }
        };
        self.in_flight = false;
        Ok(response)
    }
}

/// Authorization header, empty without a token.
struct Authorization<'t>(Option<&'t Token>);

impl fmt::Display for Authorization<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(token) => write!(f, "authorization: Bearer {}\r\n", token.expose()),
            None => Ok(()),
        }
    }
}

/// Sends one request over a connection of its own.
pub async fn request(address: &str, method: &str, path: &str, body: &str) -> io::Result<Response> {
    request_with(address, None, method, path, body).await
}

/// Sends one request over a connection of its own, which uses TLS if `tls` is given.
pub async fn request_with(
    address: &str,
    tls: Option<&ClientTls>,
    method: &str,
    path: &str,
    body: &str,
) -> io::Result<Response> {
    request_as(address, &Credentials::of_tls(tls), method, path, body).await
}

/// Sends one request over a connection of its own, with the given credentials.
pub async fn request_as(
    address: &str,
    credentials: &Credentials,
    method: &str,
    path: &str,
    body: &str,
) -> io::Result<Response> {
    let mut connection = Connection::connect_as(address, credentials).await?;
    connection.send(method, path, body).await
}

/// Sends a `GET` over a connection of its own and streams the body of a 200 response to `sink`, together with
/// its total length. An error of `sink` ends the download. The body of any other response is in the returned
/// value.
///
/// # Errors
///
/// If the response ends before its length, or if no data arrives for two and a half minutes.
pub async fn download(
    address: &str,
    credentials: &Credentials,
    path: &str,
    mut sink: impl FnMut(&[u8], u64) -> io::Result<()>,
) -> io::Result<Response> {
    let mut connection = Connection::connect_as(address, credentials).await?;
    let authorization = Authorization(connection.token.as_ref());
    let request =
        format!("GET {path} HTTP/1.1\r\nhost: {address}\r\n{authorization}connection: close\r\n\r\n");
    connection.stream.write_all(request.as_bytes()).await?;
    connection.stream.flush().await?;
    let mut received = connection.received;
    let mut stream = connection.stream;
    let (status, head_bytes, body_bytes) = loop {
        read_more(&mut stream, &mut received).await?;
        if let Some(head) = parse_head(&received)? {
            break head;
        }
    };
    received.drain(..head_bytes);
    let mut response = Response {
        status,
        body: Vec::new(),
    };
    let mut left = body_bytes;
    loop {
        left = left
            .checked_sub(received.len() as u64)
            .ok_or_else(|| malformed("more than one response to one request"))?;
        match status {
            200 => sink(&received, body_bytes)?,
            _ if response.body.len() + received.len() > MAX_RESPONSE_BYTES => {
                return Err(malformed("an error response that is too long"));
            }
            _ => response.body.extend_from_slice(&received),
        }
        received.clear();
        if left == 0 {
            return Ok(response);
        }
        read_more(&mut stream, &mut received).await?;
    }
}

async fn read_more(stream: &mut Stream, received: &mut Vec<u8>) -> io::Result<()> {
    received.reserve(DOWNLOAD_READ_BYTES);
    match tokio::time::timeout(DOWNLOAD_IDLE_TIMEOUT, stream.read_buf(received)).await {
        Ok(Ok(0)) => Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "the node closed the connection before the end",
        )),
        Ok(read) => read.map(drop),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("no data received for {DOWNLOAD_IDLE_TIMEOUT:?}"),
        )),
    }
}

/// Parses status, length of the head, and length of the body. Returns `None` if the head is incomplete.
fn parse_head(received: &[u8]) -> io::Result<Option<(u16, usize, u64)>> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut head = httparse::Response::new(&mut headers);
    let head_bytes = match head.parse(received) {
        Ok(httparse::Status::Complete(bytes)) => bytes,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(malformed(&format!("not HTTP: {error}"))),
    };
    let status = head.code.ok_or_else(|| malformed("no status"))?;
    let length = head
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let body_bytes = match length {
        Some(length) => std::str::from_utf8(length.value)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
            .ok_or_else(|| malformed("invalid content-length"))?,
        None if status == 204 => 0,
        None => return Err(malformed("a response without content-length")),
    };
    Ok(Some((status, head_bytes, body_bytes)))
}

fn malformed(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.to_owned())
}

/// Parses a response. Returns `None` if it is incomplete.
fn parse(received: &[u8]) -> io::Result<Option<Response>> {
    let Some((status, head_bytes, body_bytes)) = parse_head(received)? else {
        return Ok(None);
    };
    let body_bytes = usize::try_from(body_bytes)
        .ok()
        .filter(|bytes| *bytes <= MAX_RESPONSE_BYTES)
        .ok_or_else(|| malformed("invalid content-length or too long"))?;
    let body = &received[head_bytes..];
    match body.len() {
        have if have < body_bytes => Ok(None),
        have if have == body_bytes => Ok(Some(Response {
            status,
            body: body.to_vec(),
        })),
        _ => Err(malformed("more than one response to one request")),
    }
}

/// Bytes that are escaped in a path: all but RFC 3986's unreserved characters and the slash.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

/// Percent-encodes a lock's name (or a znode's path) for a URL. Slashes stay, because they separate the
/// levels of the hierarchy.
pub fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, ESCAPED).to_string()
}

/// Percent-encodes the value of a parameter in a URL.
pub fn encode_query(value: &str) -> String {
    encode_path(value).replace('/', "%2F")
}

/// Sends a `GET` over a connection of its own and hands each line of the body of a 200 response to `sink`, until
/// the server ends the stream or `sink` returns `false`. The body of any other response is in the returned value.
pub async fn stream_lines(
    address: &str,
    credentials: &Credentials,
    path: &str,
    mut sink: impl FnMut(&str) -> anyhow::Result<bool>,
) -> anyhow::Result<Response> {
    let mut connection = Connection::connect_as(address, credentials).await?;
    let authorization = Authorization(connection.token.as_ref());
    // HTTP/1.0 has no chunks: the body is all that comes until the end of the connection.
    let request = format!("GET {path} HTTP/1.0\r\nhost: {address}\r\n{authorization}\r\n");
    connection.stream.write_all(request.as_bytes()).await?;
    connection.stream.flush().await?;
    let (mut stream, mut received, mut status) = (connection.stream, Vec::new(), None);
    loop {
        if status.is_none() {
            let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
            let mut head = httparse::Response::new(&mut headers);
            if let httparse::Status::Complete(bytes) = head.parse(&received)? {
                status = Some(head.code.unwrap_or_default());
                received.drain(..bytes);
            }
        }
        while status == Some(200)
            && let Some(end) = received.iter().position(|byte| *byte == b'\n')
        {
            let line: Vec<u8> = received.drain(..=end).collect();
            if !sink(String::from_utf8_lossy(&line).trim_end())? {
                return Ok(Response {
                    status: 200,
                    body: Vec::new(),
                });
            }
        }
        let read = stream.read_buf(&mut received).await?;
        if read == 0 || received.len() > MAX_RESPONSE_BYTES {
            let status = status.ok_or_else(|| malformed("the connection ended before a response"))?;
            return Ok(Response {
                status,
                body: received,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_parser_accepts_waits_or_rejects() {
        let whole = b"HTTP/1.1 409 Conflict\r\ncontent-length: 16\r\n\r\n{\"code\":\"busy!\"}";
        for cut in 0..whole.len() {
            assert_eq!(parse(&whole[..cut]).unwrap(), None, "cut at {cut}");
        }
        let response = parse(whole).unwrap().unwrap();
        assert_eq!((response.status, response.code().as_str()), (409, "busy!"));
        assert_eq!(
            parse(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().unwrap().status,
            204
        );
        assert!(parse(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
        assert!(parse(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nab").is_err());
        assert!(parse(b"SSH-2.0-OpenSSH\r\n").is_err());
    }

    #[test]
    fn names_are_encoded_byte_by_byte() {
        assert_eq!(encode_path("orders/4 2?ä%"), "orders/4%202%3F%C3%A4%25");
    }
}
