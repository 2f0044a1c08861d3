//! Bytes that must be rejected. `round_trip` covers truncated records.

use bytes::{BufMut, BytesMut};
use zk_wire::{DecodeError, FrameError, Reader, Reply, Request, frame, op_code};

use crate::unhex;

#[track_caller]
fn is_malformed(op: i32, hex: &str) {
    let decoded = Request::decode(op, &mut Reader::new(unhex(hex)));
    assert!(matches!(decoded, Err(DecodeError::Malformed(_))), "{decoded:?}");
}

#[test]
fn operations_that_clients_may_not_send_are_unknown() {
    let internal = [
        op_code::NOTIFICATION,
        op_code::ERROR,
        op_code::CREATE_SESSION,
        op_code::DELETE_CONTAINER,
    ];
    for op in internal
        .into_iter()
        .chain([10, 23, 99, 108, 500, i32::MAX, i32::MIN])
    {
        let decoded = Request::decode(op, &mut Reader::new(unhex("00000000")));
        assert_eq!(decoded, Err(DecodeError::UnknownOperation(op)));
    }
}

#[test]
fn invalid_texts_are_malformed() {
    is_malformed(op_code::GET_ACL, "ffffffff");
    is_malformed(op_code::GET_ACL, "fffffffe 2f");
    is_malformed(op_code::GET_ACL, "00000002 c328");
    // A surrogate, as Java's client encodes characters beyond the first 65,536. Paths must not contain them.
    is_malformed(op_code::GET_ACL, "00000004 2feda080");
}

#[test]
fn invalid_lists_are_malformed() {
    let set_watches = "0000000000000001";
    is_malformed(
        op_code::SET_WATCHES,
        &format!("{set_watches} ffffffff 00000000 00000000"),
    );
    is_malformed(
        op_code::SET_WATCHES,
        &format!("{set_watches} fffffffe 00000000 00000000"),
    );
    is_malformed(
        op_code::SET_WATCHES,
        &format!("{set_watches} 00000001 ffffffff 00000000 00000000"),
    );
    is_malformed(op_code::SET_ACL, "00000002 2f61 fffffffe 00000000");
    // The older form has too few lists for the newer request.
    is_malformed(
        op_code::SET_WATCHES2,
        &format!("{set_watches} 00000000 00000000 00000000"),
    );
}

/// Trusting these lengths would allocate gigabytes.
#[test]
fn lengths_beyond_the_frame_are_malformed() {
    is_malformed(op_code::GET_ACL, "7fffffff 2f");
    is_malformed(op_code::SASL, "7fffffff 00");
    is_malformed(
        op_code::SET_WATCHES,
        "0000000000000001 7fffffff 00000000 00000000",
    );
    is_malformed(op_code::SET_ACL, "00000002 2f61 7fffffff 0000001f");
    let children = Request::GetChildren {
        path: "/".to_owned(),
        watch: false,
    };
    let decoded = Reply::decode(&children, &mut Reader::new(unhex("7fffffff 00000001 61")));
    assert!(matches!(decoded, Err(DecodeError::Malformed(_))), "{decoded:?}");
}

#[test]
fn multis_reject_other_operations() {
    const END: &str = "ffffffff 01 ffffffff";
    let get_data = "00000004 00 ffffffff 00000002 2f61 00";
    let delete = "00000002 00 ffffffff 00000002 2f61 ffffffff";
    // A multiRead accepts only reads and a multi only writes, so they cannot be mixed.
    is_malformed(op_code::MULTI, &format!("{get_data} {END}"));
    is_malformed(op_code::MULTI_READ, &format!("{delete} {END}"));
    is_malformed(op_code::MULTI, &format!("{delete} {get_data} {END}"));
    // A multi in a multi is rejected at any depth.
    let nested = "0000000e 00 ffffffff".repeat(10_000);
    is_malformed(op_code::MULTI, &format!("{nested} {END}"));
    is_malformed(op_code::MULTI_READ, &format!("{nested} {END}"));
    // Unsupported items: setACL, exists, auth, ping, closeSession, and unknown codes.
    for item in [
        "00000007", "00000003", "00000064", "0000000b", "fffffff5", "ffffffff", "00000063",
    ] {
        is_malformed(op_code::MULTI, &format!("{item} 00 ffffffff {END}"));
        is_malformed(op_code::MULTI_READ, &format!("{item} 00 ffffffff {END}"));
    }
    // Without an end mark.
    is_malformed(op_code::MULTI, delete);
    // A result of a type that no result has.
    let decoded = Reply::decode(
        &Request::Multi(vec![]),
        &mut Reader::new(unhex(&format!("00000003 00 00000000 {END}"))),
    );
    assert!(matches!(decoded, Err(DecodeError::Malformed(_))), "{decoded:?}");
}

#[test]
fn invalid_frame_lengths_are_rejected() {
    let mut negative = BytesMut::from(&unhex("ffffffff")[..]);
    assert_eq!(frame::take(&mut negative, 100), Err(FrameError::Negative(-1)));
    // Rejected as soon as the length is known, before the body arrives.
    let mut long = BytesMut::from(&unhex("00000065")[..]);
    let too_long = FrameError::TooLong {
        length: 101,
        max: 100,
    };
    assert_eq!(frame::take(&mut long, 100), Err(too_long));
    // The four-letter word `ruok`, read as a length, exceeds every maximum.
    let mut word = BytesMut::from(&b"ruok"[..]);
    assert!(frame::take(&mut word, frame::DEFAULT_MAX_LENGTH).is_err());
}

#[test]
fn incomplete_frames_are_awaited() {
    let mut stream = BytesMut::new();
    for byte in unhex("00000003 616263") {
        assert_eq!(frame::take(&mut stream, 3), Ok(None));
        stream.put_u8(byte);
    }
    stream.put_u8(0);
    let body = frame::take(&mut stream, 3).expect("it is not too long");
    assert_eq!(body.as_deref(), Some(&b"abc"[..]));
    assert_eq!(&stream[..], [0]);
    // An empty frame is a frame, too.
    let mut empty = BytesMut::from(&unhex("00000000")[..]);
    assert_eq!(frame::take(&mut empty, 0), Ok(Some(bytes::Bytes::new())));
}

#[test]
fn single_frame_in_its_own_allocation_is_taken_without_a_copy() {
    let mut stream = BytesMut::new();
    stream.extend_from_slice(&unhex("00000009 616263646566676869"));
    let begin = stream.as_ptr();
    let body = frame::take(&mut stream, 9).expect("it is not too long");
    let body = body.expect("the frame is complete");
    assert_eq!(&body[..], b"abcdefghi");
    // The allocation was neither copied nor shared: the body owns all of it.
    assert_eq!(body.as_ptr(), begin.wrapping_add(4));
    assert!(body.is_unique() && stream.is_empty() && stream.capacity() == 0);
    // Further frames get a new allocation.
    stream.extend_from_slice(&unhex("00000001 61 00"));
    assert_eq!(frame::take(&mut stream, 9).unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(&stream[..], [0]);
}
