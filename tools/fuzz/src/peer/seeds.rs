//! The first inputs of the target `peer`: one message of each type from `raft-node`'s golden files, and a
//! whole conversation.

use std::path::Path;

use bytes::Bytes;
use lock_node::fuzz::{Purpose, WIRE_VERSION, encode};

use super::{frames_of, registry, stream_of};

/// Returns inputs for [`super::run`].
pub fn streams() -> Vec<Vec<u8>> {
    let hellos = [Purpose::Control, Purpose::Append, Purpose::Snapshot].map(|purpose| {
        let mut hello = registry().hello(1, purpose);
        (hello.from, hello.from_disk) = (2, super::disk(2));
        Bytes::from(encode(&hello))
    });
    let mut streams: Vec<_> = hellos.iter().map(|hello| stream_of([hello])).collect();
    let kept = golden();
    let all = kept
        .iter()
        .flat_map(|stream| frames_of(stream).expect("a message is a frame"));
    streams.push(stream_of(&hellos.iter().cloned().chain(all).collect::<Vec<_>>()));
    streams.extend(kept);
    streams
}

/// Returns the messages between nodes of this version, each in its frame.
fn golden() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../crates/raft-node/tests/golden")
        .join(format!("wire-{WIRE_VERSION}"));
    let files = std::fs::read_dir(&dir).expect("the messages are part of the repository");
    let mut paths: Vec<_> = files
        .map(|file| file.expect("its directory can be read").path())
        .collect();
    paths.sort_unstable();
    paths
        .iter()
        .map(|path| std::fs::read(path).expect("the file can be read"))
        .collect()
}
