//! The target `snapshot`: arbitrary bytes as a snapshot file received from a peer.

mod layout;
mod exercise;

use std::io;
use std::path::Path;
use std::sync::Arc;

use lock_node::fuzz::{decode_membership, encode, encode_membership};
use raft_log::sim_disk::SimDisk;
use raft_log::{LogPos, SnapshotFile, SnapshotKey, SnapshotMeta, SnapshotStore, StorageError};
use znode_store::{SnapshotError, Store};

pub use self::layout::{Layout, repair};
use crate::material::TIME_MS;
use crate::replicas::encode_snapshot;

/// Index of the variant of a snapshot's last part among the variants of parts: see [`with_digest`].
const END: u32 = 6;

/// Receives the bytes as a file from a peer. If they are a snapshot, restores it and checks the state.
/// Returns whether a state was restored.
///
/// Random bytes never have valid checksums or the right digest of a state. So the target tries the bytes
/// first unchanged, then with corrected checksums, and then with the digest of the restored state. In this
/// way the code after those checks is tested as well.
pub fn run(bytes: &[u8]) -> bool {
    let unchanged = restore(bytes);
    if let Ok(store) = unchanged {
        exercise::check(store);
        return true;
    }
    let Some(repaired) = repair(bytes) else {
        return false;
    };
    match restore(&repaired) {
        Ok(store) => exercise::check(store),
        Err(error) => match wrong_digest(&error).and_then(|found| with_digest(&repaired, found)) {
            Some(file) => exercise::check(restore(&file).expect("only the digest was wrong")),
            None => return false,
        },
    }
    true
}

/// Returns a whole snapshot file of a state, as a node writes it.
pub fn file_of(store: &mut Store) -> Vec<u8> {
    let snapshots = snapshots().expect("the disk is empty");
    let meta = SnapshotMeta {
        last: Some(LogPos {
            term: 1,
            index: store.zxid().0,
        }),
        membership: encode_membership(&Default::default()),
        snapshot_id: "1-1".into(),
        made_ms: TIME_MS,
    };
    let mut writer = snapshots.create(meta).expect("the disk has no faults");
    for part in encode_snapshot(store) {
        writer.write_part(&part).expect("the disk has no faults");
    }
    let file = writer.finish().expect("the disk has no faults");
    let length = usize::try_from(file.bytes()).expect("a file in memory has a length of this size");
    file.read_raw(0, length).expect("the disk has no faults").to_vec()
}

/// Restores a snapshot from a peer, as a node does.
fn restore(bytes: &[u8]) -> io::Result<Store> {
    let file = receive(bytes)?;
    let membership = decode_membership(&file.meta().membership)?;
    let ours = encode_membership(&membership);
    assert_eq!(
        decode_membership(&ours)?,
        membership,
        "encoding and decoding changed a membership"
    );
    lock_node::fuzz::restore(&file)
}

fn receive(bytes: &[u8]) -> Result<SnapshotFile, StorageError> {
    // The announcement of exactly this file, of which the receiver uses only the length.
    let key = SnapshotKey {
        index: 0,
        bytes: bytes.len() as u64,
        header_crc: 0,
        parts_crc: 0,
    };
    let mut receiver = snapshots()?.receive(key)?;
    let (first, rest) = bytes.split_at(bytes.len() / 2);
    receiver.write(first)?;
    receiver.write(rest)?;
    receiver.finish()
}

fn snapshots() -> Result<SnapshotStore, StorageError> {
    SnapshotStore::open(Arc::new(SimDisk::new()), Path::new("/snapshots"), [0; 16], 1)
}

/// Returns the digest of the restored state, if the only error is that the snapshot names a different one.
fn wrong_digest(error: &io::Error) -> Option<u64> {
    match error.get_ref()?.downcast_ref() {
        Some(SnapshotError::WrongDigest { found, .. }) => Some(*found),
        _ => None,
    }
}

/// Returns the file with a last part that names this digest.
fn with_digest(file: &[u8], digest: u64) -> Option<Vec<u8>> {
    let mut layout = Layout::of(file)?;
    *layout.parts.last_mut()? = encode(&(END, digest));
    Some(layout.file())
}

#[cfg(test)]
mod tests {
    use super::layout::{CRC_BYTES, FRAME_BYTES};
    use super::*;

    #[test]
    fn layout_and_restore_accept_a_file_of_a_node() {
        let mut store = crate::material::base();
        let file = file_of(&mut store);
        let restored = restore(&file).expect("a node wrote it");
        assert_eq!(restored.digest(), store.digest());
        assert_eq!(Layout::of(&file).expect("a node wrote it").file(), file);
        assert_eq!(repair(&file), Some(file), "a valid file needs no repair");
    }

    #[test]
    fn restore_rejects_wrong_checksums_and_repair_corrects_them() {
        let file = file_of(&mut Store::new());
        let mut wrong = file.clone();
        // The last byte of the second part, which holds the number of sessions, zero.
        let Layout { header, parts } = Layout::of(&file).expect("a node wrote it");
        let at = header.len() + CRC_BYTES + 2 * FRAME_BYTES + parts[0].len() + parts[1].len() - 1;
        wrong[at] ^= 1;
        assert!(restore(&wrong).is_err());
        let repaired = repair(&wrong).expect("its layout is still that of a snapshot");
        assert!(receive(&repaired).is_ok());
        assert_eq!(repaired[at], wrong[at]);
    }

    #[test]
    fn restore_reports_a_wrong_digest() {
        let file = file_of(&mut crate::material::base());
        let wrong = with_digest(&file, 5).expect("a node wrote it");
        let error = restore(&wrong).err().expect("the digest is wrong");
        let found = wrong_digest(&error).expect("the digest is all that is wrong");
        assert_eq!(
            with_digest(&file, found),
            Some(file),
            "the node wrote this digest"
        );
    }
}
