//! Decoder of requests: arrays of bulk strings, and inline commands. Requests of RESP2 and of RESP3 are the same.
//!
//! It takes bytes as they arrive and holds no state of its own. Everything that a client can make large is bounded, because the node decodes
//! requests of clients that have not authenticated yet.

use bytes::{Buf, Bytes, BytesMut};

/// Maximum number of bytes of one argument. The longest are the scripts of libraries, of a few thousand bytes.
pub const MAX_ARGUMENT_BYTES: usize = 16 * 1024;

/// Maximum number of arguments of one request. The longest are `DEL` and `EXISTS` with many keys.
pub const MAX_ARGUMENTS: usize = 1_024;

/// Maximum number of bytes of one request, with its lengths and line ends. A connection holds no more unread bytes than this and one read.
pub const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Maximum number of bytes of an inline command, which people type.
pub const MAX_INLINE_BYTES: usize = 4 * 1024;

/// Maximum number of bytes of a line with a length: a sign and the digits of 64 bits.
const MAX_LENGTH_LINE_BYTES: usize = 32;

/// Arguments of a request; the first one is the command's name.
pub type Request = Vec<Bytes>;

/// Bytes that are no request, or a request beyond a bound. The connection cannot continue after it. The texts are Redis' own where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The number of arguments is no number, or beyond [`MAX_ARGUMENTS`].
    #[error("Protocol error: invalid multibulk length")]
    ArrayLength,
    /// The length of an argument is no number, or beyond [`MAX_ARGUMENT_BYTES`].
    #[error("Protocol error: invalid bulk length")]
    BulkLength,
    /// An argument is no bulk string; nested arrays are none either.
    #[error("Protocol error: expected '$'")]
    NoBulk,
    /// An argument does not end where its length says.
    #[error("Protocol error: expected a line end after an argument")]
    NoLineEnd,
    /// An inline command beyond [`MAX_INLINE_BYTES`].
    #[error("Protocol error: too big inline request")]
    InlineLength,
    /// A quote of an inline command is not closed.
    #[error("Protocol error: unbalanced quotes in request")]
    Quotes,
    /// The request is beyond [`MAX_REQUEST_BYTES`].
    #[error("Protocol error: the request is longer than 65536 bytes")]
    RequestLength,
}

/// Removes the first request from `inbox`; `None` if it has not arrived completely. Empty requests are skipped, as in Redis.
pub fn take(inbox: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
    while let Some(first) = inbox.first() {
        let request = match first {
            b'*' => array(inbox)?,
            _ => inline(inbox)?,
        };
        match request {
            Some(request) if request.is_empty() => {}
            Some(request) => return Ok(Some(request)),
            None if inbox.len() > MAX_REQUEST_BYTES => return Err(ProtocolError::RequestLength),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Removes an array of bulk strings.
fn array(inbox: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
    let Some((ranges, end)) = arguments(inbox)? else {
        return Ok(None);
    };
    if end > MAX_REQUEST_BYTES {
        return Err(ProtocolError::RequestLength);
    }
    let request = inbox.split_to(end).freeze();
    let argument = |(start, end)| request.slice(start..end);
    Ok(Some(ranges.into_iter().map(argument).collect()))
}

/// Beginnings and ends of the arguments in the bytes, and the end of the request.
type Ranges = (Vec<(usize, usize)>, usize);

fn arguments(bytes: &[u8]) -> Result<Option<Ranges>, ProtocolError> {
    let Some((count, mut at)) = length(bytes, 1, ProtocolError::ArrayLength)? else {
        return Ok(None);
    };
    // Redis skips arrays without a length.
    let count = usize::try_from(count).unwrap_or(0);
    if count > MAX_ARGUMENTS {
        return Err(ProtocolError::ArrayLength);
    }
    let mut ranges = Vec::new();
    for _ in 0..count {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(ProtocolError::NoBulk),
        }
        let Some((bulk, start)) = length(bytes, at + 1, ProtocolError::BulkLength)? else {
            return Ok(None);
        };
        let bulk = usize::try_from(bulk).map_err(|_| ProtocolError::BulkLength)?;
        if bulk > MAX_ARGUMENT_BYTES {
            return Err(ProtocolError::BulkLength);
        }
        let end = start + bulk;
        match bytes.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => {}
            Some(_) => return Err(ProtocolError::NoLineEnd),
        }
        ranges.push((start, end));
        at = end + 2;
    }
    Ok(Some((ranges, at)))
}

/// Reads a line with a number that begins at `start`. Returns the number and the beginning of the next line.
fn length(bytes: &[u8], start: usize, wrong: ProtocolError) -> Result<Option<(i64, usize)>, ProtocolError> {
    let line = &bytes[start..bytes.len().min(start + MAX_LENGTH_LINE_BYTES)];
    let Some(end) = line.iter().position(|byte| *byte == b'\r') else {
        return match line.len() == MAX_LENGTH_LINE_BYTES {
            true => Err(wrong),
            false => Ok(None),
        };
    };
    match bytes.get(start + end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(wrong),
    }
    let number = std::str::from_utf8(&line[..end])
        .ok()
        .and_then(|text| text.parse().ok());
    Ok(Some((number.ok_or(wrong)?, start + end + 2)))
}

/// Removes a command that is a line of words, as people type it.
fn inline(inbox: &mut BytesMut) -> Result<Option<Request>, ProtocolError> {
    let Some(end) = inbox
        .iter()
        .take(MAX_INLINE_BYTES)
        .position(|byte| *byte == b'\n')
    else {
        return match inbox.len() >= MAX_INLINE_BYTES {
            true => Err(ProtocolError::InlineLength),
            false => Ok(None),
        };
    };
    let line = inbox.split_to(end);
    inbox.advance(1);
    words(&line).map(Some)
}

/// Splits a line into words, of which some may be in quotes.
fn words(line: &[u8]) -> Result<Request, ProtocolError> {
    let mut words = Vec::new();
    let mut rest = line.iter().copied().peekable();
    while let Some(first) = rest.next() {
        if first.is_ascii_whitespace() {
            continue;
        }
        let mut word = Vec::new();
        let quote = (first == b'"' || first == b'\'').then_some(first);
        match quote {
            Some(quote) => loop {
                match rest.next().ok_or(ProtocolError::Quotes)? {
                    byte if byte == quote => break,
                    b'\\' if rest.peek().is_some() => word.extend(rest.next()),
                    byte => word.push(byte),
                }
            },
            None => {
                word.push(first);
                while let Some(byte) = rest.next_if(|byte| !byte.is_ascii_whitespace()) {
                    word.push(byte);
                }
            }
        }
        words.push(Bytes::from(word));
        if words.len() > MAX_ARGUMENTS {
            return Err(ProtocolError::ArrayLength);
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<Vec<Vec<u8>>>, ProtocolError> {
        let mut inbox = BytesMut::from(bytes);
        let mut requests = Vec::new();
        while let Some(request) = take(&mut inbox)? {
            requests.push(request.iter().map(|argument| argument.to_vec()).collect());
        }
        Ok(requests)
    }

    #[test]
    fn pipelined_requests_are_taken_one_by_one() {
        let bytes =
            b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n*0\r\n*-1\r\n\r\nPING \"a \\\"b\" 'c d'\r\n*1\r\n$0\r\n\r\n";
        let expected: Vec<Vec<Vec<u8>>> = vec![
            vec![b"GET".to_vec(), b"k".to_vec()],
            vec![b"PING".to_vec(), b"a \"b".to_vec(), b"c d".to_vec()],
            vec![Vec::new()],
        ];
        assert_eq!(all(bytes), Ok(expected));
    }

    #[test]
    fn unfinished_request_is_left_until_the_rest_arrives() {
        let bytes = b"*2\r\n$4\r\nECHO\r\n$3\r\na\r\n\r\n";
        for cut in 0..bytes.len() {
            let mut inbox = BytesMut::from(&bytes[..cut]);
            assert_eq!(take(&mut inbox), Ok(None), "{cut}");
            inbox.extend_from_slice(&bytes[cut..]);
            let request = take(&mut inbox).unwrap().unwrap();
            assert_eq!(request, [&b"ECHO"[..], b"a\r\n"], "{cut}");
            assert!(inbox.is_empty());
        }
    }

    #[test]
    fn requests_beyond_a_bound_are_refused_before_they_arrive() {
        let bound = MAX_ARGUMENT_BYTES;
        for (bytes, expected) in [
            ("*1025\r\n".to_owned(), ProtocolError::ArrayLength),
            ("*x\r\n".to_owned(), ProtocolError::ArrayLength),
            (format!("*{}", "1".repeat(40)), ProtocolError::ArrayLength),
            (format!("*1\r\n${}\r\n", bound + 1), ProtocolError::BulkLength),
            ("*1\r\n$-1\r\n".to_owned(), ProtocolError::BulkLength),
            ("*1\r\n*1\r\n".to_owned(), ProtocolError::NoBulk),
            ("*1\r\n$1\r\nabc".to_owned(), ProtocolError::NoLineEnd),
            ("a".repeat(MAX_INLINE_BYTES), ProtocolError::InlineLength),
            ("SET \"a\r\n".to_owned(), ProtocolError::Quotes),
        ] {
            assert_eq!(all(bytes.as_bytes()), Err(expected), "{bytes:?}");
        }
        let argument = format!("${bound}\r\n{}\r\n", "a".repeat(bound));
        let request = format!("*4\r\n{}", argument.repeat(4));
        assert_eq!(all(request.as_bytes()), Err(ProtocolError::RequestLength));
    }
}
