//! A connection to Redis, which sends commands and receives replies (RESP 2).

use std::io::Write as _;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Initial size of the receive buffer; most replies are far shorter.
const INITIAL_BUFFER_BYTES: usize = 4096;

/// A connection to one server.
pub struct Connection {
    stream: TcpStream,
    inbox: Vec<u8>,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A word such as `OK`.
    Simple(String),
    /// An error.
    Error(String),
    /// A number.
    Int(i64),
    /// Bytes; `None` for a missing value.
    Bulk(Option<Vec<u8>>),
}

/// Encodes a command, which may be sent many times.
pub fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write!(bytes, "*{}\r\n", parts.len()).expect("writing to a Vec succeeds");
    for part in parts {
        write!(bytes, "${}\r\n", part.len()).expect("writing to a Vec succeeds");
        bytes.extend_from_slice(part);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

impl Connection {
    /// Connects to `host:port`.
    pub async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            inbox: Vec::with_capacity(INITIAL_BUFFER_BYTES),
        })
    }

    /// Sends a command without waiting for its reply.
    pub async fn send(&mut self, command: &[u8]) -> anyhow::Result<()> {
        self.stream.write_all(command).await.context("sending")
    }

    /// Receives the next reply.
    pub async fn receive(&mut self) -> anyhow::Result<Reply> {
        loop {
            if let Some((reply, bytes)) = parse(&self.inbox)? {
                self.inbox.drain(..bytes);
                return Ok(reply);
            }
            let read = self.stream.read_buf(&mut self.inbox).await;
            ensure!(read.context("receiving")? > 0, "the server closed the connection");
        }
    }

    /// Sends a command and waits for its reply.
    pub async fn call(&mut self, command: &[u8]) -> anyhow::Result<Reply> {
        self.send(command).await?;
        self.receive().await
    }
}

/// Parses the first reply. Returns it with its length, or `None` if it is incomplete.
fn parse(received: &[u8]) -> anyhow::Result<Option<(Reply, usize)>> {
    let Some(end) = received.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let after = end + 2;
    let (kind, rest) = received[..end]
        .split_first()
        .context("a reply is an empty line")?;
    let text = || String::from_utf8_lossy(rest).into_owned();
    Ok(Some(match kind {
        b'+' => (Reply::Simple(text()), after),
        b'-' => (Reply::Error(text()), after),
        b':' => (
            Reply::Int(text().parse().context("a reply has an invalid number")?),
            after,
        ),
        b'$' => {
            let length: i64 = text().parse().context("a reply has an invalid length")?;
            let Ok(length) = usize::try_from(length) else {
                return Ok(Some((Reply::Bulk(None), after)));
            };
            if received.len() < after + length + 2 {
                return Ok(None);
            }
            let bytes = received[after..after + length].to_vec();
            (Reply::Bulk(Some(bytes)), after + length + 2)
        }
        other => bail!("a reply has an unknown type: {:?}", char::from(*other)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_replies_follow_resp2() {
        assert_eq!(command(&[b"GET", b"k"]), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        let cases: [(&[u8], Reply); 5] = [
            (b"+OK\r\n", Reply::Simple("OK".to_owned())),
            (b"-ERR no\r\n", Reply::Error("ERR no".to_owned())),
            (b":-1\r\n", Reply::Int(-1)),
            (b"$-1\r\n", Reply::Bulk(None)),
            (b"$4\r\na\r\nb\r\n", Reply::Bulk(Some(b"a\r\nb".to_vec()))),
        ];
        for (bytes, expected) in cases {
            assert_eq!(parse(bytes).unwrap(), Some((expected, bytes.len())));
            for cut in 0..bytes.len() {
                assert_eq!(parse(&bytes[..cut]).unwrap(), None, "cut at {cut}");
            }
        }
        assert!(parse(b"HTTP/1.1\r\n").is_err());
    }
}
