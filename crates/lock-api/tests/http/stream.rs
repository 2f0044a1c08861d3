//! Client of event streams that behaves as a browser does. It does not know the contract.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::contract::{self, SentRequest};
use crate::support::{Reply, Server, in_time};

/// A received event.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub word: String,
    /// Id of the event, if it has one itself.
    pub id: Option<String>,
    pub data: Value,
}

/// An open stream. Dropping it disconnects the client.
pub struct Stream {
    pub socket: TcpStream,
    bytes: Vec<u8>,
    text: String,
    is_over: bool,
    /// Last id received, with or without an event.
    pub last_id: Option<String>,
}

impl Server {
    /// Follows a session: `query` begins with a question mark, or is empty.
    pub async fn follow(&self, session: &str, query: &str, last_id: Option<&str>) -> Stream {
        Stream::open(self.address, session, query, last_id).await.unwrap()
    }

    /// Opens the feed: `query` begins with a question mark, or is empty; `header` is a line of the head, or empty.
    pub async fn subscribe_feed(&self, query: &str, header: &str) -> Result<Stream, Reply> {
        Stream::open_at(
            self.address,
            "followEvents",
            &format!("/v1/events{query}"),
            header,
        )
        .await
    }

    /// Follows a session with this token.
    pub async fn follow_as(&self, token: &str, session: &str, query: &str) -> Result<Stream, Reply> {
        let shown = format!("Authorization: Bearer {token}\r\n");
        Stream::open_with(self.address, session, query, &shown).await
    }
}

impl Stream {
    /// Returns the stream, or another answer.
    pub async fn open(
        address: SocketAddr,
        session: &str,
        query: &str,
        last_id: Option<&str>,
    ) -> Result<Self, Reply> {
        let header = last_id.map_or(String::new(), |id| format!("Last-Event-ID: {id}\r\n"));
        let mut stream = Self::open_with(address, session, query, &header).await?;
        stream.last_id = last_id.map(str::to_owned);
        Ok(stream)
    }

    async fn open_with(address: SocketAddr, session: &str, query: &str, header: &str) -> Result<Self, Reply> {
        let path = format!("/v1/sessions/{session}/events{query}");
        Self::open_at(address, "followSession", &path, header).await
    }

    /// Opens another stream, by the name of its operation.
    pub async fn open_at(address: SocketAddr, id: &str, path: &str, header: &str) -> Result<Self, Reply> {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n");
        socket.write_all(head.as_bytes()).await.unwrap();
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end;
            }
            assert_ne!(
                in_time("the head comes", socket.read_buf(&mut bytes))
                    .await
                    .unwrap(),
                0
            );
        };
        let head = String::from_utf8(bytes[..end].to_vec())
            .unwrap()
            .to_ascii_lowercase();
        if !head.starts_with("http/1.1 200") {
            in_time("the answer comes", socket.read_to_end(&mut bytes))
                .await
                .unwrap();
            let refused = Reply::parse(&bytes);
            contract::hold(&SentRequest::new(address, "GET", path, None), &refused);
            return Err(refused);
        }
        for line in [
            "content-type: text/event-stream",
            "cache-control: no-store",
            "transfer-encoding: chunked",
        ] {
            assert!(head.contains(line), "{line} is missing: {head}");
        }
        contract::note(address, id, 200);
        Ok(Self {
            socket,
            bytes: bytes.split_off(end + 4),
            text: String::new(),
            is_over: false,
            last_id: None,
        })
    }

    /// Takes complete chunks out of the received bytes.
    fn unpack(&mut self) {
        while let Some(end) = self.bytes.windows(2).position(|two| two == b"\r\n") {
            let length = std::str::from_utf8(&self.bytes[..end]).unwrap();
            let length = usize::from_str_radix(length, 16).unwrap();
            if self.bytes.len() < end + 2 + length + 2 {
                return;
            }
            let rest = self.bytes.split_off(end + 2 + length + 2);
            let chunk = std::mem::replace(&mut self.bytes, rest);
            self.text
                .push_str(std::str::from_utf8(&chunk[end + 2..end + 2 + length]).unwrap());
            self.is_over |= length == 0;
        }
    }

    /// Returns the next block; `None`: the stream has ended.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some((block, rest)) = self.text.split_once("\n\n") {
                let (block, rest) = (block.to_owned(), rest.to_owned());
                self.text = rest;
                return Some(block);
            }
            if self.is_over {
                return None;
            }
            if self.socket.read_buf(&mut self.bytes).await.unwrap_or(0) == 0 {
                assert_eq!(self.text, "", "the connection was cut within an event");
                return None;
            }
            self.unpack();
        }
    }

    /// Returns the next event; `None`: the stream has ended.
    pub async fn read(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let (mut word, mut id, mut data) = (None, None, None);
            for line in block.lines() {
                match line.split_once(": ").unwrap_or_else(|| panic!("{block:?}")) {
                    ("id", text) => id = Some(text.to_owned()),
                    ("event", text) => word = Some(text.to_owned()),
                    ("data", text) => data = Some(serde_json::from_str(text).unwrap()),
                    ("" | "retry", _) => {}
                    _ => panic!("{block:?}"),
                }
            }
            if id.is_some() {
                self.last_id.clone_from(&id);
            }
            if let (Some(word), Some(data)) = (word, data) {
                contract::hold_event(&word, &data);
                return Some(Event { word, id, data });
            }
        }
    }

    /// Returns the next event, which must arrive.
    pub async fn next(&mut self) -> Event {
        in_time("the next event comes", self.read())
            .await
            .expect("the stream goes on")
    }

    /// Returns the data of the next event, which must have this name.
    pub async fn expect(&mut self, word: &str) -> Value {
        let next = self.next().await;
        assert_eq!(next.word, word, "{next:?}");
        next.data
    }

    /// Expects the end of the stream.
    pub async fn expect_end(mut self) {
        let next = in_time("the stream ends", self.read()).await;
        assert_eq!(next, None);
    }

    /// Disconnects; returns the last id received.
    pub fn leave(self) -> String {
        self.last_id.expect("it received an event")
    }
}
