//! Redis client of all nodes, with one command at a time on one connection. After an error it continues at the next node.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::result::CallResult;
use crate::world::World;

/// Time limit of connecting. A server on the same machine that takes longer is partitioned or stopped.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(700);

/// Time limit of a command, as of the other clients.
const ANSWER_TIMEOUT: Duration = super::TIMEOUT;

/// Longest value that is read; those of the workloads are shorter.
const MAX_VALUE_BYTES: usize = 4_096;

/// Reply to a command; errors are results of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// `OK`, or another status.
    Status(String),
    /// A number.
    Integer(i64),
    /// A value.
    Value(String),
    /// No value.
    Null,
}

/// Client of all nodes.
pub struct RedisClient {
    addresses: Vec<SocketAddr>,
    next: usize,
    connection: Option<BufReader<TcpStream>>,
}

impl RedisClient {
    /// Creates a client that begins with the node of its number.
    pub fn new(world: &World, number: usize) -> Self {
        Self {
            addresses: world.endpoints.iter().map(|endpoint| endpoint.redis).collect(),
            next: number,
            connection: None,
        }
    }

    /// Continues at the next node.
    pub fn move_on(&mut self) {
        self.connection = None;
        self.next += 1;
    }

    /// Sends a command of words without spaces.
    pub async fn call(&mut self, words: &[&str]) -> CallResult<RedisReply> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => match self.connect().await {
                Ok(connection) => connection,
                Err(why) => {
                    self.move_on();
                    return CallResult::Failed(why);
                }
            },
        };
        match timeout(ANSWER_TIMEOUT, exchange(&mut connection, words)).await {
            Ok(Ok(Ok(reply))) => {
                self.connection = Some(connection);
                CallResult::Ok(reply)
            }
            // The node has done nothing. It may be one of a minority.
            Ok(Ok(Err(error))) => {
                self.move_on();
                CallResult::Failed(error)
            }
            Ok(Err(error)) => {
                self.move_on();
                CallResult::Unknown(error.kind().to_string())
            }
            Err(_) => {
                self.move_on();
                CallResult::Unknown("no answer".to_owned())
            }
        }
    }

    async fn connect(&self) -> Result<BufReader<TcpStream>, String> {
        let address = self.addresses[self.next % self.addresses.len()];
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                let prepared = stream.set_nodelay(true).map(|()| BufReader::new(stream));
                prepared.map_err(|error| format!("connecting: {}", error.kind()))
            }
            Ok(Err(error)) => Err(format!("connecting: {}", error.kind())),
            Err(_) => Err("connecting: no answer".to_owned()),
        }
    }
}

/// Sends a command and reads its reply; the inner error is one that the server sent, by its code.
async fn exchange(
    connection: &mut BufReader<TcpStream>,
    words: &[&str],
) -> std::io::Result<Result<RedisReply, String>> {
    connection
        .write_all(format!("{}\r\n", words.join(" ")).as_bytes())
        .await?;
    let mut line = String::new();
    connection.read_line(&mut line).await?;
    // A connection that ends within a line has an unknown outcome, too.
    let line = line
        .strip_suffix("\r\n")
        .ok_or(std::io::ErrorKind::UnexpectedEof)?;
    let (kind, rest) = line.split_at_checked(1).ok_or(std::io::ErrorKind::InvalidData)?;
    let number = || rest.parse::<i64>().map_err(|_| std::io::ErrorKind::InvalidData);
    Ok(Ok(match kind {
        "+" => RedisReply::Status(rest.to_owned()),
        "-" => return Ok(Err(rest.split(' ').next().unwrap_or_default().to_owned())),
        ":" => RedisReply::Integer(number()?),
        "$" if rest == "-1" => RedisReply::Null,
        "$" => {
            let length = usize::try_from(number()?).unwrap_or(usize::MAX);
            if length > MAX_VALUE_BYTES {
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            let mut value = vec![0; length + 2];
            connection.read_exact(&mut value).await?;
            value.truncate(length);
            RedisReply::Value(String::from_utf8(value).map_err(|_| std::io::ErrorKind::InvalidData)?)
        }
        _ => return Err(std::io::ErrorKind::InvalidData.into()),
    }))
}
