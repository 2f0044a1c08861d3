//! HTTP/1.1 connection for a load at minimal cost: requests are templates with variable parts, and only the
//! necessary parts of a response are parsed. For everything else there is
//! [`http_client`](cli_support::http_client).
//!
//! On a machine that nodes and clients share, the nodes cannot use the CPU time of the clients.

use std::io::Write as _;

use anyhow::{Context, bail, ensure};
use cli_support::http_client::host_of;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use transport_security::Stream;

use crate::nodes::Nodes;

/// Initial capacity of the buffers in bytes; most responses are far shorter, and longer ones make a buffer
/// grow.
const ROOM: usize = 4096;

/// Maximum size of a response body in bytes, far above that of a load's requests.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// Request with a variable part in its path and one in its body, each of which may be empty.
#[derive(Debug, Clone)]
pub(super) struct Template {
    /// Request line up to the variable part.
    line: String,
    /// Rest of the head up to the body's length.
    head: String,
    body: [String; 2],
}

impl Template {
    /// Creates a template. `path` and `body` have at most one `{}` each, for the variable part.
    pub fn new(wire: &Wire, method: &str, path: &str, body: &str) -> Self {
        let (before, after) = path.split_once("{}").unwrap_or((path, ""));
        let content = if body.is_empty() {
            ""
        } else {
            "content-type: application/json\r\n"
        };
        let (body_before, body_after) = body.split_once("{}").unwrap_or((body, ""));
        Self {
            line: format!("{method} {before}"),
            head: format!("{after} HTTP/1.1\r\n{}{content}content-length: ", wire.headers),
            body: [body_before.to_owned(), body_after.to_owned()],
        }
    }
}

/// Connection to one node. See the module.
pub(super) struct Wire {
    stream: Stream,
    /// Headers of all requests.
    headers: String,
    out: Vec<u8>,
    inbox: Vec<u8>,
}

impl Wire {
    /// Connects to the node for the client with this number.
    pub async fn connect(nodes: &Nodes, number: usize) -> anyhow::Result<Self> {
        let address = nodes.address(number);
        let connect = async {
            let credentials = nodes.credentials();
            let token = credentials.token_for(address)?;
            let socket = TcpStream::connect(address).await?;
            // Requests are single small writes; Nagle's algorithm would hold each back for the last one's ACK.
            socket.set_nodelay(true)?;
            let stream = match &credentials.tls {
                Some(tls) => tls.connect(host_of(address), socket).await?,
                None => Stream::Plain(socket),
            };
            let mut headers = format!("host: {address}\r\n");
            if let Some(token) = token {
                headers += &format!("authorization: Bearer {}\r\n", token.expose());
            }
            anyhow::Ok(Self {
                stream,
                headers,
                out: Vec::with_capacity(ROOM),
                inbox: Vec::with_capacity(ROOM),
            })
        };
        connect.await.with_context(|| format!("connecting to {address}"))
    }

    /// Sends a request with these variable parts, and returns the body of a successful response.
    pub async fn send(&mut self, request: &Template, in_path: &str, in_body: &str) -> anyhow::Result<&[u8]> {
        let [before, after] = &request.body;
        self.out.clear();
        self.out.extend_from_slice(request.line.as_bytes());
        self.out.extend_from_slice(in_path.as_bytes());
        self.out.extend_from_slice(request.head.as_bytes());
        let length = before.len() + in_body.len() + after.len();
        write!(self.out, "{length}\r\n\r\n").expect("a Vec takes all that is written to it");
        for part in [before, in_body, after] {
            self.out.extend_from_slice(part.as_bytes());
        }
        self.stream.write_all(&self.out).await.context("sending")?;
        self.stream.flush().await.context("sending")?;

        self.inbox.clear();
        let (status, head_bytes) = loop {
            let read = self.stream.read_buf(&mut self.inbox).await;
            if read.context("receiving")? == 0 {
                bail!("the node closed the connection");
            }
            let Some(head) = Head::of(&self.inbox)? else {
                continue;
            };
            if self.inbox.len() >= head.bytes + head.body_bytes {
                ensure!(
                    self.inbox.len() == head.bytes + head.body_bytes,
                    "more than one response to one request"
                );
                break (head.status, head.bytes);
            }
        };
        let body = &self.inbox[head_bytes..];
        if !(200..300).contains(&status) {
            bail!("{status}: {}", String::from_utf8_lossy(body));
        }
        Ok(body)
    }
}

/// Parsed head of a response.
#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    bytes: usize,
    body_bytes: usize,
}

impl Head {
    /// Parses the head; `None` if it is incomplete.
    fn of(received: &[u8]) -> anyhow::Result<Option<Self>> {
        const LENGTH: &[u8] = b"content-length:";
        let mut lines = Lines(received, 0);
        let Some(first) = lines.next() else {
            ensure!(received.len() <= ROOM, "this is not HTTP");
            return Ok(None);
        };
        let status = first.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3));
        let status = status.and_then(number).context("this is not HTTP/1.1")? as u16;
        let mut body_bytes = 0;
        while let Some(line) = lines.next() {
            if line.is_empty() {
                return Ok(Some(Self {
                    status,
                    bytes: lines.1,
                    body_bytes,
                }));
            }
            let name = line.get(..LENGTH.len());
            if name.is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)) {
                let length = number(line[LENGTH.len()..].trim_ascii());
                let length = length.filter(|bytes| *bytes <= MAX_RESPONSE_BYTES);
                body_bytes = length.context("invalid content-length")?;
            }
        }
        Ok(None)
    }
}

/// Iterator over lines that end with CR and LF, with the offset of the rest.
struct Lines<'a>(&'a [u8], usize);

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = &self.0[self.1..];
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        self.1 += end + 1;
        let line = &rest[..end];
        Some(line.strip_suffix(b"\r").unwrap_or(line))
    }
}

fn number(digits: &[u8]) -> Option<usize> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Returns the values of all text fields with this name in a JSON document. Lockgate's ids contain no
/// characters that JSON escapes.
pub(super) fn texts<'a>(document: &'a [u8], name: &str) -> impl Iterator<Item = &'a str> {
    let document = std::str::from_utf8(document).unwrap_or_default();
    let key = format!("\"{name}\":\"");
    let mut rest = document;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(key.as_str())?;
        let (text, after) = after.split_once('"')?;
        rest = after;
        Some(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_parser_accepts_waits_or_rejects() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 16\r\nx-other: 7\r\n\r\n";
        for cut in 0..whole.len() {
            assert_eq!(Head::of(&whole[..cut]).unwrap(), None, "cut at {cut}");
        }
        let head = Head::of(whole).unwrap().unwrap();
        assert_eq!((head.status, head.bytes, head.body_bytes), (200, whole.len(), 16));
        let empty = Head::of(b"HTTP/1.1 204 No Content\r\n\r\nrest").unwrap().unwrap();
        assert_eq!((empty.status, empty.body_bytes), (204, 0));
        assert!(Head::of(b"SSH-2.0-OpenSSH\r\n").is_err());
        assert!(Head::of(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n").is_err());
    }

    #[test]
    fn text_fields_are_found_in_order() {
        let document = br#"{"holders":[{"lock":"a","holder":"h-1"},{"lock":"b","holder":"h-2"}]}"#;
        assert_eq!(texts(document, "holder").collect::<Vec<_>>(), ["h-1", "h-2"]);
        assert_eq!(texts(document, "none").next(), None);
        assert_eq!(texts(&[0xff], "holder").next(), None);
    }
}
