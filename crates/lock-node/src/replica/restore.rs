//! Restore of the state from a snapshot.

use std::io;
use std::sync::mpsc::sync_channel;

use znode_store::{Restorer, SnapshotPart, Store};

use raft_node::codec;
use raft_node::replicated_state::SnapshotParts;

/// Number of decoded parts that may wait to be restored, about 2 MB. With these neither thread waits for the other for long.
const PARTS_AHEAD: usize = 16;

/// Restores the state from its encoded parts, which `parts` reads. Blocks.
///
/// Reading, checking and decoding the parts takes about as long as building the state from them, so it has a thread of its own. Besides the state
/// only a few parts of some hundred znodes are in memory.
pub fn restore(mut parts: SnapshotParts) -> io::Result<Store> {
    let mut next = move || match parts()? {
        Some(bytes) => codec::decode::<SnapshotPart>(&bytes)
            .map(Some)
            .map_err(io::Error::other),
        None => Ok(None),
    };
    let mut restorer = Restorer::new();
    // A simulated node has one thread.
    #[cfg(feature = "simulation")]
    if crate::simulation::is_on() {
        while let Some(part) = next()? {
            restorer.add(part).map_err(io::Error::other)?;
        }
        return restorer.finish().map_err(io::Error::other);
    }
    let (decoded, queue) = sync_channel(PARTS_AHEAD);
    std::thread::scope(|scope| {
        let decoder = std::thread::Builder::new().name("snapshot-decoder".into());
        decoder.spawn_scoped(scope, move || {
            while let Some(part) = next().transpose() {
                let failed = part.is_err();
                // After an error the restoring thread drops the receiver.
                if decoded.send(part).is_err() || failed {
                    return;
                }
            }
        })?;
        for part in queue {
            restorer.add(part?).map_err(io::Error::other)?;
        }
        restorer.finish().map_err(io::Error::other)
    })
}
