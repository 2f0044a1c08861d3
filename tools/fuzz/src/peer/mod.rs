//! The target `peer`: arbitrary bytes as a stream of frames from another node. The target decodes each frame
//! as every possible message, as a frame does not name its type.

pub mod seeds;

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use futures_util::FutureExt;
use lock_node::fuzz::{
    ClusterId, DiskId, FrameReader, Hello, HelloReply, HelloStart, MAX_POSITION, Member, PeerRegistry,
    PeerRequest, PeerResponse, Purpose, Shown, SnapshotHead, SnapshotResume, SnapshotTail, WireAppend,
    WireAppendResult, append_through_raft, decode, decode_start, encode, put_frame,
    snapshot_meta_through_raft,
};
use lock_node::{MemberAddress, NodeId};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;

/// Id of the called node.
const HERE: NodeId = 1;
/// Name of the cluster.
const CLUSTER: &str = "c";
const CLUSTER_ID: ClusterId = ClusterId([7; 16]);

/// Reads frames while there are whole ones. Returns the number of frames that decode as some message.
pub fn run(bytes: &[u8]) -> usize {
    let mut understood = 0;
    let mut reader = FrameReader::new(bytes);
    // The loop ends at the end of the stream, or at a length that no peer sends.
    while let Ok(Some(frame)) = next(&mut reader) {
        understood += usize::from(run_frame(&frame));
    }
    understood
}

fn next(reader: &mut FrameReader<&[u8]>) -> std::io::Result<Option<Bytes>> {
    let next = reader.next().now_or_never();
    next.expect("a read from memory completes at once")
}

/// Splits a stream into frames; `None` if it contains anything else.
pub fn frames_of(bytes: &[u8]) -> Option<Vec<Bytes>> {
    let mut reader = FrameReader::new(bytes);
    let mut frames = Vec::new();
    while let Some(frame) = next(&mut reader).ok()? {
        frames.push(frame);
    }
    (!frames.is_empty()).then_some(frames)
}

/// Joins frames to a stream.
pub fn stream_of<'a>(frames: impl IntoIterator<Item = &'a Bytes>) -> Vec<u8> {
    let mut stream = Vec::new();
    for frame in frames {
        stream.extend_from_slice(&(frame.len() as u32).to_le_bytes());
        stream.extend_from_slice(frame);
    }
    stream
}

fn run_frame(frame: &[u8]) -> bool {
    // Of a version that this program does not speak, only the start is decoded.
    let start = decode_start::<HelloStart>(frame);
    let hello = check::<Hello>(frame).inspect(judge);
    assert!(
        hello.is_none() || start.is_ok(),
        "a hello decodes although its start does not"
    );
    let reply = check::<HelloReply>(frame).inspect(accept);
    let ask = check::<(u64, PeerRequest)>(frame).inspect(|(_, ask)| {
        if let PeerRequest::Append(append) = ask {
            reaches_raft(append);
        }
    });
    let append = check::<WireAppend>(frame).inspect(reaches_raft);
    let head = check::<SnapshotHead>(frame).inspect(|head| {
        let sent_on = snapshot_meta_through_raft(head.meta.clone());
        assert_eq!(
            snapshot_meta_through_raft(sent_on.clone()),
            sent_on,
            "the conversion changes the metadata of a snapshot"
        );
    });
    [
        hello.is_some(),
        reply.is_some(),
        ask.is_some(),
        append.is_some(),
        head.is_some(),
        check::<(u64, PeerResponse)>(frame).is_some(),
        check::<WireAppendResult>(frame).is_some(),
        check::<SnapshotResume>(frame).is_some(),
        check::<SnapshotTail>(frame).is_some(),
        // Sent within a handshake.
        check::<Shown>(frame).is_some(),
        check::<Option<Bytes>>(frame).is_some(),
    ]
    .contains(&true)
}

/// Decodes a message and checks its encoding. Encoding it yields the same value, and from then on the same
/// bytes. The first bytes may differ, as a number may be longer than necessary. The encoded message is never
/// longer than the received one.
fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(frame: &[u8]) -> Option<T> {
    let value: T = decode(frame).ok()?;
    let ours = encode(&value);
    assert!(
        ours.len() <= frame.len(),
        "the encoding of {value:?} is longer than the received one"
    );
    let again: T = decode(&ours).expect("an encoded message can be decoded");
    assert_eq!(again, value, "encoding and decoding changed a message");
    assert_eq!(encode(&again), ours, "encoding twice yields different bytes");
    let mut framed = Default::default();
    put_frame(&mut framed, &value);
    assert_eq!(framed[4..], ours, "a frame is a length and a message");
    Some(value)
}

/// Checks that Raft receives only entries that a Raft leader could have sent.
fn reaches_raft(append: &WireAppend) {
    let Ok(append) = append.clone().validated() else {
        return;
    };
    let mut next = append.prev.map(|prev| prev.index + 1);
    for entry in &append.entries {
        assert!(
            next.is_none_or(|next| next == entry.at.index),
            "entries are missing in {append:?}"
        );
        assert!(entry.at.index <= MAX_POSITION && entry.at.term <= MAX_POSITION);
        next = Some(entry.at.index + 1);
    }
    let sent_on = append_through_raft(append);
    assert_eq!(
        append_through_raft(sent_on.clone()),
        sent_on,
        "the conversion changes the entries"
    );
}

/// Returns the gate of a node of a running cluster of two.
fn registry() -> PeerRegistry {
    let registry = PeerRegistry::new(
        HERE,
        CLUSTER.into(),
        disk(HERE),
        Some(CLUSTER_ID),
        BTreeMap::new(),
        watch::Sender::new(None),
    );
    registry.set_members([HERE, 2].into_iter().map(|id| (id, member(id))).collect());
    registry
}

fn disk(node: NodeId) -> DiskId {
    DiskId([node as u8; 16])
}

fn member(node: NodeId) -> Member {
    let place = format!("127.0.0.1:{node}");
    Member {
        address: MemberAddress {
            peer: place.clone(),
            http: place,
        },
        disk: disk(node),
    }
}

/// Checks that the gate accepts only members, or nodes that know this node's directory, and only with the
/// right cluster, node and directories.
fn judge(hello: &Hello) {
    let registry = registry();
    if !matches!(registry.check_hello(hello), HelloReply::Welcome { .. }) {
        return;
    }
    assert_eq!((hello.cluster.as_str(), hello.to), (CLUSTER, HERE));
    assert!(hello.cluster_id.is_none_or(|id| id == CLUSTER_ID));
    assert!(hello.to_disk.is_none_or(|to| to == disk(HERE)));
    match hello.from {
        HERE | 2 => assert_eq!(hello.from_disk, disk(hello.from)),
        _ => assert_eq!(hello.to_disk, Some(disk(HERE))),
    }
}

/// Checks that a response counts only if it comes from the directory that the membership names.
fn accept(reply: &HelloReply) {
    let registry = registry();
    let hello = registry.hello(2, Purpose::Control);
    if let Ok(answering) = registry.accept(&hello, reply.clone()) {
        assert_eq!(answering, disk(2));
    }
}
