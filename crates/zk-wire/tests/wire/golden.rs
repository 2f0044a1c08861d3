//! Bytes written by hand from ZooKeeper's record definitions. The recordings contain most records; these are
//! the remaining ones: null, the oldest and the newest forms, and requests that the recorded clients do not
//! send.

use bytes::Bytes;
use zk_wire::{
    AclEntry, ConnectRequest, ConnectResponse, CreateCall, ErrorCode, MultiResult, Notification, Reader,
    Reply, ReplyHeader, Request, Stat, event_type, keeper_state, op_code,
};

use crate::{unhex, written};

/// Checks the code of a request, its bytes, and that both convert into each other.
#[track_caller]
fn request(op: i32, hex: &str, value: Request) {
    let bytes = unhex(hex);
    assert_eq!(value.op_code(), op);
    assert_eq!(written(|to| value.encode(to)), bytes);
    reads_as(op, hex, value);
}

/// Checks only the decoding of a request that has several encodings.
#[track_caller]
fn reads_as(op: i32, hex: &str, value: Request) {
    let mut from = Reader::new(unhex(hex));
    assert_eq!(Request::decode(op, &mut from), Ok(value));
    assert_eq!(from.end(), Ok(()));
}

#[track_caller]
fn reply(to: &Request, hex: &str, value: Reply) {
    let bytes = unhex(hex);
    assert_eq!(written(|to| value.encode(to)), bytes);
    let mut from = Reader::new(bytes);
    assert_eq!(Reply::decode(to, &mut from), Ok(value));
    assert_eq!(from.end(), Ok(()));
}

/// The encoding of `/a`.
const A: &str = "00000002 2f61";

fn a() -> String {
    "/a".to_owned()
}

fn bytes(text: &'static str) -> Option<Bytes> {
    Some(Bytes::from_static(text.as_bytes()))
}

const STAT: &str = "0000000000000001 0000000000000002 0000000000000003 0000000000000004 \
    00000005 00000006 00000007 ffffffffffffffff 00000009 0000000a 000000000000000b";

fn stat() -> Stat {
    Stat {
        czxid: 1,
        mzxid: 2,
        ctime: 3,
        mtime: 4,
        version: 5,
        cversion: 6,
        aversion: 7,
        ephemeral_owner: -1,
        data_length: 9,
        num_children: 10,
        pzxid: 11,
    }
}

#[test]
fn handshake_of_old_clients_has_44_and_36_bytes() {
    let hex = "00000000 0000000000000010 00007530 0000000000000000 00000010 00000000000000000000000000000000";
    let asked = unhex(hex);
    assert_eq!(asked.len(), 44);
    let connect = ConnectRequest::decode(&mut Reader::new(asked.clone())).expect("the record is complete");
    assert_eq!(
        connect,
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 16,
            timeout_ms: 30_000,
            session_id: 0,
            password: Some(Bytes::from_static(&[0; 16])),
            read_only: None,
        }
    );
    assert_eq!(written(|to| connect.encode(to)), asked);

    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 30_000,
        session_id: 0x0100_0000_0000_0001,
        password: Some(Bytes::from_static(b"0123456789abcdef")),
        read_only: None,
    };
    let answered = written(|to| response.encode(to));
    assert_eq!(
        answered,
        unhex("00000000 00007530 0100000000000001 00000010 30313233343536373839616263646566")
    );
    assert_eq!(answered.len(), 36);
    assert_eq!(ConnectResponse::decode(&mut Reader::new(answered)), Ok(response));
}

#[test]
fn handshake_of_newer_clients_has_one_more_byte() {
    let hex = "00000000 0000000000000000 00000fa0 0000000000000000 00000000";
    for (byte, read_only) in [("00", Some(false)), ("01", Some(true)), ("", None)] {
        let connect = ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: 0,
            timeout_ms: 4_000,
            session_id: 0,
            password: Some(Bytes::new()),
            read_only,
        };
        let asked = unhex(&format!("{hex}{byte}"));
        assert_eq!(written(|to| connect.encode(to)), asked);
        assert_eq!(ConnectRequest::decode(&mut Reader::new(asked)), Ok(connect));
    }
}

#[test]
fn null_is_distinct_from_empty() {
    for (hex, data) in [
        ("ffffffff", None),
        ("00000000", bytes("")),
        ("00000001 78", bytes("x")),
    ] {
        for (acl_hex, acl) in [("ffffffff", None), ("00000000", Some(vec![]))] {
            let create = Request::Create {
                call: CreateCall::Create,
                path: a(),
                data: data.clone(),
                acl,
                flags: 3,
            };
            request(1, &format!("{A} {hex} {acl_hex} 00000003"), create);
        }
        let set = Request::SetData {
            path: a(),
            data: data.clone(),
            version: -1,
        };
        request(5, &format!("{A} {hex} ffffffff"), set);
        let auth = Request::Auth {
            kind: 0,
            scheme: "ip".to_owned(),
            auth: data.clone(),
        };
        request(100, &format!("00000000 00000002 6970 {hex}"), auth);
        let sasl = Request::Sasl { token: data.clone() };
        reply(&sasl, hex, Reply::Token(data.clone()));
        request(102, hex, sasl);
        let get = Request::GetData {
            path: a(),
            watch: true,
        };
        reply(&get, &format!("{hex} {STAT}"), Reply::Data(data, stat()));
    }
    let set_acl = Request::SetAcl {
        path: a(),
        acl: None,
        version: 7,
    };
    request(7, &format!("{A} ffffffff 00000007"), set_acl);
}

#[test]
fn null_reads_as_empty_where_it_means_the_same() {
    let entry = AclEntry {
        perms: 31,
        scheme: String::new(),
        id: String::new(),
    };
    let set_acl = Request::SetAcl {
        path: a(),
        acl: Some(vec![entry]),
        version: -1,
    };
    reads_as(
        7,
        &format!("{A} 00000001 0000001f ffffffff ffffffff ffffffff"),
        set_acl,
    );
    let everything = Request::GetEphemerals {
        prefix: String::new(),
    };
    reads_as(103, "ffffffff", everything);
}

#[test]
fn every_byte_except_zero_is_true() {
    for byte in ["01", "02", "ff"] {
        let exists = Request::Exists {
            path: a(),
            watch: true,
        };
        reads_as(3, &format!("{A} {byte}"), exists);
    }
}

#[test]
fn ttl_is_the_last_field() {
    let create = Request::Create {
        call: CreateCall::Ttl(1_000),
        path: a(),
        data: None,
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }]),
        flags: 5,
    };
    let hex = format!(
        "{A} ffffffff 00000001 0000001f 00000005 776f726c64 00000006 616e796f6e65 00000005 00000000000003e8"
    );
    reply(&create, &format!("{A} {STAT}"), Reply::Created(a(), stat()));
    request(21, &hex, create);
}

#[test]
fn unused_fields_of_a_reconfiguration_are_null() {
    let reconfig = Request::Reconfig {
        joining_servers: Some("server.2=b".to_owned()),
        leaving_servers: None,
        new_members: Some(String::new()),
        from_config: -1,
    };
    let hex = "0000000a 7365727665722e323d62 ffffffff 00000000 ffffffffffffffff";
    reply(
        &reconfig,
        &format!("00000001 78 {STAT}"),
        Reply::Data(bytes("x"), stat()),
    );
    request(16, hex, reconfig);
}

#[test]
fn reply_to_add_watch_has_a_body() {
    let add = Request::AddWatch { path: a(), mode: 1 };
    reply(&add, "00000000", Reply::Number(0));
    request(106, &format!("{A} 00000001"), add);
}

#[test]
fn failed_multi_has_only_errors() {
    let delete = Request::Delete {
        path: a(),
        version: -1,
    };
    let multi = Request::Multi(vec![delete.clone(), delete.clone(), delete]);
    let item = format!("00000002 00 ffffffff {A} ffffffff");
    request(
        14,
        &format!("{item} {item} {item} ffffffff 01 ffffffff"),
        multi.clone(),
    );
    let failed = [
        ErrorCode::OK,
        ErrorCode::NO_NODE,
        ErrorCode::RUNTIME_INCONSISTENCY,
    ];
    let hex = "ffffffff 00 00000000 00000000 ffffffff 00 ffffff9b ffffff9b ffffffff 00 fffffffe fffffffe \
        ffffffff 01 ffffffff";
    reply(
        &multi,
        hex,
        Reply::Results(failed.map(MultiResult::Error).to_vec()),
    );
}

#[test]
fn results_have_types_of_their_own() {
    let multi = Request::Multi(vec![]);
    request(14, "ffffffff 01 ffffffff", multi.clone());
    let results = vec![
        MultiResult::Create(a()),
        MultiResult::Create2(a(), stat()),
        MultiResult::Delete,
        MultiResult::SetData(stat()),
        MultiResult::Check,
        MultiResult::GetData(None, stat()),
        MultiResult::GetChildren(vec![a()]),
    ];
    let hex = format!(
        "00000001 00 00000000 {A}
         0000000f 00 00000000 {A} {STAT}
         00000002 00 00000000
         00000005 00 00000000 {STAT}
         0000000d 00 00000000
         00000004 00 00000000 ffffffff {STAT}
         00000008 00 00000000 00000001 {A}
         ffffffff 01 ffffffff"
    );
    reply(&multi, &hex, Reply::Results(results));
}

#[test]
fn notification_has_its_own_xid() {
    let notification = Notification {
        kind: event_type::NODE_DELETED,
        state: keeper_state::SYNC_CONNECTED,
        path: a(),
    };
    let mut stream = bytes::BytesMut::new();
    ReplyHeader::write_notification(5, &notification, &mut stream);
    let hex = format!("0000001e ffffffff 0000000000000005 00000000 00000002 00000003 {A}");
    assert_eq!(stream, unhex(&hex));
}

#[test]
fn operations_and_errors_have_their_names() {
    assert_eq!(op_code::name(op_code::CREATE_TTL), Some("createTTL"));
    assert_eq!(op_code::name(10), None);
    assert_eq!(ErrorCode::NO_NODE.to_string(), "NoNode");
    assert_eq!(ErrorCode(-99).to_string(), "error -99");
}
