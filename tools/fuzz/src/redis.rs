//! The target `redis`: arbitrary bytes as a stream of requests of a Redis client.

use bytes::{BufMut, Bytes, BytesMut};
use redis_front::request::{self, MAX_ARGUMENT_BYTES, MAX_ARGUMENTS, MAX_REQUEST_BYTES, Request};

/// Number of bytes that arrive at a time in the second reading: none of the lengths in a request is a multiple of it for long.
const PIECE_BYTES: usize = 7;

/// Reads requests until the stream ends or is no longer a stream of requests. Returns their number.
pub fn run(bytes: &[u8]) -> usize {
    let mut whole = BytesMut::from(bytes);
    let (at_once, _) = requests(&mut whole);
    let mut inbox = BytesMut::new();
    let mut in_pieces = Vec::new();
    for piece in bytes.chunks(PIECE_BYTES) {
        inbox.extend_from_slice(piece);
        let (requests, is_refused) = requests(&mut inbox);
        in_pieces.extend(requests);
        assert!(
            inbox.len() <= MAX_REQUEST_BYTES + PIECE_BYTES,
            "unread bytes are bounded"
        );
        if is_refused {
            break;
        }
    }
    assert_eq!(at_once, in_pieces, "requests do not depend on how they arrive");
    for request in &at_once {
        assert!(!request.is_empty() && request.len() <= MAX_ARGUMENTS);
        assert!(
            request
                .iter()
                .all(|argument| argument.len() <= MAX_ARGUMENT_BYTES)
        );
        let mut again = stream_of(request);
        if again.len() <= MAX_REQUEST_BYTES {
            assert_eq!(request::take(&mut again), Ok(Some(request.clone())));
        }
    }
    at_once.len()
}

/// Takes all requests that have arrived. Returns them, and whether the next bytes are none.
fn requests(inbox: &mut BytesMut) -> (Vec<Request>, bool) {
    let mut taken = Vec::new();
    loop {
        match request::take(inbox) {
            Ok(Some(request)) => taken.push(request),
            Ok(None) => return (taken, false),
            Err(_) => return (taken, true),
        }
    }
}

fn stream_of(request: &[Bytes]) -> BytesMut {
    let mut stream = BytesMut::new();
    stream.put_slice(format!("*{}\r\n", request.len()).as_bytes());
    for argument in request {
        stream.put_slice(format!("${}\r\n", argument.len()).as_bytes());
        stream.put_slice(argument);
        stream.put_slice(b"\r\n");
    }
    stream
}

/// Returns first inputs: what lock libraries send, and lines as people type them.
pub fn seeds() -> Vec<Vec<u8>> {
    let arrays = [
        "HELLO 3 AUTH name token SETNAME worker",
        "SET lock:42 7f3a NX PX 10000",
        "EVALSHA c3f8721cbb97f72bc19e972846bd7aaf91901658 1 lock:42 7f3a",
        "MULTI|SET a 1 EX 5 XX GET|EXEC",
        "DEL a b c|EXISTS a|PTTL a",
    ];
    let arrays = arrays.map(|commands| {
        let requests = commands.split('|').map(|command| {
            let arguments: Vec<Bytes> = command
                .split(' ')
                .map(|argument| Bytes::copy_from_slice(argument.as_bytes()))
                .collect();
            stream_of(&arguments).to_vec()
        });
        requests.collect::<Vec<_>>().concat()
    });
    let lines = [
        &b"PING\r\nECHO \"a \\\"b\" 'c d'\n"[..],
        b"*0\r\n*-1\r\n\r\n*1\r\n$0\r\n\r\nQUIT\r\n",
        b"*1\r\n$99999999\r\n",
    ];
    arrays.into_iter().chain(lines.map(<[u8]>::to_vec)).collect()
}
