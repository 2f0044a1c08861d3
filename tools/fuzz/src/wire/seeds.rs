//! The first inputs of the target `wire`: recorded frames of real clients and a real server, and the frames
//! that no recording contains.

use bytes::{Bytes, BytesMut};
use zk_wire::{AclEntry, ConnectRequest, CreateCall, ErrorCode, Reply, ReplyHeader, Request, SetWatches};

/// Recorded conversations from the tests of `zk-wire`.
const RECORDINGS: [&str; 5] = [
    include_str!("../../../../crates/zk-wire/tests/recordings/java.txt"),
    include_str!("../../../../crates/zk-wire/tests/recordings/java_again.txt"),
    include_str!("../../../../crates/zk-wire/tests/recordings/java_once.txt"),
    include_str!("../../../../crates/zk-wire/tests/recordings/java_once_again.txt"),
    include_str!("../../../../crates/zk-wire/tests/recordings/kazoo.txt"),
];

/// Returns frames of every kind, each as a stream of its own.
pub fn frames() -> Vec<Vec<u8>> {
    let mut frames: Vec<_> = RECORDINGS
        .into_iter()
        .flat_map(|recording| recorded(recording, None))
        .collect();
    let mut add = |write: &dyn Fn(&mut BytesMut)| {
        let mut bytes = BytesMut::new();
        write(&mut bytes);
        frames.push(bytes.to_vec());
    };
    add(&|to| old_connect().write_frame(to));
    for request in unrecorded() {
        add(&|to| request.write_frame(7, to));
    }
    let header = ReplyHeader {
        xid: 7,
        zxid: 9,
        err: ErrorCode::OK,
    };
    add(&|to| header.write_frame(Some(&Reply::Token(Some(Bytes::from_static(b"token")))), to));
    frames
}

/// Returns inputs for [`super::run`]: each frame alone, and all frames of one side of a conversation.
pub fn streams() -> Vec<Vec<u8>> {
    let mut streams = frames();
    streams.sort();
    streams.dedup();
    for recording in RECORDINGS {
        for side in ["client", "server"] {
            streams.push(recorded(recording, Some(side)).concat());
        }
    }
    streams
}

/// Returns a request for each type of reply.
pub fn one_for_each_reply() -> Vec<Request> {
    let path = String::new;
    vec![
        Request::Ping,
        Request::Sync { path: path() },
        create(CreateCall::Create2),
        Request::Exists {
            path: path(),
            watch: false,
        },
        Request::GetData {
            path: path(),
            watch: false,
        },
        Request::GetAcl { path: path() },
        Request::GetChildren {
            path: path(),
            watch: false,
        },
        Request::GetChildren2 {
            path: path(),
            watch: false,
        },
        Request::GetAllChildrenNumber { path: path() },
        Request::GetEphemerals { prefix: path() },
        Request::WhoAmI,
        Request::Sasl { token: None },
        Request::Multi(Vec::new()),
    ]
}

/// Returns the frames of a recording, or those of one side.
fn recorded<'a>(recording: &'a str, side: Option<&'a str>) -> Vec<Vec<u8>> {
    let lines = recording.lines().filter_map(|line| line.split_once(' '));
    let frames = lines.filter(|(by, _)| match side {
        Some(side) => *by == side,
        None => matches!(*by, "client" | "server"),
    });
    frames.map(|(_, hex)| unhex(hex)).collect()
}

fn unhex(hex: &str) -> Vec<u8> {
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).expect("the recording is hexadecimal");
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn old_connect() -> ConnectRequest {
    ConnectRequest {
        protocol_version: 0,
        last_zxid_seen: 3,
        timeout_ms: 10_000,
        session_id: 0x0100_0000_0000_0001,
        password: Some(Bytes::from_static(b"0123456789abcdef")),
        read_only: None,
    }
}

fn create(call: CreateCall) -> Request {
    Request::Create {
        call,
        path: "/a".to_owned(),
        data: Some(Bytes::from_static(b"data")),
        acl: Some(vec![AclEntry {
            perms: 31,
            scheme: "world".to_owned(),
            id: "anyone".to_owned(),
        }]),
        flags: 1,
    }
}

/// Returns requests that no recorded client has sent, and null values.
fn unrecorded() -> Vec<Request> {
    let path = || "/a".to_owned();
    vec![
        create(CreateCall::Create2),
        Request::Create {
            call: CreateCall::Create,
            path: path(),
            data: None,
            acl: None,
            flags: 0,
        },
        Request::Multi(vec![create(CreateCall::Create2), create(CreateCall::Ttl(5))]),
        Request::Check {
            path: path(),
            version: 1,
        },
        Request::GetEphemerals {
            prefix: String::new(),
        },
        Request::SetWatches {
            relative_zxid: 7,
            watches: SetWatches {
                data: vec![path(), "/b".to_owned()],
                ..SetWatches::default()
            },
        },
        Request::Auth {
            kind: 0,
            scheme: "ip".to_owned(),
            auth: None,
        },
        Request::Sasl {
            token: Some(Bytes::from_static(b"token")),
        },
        Request::Reconfig {
            joining_servers: None,
            leaving_servers: Some("2".to_owned()),
            new_members: None,
            from_config: 5,
        },
    ]
}
