//! The target `wire`: arbitrary bytes as a stream of frames from a client or a server of ZooKeeper's
//! protocol. The target decodes each frame as every possible record, as a frame does not name its type.

pub mod seeds;

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use zk_wire::{
    ConnectRequest, ConnectResponse, DecodeError, Notification, Reader, Reply, ReplyHeader, Request,
    RequestHeader, Writer, frame,
};

/// Reads frames while there are whole ones. Returns the number of frames that decode as some record with its
/// header.
pub fn run(bytes: &[u8]) -> usize {
    let mut stream = BytesMut::from(bytes);
    let mut begin = 0;
    let mut understood = 0;
    while let Ok(Some(body)) = frame::take(&mut stream, frame::DEFAULT_MAX_LENGTH) {
        let end = bytes.len() - stream.len();
        assert_eq!(
            stream_of([&body]),
            bytes[begin..end],
            "a frame has a single encoding"
        );
        begin = end;
        understood += usize::from(run_frame(&body));
    }
    understood
}

/// Splits a stream into frames; `None` if it contains anything else.
pub fn frames_of(bytes: &[u8]) -> Option<Vec<Bytes>> {
    let mut stream = BytesMut::from(bytes);
    let mut frames = Vec::new();
    while let Some(body) = frame::take(&mut stream, bytes.len()).ok()? {
        frames.push(body);
    }
    (stream.is_empty() && !frames.is_empty()).then_some(frames)
}

/// Joins frames to a stream.
pub fn stream_of<'a>(frames: impl IntoIterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut stream = BytesMut::new();
    for body in frames {
        frame::write(&mut stream, |to| to.raw(body));
    }
    stream.to_vec()
}

fn run_frame(body: &Bytes) -> bool {
    let from = &mut Reader::new(body.clone());
    check(from, ConnectRequest::decode, ConnectRequest::encode);
    let from = &mut Reader::new(body.clone());
    check(from, ConnectResponse::decode, ConnectResponse::encode);

    let from = &mut Reader::new(body.clone());
    let is_request = check(from, RequestHeader::decode, RequestHeader::encode)
        .and_then(|header| check(from, |from| Request::decode(header.op, from), Request::encode))
        .inspect(|request| {
            if let Request::Multi(items) | Request::MultiRead(items) = request {
                let nested = |item: &Request| matches!(item, Request::Multi(_) | Request::MultiRead(_));
                assert!(!items.iter().any(nested), "a multi is nested in a multi");
            }
        })
        .is_some();

    let from = &mut Reader::new(body.clone());
    if check(from, ReplyHeader::decode, ReplyHeader::encode).is_none() {
        return is_request;
    }
    let mut is_other = check(&mut from.clone(), Notification::decode, Notification::encode).is_some();
    for request in seeds::one_for_each_reply() {
        let decode = |from: &mut Reader| Reply::decode(&request, from);
        is_other |= check(&mut from.clone(), decode, Reply::encode).is_some_and(|reply| reply != Reply::Done);
    }
    is_request || is_other
}

/// Decodes a record and checks its encoding. Encoding it yields as many bytes, which decode to the same value
/// and from then on encode to the same bytes. The first bytes may differ: `true` has many encodings, and null
/// sometimes decodes as empty.
fn check<T: PartialEq + Debug>(
    from: &mut Reader,
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
    encode: impl Fn(&T, &mut Writer<'_>),
) -> Option<T> {
    let written = |value: &T| {
        let mut bytes = BytesMut::new();
        encode(value, &mut Writer::new(&mut bytes));
        bytes.freeze()
    };
    let before = from.remaining();
    let value = decode(from).ok()?;
    let ours = written(&value);
    assert_eq!(
        ours.len(),
        before - from.remaining(),
        "the encoding of {value:?} has a different length"
    );
    let mut again_from = Reader::new(ours.clone());
    let again = decode(&mut again_from).expect("an encoded record can be decoded");
    assert_eq!(again_from.end(), Ok(()), "decoding {value:?} leaves bytes unread");
    assert_eq!(again, value, "encoding and decoding changed a record");
    assert_eq!(written(&again), ours, "encoding twice yields different bytes");
    Some(value)
}
