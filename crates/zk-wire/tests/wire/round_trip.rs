//! Property tests: arbitrary values are decoded to the same values after encoding, truncated records are
//! rejected, and bytes behind a record are left unread.

use std::fmt::Debug;

use bytes::{BufMut, Bytes, BytesMut};
use proptest::prelude::*;
use zk_wire::{
    ConnectRequest, ConnectResponse, DecodeError, Notification, Reader, Reply, ReplyHeader, Request,
    RequestHeader, frame,
};

use crate::values::{
    connect_request, connect_response, exchange, notification, reply_header, request, request_header,
};
use crate::written;

/// Bytes behind a record, which have to stay unread.
const BEHIND: &[u8] = b"more";

/// Checks one record with its value and its encoding.
fn check<T: PartialEq + Debug>(
    value: &T,
    bytes: &Bytes,
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    check_whole(value, bytes, &decode)?;
    check_cut_off(bytes, &decode)?;

    let mut longer = BytesMut::from(&bytes[..]);
    longer.put_slice(BEHIND);
    let mut from = Reader::new(longer.freeze());
    let decoded = decode(&mut from);
    prop_assert_eq!(decoded.as_ref(), Ok(value));
    prop_assert_eq!(from.remaining(), BEHIND.len());
    prop_assert!(from.end().is_err());
    Ok(())
}

fn check_whole<T: PartialEq + Debug>(
    value: &T,
    bytes: &Bytes,
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    let mut from = Reader::new(bytes.clone());
    let decoded = decode(&mut from);
    prop_assert_eq!(decoded.as_ref(), Ok(value));
    prop_assert_eq!(from.end(), Ok(()));
    Ok(())
}

fn check_cut_off<T: Debug>(
    bytes: &Bytes,
    decode: impl Fn(&mut Reader) -> Result<T, DecodeError>,
) -> Result<(), TestCaseError> {
    for length in 0..bytes.len() {
        let cut_off = decode(&mut Reader::new(bytes.slice(..length)));
        prop_assert!(
            matches!(cut_off, Err(DecodeError::Malformed(_))),
            "the first {length} of {} bytes are {cut_off:?}",
            bytes.len()
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests(request in request()) {
        let bytes = written(|to| request.encode(to));
        check(&request, &bytes, |from| Request::decode(request.op_code(), from))?;
    }

    #[test]
    fn replies((request, reply) in exchange()) {
        let bytes = written(|to| reply.encode(to));
        check(&reply, &bytes, |from| Reply::decode(&request, from))?;
    }

    #[test]
    fn request_headers(header in request_header()) {
        check(&header, &written(|to| header.encode(to)), RequestHeader::decode)?;
    }

    #[test]
    fn reply_headers(header in reply_header()) {
        check(&header, &written(|to| header.encode(to)), ReplyHeader::decode)?;
    }

    #[test]
    fn notifications(notification in notification()) {
        check(&notification, &written(|to| notification.encode(to)), Notification::decode)?;
    }

    // The last field of a handshake may be missing in older versions. So the handshake is not truncated
    // there, and no bytes follow it.

    #[test]
    fn connect_requests(mut connect in connect_request()) {
        check_whole(&connect, &written(|to| connect.encode(to)), ConnectRequest::decode)?;
        connect.read_only = None;
        let older = written(|to| connect.encode(to));
        check_whole(&connect, &older, ConnectRequest::decode)?;
        check_cut_off(&older, ConnectRequest::decode)?;
    }

    #[test]
    fn connect_responses(mut connect in connect_response()) {
        check_whole(&connect, &written(|to| connect.encode(to)), ConnectResponse::decode)?;
        connect.read_only = None;
        let older = written(|to| connect.encode(to));
        check_whole(&connect, &older, ConnectResponse::decode)?;
        check_cut_off(&older, ConnectResponse::decode)?;
    }

    #[test]
    fn streams_of_frames(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..6), chunk in 1_usize..20) {
        let mut stream = BytesMut::new();
        for body in &bodies {
            frame::write(&mut stream, |to| to.raw(body));
        }
        let mut received = BytesMut::new();
        let mut taken = Vec::new();
        for chunk in stream.chunks(chunk) {
            received.put_slice(chunk);
            while let Some(body) = frame::take(&mut received, 40)? {
                taken.push(body.to_vec());
            }
        }
        prop_assert_eq!(taken, bodies);
        prop_assert!(received.is_empty());
    }
}
