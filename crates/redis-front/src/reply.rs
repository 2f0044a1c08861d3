//! Replies, and their encoding in RESP2 and RESP3.

use bytes::{BufMut, Bytes, BytesMut};

/// Version of the protocol that a client has chosen by `HELLO`. Requests are the same in both.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Protocol {
    /// RESP2, the first one of every connection.
    #[default]
    Resp2,
    /// RESP3, which has maps and a null of its own.
    Resp3,
}

impl Protocol {
    /// Returns its number.
    pub fn number(self) -> i64 {
        match self {
            Self::Resp2 => 2,
            Self::Resp3 => 3,
        }
    }
}

/// Reply to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A status, as `OK`.
    Status(&'static str),
    /// An error: a code in capitals and a sentence.
    Error(String),
    /// A number.
    Integer(i64),
    /// Bytes.
    Bulk(Bytes),
    /// No value.
    Null,
    /// A list.
    Array(Vec<Reply>),
    /// Names with values. RESP2 has a list of both in turns.
    Map(Vec<(Bytes, Reply)>),
    /// A message that is no reply to a request, or the reply to a subscription. RESP2 has a list.
    Push(Vec<Reply>),
}

impl Reply {
    /// The reply `OK`.
    pub const OK: Self = Self::Status("OK");

    /// Returns a text as bytes.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Bulk(Bytes::from(text.into()))
    }

    /// Returns a number of things.
    pub fn count(count: usize) -> Self {
        Self::Integer(i64::try_from(count).unwrap_or(i64::MAX))
    }

    /// Returns 1 or 0.
    pub fn flag(is_set: bool) -> Self {
        Self::Integer(is_set.into())
    }

    /// Appends the bytes of the reply.
    pub fn encode(&self, protocol: Protocol, out: &mut BytesMut) {
        match self {
            Self::Status(text) => line(out, b'+', text),
            // A line end within the text would be the end of the reply.
            Self::Error(text) => line(out, b'-', &text.replace(['\r', '\n'], " ")),
            Self::Integer(number) => line(out, b':', &number.to_string()),
            Self::Bulk(bytes) => {
                line(out, b'$', &bytes.len().to_string());
                out.put_slice(bytes);
                out.put_slice(b"\r\n");
            }
            Self::Null => out.put_slice(match protocol {
                Protocol::Resp2 => b"$-1\r\n",
                Protocol::Resp3 => b"_\r\n",
            }),
            Self::Array(items) => {
                line(out, b'*', &items.len().to_string());
                items.iter().for_each(|item| item.encode(protocol, out));
            }
            Self::Map(fields) => {
                match protocol {
                    Protocol::Resp2 => line(out, b'*', &(2 * fields.len()).to_string()),
                    Protocol::Resp3 => line(out, b'%', &fields.len().to_string()),
                }
                for (name, value) in fields {
                    Self::Bulk(name.clone()).encode(protocol, out);
                    value.encode(protocol, out);
                }
            }
            Self::Push(items) => {
                let kind = match protocol {
                    Protocol::Resp2 => b'*',
                    Protocol::Resp3 => b'>',
                };
                line(out, kind, &items.len().to_string());
                items.iter().for_each(|item| item.encode(protocol, out));
            }
        }
    }
}

fn line(out: &mut BytesMut, kind: u8, text: &str) {
    out.put_u8(kind);
    out.put_slice(text.as_bytes());
    out.put_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_differ_by_protocol_in_null_and_maps() {
        let reply = Reply::Array(vec![
            Reply::OK,
            Reply::Error("ERR two\r\nlines".to_owned()),
            Reply::Integer(-2),
            Reply::text("a\r\n"),
            Reply::Null,
            Reply::Map(vec![(Bytes::from_static(b"n"), Reply::flag(true))]),
        ]);
        let encoded = |protocol| {
            let mut out = BytesMut::new();
            reply.encode(protocol, &mut out);
            String::from_utf8(out.to_vec()).unwrap()
        };
        let common = "*6\r\n+OK\r\n-ERR two  lines\r\n:-2\r\n$3\r\na\r\n\r\n";
        assert_eq!(
            encoded(Protocol::Resp2),
            format!("{common}$-1\r\n*2\r\n$1\r\nn\r\n:1\r\n")
        );
        assert_eq!(
            encoded(Protocol::Resp3),
            format!("{common}_\r\n%1\r\n$1\r\nn\r\n:1\r\n")
        );
    }
}
