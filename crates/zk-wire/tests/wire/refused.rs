//! What must not be taken. That records which are cut off are refused is shown in `round_trip`.

use bytes::{BufMut, BytesMut};
use zk_wire::{DecodeError, FrameError, Reader, Reply, Request, frame, op_code};

use crate::unhex;

#[track_caller]
fn is_malformed(op: i32, hex: &str) {
    let decoded = Request::decode(op, &mut Reader::new(unhex(hex)));
    assert!(matches!(decoded, Err(DecodeError::Malformed(_))), "{decoded:?}");
}

#[test]
fn operations_that_clients_may_not_ask_for() {
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
fn texts_that_are_none() {
    is_malformed(op_code::GET_ACL, "ffffffff");
    is_malformed(op_code::GET_ACL, "fffffffe 2f");
    is_malformed(op_code::GET_ACL, "00000002 c328");
    // A surrogate, as Java's client writes what is beyond the first 65,536 characters. No path may have such ones.
    is_malformed(op_code::GET_ACL, "00000004 2feda080");
}

#[test]
fn lists_that_are_none() {
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
    // The older form has too few lists for the newer one.
    is_malformed(
        op_code::SET_WATCHES2,
        &format!("{set_watches} 00000000 00000000 00000000"),
    );
}

/// Would take gigabytes if it were believed.
#[test]
fn lengths_that_only_claim_to_be_there() {
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
fn multis_of_what_is_not_for_multis() {
    const END: &str = "ffffffff 01 ffffffff";
    let get_data = "00000004 00 ffffffff 00000002 2f61 00";
    let delete = "00000002 00 ffffffff 00000002 2f61 ffffffff";
    // What reads is for multiRead, and what writes is not; so there is no mixing, either.
    is_malformed(op_code::MULTI, &format!("{get_data} {END}"));
    is_malformed(op_code::MULTI_READ, &format!("{delete} {END}"));
    is_malformed(op_code::MULTI, &format!("{delete} {get_data} {END}"));
    // No multi in a multi, however deep.
    let nested = "0000000e 00 ffffffff".repeat(10_000);
    is_malformed(op_code::MULTI, &format!("{nested} {END}"));
    is_malformed(op_code::MULTI_READ, &format!("{nested} {END}"));
    // Others are not known there: setACL, exists, auth, ping, closeSession, and what has no number.
    for item in [
        "00000007", "00000003", "00000064", "0000000b", "fffffff5", "ffffffff", "00000063",
    ] {
        is_malformed(op_code::MULTI, &format!("{item} 00 ffffffff {END}"));
        is_malformed(op_code::MULTI_READ, &format!("{item} 00 ffffffff {END}"));
    }
    // Without an end.
    is_malformed(op_code::MULTI, delete);
    // A result of a type that no result has.
    let decoded = Reply::decode(
        &Request::Multi(vec![]),
        &mut Reader::new(unhex(&format!("00000003 00 00000000 {END}"))),
    );
    assert!(matches!(decoded, Err(DecodeError::Malformed(_))), "{decoded:?}");
}

#[test]
fn frames_of_impossible_lengths() {
    let mut negative = BytesMut::from(&unhex("ffffffff")[..]);
    assert_eq!(frame::take(&mut negative, 100), Err(FrameError::Negative(-1)));
    // It is refused as soon as it is known, not when all of it has come.
    let mut long = BytesMut::from(&unhex("00000065")[..]);
    let too_long = FrameError::TooLong {
        length: 101,
        max: 100,
    };
    assert_eq!(frame::take(&mut long, 100), Err(too_long));
    // The word `ruok` is no length that anybody would allow.
    let mut word = BytesMut::from(&b"ruok"[..]);
    assert!(frame::take(&mut word, frame::DEFAULT_MAX_LENGTH).is_err());
}

#[test]
fn frames_that_have_not_come_yet() {
    let mut stream = BytesMut::new();
    for byte in unhex("00000003 616263") {
        assert_eq!(frame::take(&mut stream, 3), Ok(None));
        stream.put_u8(byte);
    }
    stream.put_u8(0);
    let body = frame::take(&mut stream, 3).expect("it is not too long");
    assert_eq!(body.as_deref(), Some(&b"abc"[..]));
    assert_eq!(&stream[..], [0]);
    // An empty one is a frame, too.
    let mut empty = BytesMut::from(&unhex("00000000")[..]);
    assert_eq!(frame::take(&mut empty, 0), Ok(Some(bytes::Bytes::new())));
}

#[test]
fn a_frame_that_came_alone_in_room_of_its_own() {
    let mut stream = BytesMut::new();
    stream.extend_from_slice(&unhex("00000009 616263646566676869"));
    let begin = stream.as_ptr();
    let body = frame::take(&mut stream, 9).expect("it is not too long");
    let body = body.expect("all of it has come");
    assert_eq!(&body[..], b"abcdefghi");
    // It was neither copied nor shared: what is taken of it later is all that there is of the room.
    assert_eq!(body.as_ptr(), begin.wrapping_add(4));
    assert!(body.is_unique() && stream.is_empty() && stream.capacity() == 0);
    // What follows finds room.
    stream.extend_from_slice(&unhex("00000001 61 00"));
    assert_eq!(frame::take(&mut stream, 9).unwrap().as_deref(), Some(&b"a"[..]));
    assert_eq!(&stream[..], [0]);
}
