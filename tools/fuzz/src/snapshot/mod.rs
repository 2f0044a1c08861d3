//! The target `snapshot`: any bytes as a snapshot file that came from a peer.

mod layout;
mod life;

use std::io;
use std::path::Path;
use std::sync::Arc;

use raft_log::sim_disk::SimDisk;
use raft_log::{LogPos, SnapshotFile, SnapshotKey, SnapshotMeta, SnapshotStore, StorageError};
use raft_node::fuzz::{decode_membership, encode, encode_membership};
use znode_store::{SnapshotError, Store};

pub use self::layout::{Layout, repair};
use crate::material::TIME_MS;
use crate::replicas::draw;

/// Where the variant of a snapshot's last part stands among the parts' variants: see [`with_digest`].
const END: u32 = 6;

/// Takes the bytes as a file from a peer, and if they are a snapshot, restores it and goes on from there. Answers whether
/// a state came out.
///
/// Chance does not come by checksums, nor by a digest of a state. So the bytes are taken as they are, then with their
/// checksums put right, and then with the digest that they come to, so that everything behind has to stand for itself.
pub fn run(bytes: &[u8]) -> bool {
    let as_they_are = restore(bytes);
    if let Ok(store) = as_they_are {
        life::check(store);
        return true;
    }
    let Some(repaired) = repair(bytes) else {
        return false;
    };
    match restore(&repaired) {
        Ok(store) => life::check(store),
        Err(error) => match wrong_digest(&error).and_then(|found| with_digest(&repaired, found)) {
            Some(file) => life::check(restore(&file).expect("nothing but the digest was wrong")),
            None => return false,
        },
    }
    true
}

/// A whole snapshot file of a state, as a node writes it.
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
    for part in draw(store) {
        writer.write_part(&part).expect("the disk has no faults");
    }
    let file = writer.finish().expect("the disk has no faults");
    let length = usize::try_from(file.bytes()).expect("it is in memory");
    file.read_raw(0, length).expect("the disk has no faults").to_vec()
}

/// What a node does with a snapshot from a peer.
fn restore(bytes: &[u8]) -> io::Result<Store> {
    let file = receive(bytes)?;
    let membership = decode_membership(&file.meta().membership)?;
    let ours = encode_membership(&membership);
    assert_eq!(
        decode_membership(&ours)?,
        membership,
        "an encoded membership comes back as another one"
    );
    raft_node::fuzz::restore(&file)
}

fn receive(bytes: &[u8]) -> Result<SnapshotFile, StorageError> {
    // The announcement of the very file that comes; only its length is believed.
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

/// The digest that a snapshot comes to, if all that is wrong with it is that it says another one.
fn wrong_digest(error: &io::Error) -> Option<u64> {
    match error.get_ref()?.downcast_ref() {
        Some(SnapshotError::WrongDigest { found, .. }) => Some(*found),
        _ => None,
    }
}

/// The file with a last part that says this digest.
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
    fn a_file_of_a_node_is_restored_and_its_layout_is_understood() {
        let mut store = crate::material::base();
        let file = file_of(&mut store);
        let restored = restore(&file).expect("a node wrote it");
        assert_eq!(restored.digest(), store.digest());
        assert_eq!(Layout::of(&file).expect("a node wrote it").file(), file);
        assert_eq!(repair(&file), Some(file.clone()), "nothing was wrong");
        assert_eq!(with_digest(&file, store.digest()), Some(file));
    }

    #[test]
    fn wrong_checksums_are_noticed_and_put_right() {
        let file = file_of(&mut Store::new());
        let mut wrong = file.clone();
        // The last byte of the second part, which says that there are no sessions.
        let Layout { header, parts } = Layout::of(&file).expect("a node wrote it");
        let at = header.len() + CRC_BYTES + 2 * FRAME_BYTES + parts[0].len() + parts[1].len() - 1;
        wrong[at] ^= 1;
        assert!(restore(&wrong).is_err());
        let repaired = repair(&wrong).expect("its layout is still that of a snapshot");
        assert!(receive(&repaired).is_ok());
        assert_eq!(repaired[at], wrong[at]);
    }

    #[test]
    fn a_wrong_digest_is_told() {
        let mut store = crate::material::base();
        let file = file_of(&mut store);
        let wrong = with_digest(&file, 5).expect("a node wrote it");
        let error = restore(&wrong).err().expect("its digest is another one");
        assert_eq!(wrong_digest(&error), Some(store.digest()), "{error}");
    }
}
