//! ZooKeeper's protocol: a request decoded from received bytes, and its reply encoded as a frame.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use zk_wire::frame::DEFAULT_MAX_LENGTH;
use zk_wire::{
    AclEntry, CreateCall, ErrorCode, Reader, Reply, ReplyHeader, Request, RequestHeader, Stat, frame,
};

use super::counted;
use super::material::{DATA_BYTES, node};

const DATA: &[u8] = &[b'x'; DATA_BYTES];

fn stat() -> Stat {
    Stat {
        czxid: 0x1_0000_0001,
        mzxid: 0x1_0000_0002,
        ctime: 1_700_000_000_000,
        mtime: 1_700_000_000_001,
        version: 3,
        cversion: 0,
        aversion: 0,
        ephemeral_owner: 0,
        data_length: DATA_BYTES as i32,
        num_children: 0,
        pzxid: 0x1_0000_0001,
    }
}

/// Decodes all requests in one receive buffer and writes a reply to each.
fn exchange(operations: u64, request: &Request, reply: &Reply) {
    let mut received = BytesMut::new();
    for xid in 0..operations {
        request.write_frame(xid as i32, &mut received);
    }
    let mut out = BytesMut::with_capacity(received.len() * 4);
    let mut answered = 0;
    counted(&mut || {
        while let Some(body) =
            frame::take(&mut received, DEFAULT_MAX_LENGTH).expect("the frame has a valid length")
        {
            let mut from = Reader::new(body);
            let header = RequestHeader::decode(&mut from).expect("an encoded header can be decoded");
            let decoded = Request::decode(header.op, &mut from).expect("an encoded request can be decoded");
            black_box(decoded);
            let header = ReplyHeader {
                xid: header.xid,
                zxid: 0x1_0000_0002,
                err: ErrorCode::OK,
            };
            header.write_frame(Some(reply), &mut out);
            answered += 1;
        }
    });
    black_box(out);
    assert_eq!(answered, operations);
}

pub fn set(operations: u64) {
    let request = Request::SetData {
        path: node(7),
        data: Some(Bytes::from_static(DATA)),
        version: -1,
    };
    exchange(operations, &request, &Reply::Stat(stat()));
}

pub fn get(operations: u64) {
    let request = Request::GetData {
        path: node(7),
        watch: false,
    };
    let reply = Reply::Data(Some(Bytes::from_static(DATA)), stat());
    exchange(operations, &request, &reply);
}

pub fn create(operations: u64) {
    let anybody = AclEntry {
        perms: 31,
        scheme: "world".into(),
        id: "anyone".into(),
    };
    let request = Request::Create {
        call: CreateCall::Create,
        path: node(7),
        data: Some(Bytes::from_static(DATA)),
        acl: Some(vec![anybody]),
        flags: 0,
    };
    exchange(operations, &request, &Reply::Path(node(7)));
}
